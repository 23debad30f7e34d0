"""Intervals, paired tests, verdicts. In: arrays of values and the document of each item. Out: Estimates and p-values. Pure.

The unit that varies is the document: items of one document stand or fall together, so documents are drawn, flipped and counted.
The same seed gives the same numbers. docs/statistics.md explains each choice and shows the simulations behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coref_automl.closed_forms import LEVEL, NORMAL, holm, mcnemar_exact, t_cdf, t_quantile, unpaired, wilson
from coref_automl.records import Estimate, Record
from coref_automl.resampling import Floats, Gathered, Part, flipped_sums, gather, resampled_means

__all__ = [
    "Bounds", "MethodVerdict", "Part", "bootstrap_mean", "composite", "concentration", "detectable",
    "detectable_difference", "difference_intervals", "holm", "mcnemar_exact", "method_verdict", "paired_bootstrap",
    "pairwise_ps", "permutation_draws", "seed_paired_verdict", "seed_paired_verdicts", "sign_flip_p",
    "sign_flip_ps", "simultaneous_bounds", "standard_error", "t_cdf", "t_quantile", "unpaired", "wilson",
]  # fmt: skip

DRAWS = 10_000
POWER = 0.80
_CELLS = 1 << 21
_NO_SPREAD = 1e-12
_MANY = 200
"""Degrees of freedom from which on Student's distribution is as good as the normal one."""


def bootstrap_mean(values: ArrayLike, clusters: ArrayLike, *, seed: int, draws: int = DRAWS) -> Estimate:
    """A share of hits with its 95% interval, documents resampled; at no or only hits, Wilson on documents."""
    return composite([Part(values, clusters)], seed=seed, draws=draws)[0]


def composite(parts: Sequence[Part], *, seed: int, draws: int = DRAWS) -> list[Estimate]:
    """`bootstrap_mean` of every column at once, each part's mean added up, documents drawn within each part.

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


def paired_bootstrap(a: ArrayLike, b: ArrayLike, clusters: ArrayLike, *, seed: int, draws: int = DRAWS) -> Estimate:
    """The difference a - b on the same items with its 95% interval, documents resampled."""
    return difference_intervals([Part(_minus(a, b), clusters)], seed=seed, draws=draws)[0]


def difference_intervals(parts: Sequence[Part], *, seed: int, draws: int = DRAWS) -> list[Estimate]:
    """`paired_bootstrap` for columns that are differences already."""
    gathered = [gather(part) for part in parts]
    if min(part.documents for part in gathered) > 1:
        return _intervals(gathered, seed=seed, draws=draws)
    items = sum(part.items for part in gathered)
    return [Estimate(float(mean), -1.0, 1.0, items) for mean in _means(gathered)]  # one document says nothing about the next


def sign_flip_p(a: ArrayLike, b: ArrayLike, clusters: ArrayLike, *, seed: int, family: int = 1) -> float:
    """Two-sided p of "no difference": how often a random sign a document gives a difference as large as the one seen."""
    return float(sign_flip_ps([Part(_minus(a, b), clusters)], seed=seed, family=family)[0])


def sign_flip_ps(parts: Sequence[Part], *, seed: int, family: int = 1) -> Floats:
    """`sign_flip_p` of every column of differences. `family` is the count of comparisons that Holm will adjust together."""
    gathered = [gather(part) for part in parts]
    seen = np.abs(_means(gathered)) - 1e-12
    hits = np.zeros(len(seen))
    draws = permutation_draws(family)
    for block in flipped_sums(gathered, seed=seed, draws=draws):
        hits += (np.abs(block) >= seen).sum(axis=0)
    return np.asarray((1 + hits) / (1 + draws))


def pairwise_ps(parts: Sequence[Part], *, seed: int) -> Floats:
    """Sign-flip p for every pair of columns (not differences), as a symmetric matrix with 1 on its diagonal."""
    gathered = [gather(part) for part in parts]
    means = _means(gathered)
    first, second = np.triu_indices(len(means), 1)
    seen = np.abs(means[first] - means[second]) - 1e-12
    hits = np.zeros(len(first))
    draws = permutation_draws(len(first))
    for block in flipped_sums(gathered, seed=seed, draws=draws):
        for start in range(0, len(block), rows := max(1, _CELLS // max(1, len(first)))):
            some = block[start : start + rows]
            hits += (np.abs(some[:, first] - some[:, second]) >= seen).sum(axis=0)
    out = np.ones((len(means), len(means)))
    out[first, second] = out[second, first] = (1 + hits) / (1 + draws)
    return out


def permutation_draws(family: int) -> int:
    """Enough that the smallest p of a family can survive Holm."""
    return max(DRAWS, 400 * family)


def standard_error(parts: Sequence[Part]) -> Floats:
    """The clustered standard error of every column's mean."""
    return np.sqrt(sum(np.diag(gather(part).covariance()) for part in parts))


def detectable_difference(a: ArrayLike, b: ArrayLike, clusters: ArrayLike, alpha: float = 0.05) -> float | None:
    """The true difference that this set would show four times in five; None where a and b never differ."""
    parts = [Part(_minus(a, b), clusters)]
    return detectable(float(standard_error(parts)[0]), alpha, concentration(parts))


def detectable(error: float, alpha: float = 0.05, concentration: float = 0.0) -> float | None:
    """(z(1 - alpha/2) + z(0.8)) standard errors. For a family under Holm, alpha is 0.05 over the family: its hardest step.

    With few documents the test's own spread grows with the difference d, to error^2 + d^2 x concentration; the answer allows for
    that. None where the error is 0, and where so few documents could never show anything.
    """
    level, power = NORMAL.inv_cdf(1 - alpha / 2), NORMAL.inv_cdf(POWER)
    left = 1 - level * level * concentration
    if error <= 0 or left <= 0:
        return None
    return error * (power + math.sqrt(power * power + left * (level * level - power * power))) / left


def concentration(parts: Sequence[Part]) -> float:
    """How much of a set lies in single documents: the sum of their squared shares of the items; 1/n for n documents alike."""
    return max(float(((sizes := gather(part).sizes) ** 2).sum() / sizes.sum() ** 2) for part in parts)


@dataclass(frozen=True, slots=True)
class MethodVerdict(Record):
    """Is one way of training better than another? `over_seeds` is the t interval over runs, `over_documents` the bootstrap,
    `over_both` the one that adds both variances; the difference is shown if none of them holds 0.

    `over_seeds` is None for one pair of runs, and where the others are copies of it: without a spread nothing is shown.
    `detectable` is about the true difference that would be shown four times in five; None under three pairs of runs.
    """

    difference: float
    over_seeds: Estimate | None
    over_documents: Estimate
    p_seeds: float | None
    shown: bool
    detectable: float | None = None
    over_both: Estimate | None = None

    @property
    def interval(self) -> Estimate:
        """All in one, from the lowest end to the highest: the difference is shown if and only if it excludes 0."""
        held = [interval for interval in (self.over_seeds, self.over_documents, self.over_both) if interval is not None]
        return Estimate(self.difference, min(i.low for i in held), max(i.high for i in held), self.over_documents.n)


def seed_paired_verdict(a: Sequence[ArrayLike], b: Sequence[ArrayLike], clusters: ArrayLike, *, seed: int) -> MethodVerdict:
    """Runs of two methods paired by seed: `a[k]` and `b[k]` are the items' values of the k-th pair, on the same items."""
    differences = np.stack([_minus(one, other) for one, other in zip(a, b, strict=True)])
    return seed_paired_verdicts([differences], clusters, seed=seed)[0]


def seed_paired_verdicts(pairs: Sequence[Floats], clusters: ArrayLike, *, seed: int) -> list[MethodVerdict]:
    """Several at once on the same items, a matrix each: a row a pair of runs, a column an item, values differences."""
    parts = [Part(np.stack([pair.mean(axis=0) for pair in pairs], axis=1), clusters)]
    errors, held = standard_error(parts), concentration(parts)
    return [
        method_verdict(pair.mean(axis=1), documents, float(error), held, by_items=_spread_by_items(pair))
        for pair, documents, error in zip(pairs, difference_intervals(parts, seed=seed), errors, strict=True)
    ]


def _spread_by_items(pair: Floats) -> float:
    """How far means would spread over seeds if items changed from seed to seed independently of each other."""
    return float(np.sqrt(pair.var(axis=0, ddof=1).sum())) / pair.shape[1] if len(pair) > 1 else 0.0


def method_verdict(
    per_seed: Floats, over_documents: Estimate, error: float, held: float = 0.0, *, by_items: float = 0.0
) -> MethodVerdict:
    """Another seed or other documents might make the difference vanish; it is shown only if neither can explain it, nor both.

    `per_seed` are the differences of the pairs of runs; `error` is the standard error of their mean over documents, `held` their
    `concentration`. `by_items` stands in for the spread where different items happen to give every pair the same difference:
    whole numbers of hits do meet.
    """
    k, mean = len(per_seed), float(per_seed.mean())
    spread = float(per_seed.std(ddof=1)) if k > 1 else 0.0
    by_seeds = (spread if spread > _NO_SPREAD else by_items) / math.sqrt(k)
    if by_seeds <= _NO_SPREAD:  # one pair; or as many as one likes that are copies of each other
        return MethodVerdict(mean, None, over_documents, None, False)
    both, degrees = _both(by_seeds, k - 1, error, held)
    seeds = _student(mean, by_seeds, k - 1, k)
    together = _student(mean, both, degrees, over_documents.n)
    shown = all(interval.low > 0 or interval.high < 0 for interval in (seeds, over_documents, together))
    could = max(_showable(by_seeds, k - 1), _showable(both, degrees), detectable(error, concentration=held) or 0.0)
    p = 2 * (1 - t_cdf(abs(mean) / by_seeds, k - 1))
    return MethodVerdict(mean, seeds, over_documents, p, shown, could if k > 2 else None, together)


def _both(by_seeds: float, seed_degrees: int, by_documents: float, held: float) -> tuple[float, int]:
    """The standard error from seeds and documents together, and its degrees of freedom (Satterthwaite, whole ones)."""
    total = by_seeds**2 + by_documents**2
    documents = max(1.0, 1 / held - 1) if held else math.inf
    degrees = total**2 / (by_seeds**4 / seed_degrees + by_documents**4 / documents)
    return math.sqrt(total), max(1, min(int(degrees), _MANY))


def _student(mean: float, error: float, degrees: int, n: int) -> Estimate:
    reach = t_quantile((1 + LEVEL) / 2, degrees) * error
    return Estimate(mean, mean - reach, mean + reach, n)


def _showable(error: float, degrees: int) -> float:
    return (t_quantile((1 + LEVEL) / 2, degrees) + t_quantile(POWER, degrees)) * error


@dataclass(frozen=True, slots=True)
class Bounds:
    """Simultaneous upper bounds of (best - it): `upper` now, and `at(f)` were there f times as many documents alike."""

    gaps: Floats
    reach: Floats
    documents: int

    @property
    def upper(self) -> Floats:
        return self.at(1.0)

    def at(self, factor: float) -> Floats:
        """`gaps[j, i]` is how far j leads i, `reach[j, i]` what chance may have hidden; the best may be any j."""
        return np.asarray((self.gaps + self.reach / math.sqrt(factor)).max(axis=0))


def simultaneous_bounds(parts: Sequence[Part], *, seed: int, draws: int = DRAWS, level: float = LEVEL) -> Bounds:
    """For every column, how far the truly best column may lie above it: with 95% confidence none of the bounds is too low.

    Multiple comparisons with the best (Hsu): for each column j taken as the best, c_j is the quantile of the largest studentised,
    recentred bootstrap difference (j - i) over all i; the bound of i is the largest (j - i) + c_j x standard error over j.
    Whichever column is truly best, its own c_j covers: choosing the winner on the same data is paid for.
    """
    gathered = [gather(part) for part in parts]
    means = _means(gathered)
    recentred = (resampled_means(gathered, seed=seed, draws=draws) - means).astype(np.float32)
    covariance = sum(part.covariance() for part in gathered)
    variances = np.diag(covariance)
    errors = np.sqrt(np.maximum(0.0, variances[:, None] + variances[None, :] - 2 * covariance))
    documents = min(part.documents for part in gathered)
    if documents == 1:
        return Bounds(
            means[:, None] - means[None, :], np.ones_like(errors), documents
        )  # one document says nothing about the next
    scales = np.divide(1, errors, out=np.zeros_like(errors), where=errors > 1e-12).astype(np.float32)
    largest = np.empty((len(means), draws), np.float32)
    for start in range(0, draws, rows := max(1, (1 << 18) // len(means))):  # blocks that stay in the processor's cache
        block = recentred[start : start + rows]
        for best, scale in enumerate(scales):
            largest[best, start : start + rows] = ((block - block[:, best : best + 1]) * scale).max(axis=1)
    widen = t_quantile(level, documents - 1) / NORMAL.inv_cdf(level)
    reach = np.maximum(0.0, np.quantile(largest, level, axis=1))[:, None] * widen * errors
    return Bounds(means[:, None] - means[None, :], reach, documents)


def _intervals(gathered: Sequence[Gathered], *, seed: int, draws: int) -> list[Estimate]:
    """Percentile intervals at levels widened for few documents (Hesterberg's expanded percentile)."""
    documents = min(part.documents for part in gathered)
    tail = (1 - LEVEL) / 2
    if documents > 1:
        tail = NORMAL.cdf(-math.sqrt(documents / (documents - 1)) * t_quantile(1 - tail, documents - 1))
    low, high = np.quantile(resampled_means(gathered, seed=seed, draws=draws), [tail, 1 - tail], axis=0)
    items = sum(part.items for part in gathered)
    return [Estimate(float(m), float(lo), float(hi), items) for m, lo, hi in zip(_means(gathered), low, high, strict=True)]


def _means(gathered: Sequence[Gathered]) -> Floats:
    return np.asarray(sum(part.means() for part in gathered))


def _minus(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64))
