"""Intervals and paired tests. In: arrays of values and the document of each item. Out: Estimates and p-values. Pure.

The document is the unit of resampling: items of one document are dependent, so whole documents are drawn, flipped and counted.
The same seed gives the same numbers. docs/statistics.md explains each choice and shows the simulations behind it.

Of many verdicts at once p-values are adjusted for their number: Holm's (closed_forms) for the few primary verdicts of a study: no
false one in 19 studies of 20; Benjamini-Hochberg within one question's table: of what a table shows, 5% is false on average;
step-down max-T for many checkpoints against their references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coref_automl.records import Estimate
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, POWER, t_quantile, wilson
from coref_automl.statistics.resampling import Floats, Gathered, Part, flipped_sums, gather, resampled_means

DRAWS = 10_000


def bootstrap_mean(values: ArrayLike, clusters: ArrayLike, *, seed: int, draws: int = DRAWS) -> Estimate:
    """A share of hits with its 95% interval, documents resampled; Wilson on documents at 0 or n hits."""
    return composite([Part(values, clusters)], seed=seed, draws=draws)[0]


def composite(parts: Sequence[Part], *, seed: int, draws: int = DRAWS) -> list[Estimate]:
    """`bootstrap_mean` of every column at once: the means of the parts are summed, documents are drawn within each part.

    One part is a plain metric; the composite has the tasks as its parts and its weights in their values.
    """
    gathered = [gather(part) for part in parts]
    fewest = min(part.documents for part in gathered)
    out = _intervals(gathered, seed=seed, draws=draws)
    for column, estimate in enumerate(out):
        share = min(1.0, max(0.0, estimate.value))
        if fewest == 1 or share == 0 or math.isclose(share, 1):
            near = wilson(fewest * share, fewest)
            out[column] = Estimate(estimate.value, near.low, near.high, estimate.n)
    return out


def difference_intervals(parts: Sequence[Part], *, seed: int, draws: int = DRAWS) -> list[Estimate]:
    """Columns of differences on the same items, each with its 95% interval, documents resampled."""
    gathered = [gather(part) for part in parts]
    if min(part.documents for part in gathered) > 1:
        return _intervals(gathered, seed=seed, draws=draws)
    items = sum(part.items for part in gathered)
    return [Estimate(float(mean), -1.0, 1.0, items) for mean in _means(gathered)]  # one document says nothing about the next


@dataclass(frozen=True, slots=True)
class Drawn:
    """The interval of a statistic whose documents were drawn anew, its standard error, and the documents' `concentration`."""

    interval: Estimate
    error: float
    held: float


def from_draws(value: float, draws: Floats, clusters: ArrayLike) -> Drawn:
    """For a statistic other than a mean, such as micro-F1: percentiles of its draws, at levels widened for few documents."""
    sizes = np.unique(np.asarray(clusters), return_counts=True)[1]
    documents, items = len(sizes), int(sizes.sum())
    held = float(((sizes / items) ** 2).sum())
    if documents == 1:
        return Drawn(Estimate(value, -1.0, 1.0, items), 0.0, held)  # one document says nothing about the next
    wider = math.sqrt(documents / (documents - 1))
    tail = NORMAL.cdf(-wider * t_quantile((1 + LEVEL) / 2, documents - 1))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Drawn(Estimate(value, float(low), float(high), items), wider * float(draws.std(ddof=1)), held)


def standard_error(parts: Sequence[Part]) -> Floats:
    """The clustered standard error of every column's mean: each document is left out once (the jackknife)."""
    return np.asarray(np.sqrt(sum((gather(part).left_out() ** 2).sum(axis=0) for part in parts)))


def detectable(error: float, alpha: float = 0.05, concentration: float = 0.0) -> float | None:
    """(z(1 - alpha/2) + z(0.8)) standard errors. For a family under Holm, alpha is 0.05 over the family: its hardest step.

    With few documents the test's own spread grows with the difference d, to error^2 + d^2 x concentration; the answer allows for
    that. None where the error is 0, and where there are too few documents to detect any difference.
    """
    level, power = NORMAL.inv_cdf(1 - alpha / 2), NORMAL.inv_cdf(POWER)
    left = 1 - level * level * concentration
    if error <= 0 or left <= 0:
        return None
    return error * (power + math.sqrt(power * power + left * (level * level - power * power))) / left


def concentration(parts: Sequence[Part]) -> float:
    """How much of a set lies in single documents: the sum of their squared shares of the items; 1/n for n documents alike."""
    return max(1 / gather(part).effective_documents for part in parts)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Simultaneous upper bounds of (best - it): `gaps[j, i]` is how far j leads i, `reach[j, i]` what chance may have hidden."""

    gaps: Floats
    reach: Floats

    @property
    def upper(self) -> Floats:
        return np.asarray((self.gaps + self.reach).max(axis=0))  # the best may be any j


def simultaneous_bounds(parts: Sequence[Part], *, seed: int, draws: int = DRAWS, level: float = LEVEL) -> Bounds:
    """For every column, how far the truly best column may lie above it: with 95% confidence none of the bounds is too low.

    Multiple comparisons with the best (Hsu): for each column j taken as the best, c_j is the quantile of the largest studentised,
    recentred bootstrap difference (j - i) over all i; the bound of i is the largest (j - i) + c_j x standard error over j.
    Whichever column is truly best, its own c_j covers: choosing the winner on the same data is paid for.
    """
    gathered = [gather(part) for part in parts]
    means = _means(gathered)
    recentred = (resampled_means(gathered, seed=seed, draws=draws) - means).astype(np.float32)
    squared = [_of_pairs(part.left_out()) for part in gathered]
    errors, spreads = np.sqrt(sum(squared)), np.sqrt(sum(_of_pairs(part.pulls()) for part in gathered))
    if min(part.documents for part in gathered) == 1:
        return Bounds(means[:, None] - means[None, :], np.ones_like(errors))  # says nothing about the next document
    scales = np.divide(1, spreads, out=np.zeros_like(spreads), where=spreads > 1e-12).astype(np.float32)
    largest = np.empty((len(means), draws), np.float32)
    for start in range(0, draws, rows := max(1, (1 << 18) // len(means))):  # blocks that stay in the processor's cache
        block = recentred[start : start + rows]
        for best, scale in enumerate(scales):
            largest[best, start : start + rows] = ((block - block[:, best : best + 1]) * scale).max(axis=1)
    widen = _student(squared, [part.effective_documents - 1 for part in gathered], level) / NORMAL.inv_cdf(level)
    reach = np.maximum(0.0, np.quantile(largest, level, axis=1))[:, None] * widen * errors
    return Bounds(means[:, None] - means[None, :], reach)


def _intervals(gathered: Sequence[Gathered], *, seed: int, draws: int) -> list[Estimate]:
    """Percentile intervals at levels widened for few documents (Hesterberg's expanded percentile).

    Draws vary less than the means do. Hesterberg's factor for n documents of equal size, sqrt(n / (n - 1)), is what leaving each
    document out once gives there; where sizes differ it gives more.
    """
    variances = [(part.left_out() ** 2).sum(axis=0) for part in gathered]
    of_draws = np.asarray(sum((part.pulls() ** 2).sum(axis=0) for part in gathered))
    wider = np.divide(np.asarray(sum(variances)), of_draws, out=np.ones_like(of_draws), where=of_draws > 0)
    reaches = np.sqrt(wider) * _student(variances, [part.documents - 1 for part in gathered], (1 + LEVEL) / 2)
    items, out = sum(part.items for part in gathered), []
    for mean, reach, drawn in zip(_means(gathered), reaches, resampled_means(gathered, seed=seed, draws=draws).T, strict=True):
        tail = NORMAL.cdf(-reach)
        low, high = np.quantile(drawn, [tail, 1 - tail])
        out.append(Estimate(float(mean), float(low), float(high), items))
    return out


def _student(variances: Sequence[Floats], degrees: Sequence[float], share: float) -> Floats:
    """Student's quantile in the shape of the variances, one array per part. Each part has its own degrees of freedom and counts
    by its variance (Satterthwaite, rounded down)."""
    total, own = np.asarray(sum(variances)), [max(1.0, each) for each in degrees]
    spent = np.asarray(sum(one**2 / each for one, each in zip(variances, own, strict=True)))
    found = np.divide(total**2, spent, out=np.full(total.shape, float(min(own))), where=spent > 0)
    whole, place = np.unique((found + 1e-6).astype(np.int64), return_inverse=True)
    return np.array([t_quantile(share, int(each)) for each in whole])[place].reshape(total.shape)


def _of_pairs(moves: Floats) -> Floats:
    """The sum of squares of the difference of every pair of columns."""
    products = moves.T @ moves
    squares = np.diag(products)
    return np.asarray(np.maximum(0.0, squares[:, None] + squares[None, :] - 2 * products))


def _means(gathered: Sequence[Gathered]) -> Floats:
    return np.asarray(sum(part.means() for part in gathered))


_ROUNDING = 1e-9


def benjamini_hochberg(ps: ArrayLike) -> Floats:
    """Adjusted p-values in the order given: those under 0.05 hold at most 5% false ones on average.

    That is where tests are independent or positively dependent, as verdicts on the same documents are.
    """
    raw = np.asarray(ps, dtype=np.float64)
    order = np.argsort(raw, kind="stable")[::-1]
    stepped = np.minimum.accumulate(raw[order] * (len(raw) / np.arange(len(raw), 0, -1)))
    out = np.empty_like(raw)
    out[order] = np.minimum(1.0, stepped)
    return out


@dataclass(frozen=True, slots=True)
class Flipped:
    """Sign-flip p-values of several columns of differences: each alone, and adjusted for all of them (step-down max-T).

    `level` is what a column's own p must be under at the hardest step: between 0.05 and that over the number of columns. `half`
    are the half widths of simultaneous 95% intervals: they exclude 0 exactly where the adjusted p is under 0.05.
    """

    alone: Floats
    adjusted: Floats
    level: float
    half: Floats


def step_down_max_t(parts: Sequence[Part], *, seed: int) -> Flipped:
    """Westfall and Young's step-down max-T: is any difference still shown when the largest of all is what chance is asked for?

    One sign per document flips all columns together, so that columns which rise and fall together count as the few they are:
    Holm counts ninety checkpoints of the same runs as ninety. Columns are on the scale of their own spread under the flips,
    which no flip changes.
    """
    gathered = [gather(part) for part in parts]
    means = np.asarray(sum(part.means() for part in gathered))
    spread = np.sqrt(np.asarray(sum(((part.sums / part.items) ** 2).sum(axis=0) for part in gathered)))
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    seen = np.abs(means) * scale
    order = np.argsort(-seen, kind="stable")
    draws = max(DRAWS, 400 * len(seen))  # enough that the smallest p of so many can be small
    alone, largest, highest = np.zeros(len(seen)), np.zeros(len(seen)), []
    for block in flipped_sums(gathered, seed=seed, draws=draws):
        flipped = (np.abs(block) * scale)[:, order]
        alone += (flipped >= seen[order] - _ROUNDING).sum(axis=0)
        left = np.maximum.accumulate(flipped[:, ::-1], axis=1)[:, ::-1]  # the largest of this column and those after it
        largest += (left >= seen[order] - _ROUNDING).sum(axis=0)
        highest.append(left.astype(np.float32))
    ps, adjusted = np.empty_like(seen), np.empty_like(seen)
    ps[order] = (1 + alone) / (1 + draws)
    adjusted[order] = np.maximum.accumulate((1 + largest) / (1 + draws))
    same = spread == 0
    ps[same] = adjusted[same] = 1.0
    reach = np.asarray(
        np.quantile(np.concatenate(highest), LEVEL, axis=0), np.float64
    )  # flipped means are about normal on this scale
    level = min(1 - LEVEL, max((1 - LEVEL) / len(seen), 2 * (1 - NORMAL.cdf(float(reach[0])))))
    return Flipped(ps, adjusted, level, _half_widths(means, spread, adjusted, reach, order))


def _half_widths(means: Floats, spread: Floats, adjusted: Floats, reach: Floats, order: NDArray[np.intp]) -> Floats:
    """As far as chance reaches at each column's own step; behind a step that shows nothing no other is taken."""
    shown = adjusted < 1 - LEVEL
    last = min(int(shown.sum()), len(reach) - 1)
    half = np.empty_like(spread)
    half[order] = reach[np.minimum(np.arange(len(reach)), last)] * spread[order]
    far = np.abs(means)
    return np.where(
        shown, np.minimum(half, far * (1 - _ROUNDING)), np.where(spread > 0, np.maximum(half, far * (1 + _ROUNDING)), 0.0)
    )
