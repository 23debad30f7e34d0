"""Verdicts at other levels, about margins, and many at once. In: verdicts with an interval at any level. Out: what they say.

"No difference shown" is not "equal". Two methods are equivalent within a margin where two one-sided tests at 5% both reject a
difference beyond it (TOST), which is where the 90% interval lies inside the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Protocol

from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, holm

TWO_ONE_SIDED = 0.90
"""The interval of which either end is a one-sided test at 5%."""


class Ranked(Protocol):
    """What a ranking needs of a verdict."""

    @property
    def difference(self) -> float: ...
    @property
    def p(self) -> float: ...


class Verdict(Record):
    """A difference of two methods, judged; 95% unless another level is asked for."""

    __slots__ = ()

    def interval_at(self, level: float) -> Estimate:
        raise NotImplementedError

    @property
    def says_nothing(self) -> bool:
        """Is there no interval about methods (one seed, copies, one document)?"""
        raise NotImplementedError

    def equivalent_within(self, margin: float) -> bool:
        """Is a difference of `margin` or more excluded in both directions?"""
        return not self.says_nothing and self.smallest_margin() < margin

    def not_worse_by(self, margin: float) -> bool:
        """Non-inferiority: is it excluded that the first is worse than the second by `margin` or more?"""
        return not self.says_nothing and self.interval_at(TWO_ONE_SIDED).low > -margin

    def smallest_margin(self) -> float:
        """Equivalence is shown for any margin above this one."""
        found = self.interval_at(TWO_ONE_SIDED)
        return max(-found.low, found.high)


def simultaneous(verdicts: Sequence[Verdict]) -> list[Estimate]:
    """Intervals of which none is wrong in 19 studies of 20 (Bonferroni): of methods against their base, or of all pairs.

    So the interval of whichever method is picked afterwards holds too.
    """
    level = 1 - (1 - LEVEL) / max(1, len(verdicts))
    return [verdict.interval_at(level) for verdict in verdicts]


def rank_intervals(methods: Sequence[str], verdicts: Mapping[tuple[str, str], Ranked]) -> dict[str, tuple[int, int]]:
    """The best and the worst rank that each method may have, all at 95% confidence; 1 is the best.

    `verdicts[a, b]` is the difference a - b, one for each pair in either order. Holm over all pairs: a method shown to be worse
    than two others is third at best, one shown to be better than two is third to last at worst.
    """
    pairs = {pair: verdicts[pair] if pair in verdicts else verdicts[pair[::-1]] for pair in combinations(methods, 2)}
    stands = holm([one.p for one in pairs.values()]) < 1 - LEVEL
    above, below = dict.fromkeys(methods, 0), dict.fromkeys(methods, 0)
    for (a, b), shown in zip(pairs, stands, strict=True):
        ahead = verdicts[a, b].difference > 0 if (a, b) in verdicts else verdicts[b, a].difference < 0
        if shown:
            below[a if ahead else b] += 1
            above[b if ahead else a] += 1
    return {one: (1 + above[one], len(methods) - below[one]) for one in methods}
