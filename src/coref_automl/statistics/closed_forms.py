"""Closed forms. In: counts, values, p-values. Out: Wilson and unpaired intervals, Holm, Student's t, degrees, p of intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate
from coref_automl.statistics.resampling import Floats

LEVEL = 0.95
POWER = 0.80
_MIN_P = 1e-10
_MIN_WIDTH = 1e-300
NORMAL = NormalDist()


def wilson(hits: float, n: int, level: float = LEVEL) -> Estimate:
    """Wilson's score interval of a share of independent trials; it holds its level at 0 and n hits, too."""
    z = NORMAL.inv_cdf((1 + level) / 2)
    share = hits / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Estimate(share, centre - half if hits > 0 else 0.0, centre + half if hits < n else 1.0, n)


def holm(ps: ArrayLike) -> Floats:
    """Holm's adjusted p-values, in the order given."""
    raw = np.asarray(ps, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)))
    return adjusted


_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
    0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
"""A fit of the complementary error function by a polynomial, right to 1.2e-7 of its value (Press et al., erfcc)."""


def normal_tail(z: ArrayLike) -> Floats:
    """The chance that a standard normal number exceeds each z."""
    given = np.asarray(z, np.float64)
    size = np.abs(given) / math.sqrt(2)
    t = 1 / (1 + size / 2)
    polynomial = np.zeros_like(t)
    for coefficient in reversed(_ERFC):
        polynomial = polynomial * t + coefficient
    tail = t * np.exp(np.maximum(-700.0, polynomial - size**2)) / 2
    return np.where(given < 0, 1 - tail, tail)


def f_as_normal(ratio: ArrayLike, above: ArrayLike, below: ArrayLike) -> Floats:
    """The normal quantile of a ratio of variances with these degrees of freedom (Paulson): large if the first is larger."""
    root, a, b = np.cbrt(ratio), 2 / (9 * np.asarray(above)), 2 / (9 * np.asarray(below))
    return np.asarray(((1 - b) * root - (1 - a)) / np.sqrt(b * root**2 + a))


def t_cdf(t: float, degrees: int) -> float:
    """Student's cumulative distribution for whole degrees of freedom, by its finite series."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    steps = np.arange(1 + degrees % 2, degrees - 2, 2)
    series = float(np.sum(np.cumprod(np.append(1.0, steps / (steps + 1) * cosine**2)))) if degrees > 1 else 0.0
    return 0.5 + ((angle + sine * cosine * series) / math.pi if degrees % 2 else sine * series / 2)


@lru_cache(maxsize=1 << 16)
def t_quantile(share: float, degrees: int) -> float:
    """The quantile of Student's distribution at `share`, which is above one half."""
    tail = 1 - share
    if degrees == 1:
        return 1 / math.tan(math.pi * tail)
    if degrees == 2:
        return (1 - 2 * tail) / math.sqrt(2 * tail * share)
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    z = max(1e-9, NORMAL.inv_cdf(share))
    t = z + (z**3 + z) / (4 * degrees)
    for _ in range(60):  # Newton's method on log t and log tail, whose relation is nearly linear
        left = max(1e-17, 1 - t_cdf(t, degrees))
        slope = t * scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2) / left
        step = max(-1.0, min(1.0, math.log(left / tail) / slope))
        t *= math.exp(step)
        if abs(step) < 1e-9:  # convergence is quadratic: the next step would be its square
            break
    return t


def t_quantiles(share: float, degrees: ArrayLike) -> Floats:
    """`t_quantile` for an array of degrees of freedom, rounded down."""
    whole, index = np.unique((np.asarray(degrees) + 1e-6).astype(np.int64), return_inverse=True)
    return np.asarray(np.array([t_quantile(share, int(each)) for each in whole])[index].reshape(np.shape(degrees)))


def satterthwaite(variances: Sequence[Floats], degrees: Sequence[float], zero: Floats | float = 0.0) -> Floats:
    """Degrees of freedom of a sum of variances, from those of each; the fewest of these if there is no variance."""
    total = sum(variances, zero)
    per_degree = sum((variance**2 / each for variance, each in zip(variances, degrees, strict=True)), zero)
    combined = np.divide(total**2, per_degree, out=np.zeros_like(total), where=per_degree > 0)
    return np.asarray(np.maximum(min(degrees, default=1.0), combined))


def inverted_p(difference: float, half_width: Callable[[float], float]) -> float:
    """Invert an interval test: the smallest alpha at which difference +- half_width(1 - alpha) excludes 0; at least 10^-10.

    Intervals must be nested. The p is under 0.05 exactly if the 95% interval excludes 0, and so at any other level.
    """
    size, alpha = abs(difference), 1 - LEVEL
    if size <= 0:
        return 1.0
    shown = size > half_width(LEVEL)
    low, high = (_MIN_P, alpha) if shown else (alpha, 1 - 1e-9)
    over, under = (math.log(max(half_width(1 - end), _MIN_WIDTH) / size) for end in (low, high))
    if over <= 0 or under >= 0:
        return low if over <= 0 else 1.0
    p, side = high, 0
    for _ in range(100):  # regula falsi (Illinois) on logarithms
        p = math.exp(math.log(low) + over / (over - under) * math.log(high / low))
        excess = math.log(max(half_width(1 - p), _MIN_WIDTH) / size)
        if abs(excess) < 1e-8:
            break
        if excess > 0:
            low, over, under, side = p, excess, under / (1 + (side > 0)), 1
        else:
            high, under, over, side = p, excess, over / (1 + (side < 0)), -1
    return min(p, alpha * (1 - 1e-9)) if shown else max(p, alpha)
