"""Many verdicts at once: checked against scipy, by hand, and by how often equal models are told apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.intervals import benjamini_hochberg, step_down_max_t
from coref_automl.statistics.resampling import Part

SOME_PS = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@settings(max_examples=100)
@given(SOME_PS)
def test_benjamini_hochberg_agrees_with_scipy(ps: list[float]) -> None:
    assert benjamini_hochberg(ps).tolist() == pytest.approx(stats.false_discovery_control(ps).tolist())


@settings(max_examples=100)
@given(SOME_PS)
def test_benjamini_hochberg_lies_between_the_p_alone_and_holm(ps: list[float]) -> None:
    adjusted = benjamini_hochberg(ps)
    assert np.all(adjusted >= np.array(ps) - 1e-15)
    assert np.all(adjusted <= holm(ps) + 1e-12)


def test_no_p_and_one_p_stay_as_they_are() -> None:
    assert benjamini_hochberg([]).tolist() == []
    assert benjamini_hochberg([0.03]).tolist() == [0.03]


def correlated(rng: np.random.Generator, columns: int, documents: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Columns of differences that share most of what they are made of, as checkpoints of one run do."""
    clusters = np.repeat(np.arange(documents), 2)
    shared = rng.normal(size=(len(clusters), 1))
    return shared + 0.4 * rng.normal(size=(len(clusters), columns)), clusters


def test_max_t_alone_is_the_sign_flip_test_and_its_first_step_the_largest_of_all() -> None:
    values, clusters = correlated(np.random.default_rng(0), 6)
    values[:, 2] += 0.25
    part = Part(values, clusters)
    result = step_down_max_t([part], seed=3)
    sums = np.add.reduceat(values, np.arange(0, len(clusters), 2))
    signs = np.random.default_rng(9).choice([-1.0, 1.0], size=(20_000, len(sums)))
    spread = np.sqrt((sums**2).sum(axis=0))
    largest = (np.abs(signs @ sums) / spread).max(axis=1)
    first = np.abs(sums.sum(axis=0)) / spread
    flipped = np.abs(signs @ sums) / spread
    assert result.alone.tolist() == pytest.approx(np.mean(flipped >= first, axis=0).tolist(), abs=0.02)
    assert result.adjusted[first.argmax()] == pytest.approx(np.mean(largest >= first.max()), abs=0.01)


def test_max_t_is_never_under_the_p_alone_nor_over_holm_and_keeps_their_order() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        values, clusters = correlated(rng, 9, documents=40)
        values[:, :3] += rng.normal(0, 0.4, size=3)
        result = step_down_max_t([Part(values, clusters)], seed=0)
        assert np.all(result.adjusted >= result.alone)
        assert np.all(result.adjusted <= holm(result.alone) + 0.02)  # the draws are finite


def test_columns_that_are_one_and_the_same_are_counted_once() -> None:
    rng = np.random.default_rng(2)
    one = rng.normal(0.3, 1, size=(80, 1))
    result = step_down_max_t([Part(np.repeat(one, 40, axis=1), np.arange(80))], seed=0)
    assert result.adjusted.tolist() == pytest.approx(result.alone.tolist())
    assert result.level == pytest.approx(0.05, abs=0.01)


def test_a_column_without_a_difference_is_called_equal_and_costs_the_others_nothing() -> None:
    rng = np.random.default_rng(4)
    values = np.zeros((60, 30))
    values[:, 0] = rng.normal(0.3, 1, size=60)
    result = step_down_max_t([Part(values, np.arange(60))], seed=0)
    assert result.adjusted[1:].tolist() == [1.0] * 29
    assert result.adjusted[0] == result.alone[0] < 1


def test_the_level_of_the_hardest_step_lies_between_one_comparison_and_bonferroni() -> None:
    rng = np.random.default_rng(6)
    apart = step_down_max_t([Part(rng.normal(size=(300, 10)), np.arange(300))], seed=0).level
    together = step_down_max_t([Part(*correlated(rng, 10))], seed=0).level
    assert 0.005 <= apart < 0.007 < together < 0.05


def test_one_document_shows_nothing() -> None:
    result = step_down_max_t([Part(np.ones((5, 3)), np.zeros(5))], seed=0)
    assert result.adjusted.tolist() == [1.0, 1.0, 1.0]


def test_a_family_of_equal_models_is_told_apart_in_at_most_one_study_of_twenty() -> None:
    rng, shown = np.random.default_rng(5), 0
    for run in range(200):
        values, clusters = correlated(rng, 12, documents=40)
        shown += step_down_max_t([Part(values, clusters)], seed=run).adjusted.min() < 0.05
    assert shown <= 200 * 0.05 + 2 * (200 * 0.0475) ** 0.5
