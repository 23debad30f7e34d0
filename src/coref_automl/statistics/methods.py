"""Outcomes that are no share of hits, and verdicts on runs paired by seed. In: values by item, sums by document. Pure.

Runs paired by seed: another seed or other documents might make a difference vanish; it is shown only if neither can explain it,
nor both together.

MRR is the mean of reciprocal ranks. An F1 of sums over documents is not a mean, so each document gets the
value by which it moves it (the first-order term: its influence), weighted by its size; the weighted mean is the F1 itself, and
runs can be crossed with documents as they are for hits. Sums are (hit, gold, right, given): recall is hit / gold, precision right
/ given, each after adding up all documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, POWER, t_cdf, t_quantile
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.intervals import detectable
from coref_automl.statistics.resampling import Floats

_NO_SPREAD = 1e-12
_MANY = 200
"""Degrees of freedom from which on Student's distribution is as good as the normal one."""


@dataclass(frozen=True, slots=True)
class MethodVerdict(Record):
    """Is one way of training better than another? `over_seeds` is the t interval over runs, `over_documents` the bootstrap,
    `over_both` the one that adds both variances; the difference is shown if none of them holds 0.

    `over_seeds` is None for one pair of runs, and where the others are copies of it: without a spread nothing is shown.
    `detectable` is about the true difference that is detected with 80% power; None under three pairs of runs. `errors` are the
    standard errors behind the intervals, each with its degrees of freedom, documents alone excepted.
    """

    difference: float
    over_seeds: Estimate | None
    over_documents: Estimate
    p_seeds: float | None
    shown: bool
    detectable: float | None = None
    over_both: Estimate | None = None
    p_both: float | None = None
    errors: tuple[tuple[float, int], ...] = ()
    document_degrees: int = _MANY

    @property
    def p(self) -> float:
        """The largest of the three: under 0.05 where none of them explains the difference by chance. 1 without a spread."""
        if self.p_seeds is None or self.p_both is None:
            return 1.0
        ends, usual = self.over_documents, t_quantile((1 + LEVEL) / 2, self.document_degrees)
        reach = self.difference - ends.low if self.difference > 0 else ends.high - self.difference
        by_documents = 2 * (1 - t_cdf(usual * abs(self.difference) / reach, self.document_degrees)) if reach > 0 else 0.0
        return max(self.p_seeds, self.p_both, by_documents)

    @property
    def interval(self) -> Estimate:
        """All in one, from the lowest end to the highest: the difference is shown if and only if it excludes 0."""
        each = [interval for interval in (self.over_seeds, self.over_documents, self.over_both) if interval is not None]
        return Estimate(self.difference, min(i.low for i in each), max(i.high for i in each), self.over_documents.n)

    def interval_at(self, level: float) -> Estimate:
        """The same at another level; the ends of the bootstrap move as Student's quantile does."""
        share, ends = (1 + level) / 2, self.over_documents
        wider = t_quantile(share, self.document_degrees) / t_quantile((1 + LEVEL) / 2, self.document_degrees)
        half = max((t_quantile(share, degrees) * error for error, degrees in self.errors), default=0.0)
        low, high = (self.difference + wider * (end - self.difference) for end in (ends.low, ends.high))
        return Estimate(self.difference, min(low, self.difference - half), max(high, self.difference + half), ends.n)


def method_verdict(per_seed: Floats, over_documents: Estimate, error: float, concentration: float = 0.0) -> MethodVerdict:
    """Another seed or other documents might make the difference vanish; it is shown only if neither can explain it, nor both.

    `per_seed` are the differences of the pairs of runs; or a table, if every pair was measured under the same further seeds (of
    fine-tuning): one row per pair, one column per further seed. `error` is the standard error of their mean over documents,
    `concentration` how much of the set lies in single documents.
    """
    k, mean = len(per_seed), float(per_seed.mean())
    spreads = _spreads(per_seed)
    if not spreads:
        return MethodVerdict(mean, None, over_documents, None, False)
    both, degrees = _both(*spreads[-1], error, concentration)
    seeds = max((_student(mean, *spread, k) for spread in spreads), key=lambda one: one.high)
    together = _student(mean, both, degrees, over_documents.n)
    shown = all(interval.low > 0 or interval.high < 0 for interval in (seeds, over_documents, together))
    each = [*spreads, (both, degrees)]
    could = max(*(_showable(*spread) for spread in each), detectable(error, concentration=concentration) or 0.0)
    *of_seeds, p_both = (2 * (1 - t_cdf(abs(mean) / spread, degrees)) if spread > 0 else 0.0 for spread, degrees in each)
    detected, degrees = could if k > 2 else None, max(1, min(int(1 / concentration - 1), _MANY)) if concentration else _MANY
    return MethodVerdict(
        mean, seeds, over_documents, max(of_seeds), shown, detected, together, p_both, tuple(each), degrees
    )  # fmt: skip


def _spreads(per_seed: Floats) -> list[tuple[float, int]]:
    """Standard errors of the mean and their degrees of freedom, that of all seeds together last. Empty if there is no spread: one
    pair, as many as one likes that are copies of each other, or one further seed that all pairs share.

    Of a table: over its rows, over its columns, and both together (two-way analysis of variance, degrees after Satterthwaite).
    """
    k = len(per_seed)
    pairs = per_seed if per_seed.ndim == 1 else per_seed.mean(axis=1)
    over_pairs = float(pairs.std(ddof=1)) / math.sqrt(k) if k > 1 else 0.0
    if over_pairs <= _NO_SPREAD or (per_seed.ndim > 1 and per_seed.shape[1] == 1):
        return []
    if per_seed.ndim == 1:
        return [(over_pairs, k - 1)]
    further = per_seed.mean(axis=0)
    columns, apart = len(further), per_seed - pairs[:, None] - further[None, :] + per_seed.mean()
    over_columns = float(further.std(ddof=1)) / math.sqrt(columns)
    residual = float((apart**2).sum()) / ((k - 1) * (columns - 1) * per_seed.size)
    beyond = max(0.0, over_columns**2 - residual)
    total = over_pairs**2 + beyond
    spent = over_pairs**4 / (k - 1)
    if beyond:
        spent += over_columns**4 / (columns - 1) + residual**2 / ((k - 1) * (columns - 1))
    degrees = max(min(k, columns) - 1, min(int(total**2 / spent), _MANY))
    return [(over_pairs, k - 1), (over_columns, columns - 1), (math.sqrt(total), degrees)]


def _both(by_seeds: float, seed_degrees: int, by_documents: float, concentration: float) -> tuple[float, int]:
    """The standard error from seeds and documents together, and its degrees of freedom (Satterthwaite, whole ones)."""
    total = by_seeds**2 + by_documents**2
    documents = max(1.0, 1 / concentration - 1) if concentration else math.inf
    degrees = total**2 / (by_seeds**4 / seed_degrees + by_documents**4 / documents)
    return math.sqrt(total), max(1, min(int(degrees), _MANY))


def _student(mean: float, error: float, degrees: int, n: int) -> Estimate:
    reach = t_quantile((1 + LEVEL) / 2, degrees) * error
    return Estimate(mean, mean - reach, mean + reach, n)


def _showable(error: float, degrees: int) -> float:
    return (t_quantile((1 + LEVEL) / 2, degrees) + t_quantile(POWER, degrees)) * error


def reciprocal(ranks: ArrayLike) -> Floats:
    """One over the rank; 0 for rank 0, which says that no entry of the vocabulary can match. Its mean is MRR."""
    found = np.asarray(ranks)
    return np.asarray(np.divide(1.0, found, out=np.zeros(found.shape), where=found > 0))


def f1_of_sums(sums: Floats) -> Floats:
    """F1 from sums or means [..., 4]; 0 where nothing is asked or given."""
    recall, precision = _rates(sums)
    both = recall + precision
    return np.divide(2 * recall * precision, both, out=np.zeros_like(both), where=both > 0)


def mean_f1(sums: Floats) -> Floats:
    """The mean of the metrics' F1s, as CoNLL's score is: sums by document [..., documents, metrics, 4]."""
    return np.asarray(f1_of_sums(sums.sum(axis=-3)).mean(axis=-1))


def by_document(sums: Floats, sizes: Floats) -> Floats:
    """One value per document: their mean, weighted by size, is `mean_f1`, and a document's deviation is how far it moves it."""
    total = sums.sum(axis=0)
    moved = (_slopes(total) * sums).sum(axis=-1).mean(axis=-1)
    return np.asarray(mean_f1(sums) + moved * sizes.sum() / sizes)


def ratio_verdict(a: Sequence[Floats], b: Sequence[Floats], sizes: Floats) -> CrossedVerdict:
    """Runs of two methods by their `by_document` values; documents weigh by `sizes` (whole numbers: mentions)."""
    counts = sizes.astype(np.int64)
    items = [[np.repeat(values, counts) for values in side] for side in (a, b)]
    return crossed_verdict(items[0], items[1], np.repeat(np.arange(len(counts)), counts))


def _rates(sums: Floats) -> tuple[Floats, Floats]:
    def share(part: Floats, whole: Floats) -> Floats:
        return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)

    return share(sums[..., 0], sums[..., 1]), share(sums[..., 2], sums[..., 3])


def _slopes(total: Floats) -> Floats:
    """How F1 changes with each of the four sums [metrics, 4]: added over all documents they leave it where it is."""
    recall, precision = _rates(total)
    both = np.maximum(recall + precision, 1e-300)
    by_recall, by_precision = 2 * (precision / both) ** 2, 2 * (recall / both) ** 2
    gold, given = np.maximum(total[..., 1], 1e-300), np.maximum(total[..., 3], 1e-300)
    found = [by_recall / gold, -by_recall * recall / gold, by_precision / given, -by_precision * precision / given]
    return np.where(total[..., [1, 1, 3, 3]] > 0, np.stack(found, axis=-1), 0.0)
