"""The document test: by enumeration on few documents, its interval, its level and power."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coref_automl.statistics.closed_forms import f_as_normal, normal_tail
from coref_automl.statistics.documents import DocumentTest

Array = np.ndarray


def by_enumeration(sums: Array) -> float:
    flipped = np.array([abs(np.dot(signs, sums)) for signs in product((-1, 1), repeat=len(sums))])
    return float(np.mean(flipped >= abs(sums.sum()) - 1e-9))


def test_documents_that_agree_have_the_smallest_p_that_flips_can_give() -> None:
    sums, sizes = np.array([1.0, 2.0, 3.0, 1.5, 2.5]), np.ones(5)
    assert float(DocumentTest.of([sums], [sizes]).p) == pytest.approx(2 / 32)
    assert by_enumeration(sums) == 2 / 32
    assert DocumentTest.of([sums], [sizes]).few
    assert not DocumentTest.of([np.append(sums, [1, 2])], [np.ones(7)]).few


@pytest.mark.parametrize("documents", [10, 12, 14])
def test_p_is_that_of_all_flips(documents: int) -> None:
    rng = np.random.default_rng(documents)
    for _ in range(20):
        sizes = rng.integers(1, 30, size=documents).astype(float)
        sizes[0] = 2 * sizes[1:].sum() / 3  # a novel with 40% of the items
        sums = rng.normal(0.3 * sizes, np.sqrt(sizes))
        exact = by_enumeration(sums)
        assert float(DocumentTest.of([sums], [sizes]).p) == pytest.approx(exact, rel=0.25, abs=0.004)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(7, 60), st.sampled_from([0.8, 0.95, 1 - 0.05 / 3, 1 - 0.05 / 15]))
def test_the_interval_excludes_nought_exactly_where_p_is_under_its_level(seed: int, documents: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 20, size=documents).astype(float)
    test = DocumentTest.of([rng.normal(rng.normal(0, 0.6) * sizes, np.sqrt(sizes))], [sizes])
    assert bool(test.p < 1 - level) == bool(test.reach(level) < abs(test.difference))
    side = {"up": test.difference < 0}
    assert float(test.reach(level)) == float(test.reach(level, **side))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(8, 40))
def test_intervals_are_nested_move_with_the_values_and_turn_with_the_sides(seed: int, documents: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, size=documents).astype(float)
    sums = rng.normal(0, np.sqrt(sizes))
    test, moved, turned = (DocumentTest.of([each], [sizes]) for each in (sums, sums + 0.3 * sizes, -sums))
    reaches = [float(test.reach(level, up=True)) for level in (0.5, 0.8, 0.9, 0.95, 0.99)]
    assert reaches == sorted(reaches)
    assert float(moved.reach(0.95, up=True)) == pytest.approx(float(test.reach(0.95, up=True)), rel=0.02)
    assert float(turned.reach(0.95, up=False)) == pytest.approx(float(test.reach(0.95, up=True)), rel=1e-9)


@pytest.mark.parametrize("novel", [False, True])
def test_equal_models_are_told_apart_in_one_of_twenty_sets_and_a_gain_is_seen(novel: bool) -> None:
    """As many as Student's t shows on documents alike, and many more if a novel holds 40% of the items."""
    rng, sizes = np.random.default_rng(3), np.full(20, 10.0)
    if novel:
        sizes[0] = 2 * sizes[1:].sum() / 3
    sums = rng.normal(0, np.sqrt(sizes), (4000, 20))
    equal = DocumentTest.of([sums], [sizes])
    assert np.mean(equal.p < 0.05) < 0.056
    assert np.mean(equal.p < 0.05 / 15) < 0.05 / 15 + 0.0025
    gain = DocumentTest.of([sums + 3 * float(equal.error.mean()) * sizes], [sizes])
    alike, centred = sizes.sum() ** 2 / (sizes**2).sum(), sums - sizes * equal.difference[:, None]
    left_out = np.sqrt((centred**2 / (sizes.sum() - sizes) ** 2).sum(axis=1) * 19 / 20)
    student = np.abs(gain.difference) > stats.t.ppf(0.975, int(alike - 1)) * left_out
    assert np.mean(gain.p < 0.05) > student.mean() + (0.1 if novel else -0.03)


def test_the_interval_covers() -> None:
    rng, sizes = np.random.default_rng(4), np.resize([1.0, 2.0, 3.0], 60)
    truth = 0.2
    test = DocumentTest.of([truth * sizes + rng.normal(0, np.sqrt(sizes), (3000, 60))], [sizes])
    low, high = test.difference - test.reach(0.95, up=False), test.difference + test.reach(0.95, up=True)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.95, abs=0.012)


def test_closed_forms_are_scipys() -> None:
    z = np.array([-6.0, -1.5, 0.0, 0.3, 1.96, 4.0, 8.0])
    assert normal_tail(z) == pytest.approx(stats.norm.sf(z), rel=1e-6)
    for ratio, above, below in ((1.0, 2, 10), (2.5, 3, 15), (1.7, 7, 35), (4.0, 2, 4)):
        assert stats.norm.sf(f_as_normal(ratio, above, below)) == pytest.approx(stats.f.sf(ratio, above, below), abs=0.01)
