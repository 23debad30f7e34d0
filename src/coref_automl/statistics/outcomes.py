"""Outcomes that are no share of hits. In: values by item, or sums by document. Out: values whose mean is the outcome. Pure.

A contrast ("it helps more here than there") is a difference of differences, and a verdict of its own: shown here and not shown
there does not show it. MRR is the mean of reciprocal ranks. An F1 of sums over documents is not a mean, so each document gets the
value by which it moves it (the first-order term: its influence), weighted by its size; the weighted mean is the F1 itself, and
runs can be crossed with documents as they are for hits. Sums are (hit, gold, right, given): recall is hit / gold, precision right
/ given, each after adding up all documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.resampling import Floats


def interaction(values: ArrayLike, inside: ArrayLike) -> Floats:
    """Values whose mean over all items is that over those `inside` minus that over the others; the last axis is items.

    Documents may hold both kinds: each kind is centred on its own mean, so that a document moves the contrast by what it adds to
    either mean, and not by how many items of a kind it happens to hold.
    """
    seen, here = np.asarray(values, np.float64), np.asarray(inside, np.bool_)
    if seen.shape[-1] != len(here):
        raise ValueError(f"{seen.shape[-1]} values and {len(here)} marks: there must be one mark per item.")
    count = int(here.sum())
    if count in (0, len(here)):
        raise ValueError("All items are of one kind; a contrast needs both.")
    within, beyond = seen[..., here].mean(axis=-1, keepdims=True), seen[..., ~here].mean(axis=-1, keepdims=True)
    moved = np.where(here, (seen - within) * (len(here) / count), (beyond - seen) * (len(here) / (len(here) - count)))
    return np.asarray(moved + within - beyond)


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
