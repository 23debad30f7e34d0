"""Contrasts and ranks: checked by hand and against a regression clustered by document."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.statistics.contrasts import below_first, interaction, reciprocal
from coref_automl.statistics.intervals import difference_intervals
from coref_automl.statistics.resampling import Part, gather


def test_the_mean_is_the_contrast_and_documents_move_it_as_in_a_clustered_regression() -> None:
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(80), rng.integers(1, 9, size=80))
    inside = rng.random(len(clusters)) < 0.3
    values = rng.normal(size=len(clusters)) + 0.5 * inside + rng.normal(size=80)[clusters]
    moved = interaction(values, inside)
    assert moved.mean() == pytest.approx(values[inside].mean() - values[~inside].mean())
    design = np.column_stack([np.ones(len(values)), inside])
    bread = np.linalg.inv(design.T @ design)
    left = values - design @ (bread @ design.T @ values)
    scores = np.stack([(design[clusters == one] * left[clusters == one, None]).sum(axis=0) for one in range(80)])
    sandwich = bread @ (scores.T @ scores) @ bread
    assert (gather(Part(moved, clusters)).pulls() ** 2).sum() == pytest.approx(sandwich[1, 1])


def test_runs_are_contrasted_one_by_one() -> None:
    rng = np.random.default_rng(1)
    inside, values = np.arange(40) % 4 == 0, rng.normal(size=(3, 40))
    assert interaction(values, inside)[1].tolist() == pytest.approx(interaction(values[1], inside).tolist())


def test_a_difference_that_is_the_same_everywhere_is_no_interaction() -> None:
    rng = np.random.default_rng(2)
    shown = 0
    for run in range(400):
        clusters = np.repeat(np.arange(60), 4)
        inside = rng.random(240) < 0.4
        values = 0.2 + rng.normal(size=60)[clusters] + rng.normal(size=240)
        found = difference_intervals([Part(interaction(values, inside), clusters)], seed=run, draws=500)[0]
        shown += found.low > 0 or found.high < 0
    assert shown <= 400 * 0.05 + 2.5 * (400 * 0.0475) ** 0.5


def test_items_of_one_kind_and_marks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="a contrast needs both"):
        interaction(np.ones(4), np.ones(4, bool))
    with pytest.raises(ValueError, match="a contrast needs both"):
        interaction(np.ones(4), np.zeros(4, bool))
    with pytest.raises(ValueError, match="one mark per item"):
        interaction(np.ones(4), np.zeros(3, bool))


@given(st.lists(st.integers(0, 32_000), min_size=1, max_size=40))
def test_mrr_is_hit_at_one_and_what_lower_ranks_add(ranks: list[int]) -> None:
    whole = reciprocal(ranks)
    assert np.isfinite(whole).all()
    assert whole.tolist() == pytest.approx(((np.array(ranks) == 1) + below_first(ranks)).tolist())
    assert whole.tolist() == pytest.approx([1 / rank if rank else 0.0 for rank in ranks])
