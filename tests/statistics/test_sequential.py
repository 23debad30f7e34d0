"""Looks, what a look decides, and the ceiling over several settings."""

from __future__ import annotations

import numpy as np
import pytest

from coref_automl.statistics.planning import ceiling, judged, looks_of


def test_looks_are_few_at_first_and_end_with_all_pairs() -> None:
    assert [look.pairs for look in looks_of(24)] == [4, 8, 16, 24]
    assert [look.pairs for look in looks_of(12)] == [2, 4, 8, 12]
    assert [(look.pairs, look.level) for look in looks_of(3)] == [(3, 0.05)]
    levels = [look.level for look in looks_of(24)]
    assert levels == sorted(levels)
    assert [look.level for look in looks_of(24, comparisons=2)] == [level / 2 for level in levels]


@pytest.mark.parametrize(
    ("gain", "last", "decision"),
    [
        (0.02, False, "better"),
        (-0.02, False, "worse"),
        (0.004, False, "open"),
        (0.004, True, "not shown"),
        (-0.003, False, "futile"),
    ],
)
def test_a_look_decides(gain: float, last: bool, decision: str) -> None:
    pairs = gain + np.array([0.001, -0.001, 0.002, -0.002, 0.0, 0.0, 0.001, -0.001])
    result = judged(pairs, 0.003, 0.005, min_effect=0.005, last=last, items=3000)
    assert result.decision == decision
    assert result.shown == (decision in ("better", "worse"))
    assert result.interval.low < gain < result.interval.high


def test_the_spread_of_a_few_equal_pairs_is_not_taken_for_nothing() -> None:
    """Copies of one difference once had an interval without width."""
    result = judged([0.002] * 4, 0.0, 0.05, min_effect=0.001, last=True, items=3000)
    assert result.decision == "not shown"
    assert result.interval.high - result.interval.low > 0.002


def test_the_ceiling_covers_the_largest_of_several_settings() -> None:
    rng = np.random.default_rng(3)
    true = np.array([0.0, -0.002, -0.004, -0.01, 0.002])
    errors, shared, missed = np.full(5, 0.002), 0.0015, 0
    for _ in range(200):
        seen = true + rng.normal(0, errors) - rng.normal(0, shared)
        missed += ceiling(seen, errors, shared) < true.max()
    assert missed / 200 <= 0.08
