"""Verdicts about methods, runs crossed with documents. In: each run's values, item by item. Out: Verdicts. Pure.

Every run of both methods is scored on the same items. The difference varies with the documents and with the seeds. The document
test (`documents`) gives an interval; what seeds add is a second squared term beside it. Much of the variance over seeds is single
items that flip, which the variance over documents contains already, so it is taken off. The variance over seeds is pooled over
the methods of a study (`runs`). A copy of a run is no further seed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate, Record
from coref_automl.statistics.closed_forms import (
    LEVEL,
    NORMAL,
    POWER,
    inverted_p,
    satterthwaite,
    t_quantile,
    t_quantiles,
    wilson,
)
from coref_automl.statistics.documents import DocumentTest
from coref_automl.statistics.resampling import Floats, Part, gather
from coref_automl.statistics.runs import copies, distinct, seed_variances

Reason = Literal["", "one seed", "copies", "one document", "few documents", "same"]
_ZERO = 1e-12
_MANY = 200
"""Degrees of freedom from which on Student's distribution is taken to be normal."""
_ENOUGH = 4
"""Degrees of freedom over seeds from which on flips are subtracted with the product of both quantiles: set by simulation."""
_FAR = 1e3
"""Stands for an interval without end, as of few documents at a corrected level."""


@dataclass(frozen=True, eq=False)
class Spread:
    """What the difference of two methods varies by; leading axes are sets of items.

    `documents` is the variance over documents with its degrees, `seeds` that over runs, `flips` the part of it due to single
    items that flip; `fewest` and `most` are the numbers of runs of the two methods.
    """

    test: DocumentTest
    documents: Floats
    document_degrees: float
    seeds: Floats
    flips: Floats
    seed_degrees: Floats
    fewest: int
    most: int

    @property
    def flips_removed(self) -> Floats:
        """The share of the flips that is subtracted from the variance over seeds. With a single degree of freedom flips are known
        too badly to subtract more than half of them, or any if the other side has more runs, whose flips are others."""
        few = 0.5 if self.most == self.fewest else 0.0
        return np.where(np.asarray(self.seed_degrees) + _ZERO >= 2, 1.0, few)

    @property
    def beyond(self) -> Floats:
        """The variance that seeds add to that over documents."""
        return np.asarray(np.maximum(0.0, self.seeds - self.flips_removed * self.flips))

    def reach(self, level: float = LEVEL, *, up: bool | None = None) -> Floats:
        """The distance from the difference to its interval's end, `up`, down or on the side of 0.

        The root of two squared terms: that of the document test, and what seeds add, a squared Student quantile times their
        variance. Flips are known better, and subtracted with the normal quantile, or with the product of both from four
        degrees of freedom on. If all items differ equally there is
        no variance: Wilson's width for n of n is the minimum.
        """
        normal = NORMAL.inv_cdf((1 + level) / 2)
        quantile = t_quantiles((1 + level) / 2, np.clip(self.seed_degrees, 1, _MANY))
        subtracted = normal * np.where(np.asarray(self.seed_degrees) + _ZERO >= _ENOUGH, quantile, normal)
        by_seeds = quantile**2 * self.seeds - subtracted * self.flips_removed * self.flips
        both = self.test.reach(level, up=up, seeds=np.maximum(0.0, by_seeds))
        minimum = 1 - wilson(self.test.documents, self.test.documents, level).low
        flat = self.documents + self.seeds <= _ZERO**2
        return np.minimum(_FAR, np.where(flat, np.maximum(both, minimum), both))


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """Is one method better than another? Shown if the 95% interval excludes 0, which is the same as p under 0.05.

    `by_documents` is the standard error over documents, `by_seeds` what seeds add to it; copies do not count among `seeds`. If no
    difference could be shown, `reason` says why and p is 1: one seed; runs that are copies of each other; one document; few
    documents (under seven, or under six that differ); no item that differs. `detectable` is about the true difference that is
    detected with 80% power; None where the variance over seeds has one degree of freedom.
    """

    difference: float
    interval: Estimate
    p: float
    shown: bool
    by_documents: float
    by_seeds: float
    seeds: tuple[int, int]
    documents: int
    spread: Spread
    detectable: float | None = None
    reason: Reason = ""

    def interval_at(self, level: float) -> Estimate:
        if self.reason:
            down = up = _unknown(self.reason, self.spread, level)
        else:
            spread = _computing(self.spread)
            down, up = (float(spread.reach(level, up=side)) for side in (False, True))
        return Estimate(self.difference, self.difference - down, self.difference + up, self.interval.n)


def crossed(
    a: Sequence[ArrayLike],
    b: Sequence[ArrayLike],
    clusters: Sequence[ArrayLike],
    *,
    against_model: bool = False,
    others: Sequence[ArrayLike] = (),
) -> Verdict:
    """Compare the runs of two methods on the same items; the numbers of runs may differ.

    Each side has one matrix per part, which have documents of their own (the tasks of a composite; weights are in the values):
    one row per run, one column per item. `against_model`: b is a fixed model (the base), not one run of a method. `others` are
    the run means of the study's other methods on these items, whose variance over seeds is pooled with that of the two.
    """
    ours, theirs = ([np.asarray(part, np.float64) for part in side] for side in (a, b))
    _check(ours, theirs, clusters)
    if against_model and len(theirs[0]) != 1:
        raise ValueError(f"A model stands for itself: one row of values, not {len(theirs[0])}.")
    reason = _reason(ours, theirs, against_model)
    ours, theirs = _without_copies(ours), _without_copies(theirs)
    count = len(ours[0])
    gathered = [gather(Part(np.concatenate(sides).T, of)) for *sides, of in zip(ours, theirs, clusters, strict=True)]
    first, second = ([part.sums.T[rows] for part in gathered] for rows in (slice(count), slice(count, None)))
    spread = spread_of(first, second, [part.sizes for part in gathered], others=others)
    documents = min(part.documents for part in gathered)
    if reason != "same":
        few: Reason = "few documents" if spread.test.few else ""
        reason = "one document" if documents < 2 else reason or few
    difference = 0.0 if reason == "same" else float(spread.test.difference)  # sums in another order differ in the last bit
    seeds = (count, len(theirs[0]))
    by_documents, by_seeds = math.sqrt(spread.documents), 0.0 if reason else math.sqrt(spread.beyond)
    estimate = Estimate(difference, difference, difference, sum(part.items for part in gathered))
    verdict = Verdict(difference, estimate, 1.0, False, by_documents, by_seeds, seeds, documents, spread, None, reason)
    return _judged(verdict)


def _judged(verdict: Verdict) -> Verdict:
    given: dict[str, Any] = {name: getattr(verdict, name) for name in Verdict.__slots__}
    given["interval"], given["spread"] = verdict.interval_at(LEVEL), _stored(verdict.spread)
    if verdict.reason:
        return Verdict(**given)
    spread, size = verdict.spread, abs(verdict.difference)
    half = float(spread.reach(LEVEL))
    error = math.hypot(verdict.by_documents, verdict.by_seeds) or half
    given["p"] = inverted_p(verdict.difference, lambda level: float(spread.reach(level)))
    given["shown"] = size > half
    if spread.seed_degrees + _ZERO >= 2 and half < _FAR:
        given["detectable"] = half + t_quantile(POWER, _degrees(half / error)) * error
    return Verdict(**given)


def spread_of(a: Sequence[Floats], b: Sequence[Floats], sizes: Sequence[Floats], *, others: Sequence[ArrayLike] = ()) -> Spread:
    """The spread of a mean over documents, or of a sum of means over several parts, which share no documents.

    Of each part: the sums by document, shape (..., runs, documents), and the documents' numbers of items.
    """
    first, second = _Side.of(a, sizes), _Side.of(b, sizes)
    moves = zip(first.moves, second.moves, strict=True)
    documents = [((x.mean(axis=-2) - y.mean(axis=-2)) ** 2).sum(axis=-1) for x, y in moves]
    degrees = [max(1.0, float(size.sum()) ** 2 / float((size**2).sum()) - 1) for size in sizes]
    zero = np.zeros_like(documents[0])
    several = [side for side in (first, second) if side.runs > 1]
    known = [means for each in others if (means := np.asarray(each, np.float64)).shape[-1] > 1]
    seeds, freedom = seeds_of([side.means for side in several], known)
    differences = [x.mean(axis=-2) - y.mean(axis=-2) for x, y in zip(a, b, strict=True)]
    return Spread(
        DocumentTest.of(differences, sizes),
        np.asarray(sum(documents, zero)),
        float(satterthwaite(documents, degrees, zero).min()),
        zero + seeds,
        np.asarray(sum((side.flips() for side in several), zero)),
        zero + freedom,
        min((side.runs for side in several), default=1),
        max((side.runs for side in several), default=1),
    )


def _stored(spread: Spread) -> Spread:
    """The same with plain numbers in place of arrays, as a record holds them."""
    stored: Spread = _each(replace(spread, test=_each(spread.test, lambda value: np.asarray(value).tolist())), float)
    return stored


def _computing(spread: Spread) -> Spread:
    return replace(spread, test=_each(spread.test, np.asarray))


def _each(record: Any, convert: Callable[[Any], Any]) -> Any:
    values = {one.name: getattr(record, one.name) for one in fields(record)}
    kept = (int, DocumentTest)
    return replace(record, **{name: value if isinstance(value, kept) else convert(value) for name, value in values.items()})


def seeds_of(sides: Sequence[Floats], others: Sequence[Floats] = ()) -> tuple[Floats, Floats]:
    """The variance over seeds of the difference, from the run means of its sides that have several, and its degrees of freedom.

    Degrees are Satterthwaite's, whole; two sides that know one pool know no more than the pool.
    """
    if not sides:
        return np.zeros(()), np.full((), float(_MANY))
    pooled = seed_variances([*sides, *others])
    own, degrees = pooled.own[..., : len(sides)], pooled.degrees[..., : len(sides)]
    variances = pooled.variances[..., : len(sides)] / [side.shape[-1] for side in sides]
    total, per_degree = variances.sum(axis=-1), (variances**2 / degrees).sum(axis=-1)
    most = np.where(own.all(axis=-1), np.inf, degrees.max(axis=-1))
    fewest = np.array(degrees.min(axis=-1))
    combined = np.divide(total**2, per_degree, out=fewest, where=per_degree > 0)
    return total, np.floor(np.minimum(combined, most) + 1e-6)


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

    def flips(self) -> Floats:
        """The variance of the mean over runs that the interaction of documents with runs explains."""
        deviations = [part - part.mean(axis=-2, keepdims=True) for part in self.moves]
        squares = sum((part**2).sum(axis=(-2, -1)) for part in deviations)
        return np.asarray(squares / (self.runs * (self.runs - 1)))


def _unknown(reason: Reason, spread: Spread, level: float) -> float:
    """Half the interval if nothing can be shown: that of documents by Student; 1 for one document; 0 if no item differs."""
    if reason in ("one document", "same"):
        return float(reason == "one document")
    degrees = max(1, min(int(spread.document_degrees + 1e-6), _MANY))
    return t_quantile((1 + level) / 2, degrees) * math.sqrt(spread.documents)


def _check(a: Sequence[Floats], b: Sequence[Floats], clusters: Sequence[ArrayLike]) -> None:
    """Refuse matrices that do not fit together."""
    if not len(a) == len(b) == len(clusters) or not a:
        counts = f"{len(a)} and {len(b)} sets of values and {len(clusters)} of clusters"
        raise ValueError(f"{counts}: there must be as many of each.")
    runs = [{len(matrix) for matrix in side} for side in (a, b)]
    if any(len(counts) > 1 for counts in runs) or 0 in runs[0] | runs[1]:
        raise ValueError("Every part of a composite needs the values of the same runs, at least one on either side.")
    for x, y in zip(a, b, strict=True):
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
            raise ValueError("Both methods need values of the same items: one row per run, one column per item.")


def _without_copies(side: Sequence[Floats]) -> list[Floats]:
    runs = len(side[0])
    kept = distinct(runs, copies(np.concatenate(side, axis=1), [None] * runs))
    return [part[kept] for part in side]


def _reason(a: Sequence[Floats], b: Sequence[Floats], against_model: bool) -> Reason:
    first, second = np.concatenate(list(a), axis=1), np.concatenate(list(b), axis=1)
    if bool(np.all(first == first[:1])) and bool(np.all(second == first[:1])):
        return "same"
    if len(first) < 2 or (len(second) < 2 and not against_model):
        return "one seed"
    single = [len(_without_copies([side])[0]) == 1 < len(side) for side in (first, second)]
    return "copies" if any(single) else ""


def _degrees(ratio: float) -> int:
    """The largest number of degrees of freedom whose quantile is at least this ratio of half width to standard error."""

    def falling(degrees: int) -> float:
        return -t_quantile((1 + LEVEL) / 2, degrees)

    return 1 + bisect_right(range(2, _MANY + 1), -ratio, key=falling)


CrossedVerdict = Verdict
composite_crossed = crossed


def crossed_verdict(a: ArrayLike, b: ArrayLike, clusters: ArrayLike, *, against_model: bool = False) -> Verdict:
    """`crossed` for one part."""
    return crossed([a], [b], [clusters], against_model=against_model)
