"""Intervals and paired tests. In: arrays of values and the document of each item. Out: Estimates and p-values. Pure.

The document is the unit of resampling: items of one document are dependent, so whole documents are drawn or flipped. The same
seed gives the same numbers. docs/statistics.md explains each choice and shows the simulations behind it.

P-values of several verdicts are adjusted: by Holm (closed_forms) for the few primary verdicts of a study (no false one in 19 of
20 studies); by Benjamini-Hochberg within the table of one question (on average 5% of what it shows is false); by step-down max-T
for many checkpoints against their references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, POWER, satterthwaite, t_quantile, t_quantiles, wilson
from coref_automl.statistics.families import judge_columns
from coref_automl.statistics.resampling import Floats, Gathered, Part, gather, resampled_means

DRAWS = 10_000


def bootstrap_mean(values: ArrayLike, clusters: ArrayLike, *, seed: int, draws: int = DRAWS) -> Estimate:
    """The mean of hits with its 95% bootstrap interval over documents; Wilson's interval for documents at 0 or n hits."""
    return composite([Part(values, clusters)], seed=seed, draws=draws)[0]


def composite(parts: Sequence[Part], *, seed: int, draws: int = DRAWS) -> list[Estimate]:
    """`bootstrap_mean` of every column at once: the means of the parts are added, documents are resampled within each part.

    A plain metric is one part; the parts of the composite are its tasks, with the weights in their values.
    """
    gathered = [gather(part) for part in parts]
    fewest = min(part.documents for part in gathered)
    out = _intervals(gathered, seed=seed, draws=draws)
    for column, estimate in enumerate(out):
        share = min(1.0, max(0.0, estimate.value))
        if fewest == 1 or share == 0 or math.isclose(share, 1):
            interval = wilson(fewest * share, fewest)
            out[column] = Estimate(estimate.value, interval.low, interval.high, estimate.n)
    return out


def difference_intervals(parts: Sequence[Part], *, seed: int, draws: int = DRAWS) -> list[Estimate]:
    """Columns of differences on the same items, each with its 95% bootstrap interval over documents."""
    gathered = [gather(part) for part in parts]
    if min(part.documents for part in gathered) > 1:
        return _intervals(gathered, seed=seed, draws=draws)
    items = sum(part.items for part in gathered)
    return [Estimate(float(mean), -1.0, 1.0, items) for mean in _means(gathered)]  # one document says nothing of others


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """The bootstrap interval of a statistic, its standard error, and the `concentration` of the documents."""

    interval: Estimate
    error: float
    concentration: float


def from_draws(value: float, draws: Floats, clusters: ArrayLike) -> Bootstrapped:
    """The interval of a statistic such as micro-F1 from its bootstrap draws: percentiles, at levels widened for few documents."""
    sizes = np.unique(np.asarray(clusters), return_counts=True)[1]
    documents, items = len(sizes), int(sizes.sum())
    share = float(((sizes / items) ** 2).sum())
    if documents == 1:
        return Bootstrapped(Estimate(value, -1.0, 1.0, items), 0.0, share)  # one document says nothing of others
    wider = math.sqrt(documents / (documents - 1))
    tail = NORMAL.cdf(-wider * t_quantile((1 + LEVEL) / 2, documents - 1))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Bootstrapped(Estimate(value, float(low), float(high), items), wider * float(draws.std(ddof=1)), share)


def standard_error(parts: Sequence[Part]) -> Floats:
    """The clustered standard error of every column's mean, from the jackknife over documents."""
    return np.asarray(np.sqrt(sum((gather(part).jackknife() ** 2).sum(axis=0) for part in parts)))


def detectable(error: float, alpha: float = 0.05, concentration: float = 0.0) -> float | None:
    """The difference detected with 80% power: (z(1 - alpha/2) + z(0.8)) standard errors. Under Holm, pass 0.05 over the family.

    With few documents the variance of the test grows with the difference d, to error^2 + d^2 x concentration, which is allowed
    for. None if the error is 0, or if there are too few documents to detect any difference.
    """
    z_level, z_power = NORMAL.inv_cdf(1 - alpha / 2), NORMAL.inv_cdf(POWER)
    left = 1 - z_level * z_level * concentration
    if error <= 0 or left <= 0:
        return None
    return error * (z_power + math.sqrt(z_power * z_power + left * (z_level * z_level - z_power * z_power))) / left


def concentration(parts: Sequence[Part]) -> float:
    """The sum of the documents' squared shares of the items: 1/n for n equal documents, more if a few hold most items."""
    return max(1 / gather(part).effective_documents for part in parts)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Simultaneous upper bounds on (best - i): `gaps[j, i]` is the lead of j over i, `reach[j, i]` what chance may add to it."""

    gaps: Floats
    reach: Floats

    @property
    def upper(self) -> Floats:
        return np.asarray((self.gaps + self.reach).max(axis=0))  # the best may be any j


def simultaneous_bounds(parts: Sequence[Part], *, seed: int, draws: int = DRAWS, level: float = LEVEL) -> Bounds:
    """Bound how far the truly best column may be above each column: with 95% confidence no bound is too low.

    Multiple comparisons with the best (Hsu): for each column j taken as the best, c_j is the quantile of the largest studentised,
    recentred bootstrap difference (j - i) over all i; the bound of i is the largest (j - i) + c_j x standard error over j.
    Whichever column is truly best, its c_j covers, so that the bounds allow for choosing the winner on the same data.
    """
    gathered = [gather(part) for part in parts]
    means = _means(gathered)
    recentred = (resampled_means(gathered, seed=seed, draws=draws) - means).astype(np.float32)
    squared = [_of_pairs(part.jackknife()) for part in gathered]
    errors, spreads = np.sqrt(sum(squared)), np.sqrt(sum(_of_pairs(part.influence()) for part in gathered))
    if min(part.documents for part in gathered) == 1:
        return Bounds(means[:, None] - means[None, :], np.ones_like(errors))  # one document says nothing of others
    scales = np.divide(1, spreads, out=np.zeros_like(spreads), where=spreads > 1e-12).astype(np.float32)
    largest = np.empty((len(means), draws), np.float32)
    for start in range(0, draws, rows := max(1, (1 << 18) // len(means))):  # blocks that fit the processor's cache
        block = recentred[start : start + rows]
        for best, scale in enumerate(scales):
            largest[best, start : start + rows] = ((block - block[:, best : best + 1]) * scale).max(axis=1)
    widen = _student(squared, [part.effective_documents - 1 for part in gathered], level) / NORMAL.inv_cdf(level)
    reach = np.maximum(0.0, np.quantile(largest, level, axis=1))[:, None] * widen * errors
    return Bounds(means[:, None] - means[None, :], reach)


def _intervals(gathered: Sequence[Gathered], *, seed: int, draws: int) -> list[Estimate]:
    """Percentile intervals at levels widened for few documents (Hesterberg's expanded percentile).

    Bootstrap means vary too little. Hesterberg's factor for n documents of equal size, sqrt(n / (n - 1)), equals the ratio of
    jackknife to bootstrap errors, which is larger for documents of unequal sizes.
    """
    variances = [(part.jackknife() ** 2).sum(axis=0) for part in gathered]
    of_bootstrap = np.asarray(sum((part.influence() ** 2).sum(axis=0) for part in gathered))
    wider = np.divide(np.asarray(sum(variances)), of_bootstrap, out=np.ones_like(of_bootstrap), where=of_bootstrap > 0)
    reaches = np.sqrt(wider) * _student(variances, [part.documents - 1 for part in gathered], (1 + LEVEL) / 2)
    items, out = sum(part.items for part in gathered), []
    samples = resampled_means(gathered, seed=seed, draws=draws)
    for mean, reach, column in zip(_means(gathered), reaches, samples.T, strict=True):
        tail = NORMAL.cdf(-reach)
        low, high = np.quantile(column, [tail, 1 - tail])
        out.append(Estimate(float(mean), float(low), float(high), items))
    return out


def _student(variances: Sequence[Floats], degrees: Sequence[float], share: float) -> Floats:
    """Student's quantile for sums of variances, one array per part."""
    return t_quantiles(share, satterthwaite(variances, [max(1.0, each) for each in degrees]))


def _of_pairs(moves: Floats) -> Floats:
    """The sum of squares of the difference of each pair of columns."""
    products = moves.T @ moves
    squares = np.diag(products)
    return np.asarray(np.maximum(0.0, squares[:, None] + squares[None, :] - 2 * products))


def _means(gathered: Sequence[Gathered]) -> Floats:
    return np.asarray(sum(part.means() for part in gathered))


def benjamini_hochberg(ps: ArrayLike) -> Floats:
    """Adjusted p-values in the order given: on average at most 5% of those under 0.05 are false.

    This holds if tests are independent or positively dependent, as verdicts on the same documents are.
    """
    raw = np.asarray(ps, dtype=np.float64)
    order = np.argsort(raw, kind="stable")[::-1]
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(raw[order] * (len(raw) / np.arange(len(raw), 0, -1))))
    return adjusted


@dataclass(frozen=True, slots=True)
class Flipped:
    """Sign-flip p-values of several columns of differences: each alone, and adjusted for all of them (step-down max-T).

    `level` is the bound on an unadjusted p at the hardest step: between 0.05 and 0.05 over the number of columns. `half` are the
    half widths of simultaneous 95% intervals, which exclude 0 exactly where the adjusted p is under 0.05.
    """

    alone: Floats
    adjusted: Floats
    level: float
    half: Floats


def step_down_max_t(parts: Sequence[Part], *, seed: int = 0) -> Flipped:
    """`families.judge_columns`, as arrays; the signs are the same for every `seed`."""
    del seed
    found = judge_columns([gather(part) for part in parts])
    alone, adjusted, levels = (np.array([getattr(one, name) for one in found]) for name in ("p", "adjusted", "level"))
    ends = [(one.difference.value - one.difference.low, one.difference.high - one.difference.value) for one in found]
    half = np.array([down if one.difference.value >= 0 else up for one, (down, up) in zip(found, ends, strict=True)])
    return Flipped(alone, adjusted, float(1 - levels.max()), half)
