"""Exact and near-duplicates. In: texts. Out: which are the same, word for word or nearly.

A signature is 120 minima of 32 bits: 480 bytes per document on disk. Twenty bands of six rows find a pair of Jaccard similarity
0.8 with probability 0.998; what they propose is checked on the whole. No process holds all signatures: a task takes one band and,
of its keys, one residue class, so that documents that share a band meet in one task, and reads the signatures of proposed pairs
alone. Tasks leave verified pairs in files; one pass over these, in the order of the documents, decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import SourceError
from coref_automl.store import atomic_write, read_json, write_json

BANDS, ROWS = 20, 6
PERMUTATIONS = BANDS * ROWS
SHINGLE = 5
"""Words that follow one another, taken together."""

_SEED = 20_231_101
_GROUP = 64
"""Members of a crowded bucket that are compared with each other; the rest are compared with these."""
_PAIRS = 50_000
"""Pairs that are verified at a time."""
_WINDOW = 1 << 18
"""Documents that are decided at a time."""
PLAN, _ENTRIES = "plan.json", "entries.npy"

Signatures = NDArray[np.uint32]
Ints = NDArray[np.int64]
RunAll = Callable[[str, list[dict[str, Any]]], object]
"""Makes every call of a function, named as "package.module:function", with these arguments: here, in processes, on a cluster."""


def text_key(text: str) -> int:
    """Names a normalised text: the same for texts that differ in blanks alone."""
    digest = hashlib.blake2b(" ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


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
    sketch.update(" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))
    return list(sketch.digest())


def write_signatures(stem: Path, signatures: Signatures) -> None:
    """`NAME.signatures.npy` [documents, 120] and `NAME.bands.npy` [bands, documents]: the keys of a band lie together."""
    keys = np.stack([_mixed(signatures[:, band * ROWS : (band + 1) * ROWS]) for band in range(BANDS)])
    for suffix, array in ((".signatures.npy", signatures), (".bands.npy", keys)):
        with atomic_write(stem.with_suffix(suffix), "wb") as handle:
            np.save(handle, array)


def first_of_each(keys: NDArray[np.uint64]) -> Ints:
    """For every entry: the index of the first entry with the same key."""
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
    """(entry, original) for every entry that nearly repeats an earlier one that is kept. The first `protected` are always kept.

    The documents of `stems`, `counts` of each, follow one another; `entries` gives each its place in the order in which they
    are decided, or -1 for one that does not take part. A task holds about `at_once` of them.
    """
    classes = -(-len(entries) // at_once)
    with atomic_write(folder / _ENTRIES, "wb") as handle:
        np.save(handle, entries)
    write_json(
        folder / PLAN, {"stems": list(map(str, stems)), "edges": [0, *np.cumsum(counts).tolist()], "tasks": BANDS * classes}
    )
    tasks = [(band, residue) for band in range(BANDS) for residue in range(classes)]
    files = [folder / f"pairs-{band:02d}-{residue:05d}.npy" for band, residue in tasks]
    common = {"folder": str(folder), "classes": classes, "similarity": similarity}
    left = [task for task, path in zip(tasks, files, strict=True) if not path.is_file()]
    run("coref_automl.corpus.dedup:band_job", [{"band": band, "residue": residue, **common} for band, residue in left])
    return _decided(files, int(entries.max(initial=-1)) + 1, protected)


def band_job(*, band: int, residue: int, classes: int, folder: str, similarity: float) -> int:
    """Verified pairs (later, earlier) among the documents whose key in a band falls into a residue class; gives their number."""
    plan, entries = read_json(Path(folder) / PLAN), np.load(Path(folder) / _ENTRIES, mmap_mode="r")
    edges = np.array(plan["edges"], np.int64)
    rows, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for number, stem in enumerate(plan["stems"]):
        if edges[number] == edges[number + 1]:
            continue
        own = np.asarray(np.load(f"{stem}.bands.npy", mmap_mode="r")[band])
        chosen = np.flatnonzero((own % np.uint64(classes) == residue) & (entries[edges[number] : edges[number + 1]] >= 0))
        rows.append(chosen + edges[number])
        keys.append(own[chosen])
    row, key = np.concatenate(rows), np.concatenate(keys)
    entry = np.asarray(entries[row])
    order = np.lexsort((entry, key))
    row, entry = row[order], entry[order]
    opens = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))
    sizes = np.diff(opens, append=len(row))
    found = [np.empty((0, 2), np.int64)]
    for pairs in _proposed(opens[sizes > 1], sizes[sizes > 1]):
        signatures = _signatures(plan["stems"], edges, row[pairs])
        found.append(entry[pairs[np.mean(signatures[:, 0] == signatures[:, 1], axis=1) >= similarity]])
    verified = np.concatenate(found)
    with atomic_write(Path(folder) / f"pairs-{band:02d}-{residue:05d}.npy", "wb") as handle:
        np.save(handle, verified[np.lexsort((verified[:, 1], verified[:, 0]))])
    return len(verified)


def _proposed(opens: Ints, sizes: Ints) -> Iterator[Ints]:
    """Pairs (later, earlier) of places in one bucket, some thousands at a time: the first members with all behind them."""
    for first in range(min(_GROUP, int(sizes.max(initial=1)) - 1)):
        wide = sizes > first + 1
        starts, ends = opens[wide] + first, np.cumsum(sizes[wide] - first - 1)
        for low in range(0, int(ends[-1]), _PAIRS):
            number = np.arange(low, min(low + _PAIRS, int(ends[-1])))
            bucket = np.searchsorted(ends, number, "right")
            later = starts[bucket] + sizes[wide][bucket] - first - (ends[bucket] - number)
            yield np.stack([later, starts[bucket]], axis=1)


def _signatures(stems: Sequence[str], edges: Ints, pairs: Ints) -> Signatures:
    """[pairs, 2, 120], of documents known by their rows; each is read once."""
    rows, inverse = np.unique(pairs, return_inverse=True)
    shard = np.searchsorted(edges, rows, "right") - 1
    found = np.empty((len(rows), PERMUTATIONS), np.uint32)
    for number in np.unique(shard).tolist():
        own = shard == number
        found[own] = np.load(f"{stems[number]}.signatures.npy", mmap_mode="r")[rows[own] - edges[number]]
    return found[inverse.reshape(pairs.shape)]


def _decided(files: Sequence[Path], entries: int, protected: int) -> Iterator[tuple[int, int]]:
    """Go through the entries in order: one that nearly repeats a kept earlier one is dropped. Files are read side by side."""
    tables = [table for table in (np.load(path, mmap_mode="r") for path in files) if len(table)]
    dropped = np.zeros(entries, np.bool_)
    for low in range(0, entries if tables else 0, _WINDOW):
        edges = [np.searchsorted(table[:, 0], [low, low + _WINDOW]) for table in tables]
        window = np.unique(np.concatenate([t[a:b] for t, (a, b) in zip(tables, edges, strict=True)]), axis=0)
        for later, earlier in window.tolist():  # in order of both: the first that is kept is the original
            if later >= protected and not dropped[later] and not dropped[earlier]:
                dropped[later] = True
                yield later, earlier


def _mixed(rows: Signatures) -> NDArray[np.uint64]:
    mixed = np.zeros(len(rows), np.uint64)
    for column in range(rows.shape[1]):
        mixed = (mixed ^ rows[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
