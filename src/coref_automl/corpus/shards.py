"""What the first pass left. In: work folders, one a machine. Out: every document's numbers in the order of the sources.

With several folders (`--merge`) the order is that of one machine reading everything, so the bytes that follow are the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.dedup import PERMUTATIONS, Signatures
from coref_automl.corpus.holdout import HoldOut
from coref_automl.corpus.manifest import SHARE, InputFacts, read_shard
from coref_automl.decoder import read_stored
from coref_automl.errors import DatasetError
from coref_automl.store import written_whole

READ = "read"


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard: its files' common stem and its count of documents."""

    stem: Path
    input: int
    documents: int
    characters: int

    @property
    def texts(self) -> Path:
        return self.stem.with_suffix(".jsonl")


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Every document of every shard. The arrays are parallel and in the order of (input, row)."""

    shards: tuple[Shard, ...]
    sources: tuple[str, ...]
    shard: NDArray[np.int32]
    place: NDArray[np.int32]
    rank: NDArray[np.int64]
    source: NDArray[np.int32]
    key: NDArray[np.uint64]
    limits: NDArray[np.int64]
    dropped: dict[str, Counter[str]]
    examples: dict[str, list[str]]
    inputs: tuple[InputFacts, ...]
    by_shard: NDArray[np.int64]
    edges: NDArray[np.int64]

    def rows_of(self, shard: int) -> NDArray[np.int64]:
        """For every document of a shard, in the shard's order: its row here."""
        return self.by_shard[self.edges[shard] : self.edges[shard + 1]]

    def __len__(self) -> int:
        return len(self.key)

    @property
    def held_out(self) -> NDArray[np.bool_]:
        return self.rank <= self.limits[self.source]


def build_index(folders: list[Path], *, holdout: float) -> Index:
    shards: list[Shard] = []
    names: dict[str, int] = {}
    parts: dict[str, list[NDArray[Any]]] = {"shard": [], "place": [], "input": [], "numbers": [], "key": []}
    decisions: dict[int, HoldOut] = {}
    dropped: dict[str, Counter[str]] = {}
    examples: dict[str, list[tuple[int, int, str]]] = {}
    for folder in folders:
        for path in sorted((folder / READ).glob("*-*.json")):
            facts = read_shard(path)
            stem = path.with_suffix("")
            local = np.array([names.setdefault(name, len(names)) for name in facts["sources"]], np.int64)
            with np.load(stem.with_suffix(".npz")) as arrays:
                numbers, key, seen = arrays["numbers"], arrays["keys"], arrays["seen"]
            if folder is folders[0]:  # every machine has seen every document; one of them is asked
                for source in np.unique(seen[:, 1]).tolist():
                    ranks = decisions.setdefault(int(local[source]), HoldOut(holdout)).ranks
                    ranks.frombytes(np.ascontiguousarray(seen[seen[:, 1] == source, 0]).tobytes())
            if len(numbers):
                numbers[:, 2] = local[numbers[:, 2]]
            shard = Shard(stem, int(stem.name.split("-")[0]), len(key), facts["characters"])
            parts["shard"].append(np.full(len(key), len(shards), np.int32))
            parts["place"].append(np.arange(len(key), dtype=np.int32))
            parts["input"].append(np.full(len(key), shard.input, np.int32))
            parts["numbers"].append(numbers)
            parts["key"].append(key)
            shards.append(shard)
            for source_name, reasons in facts["dropped"].items():
                names.setdefault(source_name, len(names))
                dropped.setdefault(source_name, Counter()).update(reasons)
            for reason, places in facts["examples"].items():
                examples.setdefault(reason, []).extend((shard.input, row, where) for row, where in places)
    joined = {name: np.concatenate(arrays) if arrays else np.empty(0, np.int64) for name, arrays in parts.items()}
    numbers = joined["numbers"].reshape(-1, 3)
    order = np.lexsort((numbers[:, 0], joined["input"]))
    shard_of, place_of = joined["shard"][order].astype(np.int32), joined["place"][order].astype(np.int32)
    by_shard = np.lexsort((place_of, shard_of)).astype(np.int64)
    limits = np.array([decisions[index].limit() if index in decisions else -1 for index in range(len(names))], np.int64)
    return Index(
        shards=tuple(shards),
        sources=tuple(names),
        shard=shard_of,
        place=place_of,
        rank=numbers[order, 1],
        source=numbers[order, 2].astype(np.int32),
        key=joined["key"][order].astype(np.uint64),
        limits=limits,
        dropped=dropped,
        examples={reason: [where for *_, where in sorted(places)[:3]] for reason, places in sorted(examples.items())},
        by_shard=by_shard,
        edges=np.searchsorted(shard_of[by_shard], np.arange(len(shards) + 1)),
        inputs=tuple(
            read_stored(path, InputFacts, error=DatasetError, remedy=SHARE)
            for path in sorted((folders[0] / READ).glob("[0-9][0-9][0-9][0-9].json"))
        ),
    )


def gather_signatures(index: Index, rows: NDArray[np.int64], front: Signatures, path: Path) -> Signatures:
    """The signatures of chosen documents after those of `front`, in one memory-mapped file: a large corpus stays on disk."""
    total = len(front) + len(rows)
    with written_whole(path, "wb") as handle:
        header = {"descr": np.dtype(np.uint32).str, "fortran_order": False, "shape": (total, PERMUTATIONS)}
        np.lib.format.write_array_header_1_0(handle, header)
        handle.write(front.astype(np.uint32).tobytes())
        opened: dict[int, Signatures] = {}
        for row in rows.tolist():
            shard = int(index.shard[row])
            if shard not in opened:
                opened = {shard: np.load(index.shards[shard].stem.with_suffix(".signatures.npy"), mmap_mode="r")}
            handle.write(opened[shard][index.place[row]].tobytes())
    found: Signatures = np.load(path, mmap_mode="r")
    return found
