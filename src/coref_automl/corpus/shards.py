"""The first pass of preparation. In: one part of a source. Out: shards of cleaned documents, and an index over them.

A shard is `NAME.jsonl` (documents), `NAME.signatures.npy` and `NAME.bands.npy` (for near-duplicates), `NAME.npz` (numbers per
document) and `NAME.json` (counts), written in that order: where the last exists, the shard is finished, and a run that was killed
resumes after it. `NAME.started` has a line for every worker that began with it, `NAME.failed` says why it was given up.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import from_mapping
from coref_automl.corpus.clean import HoldOut, normalise, rank, reason_to_drop
from coref_automl.corpus.dedup import PERMUTATIONS, signature, text_key, write_signatures
from coref_automl.corpus.files import Flaw
from coref_automl.corpus.manifest import ANEW, ReadFacts, ShardFacts, read_shard
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import Input, read_input
from coref_automl.decoder import read_stored
from coref_automl.errors import DatasetError, FolderError
from coref_automl.records import Document
from coref_automl.store import atomic_write, write_json, write_jsonl

SHARD_ROWS = 50_000
UNREAD = "could not be read"
"""Why the rest of a part that was set aside is not there; it is counted once, under the part's own name."""
_EXAMPLES = 3


@dataclass(slots=True)
class _Shard:
    """A shard as it fills. `seen` holds the rank of every document that went by, kept or not."""

    sources: list[str] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    numbers: list[tuple[int, int, int]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    signatures: list[list[int]] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    characters: int = 0
    rows: int = 0

    def source(self, name: str) -> int:
        if name not in self.sources:
            self.sources.append(name)
        return self.sources.index(name)

    def drop(self, source: str, reason: str, row: int, where: str) -> None:
        self.counts.setdefault(source, Counter())[reason] += 1
        places = self.examples.setdefault(reason, [])
        if len(places) < _EXAMPLES:
            places.append((row, where))


def read_part(part: Input, number: int, folder: Path, recipe: PrepareRecipe) -> Iterator[tuple[int, int]]:
    """Write the shards of one part; yields (rows, characters) as it goes. Finished shards are passed over."""
    if (folder / f"{number:04d}.json").is_file():
        return
    finished = finished_shards(folder, number)
    done = finished[-1]["rows_so_far"] if finished else 0
    shard, count, row = _Shard(), len(finished), 0
    for row, entry in enumerate(read_input(part, field=recipe.field, broken_ok=recipe.allow_missing), 1):
        if recipe.limit is not None and row > recipe.limit:
            row -= 1
            break
        if row <= done:
            continue
        before = shard.characters
        _take(shard, entry, row - 1, recipe)
        shard.rows += 1
        yield 1, shard.characters - before
        if shard.characters >= recipe.portion or shard.rows >= SHARD_ROWS:
            _write(shard, folder / f"{number:04d}-{count:05d}", row, recipe.near_duplicates)
            shard, count = _Shard(), count + 1
    if not row and part.span is None:
        shard.drop(part.label, "no rows", 0, part.label)
        shard.rows = 1
    if shard.rows:
        _write(shard, folder / f"{number:04d}-{count:05d}", row, recipe.near_duplicates)
        count += 1
    write_json(folder / f"{number:04d}.json", {"rows": row, "shards": count})


def read_job(*, part: dict[str, Any], number: int, folder: str, recipe: dict[str, Any]) -> int:
    """`read_part` for a worker process; returns the characters that were read."""
    started(Path(folder) / f"{number:04d}")
    made = from_mapping(Input, part, "part"), number, Path(folder), from_mapping(PrepareRecipe, recipe, "recipe")
    return sum(characters for _, characters in read_part(*made))


def started(stem: Path) -> None:
    """Leave a line that says which worker began with this."""
    if not stem.parent.is_dir():
        raise FolderError(f"{stem.parent} does not exist on {platform.node()}; choose an --out that all machines see.")
    with stem.with_suffix(".started").open("a") as handle:
        handle.write(f"{platform.node()} {os.getpid()}\n")


def set_part_aside(part: Input, number: int, folder: Path, *, near: bool) -> None:
    """Give up the rest of a part that no worker survives: what was read of it stays, what follows is one counted drop."""
    finished, shard = finished_shards(folder, number), _Shard(rows=1)
    rows = finished[-1]["rows_so_far"] if finished else 0
    shard.drop(part.label, UNREAD, rows, part.place)
    _write(shard, folder / f"{number:04d}-{len(finished):05d}", rows, near)
    write_json(folder / f"{number:04d}.json", {"rows": rows, "shards": len(finished) + 1})


def finished_shards(folder: Path, number: int) -> list[ShardFacts]:
    found: list[ShardFacts] = []
    while (path := folder / f"{number:04d}-{len(found):05d}.json").is_file():
        found.append(read_shard(path))
    return found


def _take(shard: _Shard, entry: Document | Flaw, row: int, recipe: PrepareRecipe) -> None:
    if isinstance(entry, Flaw):
        shard.drop(entry.source, entry.reason, row, entry.where)
        return
    place, source = rank(entry.id), shard.source(entry.source)
    shard.seen.append((place, source))
    text = normalise(entry.text)
    if reason := reason_to_drop(text, recipe.filters()):
        shard.drop(entry.source, reason, row, entry.id)
        return
    shard.documents.append(Document(entry.id, entry.source, text, entry.title))
    shard.numbers.append((row, place, source))
    shard.keys.append(text_key(text))
    shard.characters += len(text)
    if recipe.near_duplicates:
        shard.signatures.append(signature(text))


def _write(shard: _Shard, stem: Path, rows_so_far: int, near: bool) -> None:
    write_jsonl(stem.with_suffix(".jsonl"), (asdict(document) for document in shard.documents))
    if near:
        write_signatures(stem, np.array(shard.signatures, np.uint32).reshape(-1, PERMUTATIONS))
    with atomic_write(stem.with_suffix(".npz"), "wb") as handle:
        np.savez(
            handle,
            numbers=np.array(shard.numbers, np.int64).reshape(-1, 3),
            keys=np.array(shard.keys, np.uint64),
            seen=np.array(shard.seen, np.int64).reshape(-1, 2),
        )
    facts = {"rows_so_far": rows_so_far, "rows": shard.rows, "documents": len(shard.documents), "characters": shard.characters}
    lists = {"sources": shard.sources, "dropped": shard.counts, "examples": shard.examples}
    write_json(stem.with_suffix(".json"), {**facts, **lists})


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
    """Every document of every shard, in the order of (input, row). The arrays are parallel; `edges` is where shards begin."""

    shards: tuple[Shard, ...]
    sources: tuple[str, ...]
    rank: NDArray[np.int64]
    source: NDArray[np.int32]
    key: NDArray[np.uint64]
    limits: NDArray[np.int64]
    dropped: dict[str, Counter[str]]
    examples: dict[str, list[str]]
    inputs: tuple[ReadFacts, ...]
    edges: NDArray[np.int64]

    def rows_of(self, shard: int) -> NDArray[np.int64]:
        """For every document of a shard, in the shard's order: its row here."""
        return np.arange(self.edges[shard], self.edges[shard + 1])

    def __len__(self) -> int:
        return len(self.key)

    @property
    def held_out(self) -> NDArray[np.bool_]:
        return self.rank <= self.limits[self.source]


def build_index(folder: Path, *, parts: int, holdout: float) -> Index:
    """`parts` is how many were read. Only the shards that their facts count are taken, whatever else lies there."""
    shards: list[Shard] = []
    names: dict[str, int] = {}
    numbers, keys = [np.empty((0, 3), np.int64)], [np.empty(0, np.uint64)]
    decisions: dict[int, HoldOut] = {}
    dropped: dict[str, Counter[str]] = {}
    examples: dict[str, list[tuple[int, int, str]]] = {}
    for path in _counted_shards(folder / READ, parts):
        facts, stem = read_shard(path), path.with_suffix("")
        local = np.array([names.setdefault(name, len(names)) for name in facts["sources"]], np.int64)
        with np.load(stem.with_suffix(".npz")) as arrays:
            own, key, seen = arrays["numbers"], arrays["keys"], arrays["seen"]
        for source in np.unique(seen[:, 1]).tolist():
            ranks = decisions.setdefault(int(local[source]), HoldOut(holdout)).ranks
            ranks.frombytes(np.ascontiguousarray(seen[seen[:, 1] == source, 0]).tobytes())
        if len(own):
            own[:, 2] = local[own[:, 2]]
        shard = Shard(stem, int(stem.name.split("-")[0]), len(key), facts["characters"])
        numbers.append(own)
        keys.append(key)
        shards.append(shard)
        for source_name, reasons in facts["dropped"].items():
            names.setdefault(source_name, len(names))
            dropped.setdefault(source_name, Counter()).update(reasons)
        for reason, places in facts["examples"].items():
            examples.setdefault(reason, []).extend((shard.input, row, where) for row, where in places)
    counts = np.array([shard.documents for shard in shards], np.int64)
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    every = np.concatenate(numbers)
    return Index(
        shards=tuple(shards),
        sources=tuple(names),
        rank=every[:, 1].copy(),
        source=every[:, 2].astype(np.int32),
        key=np.concatenate(keys).astype(np.uint64),
        limits=np.array([decisions[at].limit() if at in decisions else -1 for at in range(len(names))], np.int64),
        dropped=dropped,
        examples={reason: [where for *_, where in sorted(places)[:3]] for reason, places in sorted(examples.items())},
        edges=edges,
        inputs=tuple(_part_facts(folder / READ, number) for number in range(parts)),
    )


def _counted_shards(folder: Path, parts: int) -> Iterator[Path]:
    for number in range(parts):
        for count in range(_part_facts(folder, number)["shards"]):
            yield _existing(folder / f"{number:04d}-{count:05d}.json")


def _part_facts(folder: Path, number: int) -> ReadFacts:
    return read_stored(_existing(folder / f"{number:04d}.json"), ReadFacts, error=DatasetError, remedy=ANEW)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DatasetError(f"{path} is missing; {ANEW}.")
    return path
