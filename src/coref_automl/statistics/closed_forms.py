"""Closed forms. In: counts, values, p-values. Out: Wilson and unpaired intervals, Holm, Student's t, p of intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.records import Estimate
from coref_automl.statistics.resampling import Floats

LEVEL = 0.95
POWER = 0.80
_LEAST_P = 1e-10
NORMAL = NormalDist()


def wilson(hits: float, n: int, level: float = LEVEL) -> Estimate:
    """The score interval of a share of independent trials; honest at 0 and n hits."""
    z = NORMAL.inv_cdf((1 + level) / 2)
    share = hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Estimate(share, centre - half if hits > 0 else 0.0, centre + half if hits < n else 1.0, n)


def holm(ps: ArrayLike) -> Floats:
    """Holm's adjusted p-values, in the order given."""
    raw = np.asarray(ps, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    out = np.empty_like(raw)
    out[order] = np.minimum(1.0, stepped)
    return out


def unpaired(a: Estimate, b: Estimate) -> tuple[Estimate, float]:
    """Difference a - b of two shares on different items, known by value and n alone: interval, and the p of the pooled z test."""
    spread = math.sqrt(a.value * (1 - a.value) / a.n + b.value * (1 - b.value) / b.n)
    pooled = (a.value * a.n + b.value * b.n) / (a.n + b.n)
    error = math.sqrt(pooled * (1 - pooled) * (1 / a.n + 1 / b.n))
    difference, z = a.value - b.value, NORMAL.inv_cdf((1 + LEVEL) / 2)
    p = 2 * (1 - NORMAL.cdf(abs(difference) / error)) if error > 0 else 1.0
    return Estimate(difference, difference - z * spread, difference + z * spread, min(a.n, b.n)), p


def t_cdf(t: float, degrees: int) -> float:
    """Student's distribution for whole degrees of freedom, by its finite series."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    if degrees % 2:
        steps = np.arange(2, degrees - 2, 2)
        series = (
            math.cos(angle) * float(np.sum(np.cumprod(np.append(1.0, steps / (steps + 1) * squared)))) if degrees > 1 else 0.0
        )
        return 0.5 + (angle + sine * series) / math.pi
    steps = np.arange(1, degrees - 2, 2)
    return 0.5 + sine * float(np.sum(np.cumprod(np.append(1.0, steps / (steps + 1) * squared)))) / 2


@lru_cache(maxsize=1 << 16)
def t_quantile(share: float, degrees: int) -> float:
    """Where Student's distribution reaches `share` (above a half)."""
    tail = 1 - share
    if degrees == 1:
        return 1 / math.tan(math.pi * tail)
    if degrees == 2:
        return (1 - 2 * tail) / math.sqrt(2 * tail * share)
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    z = max(1e-9, NORMAL.inv_cdf(share))
    at = z + (z**3 + z) / (4 * degrees)
    for _ in range(60):  # Newton's steps on the logarithms of both, between which the tail is nearly a line
        left = max(1e-17, 1 - t_cdf(at, degrees))
        slope = at * scale * (1 + at * at / degrees) ** (-(degrees + 1) / 2) / left
        step = max(-1.0, min(1.0, math.log(left / tail) / slope))
        at *= math.exp(step)
        if abs(step) < 1e-9:  # the next one would be its square
            break
    return at


def inverted_p(difference: float, half_width: Callable[[float], float]) -> float:
    """The least of 1 - level at which the interval, `half_width(level)` to either side, excludes 0: never under 10^-10.

    Intervals must be nested. Under 0.05 exactly where the 95% interval excludes 0, and so at any other level.
    """
    far, usual = abs(difference), 1 - LEVEL
    if far <= 0:
        return 1.0
    shown = far > half_width(LEVEL)
    low, high = (_LEAST_P, usual) if shown else (usual, 1 - 1e-9)
    over, under = (math.log(half_width(1 - end) / far) for end in (low, high))
    if over <= 0 or under >= 0:
        return low if over <= 0 else 1.0
    at, side = high, 0
    for _ in range(100):  # the false position (Illinois) on logarithms
        at = math.exp(math.log(low) + over / (over - under) * math.log(high / low))
        found = math.log(half_width(1 - at) / far)
        if abs(found) < 1e-8:
            break
        if found > 0:
            low, over, under, side = at, found, under / (1 + (side > 0)), 1
        else:
            high, under, over, side = at, found, over / (1 + (side < 0)), -1
    return min(at, usual * (1 - 1e-9)) if shown else max(at, usual)
