"""What the runs of a study say together: pooled variances, copies, diverged runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.statistics.runs import copies, distinct, diverged, seed_variances


def test_methods_alike_share_one_variance_by_hand() -> None:
    runs = [[1.0, 3.0], [2.0, 4.0, 6.0], [5.0, 7.0]]
    found = seed_variances(runs)
    assert found.variances == pytest.approx([(2 + 2 * 4 + 2) / 4] * 3)
    assert found.degrees == pytest.approx([4] * 3)
    assert not found.own.any()


def test_a_noisy_method_keeps_its_own_variance_and_leaves_the_pool() -> None:
    runs = [[0.0, 100.0, 200.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    found = seed_variances(runs)
    assert found.variances == pytest.approx([10_000, 1, 1])
    assert found.degrees == pytest.approx([2, 4, 4])
    assert found.own.tolist() == [True, False, False]


def test_a_single_method_has_its_own_variance_and_single_runs_none() -> None:
    assert seed_variances([[1.0, 3.0]]).variances.tolist() == [2.0]
    with pytest.raises(ValueError, match="two runs of every method"):
        seed_variances([[1.0, 3.0], [2.0]])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 8))
def test_variances_scale_with_the_values_and_ignore_where_methods_lie(seed: int, methods: int, seeds: int) -> None:
    values = np.random.default_rng(seed).normal(size=(methods, seeds))
    found, other = seed_variances(list(values)), seed_variances(list(3 * values + np.arange(methods)[:, None]))
    assert other.variances == pytest.approx(9 * found.variances)
    assert other.degrees.tolist() == found.degrees.tolist()
    assert (found.variances > 0).all()
    many = seed_variances([np.stack([each, each]) for each in values])
    assert many.variances == pytest.approx(np.stack([found.variances] * 2))


def test_a_run_far_outside_its_method_is_named() -> None:
    rng = np.random.default_rng(0)
    runs = [rng.normal(0.7, 0.004, size=3) for _ in range(3)]
    assert diverged(runs) == []
    runs[1][2] -= 0.25
    assert diverged(runs) == [(1, 2)]


def test_of_two_runs_the_one_further_from_the_study_is_named() -> None:
    runs = [[0.700, 0.704], [0.450, 0.703], [0.701, 0.698]]
    assert diverged(runs) == [(1, 0)]


def test_three_runs_are_too_few_to_name_one() -> None:
    assert diverged([[0.7, 0.701, 0.2]]) == []
    assert diverged([[0.7, 0.701, 0.702, 0.2]]) == [(0, 3)]


def test_a_known_floor_keeps_runs_that_lie_together_by_chance_from_accusing_another() -> None:
    runs = [[0.7, 0.70001], [0.71, 0.72]]
    assert diverged(runs) == [(1, 1)]
    assert diverged(runs, floor=0.004) == []


def test_runs_of_the_same_weights_or_the_same_scores_are_one() -> None:
    scores = np.random.default_rng(1).normal(size=(6, 30))
    scores[4] = scores[1]
    groups = copies(scores, ["a", "b", "a", None, "c", "c"])
    assert groups == [[0, 2], [1, 4, 5]]
    assert distinct(6, groups) == [0, 1, 3]


def test_runs_that_hit_everything_are_not_copies_for_it() -> None:
    assert copies(np.ones((3, 20)), [None, None, None]) == []
    assert copies(np.ones((3, 20)), ["a", None, "a"]) == [[0, 2]]
    with pytest.raises(ValueError, match="one of each run"):
        copies(np.ones((3, 20)), ["a"])
