"""The last pass of preparation. In: encoded shards, the choice of documents. Out: blocks of `seq_len` tokens, manifest and card.

Best fit, longest first: a piece goes to the block that it fills most. Blocks are then numbered by their first piece and pieces
keep their order within a block, so that blocks follow the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.card import card, counted, refuse_sources
from coref_automl.corpus.choice import DocumentChoice
from coref_automl.corpus.dataset import Ints, smallest_type, write_dataset
from coref_automl.corpus.encode import special_of, tokenizer_of
from coref_automl.corpus.manifest import ANEW, EncodedFacts, MadeFrom
from coref_automl.corpus.overlap import report
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import Index
from coref_automl.decoder import read_stored, read_stored_rows
from coref_automl.errors import DatasetError
from coref_automl.korean import kiwi_version
from coref_automl.progress import Progress
from coref_automl.records import Document
from coref_automl.store import write_jsonl


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """For every piece: its block and its first token there. `order` lists pieces by block and start."""

    block: NDArray[np.int64]
    start: NDArray[np.int64]
    order: NDArray[np.int64]
    blocks: int


def pack(lengths: NDArray[np.int64], seq_len: int) -> Packing:
    """Place every piece; none is longer than `seq_len`."""
    if len(lengths) and (lengths.min() < 1 or lengths.max() > seq_len):
        raise ValueError("a piece is empty or longer than a block")
    taken = _best_fit(lengths, seq_len)
    blocks = int(taken.max()) + 1 if len(taken) else 0
    firsts = np.full(blocks, len(lengths), np.int64)
    np.minimum.at(firsts, taken, np.arange(len(lengths)))
    number = np.empty(blocks, np.int64)
    number[np.argsort(firsts)] = np.arange(blocks)
    block = number[taken]
    order = np.argsort(block, kind="stable").astype(np.int64)
    ends = np.cumsum(lengths[order])
    before = ends - lengths[order]
    opens = np.searchsorted(block[order], np.arange(blocks))
    start = np.empty(len(lengths), np.int64)
    start[order] = before - before[opens][block[order]] if blocks else 0
    return Packing(block, start, order, blocks)


def _best_fit(lengths: NDArray[np.int64], seq_len: int) -> NDArray[np.int64]:
    """Blocks with r tokens free wait in `waiting[r]`; bit r of one integer says that some do: its lowest bit is the best fit."""
    taken = np.empty(len(lengths), np.int64)
    waiting: list[list[int]] = [[] for _ in range(seq_len + 1)]
    open_bits, blocks = 0, 0
    sizes = lengths.tolist()
    for piece in np.argsort(-lengths, kind="stable").tolist():
        size = sizes[piece]
        fitting = open_bits >> size
        if fitting:
            free = size + (fitting & -fitting).bit_length() - 1
            block = waiting[free].pop()
            if not waiting[free]:
                open_bits ^= 1 << free
        else:
            free, block = seq_len, blocks
            blocks += 1
        taken[piece] = block
        if left := free - size:
            waiting[left].append(block)
            open_bits |= 1 << left
    return taken


def filled_blocks(
    packing: Packing, lengths: NDArray[np.int64], read: Callable[[int], Ints], *, seq_len: int, pad_id: int, dtype: type
) -> Iterator[Ints]:
    """The blocks in order, each filled with its pieces; `read` gives a piece's tokens."""
    edges = np.searchsorted(packing.block[packing.order], np.arange(packing.blocks + 1))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        block: Ints = np.full(seq_len, pad_id, dtype)
        for piece in packing.order[low:high].tolist():
            at = packing.start[piece]
            block[at : at + lengths[piece]] = read(piece)
        yield block


_OPEN = 128
"""Files that are held open at a time."""

_VERSIONS = ("coref-automl", "numpy", "tokenizers", "transformers")


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """All pieces of kept documents in corpus order. Tokens and mentions stay in the shards' files."""

    shard: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    document: NDArray[np.int64]
    chains: NDArray[np.int64]
    marks_at: NDArray[np.int64]
    marks: NDArray[np.int64]


def assemble(
    index: Index,
    choice: DocumentChoice,
    recipe: PrepareRecipe,
    evaluation: list[Document],
    out: Path,
    *,
    progress: Progress,
    missing: list[str],
    hub: list[str],
    made: MadeFrom,
) -> dict[str, Any]:
    tokenizer = tokenizer_of(recipe.model)
    special = special_of(tokenizer, recipe.model)
    dtype = smallest_type(len(tokenizer))
    stems = [_stem(shard.stem) for shard in index.shards]
    encoded, facts = _gather(index, choice, stems)
    sources = counted(index, choice, facts, frozenset(hub))
    refuse_sources(sources, recipe, progress)
    packing = pack(encoded.length, recipe.seq_len)
    order = packing.order
    pieces = np.column_stack([packing.block, packing.start, encoded.length, encoded.document])[order]
    real = int(encoded.length.sum())
    kept_rows = np.flatnonzero(choice.kept & (facts[:, 3] == 0))
    write_jsonl(out / "documents.jsonl", _documents(index, kept_rows))
    manifest = {
        "mode": recipe.mode,
        "tokenizer": recipe.model,
        "tokenizer_fingerprint": made.get("tokenizer_fingerprint", ""),
        "vocabulary": len(tokenizer),
        "pad_id": special.pad,
        "cls_id": special.cls,
        "sep_id": special.sep,
        "mask_id": special.mask,
        "documents": len(kept_rows),
        "pieces": len(encoded.length),
        "tokens": real,
        "padding_share": 1 - real / (packing.blocks * recipe.seq_len),
        "unknown_share": int(facts[kept_rows, 2].sum()) / max(1, real),
        "mentions": int(encoded.marks.sum()),
        "chains": int(encoded.chains.sum()),
        "sources": sources,
        "inputs": [
            {**part, "rows": entry["rows"], "fingerprint": entry["fingerprint"]}
            for part, entry in zip(made.get("inputs", ()), index.inputs, strict=True)
        ],
        "missing": missing,
        "eval_sets": made.get("eval_sets", []),
        "overlap": _overlap(index, choice, stems, evaluation),
        "examples": index.examples,
        "settings": recipe.settings(),
        "versions": _versions(recipe),
    }
    with progress.stage("pack", packing.blocks, "blocks") as stage:

        @lru_cache(maxsize=_OPEN)
        def tokens(shard: int) -> Ints:
            return np.memmap(stems[shard].with_suffix(".tokens"), dtype, "r")

        def piece(number: int) -> Ints:
            low = int(encoded.offset[number])
            return tokens(int(encoded.shard[number]))[low : low + int(encoded.length[number])]

        def shown() -> Iterator[Ints]:
            for block in filled_blocks(packing, encoded.length, piece, seq_len=recipe.seq_len, pad_id=special.pad, dtype=dtype):
                yield block
                stage.advance()

        return write_dataset(
            out,
            blocks=shown(),
            count=packing.blocks,
            seq_len=recipe.seq_len,
            dtype=dtype,
            pieces=pieces,
            mentions=_placed_mentions(encoded, packing.block, packing.start, order, stems),
            mention_count=int(encoded.marks.sum()),
            manifest=manifest,
            card=card,
        )


def _stem(read: Path) -> Path:
    return read.parent.parent / "encode" / read.name


def _gather(index: Index, choice: DocumentChoice, stems: list[Path]) -> tuple[_Encoded, NDArray[np.int64]]:
    """The pieces of kept documents, and for every document (characters, tokens, unknown, reason)."""
    parts: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("shard", "offset", "length", "row", "chains", "marks_at", "marks")
    }
    facts = np.zeros((len(index), 4), np.int64)
    for number, stem in enumerate(stems):
        row_of = index.rows_of(number)
        with np.load(stem.with_suffix(".npz")) as arrays:
            pieces, documents = arrays["pieces"].astype(np.int64), arrays["documents"]
        marks = np.load(stem.with_suffix(".mentions.npy"), mmap_mode="r")
        facts[row_of[documents[:, 0]]] = documents[:, 1:]
        count = np.bincount(marks[:, 0], minlength=len(pieces)) if len(pieces) else np.empty(0, np.int64)
        kept = choice.kept[row_of[pieces[:, 0]]]
        columns = {
            "shard": np.full(len(pieces), number, np.int64),
            "offset": np.cumsum(pieces[:, 1]) - pieces[:, 1],
            "length": pieces[:, 1],
            "row": row_of[pieces[:, 0]],
            "chains": pieces[:, 2],
            "marks_at": np.cumsum(count) - count,
            "marks": count,
        }
        for name, column in columns.items():
            parts[name].append(column[kept])
    joined: dict[str, Any] = {name: np.concatenate(arrays) if arrays else np.empty(0, np.int64) for name, arrays in parts.items()}
    document = np.unique(joined.pop("row"), return_inverse=True)[1].astype(np.int64)
    return _Encoded(**{**joined, "shard": joined["shard"].astype(np.int32)}, document=document), facts


def _placed_mentions(
    encoded: _Encoded, block: NDArray[np.int64], start: NDArray[np.int64], order: NDArray[np.int64], stems: list[Path]
) -> Iterator[Ints]:
    """Mentions in the order of the blocks, in offsets of the block, chains numbered from 0 within it."""

    @lru_cache(maxsize=_OPEN)
    def marks(shard: int) -> Ints:
        found: Ints = np.load(stems[shard].with_suffix(".mentions.npy"), mmap_mode="r")
        return found

    current, chains = -1, 0
    for piece in order.tolist():
        if block[piece] != current:
            current, chains = int(block[piece]), 0
        if count := int(encoded.marks[piece]):
            low = int(encoded.marks_at[piece])
            found = np.array(marks(int(encoded.shard[piece]))[low : low + count])
            found[:, 0] = current
            found[:, 1:3] += np.int32(start[piece])
            found[:, 3] += np.int32(chains)
            chains += int(encoded.chains[piece])
            yield found


def _documents(index: Index, rows: NDArray[np.int64]) -> Iterator[dict[str, str]]:
    """Who the numbers in blocks.npy are, so that anyone can check what was trained on."""
    opened: dict[int, list[dict[str, str]]] = {}
    for row in rows.tolist():
        shard = int(index.shard[row])
        if shard not in opened:
            if len(opened) > 16:
                opened.clear()
            opened[shard] = [
                {"source": one.source, "id": one.id, "title": one.title}
                for one in read_stored_rows(index.shards[shard].texts, Document, error=DatasetError, remedy=ANEW)
            ]
        yield opened[shard][int(index.place[row])]


def _overlap(index: Index, choice: DocumentChoice, stems: list[Path], evaluation: list[Document]) -> dict[str, Any] | None:
    if not evaluation:
        return None
    found: list[NDArray[np.uint64]] = []
    seen: list[tuple[int, int, str, str, str]] = []
    for number, stem in enumerate(stems):
        row_of = index.rows_of(number)
        with np.load(stem.with_suffix(".npz")) as arrays:
            found.append(arrays["runs"][choice.kept[row_of[arrays["run_places"]]]])
        facts = read_stored(stem.with_suffix(".json"), EncodedFacts, error=DatasetError, remedy=ANEW)
        for place, *entry in facts["overlap"]:
            if choice.kept[row_of[place]]:
                seen.append((int(row_of[place]), *entry))
    examples = [(run, source, identity, words) for _, run, source, identity, words in sorted(seen)]
    return report(evaluation, np.unique(np.concatenate(found)), examples).to_json()


def _versions(recipe: PrepareRecipe) -> dict[str, str]:
    found = {name: version(name) for name in _VERSIONS}
    if recipe.mode != "mlm":
        found["kiwi"] = kiwi_version()
    if recipe.near_duplicates:
        found["rensa"] = version("rensa")
    return found
