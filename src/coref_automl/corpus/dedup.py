"""Exact and near-duplicates. In: texts. Out: which are the same, word for word or nearly.

A signature is 120 minima of 32 bits: 480 bytes per document on disk, of which a search holds eight in memory at a time. Twenty
bands of six rows find a pair of Jaccard similarity 0.8 with probability 0.998; what they propose is checked on the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import SourceError

BANDS, ROWS = 20, 6
PERMUTATIONS = BANDS * ROWS
SHINGLE = 5
"""Words that follow one another, taken together."""

_SEED = 20_231_101
_GROUP = 64
"""Members of a crowded bucket that are compared with each other; the rest are compared with these."""

Signatures = NDArray[np.uint32]


def text_key(text: str) -> int:
    """Names a normalised text: the same for texts that differ in blanks alone."""
    return int.from_bytes(
        hashlib.blake2b(" ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def require_near() -> None:
    """Near-duplicates need a package; ask before the work begins."""
    try:
        import rensa  # noqa: F401
    except ImportError as error:
        raise SourceError("Finding near-duplicates needs rensa; run: pip install rensa, or pass --exact-only.") from error


def signature(text: str) -> list[int]:
    """MinHash over runs of five words. A text of fewer words is one run."""
    from rensa import RMinHash

    words = text.split()
    sketch: Any = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
    sketch.update([" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))])
    return list(sketch.digest())


def first_of_each(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For every entry: the index of the first entry with the same key."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int64)


def near_duplicates(signatures: Signatures, *, similarity: float, protected: int = 0) -> dict[int, int]:
    """For every entry that nearly repeats an earlier one that is kept: that one. The first `protected` are always kept."""
    earlier: dict[int, list[int]] = {}
    for pairs in _proposed(signatures):
        if not len(pairs):
            continue
        alike = np.mean(signatures[pairs[:, 0]] == signatures[pairs[:, 1]], axis=1) >= similarity
        for first, second in pairs[alike].tolist():
            earlier.setdefault(second, []).append(first)
    found: dict[int, int] = {}
    for entry in sorted(entry for entry in earlier if entry >= protected):
        kept = [other for other in earlier[entry] if other not in found]
        if kept:
            found[entry] = min(kept)
    return found


def _proposed(signatures: Signatures) -> Sequence[NDArray[np.int64]]:
    """Pairs (earlier, later) that share a band, each pair once."""
    seen: NDArray[np.int64] = np.empty(0, np.int64)
    count = len(signatures)
    for band in range(BANDS):
        keys = _mixed(signatures[:, band * ROWS : (band + 1) * ROWS])
        order = np.argsort(keys, kind="stable")
        edges = np.flatnonzero(np.diff(keys[order])) + 1
        groups = [group for group in np.split(order, edges) if len(group) > 1]
        pairs = [_pairs(group) for group in groups]
        coded = np.concatenate([pair[:, 0] * count + pair[:, 1] for pair in pairs]) if pairs else np.empty(0, np.int64)
        seen = np.union1d(seen, coded)
    step = 100_000
    return [np.stack(np.divmod(seen[low : low + step], count), axis=1) for low in range(0, len(seen), step)]


def _pairs(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every member of a bucket with the first members of it; members are in rising order."""
    later, first = np.meshgrid(np.arange(len(group)), np.arange(min(len(group), _GROUP)))
    right = first < later
    return np.stack([group[first[right]], group[later[right]]], axis=1).astype(np.int64)


def _mixed(rows: Signatures) -> NDArray[np.uint64]:
    mixed = np.zeros(len(rows), np.uint64)
    for column in range(rows.shape[1]):
        mixed = (mixed ^ rows[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
