"""The first pass of preparation. In: one part of a source. Out: shards of cleaned documents, and an index over them.

A shard is `NAME.jsonl` (documents), `NAME.signatures.npy` and `NAME.bands.npy` (for near-duplicates), `NAME.npz` (numbers per
document) and `NAME.json` (counts), written in that order: the last marks the shard as finished.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.config import from_mapping
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import DatasetError
from coref_automl.base.records import Document
from coref_automl.base.store import atomic_write, write_json, write_jsonl
from coref_automl.corpus.clean import highest_held_out, normalise, rank, reason_to_drop
from coref_automl.corpus.dedup import PERMUTATIONS, signature, text_key, write_signatures
from coref_automl.corpus.files import Flaw
from coref_automl.corpus.manifest import ANEW, ReadFacts, ShardFacts, read_shard
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.sources import Input, read_input
from coref_automl.corpus.work import READ, mark_started

SHARD_ROWS = 50_000
UNREAD = "could not be read"
"""The reason for the rest of a part that was skipped; it is counted once, under the part's own name."""
_EXAMPLES = 3


@dataclass(slots=True)
class _ShardBuilder:
    """Collects the documents of a shard. `numbers` has (row, rank, source) of each; `seen` also those of dropped documents."""

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
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append((row, where))


def read_part(part: Input, number: int, folder: Path, recipe: PrepareRecipe) -> Iterator[tuple[int, int]]:
    """Read one part into shards, after those that are finished; yields (rows, characters) of progress."""
    if (folder / f"{number:04d}.json").is_file():
        return
    finished = finished_shards(folder, number)
    done = finished[-1]["rows_so_far"] if finished else 0
    shard, count, row = _ShardBuilder(), len(finished), 0
    for row, entry in enumerate(read_input(part, field=recipe.field, broken_ok=recipe.allow_missing), 1):
        if recipe.limit is not None and row > recipe.limit:
            row -= 1
            break
        if row <= done:
            continue
        characters = shard.characters
        _add(shard, entry, row - 1, recipe)
        shard.rows += 1
        yield 1, shard.characters - characters
        if shard.characters >= recipe.portion or shard.rows >= SHARD_ROWS:
            _write(shard, folder / f"{number:04d}-{count:05d}", row, recipe.near_duplicates)
            shard, count = _ShardBuilder(), count + 1
    if not row and part.span is None:
        shard.drop(part.label, "no rows", 0, part.label)
        shard.rows = 1
    if shard.rows:
        _write(shard, folder / f"{number:04d}-{count:05d}", row, recipe.near_duplicates)
        count += 1
    write_json(folder / f"{number:04d}.json", {"rows": row, "shards": count})


def read_job(*, part: dict[str, Any], number: int, folder: str, recipe: dict[str, Any]) -> int:
    """Run `read_part` in a worker process; returns the characters that were read."""
    mark_started(Path(folder) / f"{number:04d}")
    arguments = from_mapping(Input, part, "part"), number, Path(folder), from_mapping(PrepareRecipe, recipe, "recipe")
    return sum(characters for _, characters in read_part(*arguments))


def skip_part(part: Input, number: int, folder: Path, *, near: bool) -> None:
    """Give up the rest of a part that no worker survives: its finished shards stay, the rest is one counted drop."""
    finished, shard = finished_shards(folder, number), _ShardBuilder(rows=1)
    rows = finished[-1]["rows_so_far"] if finished else 0
    shard.drop(part.label, UNREAD, rows, part.place)
    _write(shard, folder / f"{number:04d}-{len(finished):05d}", rows, near)
    write_json(folder / f"{number:04d}.json", {"rows": rows, "shards": len(finished) + 1})


def finished_shards(folder: Path, number: int) -> list[ShardFacts]:
    """The counts of a part's finished shards, in order."""
    shards: list[ShardFacts] = []
    while (path := folder / f"{number:04d}-{len(shards):05d}.json").is_file():
        shards.append(read_shard(path))
    return shards


def _add(shard: _ShardBuilder, entry: Document | Flaw, row: int, recipe: PrepareRecipe) -> None:
    if isinstance(entry, Flaw):
        shard.drop(entry.source, entry.reason, row, entry.where)
        return
    id_rank, source = rank(entry.id), shard.source(entry.source)
    shard.seen.append((id_rank, source))
    text = normalise(entry.text)
    if reason := reason_to_drop(text, recipe.filters()):
        shard.drop(entry.source, reason, row, entry.id)
        return
    shard.documents.append(Document(entry.id, entry.source, text, entry.title))
    shard.numbers.append((row, id_rank, source))
    shard.keys.append(text_key(text))
    shard.characters += len(text)
    if recipe.near_duplicates:
        shard.signatures.append(signature(text))


def _write(shard: _ShardBuilder, stem: Path, rows_so_far: int, near: bool) -> None:
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


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard: the stem of its files, the number of its part, and its counts."""

    stem: Path
    part: int
    documents: int
    characters: int

    @property
    def texts(self) -> Path:
        return self.stem.with_suffix(".jsonl")


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Every document of every shard, ordered by (part, row), as parallel arrays; shard i has rows `edges[i]:edges[i + 1]`."""

    shards: tuple[Shard, ...]
    sources: tuple[str, ...]
    rank: NDArray[np.int64]
    source: NDArray[np.int32]
    key: NDArray[np.uint64]
    limits: NDArray[np.int64]
    dropped: dict[str, Counter[str]]
    examples: dict[str, list[str]]
    parts: tuple[ReadFacts, ...]
    edges: NDArray[np.int64]

    def rows_of(self, shard: int) -> NDArray[np.int64]:
        """The rows of a shard's documents in this index, in the shard's order."""
        return np.arange(self.edges[shard], self.edges[shard + 1])

    def __len__(self) -> int:
        return len(self.key)

    @property
    def held_out(self) -> NDArray[np.bool_]:
        return self.rank <= self.limits[self.source]


def build_index(folder: Path, *, parts: int, holdout: float) -> Index:
    """Index the shards of the first `parts` parts. Only shards that a part counts are used, whatever else is in the folder."""
    shards: list[Shard] = []
    names: dict[str, int] = {}
    numbers, keys = [np.empty((0, 3), np.int64)], [np.empty(0, np.uint64)]
    ranks: dict[int, array[int]] = defaultdict(partial(array, "q"))
    dropped: dict[str, Counter[str]] = {}
    examples: dict[str, list[tuple[int, int, str]]] = {}
    part_facts = [
        read_stored(_existing(folder / READ / f"{number:04d}.json"), ReadFacts, error=DatasetError, remedy=ANEW)
        for number in range(parts)
    ]
    counted = [(part, number) for part in range(parts) for number in range(part_facts[part]["shards"])]
    for part, number in counted:
        stem = folder / READ / f"{part:04d}-{number:05d}"
        facts = read_shard(_existing(stem.with_suffix(".json")))
        source_numbers = np.array([names.setdefault(name, len(names)) for name in facts["sources"]], np.int64)
        with np.load(stem.with_suffix(".npz")) as arrays:
            rows, key, seen = arrays["numbers"], arrays["keys"], arrays["seen"]
        for source in np.unique(seen[:, 1]).tolist():
            of_source = np.ascontiguousarray(seen[seen[:, 1] == source, 0])
            ranks[int(source_numbers[source])].frombytes(of_source.tobytes())
        if len(rows):
            rows[:, 2] = source_numbers[rows[:, 2]]
        numbers.append(rows)
        keys.append(key)
        shards.append(Shard(stem, part, len(key), facts["characters"]))
        for source_name, reasons in facts["dropped"].items():
            names.setdefault(source_name, len(names))
            dropped.setdefault(source_name, Counter()).update(reasons)
        for reason, dropped_rows in facts["examples"].items():
            examples.setdefault(reason, []).extend((part, row, where) for row, where in dropped_rows)
    edges = np.cumsum([0, *(shard.documents for shard in shards)], dtype=np.int64)
    _, id_rank, source_of = np.concatenate(numbers).T
    return Index(
        shards=tuple(shards),
        sources=tuple(names),
        rank=id_rank.copy(),
        source=source_of.astype(np.int32),
        key=np.concatenate(keys).astype(np.uint64),
        limits=np.array([highest_held_out(ranks[number], share=holdout) for number in range(len(names))], np.int64),
        dropped=dropped,
        examples={reason: [where for *_, where in sorted(rows)[:_EXAMPLES]] for reason, rows in sorted(examples.items())},
        edges=edges,
        parts=tuple(part_facts),
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DatasetError(f"{path} is missing; {ANEW}.")
    return path
