"""Verdicts about methods, runs crossed with documents. In: each run's values, item by item. Out: CrossedVerdicts. Pure.

Every run of both methods is scored on the same items. The difference varies with the documents and with the seeds; but much of
the variance over seeds is single items that flip, which the variance over documents contains already. Only what seeds add beyond
these flips is counted as variance over seeds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, POWER, inverted_p, satterthwaite, t_quantile, t_quantiles, wilson
from coref_automl.statistics.resampling import Floats, Part, gather

Reason = Literal["", "one seed", "copies", "one document", "same"]
_ZERO = 1e-12
_MANY = 200
"""Degrees of freedom from which on Student's distribution is taken to be normal."""
FEW_DOCUMENTS, TIGHTER = 100, 1.05
"""Fewer effective documents than this widen the interval by this factor, as do two runs against more: both set by simulation."""
_VARIANCES = ("difference", "documents", "seeds", "flips", "seed_degrees")
HARDLY_ANY = 6
"""With fewer effective documents than this, the widest of three intervals is used: over runs, over documents, and over both."""


@dataclass(frozen=True, slots=True)
class Crossed(Record):
    """The difference of two methods and its variances, which give its interval at any level; leading axes are sets of items.

    `documents` is the variance over documents, `seeds` that over runs, `flips` the part of it due to single items that flip;
    `fewest` and `most` are the numbers of runs of the two methods, `documents_seen` is the plain number of documents.
    """

    difference: Floats | float
    documents: Floats | float
    seeds: Floats | float
    flips: Floats | float
    seed_degrees: Floats | float
    document_degrees: float
    fewest: int
    most: int
    documents_seen: int

    @property
    def flips_removed(self) -> float:
        """The share of the flips that is subtracted from the variance over seeds. From two seeds flips are known too badly to
        subtract more than half of them, or any if the other side has more runs, whose flips are others."""
        return 1.0 if self.fewest > 2 else 0.5 if self.most == self.fewest else 0.0

    @property
    def beyond(self) -> Floats:
        """The variance that seeds add to that over documents."""
        return np.asarray(np.maximum(0.0, self.seeds - self.flips_removed * self.flips))

    def half_width(self, level: float = LEVEL) -> Floats:
        """Half the interval's width. If all items differ equally, the variance is 0: Wilson's width for n of n is the minimum."""
        half, minimum = self._half_width(level), 1 - wilson(self.documents_seen, self.documents_seen, level).low
        return np.where(self.documents + self.beyond > _ZERO**2, half, np.maximum(half, minimum))

    def _half_width(self, level: float) -> Floats:
        """The root of two squared terms, each a Student quantile times a standard error: of documents, and of what seeds add.

        The few runs of a method may lie close together by chance, and then nothing is left beyond their flips. Student's quantile
        allows for that chance, which the flips subtracted must not outgrow: outside the 95% interval they grow with the normal
        quantile only. If nearly all items are in a few documents, this is too wide, and the widest of three intervals is used.
        """
        if self.document_degrees + 1 < HARDLY_ANY:
            return self._widest_of_three(level)
        by_documents, by_seeds = _quantile(self.document_degrees, level), _quantiles(self.seed_degrees, level)
        normal = NORMAL.inv_cdf((1 + level) / 2) / NORMAL.inv_cdf((1 + LEVEL) / 2)
        by_flips = np.minimum(by_seeds, _quantiles(self.seed_degrees, LEVEL) * normal)
        beyond = by_seeds**2 * self.seeds - by_flips**2 * self.flips_removed * self.flips
        few = self.document_degrees + 1 < FEW_DOCUMENTS or self.fewest == 2 < self.most
        return np.asarray((TIGHTER if few else 1.0) * np.sqrt(by_documents**2 * self.documents + np.maximum(0.0, beyond)))

    def _widest_of_three(self, level: float) -> Floats:
        both, run_degrees = np.asarray(self.documents + self.seeds), max(1, self.fewest - 1)
        variances = [np.asarray(self.seeds), np.asarray(self.documents)]
        degrees = satterthwaite(variances, [run_degrees, self.document_degrees])
        over_runs = _quantile(run_degrees, level) * np.sqrt(self.seeds)
        over_documents = _quantile(self.documents_seen - 1, level) * np.sqrt(self.documents)
        return np.asarray(np.maximum(np.maximum(over_runs, over_documents), _quantiles(degrees, level) * np.sqrt(both)))


@dataclass(frozen=True, slots=True)
class CrossedVerdict(Record):
    """Is one method better than another? Shown if the 95% interval excludes 0, which is the same as p under 0.05.

    `by_documents` is the standard error over documents, `by_seeds` what seeds add to it. If none could be shown, `reason` says
    why and p is 1: one seed; runs that are copies of each other; one document; no item that differs. `detectable` is about the
    true difference that is detected with 80% power; None under three seeds.
    """

    difference: float
    interval: Estimate
    p: float
    shown: bool
    by_documents: float
    by_seeds: float
    seeds: tuple[int, int]
    documents: int
    spread: Crossed
    detectable: float | None = None
    reason: Reason = ""

    def interval_at(self, level: float) -> Estimate:
        half = _half_width_of_unknown(self.reason, self.spread, level) if self.reason else float(self.spread.half_width(level))
        return Estimate(self.difference, self.difference - half, self.difference + half, self.interval.n)


def crossed_verdict(
    a: Sequence[ArrayLike] | Floats, b: Sequence[ArrayLike] | Floats, clusters: ArrayLike, *, against_model: bool = False
) -> CrossedVerdict:
    """Compare the runs of two methods on the same items: `a[k]` and `b[k]` are the values of run k; numbers of runs may differ.

    `against_model`: b is a fixed model (the base), not one run of a method.
    """
    return composite_crossed([np.asarray(a, np.float64)], [np.asarray(b, np.float64)], [clusters], against_model=against_model)


def crossed(a: Sequence[Floats], b: Sequence[Floats], sizes: Sequence[Floats]) -> Crossed:
    """Variance components of a mean over documents, or of a sum of means over several parts, which share no documents.

    Of each part: the sums by document, shape (..., runs, documents), and the documents' numbers of items.
    """
    first, second = _Side.of(a, sizes), _Side.of(b, sizes)
    documents = [((x.mean(axis=-2) - y.mean(axis=-2)) ** 2).sum(axis=-1) for x, y in zip(first.moves, second.moves, strict=True)]
    document_degrees = [max(1.0, float(size.sum()) ** 2 / float((size**2).sum()) - 1) for size in sizes]
    several = [side for side in (first, second) if side.runs > 1]
    zero = np.zeros_like(documents[0])
    seeds = [side.variance() for side in several]
    return Crossed(
        first.means.mean(axis=-1) - second.means.mean(axis=-1),
        sum(documents, zero),
        sum(seeds, zero),
        sum((side.flips() for side in several), zero),
        satterthwaite(seeds, [side.runs - 1 for side in several], zero),
        float(satterthwaite(documents, document_degrees, zero).min()),
        min((side.runs for side in several), default=1),
        max((side.runs for side in several), default=1),
        min(len(size) for size in sizes),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """The runs of one method: their means, and by part the jackknife deviation of each document."""

    means: Floats
    moves: tuple[Floats, ...]

    @classmethod
    def of(cls, parts: Sequence[Floats], sizes: Sequence[Floats]) -> _Side:
        means, moves = np.zeros(parts[0].shape[:-1]), []
        for sums, size in zip(parts, sizes, strict=True):
            items, mean = float(size.sum()), sums.sum(axis=-1) / size.sum()
            scale = math.sqrt(1 - 1 / len(size)) / np.maximum(1.0, items - size)
            moves.append((sums - size * mean[..., None]) * scale)
            means = means + mean
        return cls(means, tuple(moves))

    @property
    def runs(self) -> int:
        return int(self.means.shape[-1])

    def variance(self) -> Floats:
        """The variance of the mean over runs."""
        return np.asarray(self.means.var(axis=-1, ddof=1) / self.runs)

    def flips(self) -> Floats:
        """The part of this variance that the interaction of documents with runs explains."""
        deviations = [part - part.mean(axis=-2, keepdims=True) for part in self.moves]
        return np.asarray(sum((part**2).sum(axis=(-2, -1)) for part in deviations) / (self.runs * (self.runs - 1)))


def _quantile(degrees: float, level: float) -> float:
    """The two-sided Student quantile at a level, degrees rounded down."""
    return t_quantile((1 + level) / 2, max(1, min(int(degrees + 1e-6), _MANY)))


def _quantiles(degrees: Floats | float, level: float) -> Floats:
    return t_quantiles((1 + level) / 2, np.clip(degrees, 1, _MANY))


def composite_crossed(
    a: Sequence[Floats], b: Sequence[Floats], clusters: Sequence[ArrayLike], *, against_model: bool = False
) -> CrossedVerdict:
    """`crossed_verdict` for a sum of means over several sets of items (the tasks of a composite; weights are in the values).

    Each side has one matrix per set: one row per run, one column per item.
    """
    seeds = _runs(a, b, clusters)
    if against_model and seeds[1] != 1:
        raise ValueError(f"A model stands for itself: one row of values, not {seeds[1]}.")
    gathered = [gather(Part(np.concatenate([x, y]).T, documents)) for x, y, documents in zip(a, b, clusters, strict=True)]
    of_a, of_b = ([part.sums.T[rows] for part in gathered] for rows in (slice(seeds[0]), slice(seeds[0], None)))
    spread = crossed(of_a, of_b, [part.sizes for part in gathered])
    plain: dict[str, Any] = {name: float(getattr(spread, name)) for name in _VARIANCES}
    spread = replace(spread, **plain)
    items, documents = sum(part.items for part in gathered), min(part.documents for part in gathered)
    reason = _reason(a, b, seeds, documents, against_model)
    difference = 0.0 if reason == "same" else float(spread.difference)  # sums in another order may differ in the last bit
    half = _half_width_of_unknown(reason, spread, LEVEL) if reason else float(spread.half_width())
    by_documents, by_seeds = math.sqrt(spread.documents), 0.0 if reason else math.sqrt(spread.beyond)
    error = math.hypot(by_documents, by_seeds) or half
    detectable = half + t_quantile(POWER, _degrees(half / error)) * error if spread.fewest > 2 and not reason else None
    interval = Estimate(difference, difference - half, difference + half, items)
    p = 1.0 if reason else inverted_p(difference, lambda level: float(spread.half_width(level)))
    shown = not reason and abs(difference) > half
    return CrossedVerdict(difference, interval, p, shown, by_documents, by_seeds, seeds, documents, spread, detectable, reason)


def _half_width_of_unknown(reason: Reason, spread: Crossed, level: float) -> float:
    """Half the interval's width if nothing can be shown: that of documents only; 1 for one document; 0 if no item differs."""
    if reason in ("one document", "same"):
        return float(reason == "one document")
    return _quantile(spread.document_degrees, level) * math.sqrt(spread.documents)


def _runs(a: Sequence[Floats], b: Sequence[Floats], clusters: Sequence[ArrayLike]) -> tuple[int, int]:
    """The number of runs of each side; refuse matrices that do not fit together."""
    if not len(a) == len(b) == len(clusters) or not a:
        raise ValueError(f"{len(a)} and {len(b)} sets of values and {len(clusters)} of clusters: there must be as many of each.")
    runs = [{len(matrix) for matrix in side} for side in (a, b)]
    if any(len(counts) > 1 for counts in runs) or 0 in runs[0] | runs[1]:
        raise ValueError("Every part of a composite needs the values of the same runs, at least one on either side.")
    for x, y in zip(a, b, strict=True):
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
            raise ValueError("Both methods need values of the same items: one row per run, one column per item.")
    return runs[0].pop(), runs[1].pop()


def _reason(a: Sequence[Floats], b: Sequence[Floats], seeds: tuple[int, int], documents: int, against_model: bool) -> Reason:
    first, second = np.concatenate(list(a), axis=1), np.concatenate(list(b), axis=1)
    if bool(np.all(first == first[:1])) and bool(np.all(second == first[:1])):
        return "same"
    if documents < 2:
        return "one document"
    if seeds[0] < 2 or (seeds[1] < 2 and not against_model):
        return "one seed"
    return "copies" if _are_copies(first) or _are_copies(second) else ""


def _are_copies(runs: Floats) -> bool:
    """Are all runs the same, item by item? Runs that hit all items, or none, are equal without being copies."""
    return len(runs) > 1 and bool(np.all(runs == runs[:1])) and bool(runs[0].min() < runs[0].max())


def _degrees(ratio: float) -> int:
    """The largest number of degrees of freedom whose quantile is at least this ratio of half width to standard error."""
    return 1 + bisect_right(range(2, _MANY + 1), -ratio, key=lambda degrees: -_quantile(degrees, LEVEL))  # quantiles fall
