"""Exact and near-duplicates (MinHash LSH). In: texts. Out: which documents repeat an earlier one, exactly or nearly.

A signature is 120 minima of 32 bits: 480 bytes per document on disk. Twenty bands of six rows propose a pair of Jaccard
similarity 0.8 with probability 0.998; proposed pairs are verified on whole signatures. No process holds all signatures: a call
handles one band and one residue class of its keys, so that the documents of a bucket meet in one call, and reads the signatures
of proposed pairs alone. Calls write verified pairs to files; one pass over these, in the order of the documents, decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.store import atomic_write, read_json, write_json

BANDS, ROWS = 20, 6
PERMUTATIONS = BANDS * ROWS
SHINGLE = 5
"""Words of an n-gram whose hash the signatures sample."""

_SEED = 20_231_101
_GROUP = 64
"""In a crowded bucket only pairs with one of its first 64 members are compared."""
_PAIRS = 50_000
"""Pairs verified at a time."""
_WINDOW = 1 << 18
"""Documents decided at a time."""
PLAN, _ENTRIES = "plan.json", "entries.npy"

Signatures = NDArray[np.uint32]
Ints = NDArray[np.int64]
RunAll = Callable[[str, list[dict[str, Any]]], object]
"""Calls a function, named as "package.module:function", with each of the arguments: here, in processes or on a cluster."""


def text_key(text: str) -> int:
    """A 64-bit hash of a normalised text; texts that differ only in blanks have the same."""
    digest = hashlib.blake2b(" ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def signature(text: str) -> list[int]:
    """The MinHash signature over n-grams of five words; a shorter text is one n-gram."""
    from rensa import RMinHash

    words = text.split()
    sketch: Any = RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
    sketch.update(" ".join(words[start : start + SHINGLE]) for start in range(max(1, len(words) - SHINGLE + 1)))
    return list(sketch.digest())


def write_signatures(stem: Path, signatures: Signatures) -> None:
    """Write `NAME.signatures.npy` [documents, 120] and `NAME.bands.npy` [bands, documents], the keys of the buckets."""
    keys = np.stack([_hashed(signatures[:, band * ROWS : (band + 1) * ROWS]) for band in range(BANDS)])
    for suffix, array in ((".signatures.npy", signatures), (".bands.npy", keys)):
        with atomic_write(stem.with_suffix(suffix), "wb") as handle:
            np.save(handle, array)


def first_of_each(keys: NDArray[np.uint64]) -> Ints:
    """For every key, the index of its first occurrence."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int64)


def near_duplicates(
    stems: Sequence[Path],
    counts: Sequence[int],
    entries: Ints,
    folder: Path,
    run: RunAll,
    *,
    similarity: float,
    at_once: int,
    protected: int = 0,
) -> Iterator[tuple[int, int]]:
    """Yield (entry, original) for every entry that nearly repeats an earlier, kept one. The first `protected` are always kept.

    Documents are those of the `stems` one after the other, `counts` of each. `entries` has each document's position in the order
    of decision, or -1 to leave it out. A call handles about `at_once` documents.
    """
    classes = -(-len(entries) // at_once)
    with atomic_write(folder / _ENTRIES, "wb") as handle:
        np.save(handle, entries)
    write_json(
        folder / PLAN, {"stems": list(map(str, stems)), "edges": [0, *np.cumsum(counts).tolist()], "tasks": BANDS * classes}
    )
    parts = {(band, residue): _pairs_file(folder, band, residue) for band in range(BANDS) for residue in range(classes)}
    common = {"folder": str(folder), "classes": classes, "similarity": similarity}
    unfinished = [part for part, path in parts.items() if not path.is_file()]
    run("coref_automl.corpus.dedup:band_job", [{"band": band, "residue": residue, **common} for band, residue in unfinished])
    return _decide(list(parts.values()), int(entries.max(initial=-1)) + 1, protected)


def _pairs_file(folder: Path, band: int, residue: int) -> Path:
    return folder / f"pairs-{band:02d}-{residue:05d}.npy"


def band_job(*, band: int, residue: int, classes: int, folder: str, similarity: float) -> int:
    """Write the verified pairs (later, earlier) of documents whose key in a band is in a residue class; returns their number."""
    plan, entries = read_json(Path(folder) / PLAN), np.load(Path(folder) / _ENTRIES, mmap_mode="r")
    edges = np.array(plan["edges"], np.int64)
    rows, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for number, stem in enumerate(plan["stems"]):
        if edges[number] == edges[number + 1]:
            continue
        of_shard = np.asarray(np.load(f"{stem}.bands.npy", mmap_mode="r")[band])
        chosen = np.flatnonzero((of_shard % np.uint64(classes) == residue) & (entries[edges[number] : edges[number + 1]] >= 0))
        rows.append(chosen + edges[number])
        keys.append(of_shard[chosen])
    row, key = np.concatenate(rows), np.concatenate(keys)
    entry = np.asarray(entries[row])
    order = np.lexsort((entry, key))
    row, entry = row[order], entry[order]
    starts = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))
    sizes = np.diff(starts, append=len(row))
    verified = [np.empty((0, 2), np.int64)]
    for pairs in _proposed(starts[sizes > 1], sizes[sizes > 1]):
        signatures = _signatures(plan["stems"], edges, row[pairs])
        verified.append(entry[pairs[np.mean(signatures[:, 0] == signatures[:, 1], axis=1) >= similarity]])
    table = np.concatenate(verified)
    with atomic_write(_pairs_file(Path(folder), band, residue), "wb") as handle:
        np.save(handle, table[np.lexsort((table[:, 1], table[:, 0]))])
    return len(table)


def _proposed(starts: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield pairs (later, earlier) of positions in one bucket, some thousands at a time; buckets have `sizes` from `starts`."""
    for member in range(min(_GROUP, int(sizes.max(initial=1)) - 1)):
        wide = sizes > member + 1
        earlier, ends = starts[wide] + member, np.cumsum(sizes[wide] - member - 1)
        for low in range(0, int(ends[-1]), _PAIRS):
            number = np.arange(low, min(low + _PAIRS, int(ends[-1])))
            bucket = np.searchsorted(ends, number, "right")
            later = earlier[bucket] + sizes[wide][bucket] - member - (ends[bucket] - number)
            yield np.stack([later, earlier[bucket]], axis=1)


def _signatures(stems: Sequence[str], edges: Ints, pairs: Ints) -> Signatures:
    """The signatures [pairs, 2, 120] of pairs of rows; each row is read once."""
    rows, inverse = np.unique(pairs, return_inverse=True)
    shard = np.searchsorted(edges, rows, "right") - 1
    signatures = np.empty((len(rows), PERMUTATIONS), np.uint32)
    for number in np.unique(shard).tolist():
        inside = shard == number
        signatures[inside] = np.load(f"{stems[number]}.signatures.npy", mmap_mode="r")[rows[inside] - edges[number]]
    return signatures[inverse.reshape(pairs.shape)]


def _decide(files: Sequence[Path], entries: int, protected: int) -> Iterator[tuple[int, int]]:
    """Drop, in order, every entry that nearly repeats a kept earlier one. The sorted files are merged window by window."""
    tables = [table for table in (np.load(path, mmap_mode="r") for path in files) if len(table)]
    dropped = np.zeros(entries, np.bool_)
    for low in range(0, entries if tables else 0, _WINDOW):
        ranges = [np.searchsorted(table[:, 0], [low, low + _WINDOW]) for table in tables]
        window = np.unique(np.concatenate([t[a:b] for t, (a, b) in zip(tables, ranges, strict=True)]), axis=0)
        for later, earlier in window.tolist():  # sorted by both: the first kept one is the original
            if later >= protected and not dropped[later] and not dropped[earlier]:
                dropped[later] = True
                yield later, earlier


def _hashed(rows: Signatures) -> NDArray[np.uint64]:
    hashes = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        hashes = (hashes ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes
