"""Outcomes other than shares of hits, and verdicts on runs paired by seed. In: values by item, sums by document. Pure.

A difference of runs paired by seed is shown only if neither other seeds nor other documents can explain it, nor both together.

MRR is the mean of reciprocal ranks. An F1 of sums over documents is not a mean, so each document gets its influence (the
first-order change of F1, weighted by its size): the weighted mean is the F1 itself, and runs can be crossed with documents as
they are for hits. Sums are (hit, gold, right, given): recall is hit / gold, precision right / given, each summed over documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, POWER, t_cdf, t_quantile
from coref_automl.statistics.crossed import Verdict, crossed
from coref_automl.statistics.intervals import detectable
from coref_automl.statistics.resampling import Floats

_NO_SPREAD = 1e-12
_MANY = 200
"""Degrees of freedom from which on Student's distribution is taken to be normal."""


@dataclass(frozen=True, slots=True)
class MethodVerdict(Record):
    """Is one method better than another? `over_seeds` is the t interval over runs, `over_documents` the bootstrap interval,
    `over_both` adds both variances; the difference is shown if all three exclude 0.

    `over_seeds` is None for a single pair of runs, and for pairs that are copies of each other: no variance, no verdict.
    `detectable` is about the true difference that is detected with 80% power; None under three pairs of runs. `errors` are the
    standard errors of the intervals over seeds and over both, each with its degrees of freedom.
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
        """The largest of the three p-values; 1 without variance over seeds."""
        if self.p_seeds is None or self.p_both is None:
            return 1.0
        interval, quantile = self.over_documents, t_quantile((1 + LEVEL) / 2, self.document_degrees)
        reach = self.difference - interval.low if self.difference > 0 else interval.high - self.difference
        p_documents = 2 * (1 - t_cdf(quantile * abs(self.difference) / reach, self.document_degrees)) if reach > 0 else 0.0
        return max(self.p_seeds, self.p_both, p_documents)

    @property
    def interval(self) -> Estimate:
        """The union of the three: it excludes 0 if and only if the difference is shown."""
        each = [interval for interval in (self.over_seeds, self.over_documents, self.over_both) if interval is not None]
        return Estimate(self.difference, min(i.low for i in each), max(i.high for i in each), self.over_documents.n)

    def interval_at(self, level: float) -> Estimate:
        """The interval at another level; that over documents is scaled by Student's quantiles."""
        share, documents = (1 + level) / 2, self.over_documents
        wider = t_quantile(share, self.document_degrees) / t_quantile((1 + LEVEL) / 2, self.document_degrees)
        half = max((t_quantile(share, degrees) * error for error, degrees in self.errors), default=0.0)
        low, high = (self.difference + wider * (end - self.difference) for end in (documents.low, documents.high))
        return Estimate(self.difference, min(low, self.difference - half), max(high, self.difference + half), documents.n)


def method_verdict(per_seed: Floats, over_documents: Estimate, error: float, concentration: float = 0.0) -> MethodVerdict:
    """Judge the difference of two methods from pairs of runs.

    `per_seed` are the differences of the pairs; or, if every pair was measured under the same further seeds (of fine-tuning), a
    table: one row per pair, one column per further seed. `error` is the standard error of their mean over documents,
    `concentration` the sum of the documents' squared shares of the items.
    """
    k, mean = len(per_seed), float(per_seed.mean())
    seed_errors = _seed_errors(per_seed)
    if not seed_errors:
        return MethodVerdict(mean, None, over_documents, None, False)
    errors = [*seed_errors, _both(*seed_errors[-1], error, concentration)]
    over_seeds = max((_student(mean, *each, k) for each in seed_errors), key=lambda interval: interval.high)
    over_both = _student(mean, *errors[-1], over_documents.n)
    *p_seeds, p_both = (2 * (1 - t_cdf(abs(mean) / spread, degrees)) if spread > 0 else 0.0 for spread, degrees in errors)
    by_documents = detectable(error, concentration=concentration) or 0.0
    return MethodVerdict(
        mean,
        over_seeds,
        over_documents,
        max(p_seeds),
        shown=all(interval.low > 0 or interval.high < 0 for interval in (over_seeds, over_documents, over_both)),
        detectable=max(*(_detectable(*each) for each in errors), by_documents) if k > 2 else None,
        over_both=over_both,
        p_both=p_both,
        errors=tuple(errors),
        document_degrees=max(1, min(int(1 / concentration - 1), _MANY)) if concentration else _MANY,
    )


def _seed_errors(per_seed: Floats) -> list[tuple[float, int]]:
    """Standard errors of the mean over seeds with their degrees of freedom; that of all seeds together is the last.

    Empty without variance: for one pair, for pairs that are copies of each other, and for one further seed that all pairs share.
    For a table: over its rows, over its columns, and over both (two-way analysis of variance, degrees after Satterthwaite).
    """
    k = len(per_seed)
    pairs = per_seed if per_seed.ndim == 1 else per_seed.mean(axis=1)
    over_pairs = float(pairs.std(ddof=1)) / math.sqrt(k) if k > 1 else 0.0
    if over_pairs <= _NO_SPREAD or (per_seed.ndim > 1 and per_seed.shape[1] == 1):
        return []
    if per_seed.ndim == 1:
        return [(over_pairs, k - 1)]
    further = per_seed.mean(axis=0)
    columns, residuals = len(further), per_seed - pairs[:, None] - further[None, :] + per_seed.mean()
    over_columns = float(further.std(ddof=1)) / math.sqrt(columns)
    residual = float((residuals**2).sum()) / ((k - 1) * (columns - 1) * per_seed.size)
    beyond = max(0.0, over_columns**2 - residual)
    total = over_pairs**2 + beyond
    per_degree = over_pairs**4 / (k - 1)
    if beyond:
        per_degree += over_columns**4 / (columns - 1) + residual**2 / ((k - 1) * (columns - 1))
    degrees = max(min(k, columns) - 1, min(int(total**2 / per_degree), _MANY))
    return [(over_pairs, k - 1), (over_columns, columns - 1), (math.sqrt(total), degrees)]


def _both(by_seeds: float, seed_degrees: int, by_documents: float, concentration: float) -> tuple[float, int]:
    """The standard error over seeds and documents, with its degrees of freedom (Satterthwaite, rounded down)."""
    total = by_seeds**2 + by_documents**2
    documents = max(1.0, 1 / concentration - 1) if concentration else math.inf
    degrees = total**2 / (by_seeds**4 / seed_degrees + by_documents**4 / documents)
    return math.sqrt(total), max(1, min(int(degrees), _MANY))


def _student(mean: float, error: float, degrees: int, n: int) -> Estimate:
    reach = t_quantile((1 + LEVEL) / 2, degrees) * error
    return Estimate(mean, mean - reach, mean + reach, n)


def _detectable(error: float, degrees: int) -> float:
    """The difference that a t test with this standard error detects with 80% power."""
    return (t_quantile((1 + LEVEL) / 2, degrees) + t_quantile(POWER, degrees)) * error


def reciprocal(ranks: ArrayLike) -> Floats:
    """Reciprocal ranks, whose mean is MRR; 0 for rank 0, which means that no vocabulary entry can match."""
    ranks = np.asarray(ranks)
    return np.asarray(np.divide(1.0, ranks, out=np.zeros(ranks.shape), where=ranks > 0))


def f1_of_sums(sums: Floats) -> Floats:
    """F1 from sums or means [..., 4]; 0 without gold or given answers."""
    recall, precision = _rates(sums)
    both = recall + precision
    return np.divide(2 * recall * precision, both, out=np.zeros_like(both), where=both > 0)


def mean_f1(sums: Floats) -> Floats:
    """The mean F1 of several metrics, such as the CoNLL score, from sums by document [..., documents, metrics, 4]."""
    return np.asarray(f1_of_sums(sums.sum(axis=-3)).mean(axis=-1))


def by_document(sums: Floats, sizes: Floats) -> Floats:
    """One value per document: their mean, weighted by size, is `mean_f1`; a document's deviation is its influence on it."""
    total = sums.sum(axis=0)
    influence = (_slopes(total) * sums).sum(axis=-1).mean(axis=-1)
    return np.asarray(mean_f1(sums) + influence * sizes.sum() / sizes)


def ratio_verdict(a: Sequence[Floats], b: Sequence[Floats], sizes: Floats) -> Verdict:
    """Compare runs of two methods by their `by_document` values, weighted by `sizes` (whole numbers: mentions)."""
    counts = sizes.astype(np.int64)
    items = [[np.repeat(values, counts) for values in side] for side in (a, b)]
    return crossed([items[0]], [items[1]], [np.repeat(np.arange(len(counts)), counts)])


def _rates(sums: Floats) -> tuple[Floats, Floats]:
    def share(part: Floats, whole: Floats) -> Floats:
        return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)

    return share(sums[..., 0], sums[..., 1]), share(sums[..., 2], sums[..., 3])


def _slopes(total: Floats) -> Floats:
    """The derivatives of F1 by each of the four sums [metrics, 4]; the influences of all documents add up to 0."""
    recall, precision = _rates(total)
    both = np.maximum(recall + precision, 1e-300)
    by_recall, by_precision = 2 * (precision / both) ** 2, 2 * (recall / both) ** 2
    gold, given = np.maximum(total[..., 1], 1e-300), np.maximum(total[..., 3], 1e-300)
    slopes = [by_recall / gold, -by_recall * recall / gold, by_precision / given, -by_precision * precision / given]
    return np.where(total[..., [1, 1, 3, 3]] > 0, np.stack(slopes, axis=-1), 0.0)
