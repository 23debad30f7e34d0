"""The last pass of preparation. In: encoded shards, the choice of documents. Out: blocks of `seq_len` tokens, manifest and card.

Best fit, longest first, within a window of the corpus: a piece goes to the block that it fills most. Blocks are then numbered by
their first piece and pieces keep their order within a block, so that blocks follow the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.card import card, counted, refuse_sources
from coref_automl.corpus.choice import KEPT, Choice
from coref_automl.corpus.dataset import Ints, Window, smallest_type, write_dataset
from coref_automl.corpus.encode import special_of, tokenizer_of
from coref_automl.corpus.manifest import ANEW, EncodedFacts, MadeFrom
from coref_automl.corpus.overlap import report
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import Index
from coref_automl.decoder import read_stored
from coref_automl.errors import DatasetError
from coref_automl.fingerprints import chunks_of
from coref_automl.korean import kiwi_version
from coref_automl.progress import Progress, Stage
from coref_automl.records import Document
from coref_automl.store import atomic_write


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
_WINDOW = 1 << 26
"""Tokens that are packed together: a block takes its pieces from texts near each other, and memory stays bounded."""

_VERSIONS = ("coref-automl", "numpy", "tokenizers", "transformers")


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Pieces in corpus order. Tokens and mentions stay in the shards' files."""

    shard: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    document: NDArray[np.int64]
    chains: NDArray[np.int64]
    marks_at: NDArray[np.int64]
    marks: NDArray[np.int64]


def assemble(
    index: Index,
    choice: Choice,
    recipe: PrepareRecipe,
    evaluation: list[Document],
    out: Path,
    *,
    progress: Progress,
    missing: list[str],
    hub: list[str],
    made: MadeFrom,
) -> dict[str, Any]:
    """`made` names the inputs, with their rows."""
    tokenizer = tokenizer_of(recipe.model)
    special = special_of(tokenizer, recipe.model)
    dtype = smallest_type(len(tokenizer))
    stems = [shard.stem.parent.parent / "encode" / shard.stem.name for shard in index.shards]
    facts = _facts(index, stems)
    sources = counted(index, choice, facts, hub)
    refuse_sources(sources, recipe, progress)
    trained = (choice == KEPT) & (facts[:, 3] == 0)
    with atomic_write(out / "documents.jsonl", "wb") as handle:
        for stem in stems:
            handle.writelines(chunks_of(stem.with_suffix(".jsonl")))
    counts = Counter[str]()

    @lru_cache(maxsize=_OPEN)
    def tokens(shard: int) -> Ints:
        return np.memmap(stems[shard].with_suffix(".tokens"), dtype, "r")

    def packed(stage: Stage) -> Iterator[Window]:
        for pieces in _windows(stems):
            packing = pack(pieces.length, recipe.seq_len)

            def read(piece: int, pieces: _Pieces = pieces) -> Ints:
                low = int(pieces.offset[piece])
                return tokens(int(pieces.shard[piece]))[low : low + int(pieces.length[piece])]

            table = np.column_stack([packing.block + counts["blocks"], packing.start, pieces.length, pieces.document])
            yield (
                filled_blocks(packing, pieces.length, read, seq_len=recipe.seq_len, pad_id=special.pad, dtype=dtype),
                table[packing.order],
                _placed_mentions(pieces, packing, stems, counts["blocks"]),
            )
            sums = {"tokens": pieces.length.sum(), "mentions": pieces.marks.sum(), "chains": pieces.chains.sum()}
            counts.update({"blocks": packing.blocks, "pieces": len(pieces.length), **{k: int(v) for k, v in sums.items()}})
            stage.advance(packing.blocks)

    def manifest(blocks: int) -> dict[str, Any]:
        return {
            "mode": recipe.mode,
            "tokenizer": recipe.model,
            "tokenizer_fingerprint": made.get("tokenizer_fingerprint", ""),
            "vocabulary": len(tokenizer),
            "pad_id": special.pad,
            "cls_id": special.cls,
            "sep_id": special.sep,
            "mask_id": special.mask,
            "documents": int(trained.sum()),
            "pieces": counts["pieces"],
            "tokens": counts["tokens"],
            "padding_share": 1 - counts["tokens"] / (blocks * recipe.seq_len),
            "unknown_share": int(facts[trained, 2].sum()) / max(1, counts["tokens"]),
            "mentions": counts["mentions"],
            "chains": counts["chains"],
            "sources": sources,
            "inputs": made.get("inputs", []),
            "missing": missing,
            "eval_sets": made.get("eval_sets", []),
            "overlap": _overlap(index, stems, evaluation),
            "examples": index.examples,
            "settings": recipe.settings(),
            "versions": _versions(recipe),
        }

    with progress.stage("pack", None, "blocks") as stage:
        return write_dataset(out, packed(stage), seq_len=recipe.seq_len, dtype=dtype, manifest=manifest, card=card)


def _facts(index: Index, stems: list[Path]) -> NDArray[np.int32]:
    """For every document (characters, tokens, unknown, reason); zeros for one that was not encoded."""
    facts = np.zeros((len(index), 4), np.int32)
    for number, stem in enumerate(stems):
        with np.load(stem.with_suffix(".npz")) as arrays:
            documents = arrays["documents"]
        facts[index.edges[number] + documents[:, 0]] = documents[:, 1:]
    return facts


def _windows(stems: list[Path]) -> Iterator[_Pieces]:
    """The pieces of all shards, _WINDOW tokens at a time, wherever shards end."""
    rest = np.empty((0, 7), np.int64)
    documents = 0
    for number, stem in enumerate(stems):
        with np.load(stem.with_suffix(".npz")) as arrays:
            place, length, chains = arrays["pieces"].astype(np.int64).T
        marks = np.bincount(np.load(stem.with_suffix(".mentions.npy"), mmap_mode="r")[:, 0], minlength=len(length))
        own, document = np.unique(place, return_inverse=True)
        shard, offset, marks_at = np.full(len(length), number), np.cumsum(length) - length, np.cumsum(marks) - marks
        rest = np.concatenate([rest, np.column_stack([shard, offset, length, document + documents, chains, marks_at, marks])])
        documents += len(own)
        while (filled := np.cumsum(rest[:, 2])).size and filled[-1] >= _WINDOW:
            cut = int(np.searchsorted(filled, _WINDOW)) + 1
            yield _Pieces(*rest[:cut].T)
            rest = rest[cut:]
    if len(rest):
        yield _Pieces(*rest.T)


def _placed_mentions(pieces: _Pieces, packing: Packing, stems: list[Path], first: int) -> Iterator[Ints]:
    """Mentions in the order of the blocks, numbered from `first`, in offsets of the block, chains numbered from 0 within it."""

    @lru_cache(maxsize=_OPEN)
    def marks(shard: int) -> Ints:
        found: Ints = np.load(stems[shard].with_suffix(".mentions.npy"), mmap_mode="r")
        return found

    current, chains = -1, 0
    for piece in packing.order.tolist():
        if packing.block[piece] != current:
            current, chains = int(packing.block[piece]), 0
        if count := int(pieces.marks[piece]):
            low = int(pieces.marks_at[piece])
            found = np.array(marks(int(pieces.shard[piece]))[low : low + count])
            found[:, 0] = current + first
            found[:, 1:3] += np.int32(packing.start[piece])
            found[:, 3] += np.int32(chains)
            chains += int(pieces.chains[piece])
            yield found


def _overlap(index: Index, stems: list[Path], evaluation: list[Document]) -> dict[str, Any] | None:
    if not evaluation:
        return None
    found: list[NDArray[np.uint64]] = []
    seen: list[tuple[int, int, str, str, str]] = []
    for number, stem in enumerate(stems):
        with np.load(stem.with_suffix(".npz")) as arrays:
            found.append(np.unique(arrays["runs"]))
        facts = read_stored(stem.with_suffix(".json"), EncodedFacts, error=DatasetError, remedy=ANEW)
        seen += [(int(index.edges[number]) + place, *entry) for place, *entry in facts["overlap"]]
    examples = [(run, source, identity, words) for _, run, source, identity, words in sorted(seen)]
    return report(evaluation, np.unique(np.concatenate(found)), examples).to_json()


def _versions(recipe: PrepareRecipe) -> dict[str, str]:
    found = {name: version(name) for name in _VERSIONS}
    if recipe.mode != "mlm":
        found["kiwi"] = kiwi_version()
    if recipe.near_duplicates:
        found["rensa"] = version("rensa")
    return found
