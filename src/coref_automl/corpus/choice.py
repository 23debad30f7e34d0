"""The choice of documents, and its overlap with evaluation. In: the index of all that was read, evaluation documents. Out: a
reason for each document left out, and the evaluation text that still occurs, word for word, in those that train.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Document, Record
from coref_automl.base.store import atomic_write
from coref_automl.corpus.clean import own_id, rank
from coref_automl.corpus.dedup import PERMUTATIONS, RunAll, first_of_each, near_duplicates, signature, text_key, write_signatures
from coref_automl.corpus.shards import Index

KEPT = 0
REASONS = (
    "",
    "held out for evaluation",
    "in an evaluation set",
    "repeats an evaluation document",
    "nearly repeats an evaluation document",
    "repeats a held-out document",
    "nearly repeats a held-out document",
    "exact duplicate",
    "near duplicate",
)
Choice = NDArray[np.int8]
"""For every document of the index: KEPT, or the position of its reason in REASONS."""
_HELD_OUT, _IN_SET, _SAME_EVAL, _NEAR_EVAL, _SAME_HELD_OUT, _NEAR_HELD_OUT, _SAME, _NEAR = range(1, 9)

WORDS = 13
"""Length of the n-grams: two texts hardly share thirteen words in a row by chance. A shorter text counts as one n-gram."""
_BASE = np.uint64(0x100000001B3)
Grams = NDArray[np.uint64]


def choose_documents(
    index: Index, evaluation: list[Document], folder: Path, run: RunAll, *, similarity: float | None, at_once: int
) -> Choice:
    """Drop evaluation documents by id, text and near text; then copies of held-out documents; then copies of earlier documents.

    Without a `similarity` near-duplicates stay. `run` makes the calls that find them, in `folder`.
    """
    choice = np.zeros(len(index), np.int8)
    choice[_by_id(index, evaluation)] = _IN_SET
    choice[(choice == KEPT) & index.held_out] = _HELD_OUT
    choice[(choice == KEPT) & np.isin(index.key, np.array([text_key(d.text) for d in evaluation], np.uint64))] = _SAME_EVAL

    # Those of evaluation sets (of which a set may hold a passage) and held-out ones come first: the training copy is dropped.
    in_sets, held_out = np.flatnonzero(choice == _IN_SET), np.flatnonzero(choice == _HELD_OUT)
    order, out = np.concatenate([in_sets, held_out, np.flatnonzero(choice == KEPT)]), len(in_sets) + len(held_out)
    first = first_of_each(index.key[order])
    copies = np.flatnonzero((first != np.arange(len(order))) & (np.arange(len(order)) >= out))
    of_set, of_held_out = first[copies] < len(in_sets), first[copies] < out
    choice[order[copies]] = np.select([of_set, of_held_out], [_SAME_EVAL, _SAME_HELD_OUT], _SAME)
    if similarity is None:
        return choice

    # Near-duplicates are decided in the order evaluation, held out, others; an entry is a position in this order.
    count, rows = len(evaluation), np.concatenate([order[:out], np.flatnonzero(choice == KEPT)])
    entries = np.full(count + len(index), -1, np.int64)
    entries[:count] = np.arange(count)
    entries[count + rows] = np.arange(count, count + len(rows))
    stem = folder / "evaluation"
    write_signatures(stem, np.array([signature(d.text) for d in evaluation], np.uint32).reshape(-1, PERMUTATIONS))
    stems, counts = [stem, *(shard.stem for shard in index.shards)], [count, *(shard.documents for shard in index.shards)]
    protected = count + out
    pairs = near_duplicates(stems, counts, entries, folder, run, similarity=similarity, at_once=at_once, protected=protected)
    for entry, original in pairs:
        reason = _NEAR_EVAL if original < count + len(in_sets) else _NEAR_HELD_OUT if original < protected else _NEAR
        choice[rows[entry - count]] = reason
    return choice


def _by_id(index: Index, evaluation: list[Document]) -> NDArray[np.bool_]:
    """Documents with the source and the id of an evaluation document; ids are compared by their ranks."""
    is_evaluation = np.zeros(len(index), np.bool_)
    by_source: dict[str, list[int]] = {}
    for document in evaluation:
        by_source.setdefault(document.source, []).extend({rank(document.id), rank(own_id(document))})
    for source, ranks in by_source.items():
        if source in index.sources:
            is_evaluation |= (index.source == index.sources.index(source)) & np.isin(index.rank, np.array(ranks, np.int64))
    return is_evaluation


@dataclass(frozen=True, slots=True)
class OverlapExample(Record):
    evaluation_document: str
    training_source: str
    training_document: str
    words: str


@dataclass(frozen=True, slots=True)
class Overlap(Record):
    """How much of the evaluation documents occurs in the training text after the documents themselves were removed."""

    documents: int
    documents_touched: int
    runs: int
    runs_found: int
    examples: tuple[OverlapExample, ...]


def grams(text: str) -> Grams:
    """A hash of every n-gram of thirteen words, in order."""
    words = np.fromiter((_word(word) for word in text.split()), np.uint64)
    size = min(WORDS, len(words))
    if not size:
        return np.empty(0, np.uint64)
    hashes = np.zeros(len(words) - size + 1, np.uint64)
    for offset in range(size):
        hashes = hashes * _BASE + words[offset : offset + len(hashes)]
        hashes ^= hashes >> np.uint64(31)
    return hashes


@lru_cache(maxsize=1 << 16)
def _word(word: str) -> int:
    raw = word.encode("utf-8", "surrogatepass")
    return zlib.crc32(raw) << 32 | zlib.adler32(raw)


def write_grams(documents: Sequence[Document], path: Path) -> None:
    """Write the distinct n-grams of the evaluation documents, sorted."""
    hashes = [grams(document.text) for document in documents]
    with atomic_write(path, "wb") as handle:
        np.save(handle, np.unique(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64))


def among(known: Grams, hashes: Grams) -> NDArray[np.bool_]:
    """Which n-grams are in a sorted table; unlike np.isin, this does not sort a large table again for every text."""
    if not len(known):
        return np.zeros(len(hashes), np.bool_)
    is_known: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes
    return is_known


def overlap_of(
    documents: Sequence[Document], shared: Grams, examples: Sequence[tuple[int, str, str, str]], *, most: int = 10
) -> Overlap:
    """The overlap, from the sorted n-grams that both have and (n-gram, source, id, words) of some training documents."""
    touched, total = 0, 0
    owner: dict[int, str] = {}
    wanted = {gram for gram, *_ in examples}
    for document in documents:
        hashes = np.unique(grams(document.text))
        total += len(hashes)
        hits = among(shared, hashes)
        touched += bool(hits.any())
        owner.update({gram: document.id for gram in hashes[hits].tolist() if gram in wanted and gram not in owner})
    named = [OverlapExample(owner[gram], source, identity, words) for gram, source, identity, words in examples if gram in owner]
    return Overlap(len(documents), touched, total, len(shared), tuple(named[:most]))
