"""The last pass of preparation. In: encoded shards, the choice of documents. Out: blocks of `seq_len` tokens, manifest and card.

Best-fit decreasing within a window of the corpus: pieces, longest first, go to the block that they fill most. Blocks are then
numbered by their first piece and pieces keep their order within a block, so blocks follow the order of the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import DatasetError
from coref_automl.base.fingerprints import chunks_of
from coref_automl.base.progress import Progress, Stage
from coref_automl.base.records import Document
from coref_automl.base.store import atomic_write
from coref_automl.corpus.card import card, counted, refuse_sources
from coref_automl.corpus.choice import KEPT, Choice, overlap_of
from coref_automl.corpus.dataset import Ints, Window, smallest_type, write_dataset
from coref_automl.corpus.encode import FACTS, REASON, UNKNOWN, special_of, tokenizer_of
from coref_automl.corpus.manifest import ANEW, EncodedFacts, MadeFrom
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import Index
from coref_automl.corpus.work import ENCODE
from coref_automl.models.vocabulary import ids_end


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Each piece's block and its offset there. `order` lists the pieces by block and offset."""

    block: NDArray[np.int64]
    start: NDArray[np.int64]
    order: NDArray[np.int64]
    blocks: int


def pack(lengths: NDArray[np.int64], seq_len: int) -> Packing:
    """Assign every piece to a block of `seq_len` tokens; no piece may be longer."""
    if len(lengths) and (lengths.min() < 1 or lengths.max() > seq_len):
        raise ValueError("a piece is empty or longer than a block")
    bins = _best_fit(lengths, seq_len)
    blocks = int(bins.max()) + 1 if len(bins) else 0
    first_piece = np.full(blocks, len(lengths), np.int64)
    np.minimum.at(first_piece, bins, np.arange(len(lengths)))
    number = np.empty(blocks, np.int64)
    number[np.argsort(first_piece)] = np.arange(blocks)
    block = number[bins]
    order = np.argsort(block, kind="stable").astype(np.int64)
    offset = np.cumsum(lengths[order]) - lengths[order]  # in all blocks laid end to end, without padding
    first = np.searchsorted(block[order], np.arange(blocks))
    start = np.empty(len(lengths), np.int64)
    start[order] = offset - offset[first][block[order]] if blocks else 0
    return Packing(block, start, order, blocks)


def _best_fit(lengths: NDArray[np.int64], seq_len: int) -> NDArray[np.int64]:
    """The bin of every piece. `open_blocks[r]` lists blocks with r tokens free, and bit r of `open_bits` says whether there are
    any: the lowest set bit from the piece's size on is the best fit."""
    bins = np.empty(len(lengths), np.int64)
    open_blocks: list[list[int]] = [[] for _ in range(seq_len + 1)]
    open_bits, blocks = 0, 0
    sizes = lengths.tolist()
    for piece in np.argsort(-lengths, kind="stable").tolist():
        size = sizes[piece]
        fitting = open_bits >> size
        if fitting:
            free = size + (fitting & -fitting).bit_length() - 1
            block = open_blocks[free].pop()
            if not open_blocks[free]:
                open_bits ^= 1 << free
        else:
            free, block = seq_len, blocks
            blocks += 1
        bins[piece] = block
        if left := free - size:
            open_blocks[left].append(block)
            open_bits |= 1 << left
    return bins


def filled_blocks(
    packing: Packing, lengths: NDArray[np.int64], read: Callable[[int], Ints], *, seq_len: int, pad_id: int, dtype: type
) -> Iterator[Ints]:
    """Yield the blocks in order, each filled with its pieces and padded; `read` returns a piece's tokens."""
    edges = np.searchsorted(packing.block[packing.order], np.arange(packing.blocks + 1))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        block: Ints = np.full(seq_len, pad_id, dtype)
        for piece in packing.order[low:high].tolist():
            start = packing.start[piece]
            block[start : start + lengths[piece]] = read(piece)
        yield block


_OPEN = 128
"""Shards whose files are open at a time."""
_WINDOW = 1 << 26
"""Tokens that are packed together: blocks combine texts from the same region of the corpus, and memory is bounded."""

_PIECE = np.dtype([(name, np.int64) for name in ("shard", "start", "length", "document", "chains", "first_mention", "mentions")])
"""A piece in the files of its shard: its tokens `start:start + length`, its mentions `first_mention:first_mention + mentions`.
`document` is the number of its document among those that train."""


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
    made_from: MadeFrom,
) -> dict[str, Any]:
    """Pack the encoded shards and write the dataset with its manifest, which is returned, and card.

    `missing` says what could not be read, and `hub` names the sources that are not files.
    """
    stems = [shard.stem.parent.parent / ENCODE / shard.stem.name for shard in index.shards]
    facts = _facts(index, stems)
    sources = counted(index, choice, facts, hub)
    refuse_sources(sources, recipe, progress)
    with atomic_write(out / "documents.jsonl", "wb") as handle:
        for stem in stems:
            handle.writelines(chunks_of(stem.with_suffix(".jsonl")))
    tokenizer = tokenizer_of(recipe.model)
    special, dtype = special_of(tokenizer, recipe.model), smallest_type(ids_end(tokenizer))
    packer = _Packer(stems, recipe.seq_len, special.pad, dtype)
    trained = (choice == KEPT) & (facts[:, REASON] == 0)

    def manifest(blocks: int) -> dict[str, Any]:
        counts = packer.counts
        return {
            "mode": recipe.mode,
            "tokenizer": recipe.model,
            "tokenizer_fingerprint": made_from.get("tokenizer_fingerprint", ""),
            "vocabulary": len(tokenizer),
            "pad_id": special.pad,
            "cls_id": special.cls,
            "sep_id": special.sep,
            "mask_id": special.mask,
            "documents": int(trained.sum()),
            "pieces": counts["pieces"],
            "tokens": counts["tokens"],
            "padding_share": 1 - counts["tokens"] / (blocks * recipe.seq_len),
            "unknown_share": int(facts[trained, UNKNOWN].sum()) / max(1, counts["tokens"]),
            "mentions": counts["mentions"],
            "chains": counts["chains"],
            "sources": sources,
            "inputs": made_from.get("inputs", []),
            "missing": missing,
            "eval_sets": made_from.get("eval_sets", []),
            "overlap": _overlap(index, stems, evaluation),
            "examples": index.examples,
            "settings": recipe.settings(),
            "versions": recipe.versions(),
        }

    with progress.stage("pack", None, "blocks") as stage:
        return write_dataset(out, packer.windows(stage), seq_len=recipe.seq_len, dtype=dtype, manifest=manifest, card=card)


class _Packer:
    """Packs the pieces of encoded shards into blocks, one window of the corpus at a time, and counts what it packed."""

    def __init__(self, stems: list[Path], seq_len: int, pad_id: int, dtype: type[np.unsignedinteger[Any]]) -> None:
        self._stems, self._seq_len, self._pad_id, self._dtype = stems, seq_len, pad_id, dtype
        self.counts = Counter[str]()
        self._tokens = lru_cache(maxsize=_OPEN)(lambda shard: np.memmap(stems[shard].with_suffix(".tokens"), dtype, "r"))
        self._mentions = lru_cache(maxsize=_OPEN)(lambda shard: np.load(stems[shard].with_suffix(".mentions.npy"), mmap_mode="r"))

    def windows(self, stage: Stage) -> Iterator[Window]:
        """Blocks, pieces and mentions of one window after the other; whoever reads them reads a window before the next."""
        for pieces in _windows(self._stems):
            packing, first_block = pack(pieces["length"], self._seq_len), self.counts["blocks"]
            read = partial(self._read, pieces)
            blocks = filled_blocks(packing, pieces["length"], read, seq_len=self._seq_len, pad_id=self._pad_id, dtype=self._dtype)
            table = np.column_stack([packing.block + first_block, packing.start, pieces["length"], pieces["document"]])
            yield blocks, table[packing.order], self._packed_mentions(pieces, packing, first_block)
            self.counts.update({"blocks": packing.blocks, "pieces": len(pieces), "tokens": int(pieces["length"].sum())})
            self.counts.update({name: int(pieces[name].sum()) for name in ("mentions", "chains")})
            stage.advance(packing.blocks)

    def _read(self, pieces: Ints, piece: int) -> Ints:
        row = pieces[piece]
        tokens: Ints = self._tokens(int(row["shard"]))[row["start"] : row["start"] + row["length"]]
        return tokens

    def _packed_mentions(self, pieces: Ints, packing: Packing, first_block: int) -> Iterator[Ints]:
        """Yield (block, start, end, chain) in the order of the blocks: offsets within the block, chains numbered within it."""
        current, chains = -1, 0
        for piece in packing.order.tolist():
            if packing.block[piece] != current:
                current, chains = int(packing.block[piece]), 0
            row = pieces[piece]
            if count := int(row["mentions"]):
                _, start, end, chain = self._mentions(int(row["shard"]))[row["first_mention"] :][:count].T
                offset = packing.start[piece]
                yield np.column_stack([np.full(count, first_block + current), start + offset, end + offset, chain + chains])
                chains += int(row["chains"])


def _windows(stems: list[Path]) -> Iterator[Ints]:
    """Tables of _PIECE over all shards, _WINDOW tokens at a time, wherever shards end."""
    waiting = np.empty(0, _PIECE)
    documents = 0
    for number, stem in enumerate(stems):
        with np.load(stem.with_suffix(".npz")) as arrays:
            row, length, chains = arrays["pieces"].astype(np.int64).T
        mentions = np.bincount(np.load(stem.with_suffix(".mentions.npy"), mmap_mode="r")[:, 0], minlength=len(length))
        distinct, document = np.unique(row, return_inverse=True)
        pieces = np.empty(len(length), _PIECE)
        pieces["shard"], pieces["start"], pieces["length"] = number, np.cumsum(length) - length, length
        pieces["document"], pieces["chains"] = document + documents, chains
        pieces["first_mention"], pieces["mentions"] = np.cumsum(mentions) - mentions, mentions
        waiting = np.concatenate([waiting, pieces])
        documents += len(distinct)
        while (filled := np.cumsum(waiting["length"])).size and filled[-1] >= _WINDOW:
            cut = int(np.searchsorted(filled, _WINDOW)) + 1
            yield waiting[:cut]
            waiting = waiting[cut:]
    if len(waiting):
        yield waiting


def _facts(index: Index, stems: list[Path]) -> NDArray[np.int32]:
    """The facts of every document of the index, in the columns of encoding; zeros for documents that were not encoded."""
    facts = np.zeros((len(index), len(FACTS)), np.int32)
    for number, stem in enumerate(stems):
        with np.load(stem.with_suffix(".npz")) as arrays:
            documents = arrays["documents"]
        facts[index.edges[number] + documents[:, 0]] = documents[:, 1:]
    return facts


def _overlap(index: Index, stems: list[Path], evaluation: list[Document]) -> dict[str, Any] | None:
    if not evaluation:
        return None
    shared: list[NDArray[np.uint64]] = []
    hits: list[tuple[int, int, str, str, str]] = []
    for number, stem in enumerate(stems):
        with np.load(stem.with_suffix(".npz")) as arrays:
            shared.append(np.unique(arrays["runs"]))
        facts = read_stored(stem.with_suffix(".json"), EncodedFacts, error=DatasetError, remedy=ANEW)
        hits += [(int(index.edges[number]) + row, *hit) for row, *hit in facts["overlap"]]
    examples = [(gram, source, identity, words) for _, gram, source, identity, words in sorted(hits)]
    return overlap_of(evaluation, np.unique(np.concatenate(shared)), examples).to_json()
