"""Margins and many verdicts at once: equivalence, non-inferiority, simultaneous intervals, ranks, the last step of a curve."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.levels import rank_intervals, simultaneous
from coref_automl.statistics.methods import seed_paired_verdict
from coref_automl.statistics.shrinkage import last_step

DOCUMENTS = np.arange(300)


def runs(rng: np.random.Generator, level: float, seeds: int = 4) -> np.ndarray:
    return level + 0.3 * rng.normal(size=(1, 300)) + 0.2 * rng.normal(size=(seeds, 300))


def verdict(rng: np.random.Generator, difference: float, seeds: int = 4) -> CrossedVerdict:
    return crossed_verdict(runs(rng, difference, seeds), runs(rng, 0.0, seeds), DOCUMENTS)


def test_equivalence_is_two_one_sided_tests() -> None:
    """Runs that are nearly alike leave a t test over documents: TOST is the larger of its two one-sided p."""
    rng = np.random.default_rng(0)
    over = rng.normal(0.01, 0.3, size=300)
    found = crossed_verdict(over + 1e-9 * rng.normal(size=(3, 300)), np.zeros((1, 300)), DOCUMENTS, against_model=True)
    for margin in (0.01, 0.03, 0.035, 0.04, 0.045, 0.05, 0.1):
        above = stats.ttest_1samp(over, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(over, margin, alternative="less").pvalue
        assert found.equivalent_within(margin) == (max(above, below) < 0.05)
        assert found.not_worse_by(margin) == (above < 0.05)
    assert found.equivalent_within(found.smallest_margin() + 1e-9)
    assert not found.equivalent_within(found.smallest_margin() - 1e-9)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_methods_that_differ_by_the_margin_are_rarely_called_equivalent(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    found = [verdict(rng, 0.05, seeds) for _ in range(300)]
    assert np.mean([one.equivalent_within(0.05) for one in found]) <= 0.05 + 2 * np.sqrt(0.0475 / 300)
    assert np.mean([one.not_worse_by(-0.05) for one in found]) <= 0.05 + 2 * np.sqrt(0.0475 / 300)


def test_one_seed_is_equivalent_to_nothing() -> None:
    rng = np.random.default_rng(1)
    assert not crossed_verdict(runs(rng, 0.0, 1), runs(rng, 0.0, 1), DOCUMENTS).equivalent_within(0.9)
    paired = seed_paired_verdict(runs(rng, 0.0, 1), runs(rng, 0.0, 1), DOCUMENTS, seed=0)
    assert not paired.equivalent_within(0.9)
    assert seed_paired_verdict(runs(rng, 0.0), runs(rng, 0.0), DOCUMENTS, seed=0).equivalent_within(0.9)


def test_simultaneous_intervals_are_those_of_the_corrected_level() -> None:
    rng = np.random.default_rng(2)
    found = [verdict(rng, 0.02) for _ in range(5)]
    assert simultaneous(found) == [one.interval_at(0.99) for one in found]
    assert simultaneous(found[:1]) == [found[0].interval]


def test_ranks_say_what_the_pairs_show() -> None:
    rng = np.random.default_rng(3)
    levels = {"mlm": 0.0, "entity": 0.3, "copy": 0.3, "link": 0.9}
    made = {name: runs(rng, level) for name, level in levels.items()}
    verdicts = {(b, a): crossed_verdict(made[b], made[a], DOCUMENTS) for a, b in combinations(made, 2)}
    assert rank_intervals(list(made), verdicts) == {"mlm": (4, 4), "entity": (2, 3), "copy": (2, 3), "link": (1, 1)}
    assert rank_intervals(["mlm"], {}) == {"mlm": (1, 1)}


def curve(rng: np.random.Generator, points: int, seeds: int, rise: float) -> list[list[np.ndarray]]:
    """Checkpoints of the same runs: what a run is good at stays, a tenth of the items flips from point to point."""
    lasting = 0.3 * rng.normal(size=(seeds, 300)) + 0.02 * rng.normal(size=(seeds, 1))
    return [[lasting + rise * point + 0.1 * rng.normal(size=(seeds, 300))] for point in range(points)]


@pytest.mark.parametrize("points", [2, 4, 10])
@pytest.mark.parametrize("seeds", [1, 2, 3, 8])
def test_flat_curves_are_rarely_told_to_go_on(points: int, seeds: int) -> None:
    rng, told = np.random.default_rng(points + seeds), 0
    for _ in range(150):
        found = last_step(curve(rng, points, seeds, 0.0), [DOCUMENTS])
        assert found is not None
        told += found.shown and found.difference > 0
        assert seeds > 1 or not found.shown
    assert told / 150 <= 0.05


def test_a_curve_that_rises_to_its_end_is_told_to_go_on_and_a_flat_one_is_called_flat() -> None:
    rng = np.random.default_rng(4)
    rising, flat = (last_step(curve(rng, 4, 3, rise), [DOCUMENTS]) for rise in (0.06, 0.0))
    assert rising is not None
    assert flat is not None
    assert rising.shown
    assert rising.difference > 0
    assert flat.equivalent_within(0.02)
    assert not rising.equivalent_within(0.02)
    assert last_step(curve(rng, 1, 3, 0.0), [DOCUMENTS]) is None
