"""Verdicts about methods, runs crossed with documents. In: each run's values, item by item. Out: CrossedVerdicts. Pure.

Every run of either method answers the same items. Other documents would move the difference, and so would other seeds; but much
of what differs from seed to seed is items that flip one by one, which the spread over documents holds already. Only what seeds
add beyond that counts as theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, POWER, inverted_p, t_quantile, wilson
from coref_automl.statistics.resampling import Floats, Part, gather

Reason = Literal["", "one seed", "copies", "one document", "same"]
_NONE = 1e-12
_MANY = 200
"""Degrees of freedom from which on Student's distribution is as good as the normal one."""
FEW_DOCUMENTS, TIGHTER = 100, 1.05
"""Fewer documents than this (as many as there would be of equal size) widen the interval by this factor, and so do two runs
beside more: found by simulation."""
_VARIANCES = ("difference", "documents", "seeds", "flips", "seed_degrees")
HARDLY_ANY = 6
"""Fewer than this keep the rule of three intervals: over runs, over documents, and of both variances added."""


@dataclass(frozen=True, slots=True)
class Crossed(Record):
    """The difference of two methods and its variances, from which its interval follows at any level; leading axes are sets judged
    side by side.

    `documents` is the variance over documents, `seeds` that over runs, `flips` the part of it that is items changing one by one;
    `fewest` and `most` are the numbers of runs of the two methods, `documents_seen` counts documents whatever their size.
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
    def taken_off(self) -> float:
        """The share of flips that is not the seeds' own. Two seeds say too little about flips to take off more than half, and
        nothing where the other side has more: its flips are not theirs."""
        return 1.0 if self.fewest > 2 else 0.5 if self.most == self.fewest else 0.0

    @property
    def beyond(self) -> Floats:
        """What seeds add to the variance over documents."""
        return np.asarray(np.maximum(0.0, self.seeds - self.taken_off * self.flips))

    def half_width(self, level: float = LEVEL) -> Floats:
        """Half the interval; where every item differs by as much, the number of documents is what is known, as it is at no hit or
        only hits."""
        found, least = self._half_width(level), 1 - wilson(self.documents_seen, self.documents_seen, level).low
        return np.where(self.documents + self.beyond > _NONE**2, found, np.maximum(found, least))

    def _half_width(self, level: float) -> Floats:
        """Student's for documents and for what seeds add, squares added.

        Runs that happen to lie close together leave nothing beyond their flips, the more easily the fewer they are; Student's
        quantile knows of that chance, and what is taken off must not outgrow it. So from the 95% interval on outwards it grows
        with the normal quantile alone.

        Where a few documents hold nearly all items that is wider than it need be: there the widest of three intervals stands.
        """
        if self.document_degrees + 1 < HARDLY_ANY:
            return self._widest_of_three(level)
        own, theirs = _quantile(self.document_degrees, level), _quantiles(self.seed_degrees, level)
        outwards = NORMAL.inv_cdf((1 + level) / 2) / NORMAL.inv_cdf((1 + LEVEL) / 2)
        off = np.minimum(theirs, _quantiles(self.seed_degrees, LEVEL) * outwards) ** 2 * self.taken_off * self.flips
        few = self.document_degrees + 1 < FEW_DOCUMENTS or self.fewest == 2 < self.most
        wider = TIGHTER if few else 1.0
        return np.asarray(wider * np.sqrt(own**2 * self.documents + np.maximum(0.0, theirs**2 * self.seeds - off)))

    def _widest_of_three(self, level: float) -> Floats:
        both, few = np.asarray(self.documents + self.seeds), max(1, self.fewest - 1)
        spent = self.seeds**2 / few + self.documents**2 / self.document_degrees
        degrees = np.divide(both**2, spent, out=np.ones_like(both), where=spent > 0)
        over_runs = _quantile(few, level) * np.sqrt(self.seeds)
        over_documents = _quantile(self.documents_seen - 1, level) * np.sqrt(self.documents)
        return np.asarray(np.maximum(np.maximum(over_runs, over_documents), _quantiles(degrees, level) * np.sqrt(both)))


@dataclass(frozen=True, slots=True)
class CrossedVerdict(Record):
    """Is one way of training better than another? Shown if the 95% interval excludes 0, which is the same as p under 0.05.

    `by_documents` is the standard error from documents, `by_seeds` what seeds add to it. Where nothing can be shown whatever the
    difference is, `reason` says why and p is 1: one seed; runs that are copies of each other; one document; no item that differs.
    `detectable` is about the true difference that is detected with 80% power; None under three seeds.
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
        half = _shut(self.reason, self.spread, level) if self.reason else float(self.spread.half_width(level))
        return Estimate(self.difference, self.difference - half, self.difference + half, self.interval.n)


def crossed_verdict(
    a: Sequence[ArrayLike] | Floats, b: Sequence[ArrayLike] | Floats, clusters: ArrayLike, *, against_model: bool = False
) -> CrossedVerdict:
    """Runs of two methods on the same items: `a[k]` and `b[k]` are values item by item; their numbers may differ.

    `against_model`: b is one model that stands for itself (the base), not a run of a method.
    """
    return composite_crossed([np.asarray(a, np.float64)], [np.asarray(b, np.float64)], [clusters], against_model=against_model)


def crossed(a: Floats, b: Floats, sizes: Floats) -> Crossed:
    """From sums by document, shape (..., runs, documents); `sizes` are the documents' items."""
    return crossed_parts([a], [b], [sizes])


def crossed_parts(a: Sequence[Floats], b: Sequence[Floats], sizes: Sequence[Floats]) -> Crossed:
    """The means of the parts are added, their documents are different ones."""
    ours, theirs = _Side.of(a, sizes), _Side.of(b, sizes)
    documents = [((x.mean(axis=-2) - y.mean(axis=-2)) ** 2).sum(axis=-1) for x, y in zip(ours.moves, theirs.moves, strict=True)]
    effective = [max(1.0, float(size.sum()) ** 2 / float((size**2).sum()) - 1) for size in sizes]
    several = [side for side in (ours, theirs) if side.runs > 1]
    nothing = np.zeros_like(documents[0])
    seeds = [side.spread() for side in several]
    return Crossed(
        ours.means.mean(axis=-1) - theirs.means.mean(axis=-1),
        sum(documents, nothing),
        sum(seeds, nothing),
        sum((side.flips() for side in several), nothing),
        _satterthwaite(seeds, [side.runs - 1 for side in several], nothing),
        float(_satterthwaite(documents, effective, nothing).min()),
        min((side.runs for side in several), default=1),
        max((side.runs for side in several), default=1),
        min(len(size) for size in sizes),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """The runs of one method: their means, and how each document moves them (the jackknife), part by part."""

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

    def spread(self) -> Floats:
        """The variance of the mean over runs."""
        return np.asarray(self.means.var(axis=-1, ddof=1) / self.runs)

    def flips(self) -> Floats:
        """The part of it that documents crossed with runs explain."""
        apart = [part - part.mean(axis=-2, keepdims=True) for part in self.moves]
        return np.asarray(sum((one**2).sum(axis=(-2, -1)) for one in apart) / (self.runs * (self.runs - 1)))


def _satterthwaite(variances: Sequence[Floats], degrees: Sequence[float], nothing: Floats) -> Floats:
    """Degrees of freedom of a sum of variances, each with its own; the fewest where there is no variance."""
    total = sum(variances, nothing)
    spent = sum((one**2 / each for one, each in zip(variances, degrees, strict=True)), nothing)
    found = np.divide(total**2, spent, out=np.zeros_like(total), where=spent > 0)
    return np.maximum(min(degrees, default=1.0), found)


def _quantile(degrees: float, level: float) -> float:
    """Where Student's interval ends, degrees rounded down."""
    return t_quantile((1 + level) / 2, max(1, min(int(degrees + 1e-6), _MANY)))


def _quantiles(degrees: Floats | float, level: float) -> Floats:
    whole, place = np.unique(np.minimum(np.asarray(degrees) + 1e-6, _MANY).astype(np.int64), return_inverse=True)
    return np.asarray(np.array([_quantile(int(each), level) for each in whole])[place].reshape(np.shape(degrees)))


def composite_crossed(
    a: Sequence[Floats], b: Sequence[Floats], clusters: Sequence[ArrayLike], *, against_model: bool = False
) -> CrossedVerdict:
    """The same for sums of means over several sets of items (a composite's tasks, weights in the values).

    Either side has one matrix per set: one row per run, one column per item.
    """
    seeds = _runs(a, b, clusters)
    if against_model and seeds[1] != 1:
        raise ValueError(f"A model stands for itself: one row of values, not {seeds[1]}.")
    gathered = [gather(Part(np.concatenate([x, y]).T, marks)) for x, y, marks in zip(a, b, clusters, strict=True)]
    ours, theirs = ([part.sums.T[side] for part in gathered] for side in (slice(seeds[0]), slice(seeds[0], None)))
    found = crossed_parts(ours, theirs, [part.sizes for part in gathered])
    plain: dict[str, Any] = {name: float(getattr(found, name)) for name in _VARIANCES}
    found = replace(found, **plain)
    items, documents = sum(part.items for part in gathered), min(part.documents for part in gathered)
    reason = _reason(a, b, seeds, documents, against_model)
    difference = 0.0 if reason == "same" else float(found.difference)  # the same sums in another order may differ in the last bit
    half = _shut(reason, found, LEVEL) if reason else float(found.half_width())
    by_documents, by_seeds = math.sqrt(found.documents), 0.0 if reason else math.sqrt(found.beyond)
    error = math.hypot(by_documents, by_seeds) or half
    could = half + t_quantile(POWER, _degrees(half / error)) * error if found.fewest > 2 and not reason else None
    interval = Estimate(difference, difference - half, difference + half, items)
    p = 1.0 if reason else inverted_p(difference, lambda level: float(found.half_width(level)))
    shown = not reason and abs(difference) > half
    return CrossedVerdict(difference, interval, p, shown, by_documents, by_seeds, seeds, documents, found, could, reason)


def _shut(reason: Reason, spread: Crossed, level: float) -> float:
    """Half the interval where nothing can be shown: what documents alone say, all for one document, nothing if none differs."""
    if reason in ("one document", "same"):
        return float(reason == "one document")
    return _quantile(spread.document_degrees, level) * math.sqrt(spread.documents)


def _runs(a: Sequence[Floats], b: Sequence[Floats], clusters: Sequence[ArrayLike]) -> tuple[int, int]:
    """How many runs either side has; what does not fit together is refused."""
    if not len(a) == len(b) == len(clusters) or not a:
        raise ValueError(f"{len(a)} and {len(b)} sets of values and {len(clusters)} of clusters: there must be as many of each.")
    runs = [{len(matrix) for matrix in side} for side in (a, b)]
    if any(len(found) > 1 for found in runs) or 0 in runs[0] | runs[1]:
        raise ValueError("Every part of a composite needs the values of the same runs, at least one on either side.")
    for x, y in zip(a, b, strict=True):
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
            raise ValueError("Both methods need values of the same items: one row per run, one column per item.")
    return runs[0].pop(), runs[1].pop()


def _reason(a: Sequence[Floats], b: Sequence[Floats], seeds: tuple[int, int], documents: int, against_model: bool) -> Reason:
    ours, theirs = np.concatenate(list(a), axis=1), np.concatenate(list(b), axis=1)
    if bool(np.all(ours == ours[:1])) and bool(np.all(theirs == ours[:1])):
        return "same"
    if documents < 2:
        return "one document"
    if seeds[0] < 2 or (seeds[1] < 2 and not against_model):
        return "one seed"
    return "copies" if _copied(ours) or _copied(theirs) else ""


def _copied(runs: Floats) -> bool:
    """Are all runs one and the same? Runs that hit every item, or none, are alike without being copies."""
    return len(runs) > 1 and bool(np.all(runs == runs[:1])) and bool(runs[0].min() < runs[0].max())


def _degrees(ratio: float) -> int:
    """The whole degrees of freedom whose quantile is the interval's half width over its standard error, or next above it."""
    low, high = 1, _MANY
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _quantile(middle, LEVEL) >= ratio else (low, middle - 1)
    return low
