"""What a verdict says at other levels and about margins. In: a verdict that has an interval at any level. Out: yes or no. Pure.

"No difference shown" is not "equal". Two methods are equivalent within a margin where two one-sided tests at 5% both reject a
difference beyond it (TOST), which is where the 90% interval lies inside the margin.
"""

from __future__ import annotations

from coref_automl.records import Estimate, Record

TWO_ONE_SIDED = 0.90
"""The interval of which either end is a one-sided test at 5%."""


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
