"""Resampling whole documents, fast. In: one value per item and the item's document. Out: resampled means, sign-flipped means.

Only per-document sums are needed: a draw of documents is a row of counts, so 10,000 draws for every checkpoint at once are one
matrix product. Rows are made in blocks of bounded size; the draws depend on the seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_CELLS = 1 << 20
"""Counts held at once: 8 MB of them."""
_KEPT_CELLS = 1 << 26
"""Draws kept for the next question: 64 MB of them, enough for 10,000 of 6,700 documents."""
_EXACT_IN_FLOAT32 = 1 << 24
_F1_KEPT = 256
"""Runs whose draws of micro-F1 are kept: 20 MB of them."""
_f1_kept: dict[bytes, Floats] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """Measurements on the items of one task: one row per item, one column per checkpoint or difference; and the documents."""

    values: ArrayLike
    clusters: ArrayLike


@dataclass(frozen=True, slots=True)
class Gathered:
    """A part gathered by document: `sums[d, k]` adds column k over document d, `sizes[d]` counts its items."""

    sums: Floats
    sizes: Floats

    @property
    def documents(self) -> int:
        return len(self.sizes)

    @property
    def items(self) -> int:
        return int(self.sizes.sum())

    @property
    def effective_documents(self) -> float:
        """The effective number of documents: one over the sum of squared shares of the items."""
        return self.items**2 / float((self.sizes**2).sum())

    def means(self) -> Floats:
        return np.asarray(self.sums.sum(axis=0) / self.sizes.sum(), dtype=np.float64)

    def pulls(self) -> Floats:
        """How each document pulls the columns' means: squares add up to the variance of bootstrap draws, linearised."""
        return np.asarray((self.sums - self.sizes[:, None] * self.means()) / self.items)

    def left_out(self) -> Floats:
        """How the means move without each document (the jackknife), scaled so that squares add up to the variance of the means.

        Squares of `pulls` add up to less, and the more so the larger single documents are: they pull the mean towards themselves.
        """
        left = np.maximum(1.0, self.items - self.sizes)  # one document alone: nothing is left, and nothing moves
        return np.asarray(self.pulls() * (self.items / left * math.sqrt(1 - 1 / self.documents))[:, None])


def gather(part: Part) -> Gathered:
    values = np.asarray(part.values, dtype=np.float64)
    columns = values[:, None] if values.ndim == 1 else values
    labels, inverse = np.unique(np.asarray(part.clusters), return_inverse=True)
    if len(columns) != len(inverse) or not len(columns):
        raise ValueError(
            f"{len(columns)} values and {len(inverse)} clusters: there must be one cluster per value, and at least one"
        )
    if missing := int((~np.isfinite(columns)).any(axis=1).sum()):
        raise ValueError(
            f"{missing} of {len(columns)} items have no value in some column; leave them out of all, or evaluate again"
        )
    sums = np.zeros((len(labels), columns.shape[1]))
    np.add.at(sums, inverse, columns)
    return Gathered(sums, np.bincount(inverse, minlength=len(labels)).astype(np.float64))


def resampled_means(parts: Sequence[Gathered], *, seed: int, draws: int) -> Floats:
    """Means of `draws` bootstrap samples (rows) for every column; each part's documents are drawn with replacement on their own.

    With several parts (the composite) their means are added: the weights are in the values.
    """
    rng = np.random.default_rng(seed)
    out = np.zeros((draws, parts[0].sums.shape[1]))
    alone = len(parts) == 1 and parts[0].documents * draws <= _KEPT_CELLS
    for part in parts:
        columns = np.column_stack([part.sums, part.sizes])
        columns = columns.astype(_float_for(columns))
        start = 0
        blocks = _kept_counts(part.documents, draws, seed) if alone else _document_counts(part.documents, draws, rng)
        for counts in blocks:
            drawn = counts.astype(columns.dtype) @ columns
            out[start : start + len(counts)] += drawn[:, :-1] / drawn[:, -1:]
            start += len(counts)
    return out


def resampled_f1(right: Bools, given: Bools, gold: Bools, clusters: ArrayLike, *, seed: int, draws: int) -> Floats:
    """Micro-F1 of every run (a column) on `draws` bootstrap samples (one row each).

    The draws of a run are kept: an answer compares every method with every other one.
    """
    _, places = np.unique(np.asarray(clusters), return_inverse=True)
    shared = b"".join((repr((seed, draws)).encode(), gold.tobytes(), places.tobytes()))
    keys = [sha256(shared + a.tobytes() + b.tobytes()).digest() for a, b in zip(right.T, given.T, strict=True)]
    drawn = {key: found for key in keys if (found := _f1_kept.get(key)) is not None}
    if new := {key: column for column, key in enumerate(keys) if key not in drawn}:
        values = np.column_stack([gold, right[:, [*new.values()]], given[:, [*new.values()]]])
        means = resampled_means([gather(Part(values, places))], seed=seed, draws=draws)
        both = means[:, :1] + means[:, len(new) + 1 :]
        f1 = np.divide(2 * means[:, 1 : len(new) + 1], both, out=np.zeros_like(both), where=both > 0)
        drawn |= zip(new, f1.T, strict=True)
    _f1_kept.update(drawn)
    for key in [*_f1_kept][:-_F1_KEPT]:
        _f1_kept.pop(key, None)
    return np.stack([drawn[key] for key in keys], axis=1)


def flipped_sums(parts: Sequence[Gathered], *, seed: int, draws: int) -> Iterator[Floats]:
    """The mean of every column with the sign of each document drawn anew, in blocks of rows; there are `draws` rows in all.

    The flipped difference of two columns is the difference of their flipped sums: a whole matrix of pairs costs one product.
    """
    rngs = [np.random.default_rng((seed, number)) for number in range(len(parts))]
    totals = [np.float64(part.sizes.sum()) for part in parts]
    kinds = [_float_for(part.sums) for part in parts]
    rows = max(1, _CELLS // max(part.documents for part in parts))
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        block = np.zeros((count, parts[0].sums.shape[1]))
        for part, total, kind, rng in zip(parts, totals, kinds, rngs, strict=True):
            bits = np.frombuffer(rng.bytes(count * 8 * -(-part.documents // 64)), dtype=np.uint8).reshape(count, -1)
            heads = np.unpackbits(bits, axis=1, count=part.documents).astype(kind)
            block += (2 * (heads @ part.sums.astype(kind)).astype(np.float64) - part.sums.sum(axis=0)) / total
        yield block


@lru_cache(maxsize=3)
def _kept_counts(documents: int, draws: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    """The same draws again: a report asks a hundred questions of the same documents with the same seed.

    One byte per count: the chance that one of n documents comes up 256 times in n draws is below 10^-500.
    """
    kept = _document_counts(documents, draws, np.random.default_rng(seed))
    return tuple(counts.astype(np.uint8) for counts in kept)


def _document_counts(documents: int, draws: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """How often each document is drawn, one row per draw. Counting draws is several times as fast as numpy's multinomial."""
    rows = max(1, _CELLS // documents)
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        drawn = rng.integers(0, documents, size=(count, documents))
        drawn += np.arange(count)[:, None] * documents
        yield np.bincount(drawn.ravel(), minlength=count * documents).reshape(count, documents)


def _float_for(columns: Floats) -> Any:
    """Sums of hits are whole numbers: float32 adds them exactly, at twice the speed. Anything else is added in float64."""
    whole = bool(np.all(columns == np.rint(columns)))
    return np.float32 if whole and np.abs(columns).sum(axis=0).max() * 8 < _EXACT_IN_FLOAT32 else np.float64
