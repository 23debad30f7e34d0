"""The choice of documents. In: the index of all that was read, and evaluation documents. Out: a reason for each left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.clean import normalise, own_id, rank
from coref_automl.corpus.dedup import PERMUTATIONS, RunAll, first_of_each, near_duplicates, signature, text_key, write_signatures
from coref_automl.corpus.shards import Index
from coref_automl.records import Document

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
"""For every document of the index: KEPT, or the place of its reason in REASONS."""
_HELD, _IN_SET, _SAME_EVAL, _NEAR_EVAL, _SAME_HELD, _NEAR_HELD, _SAME, _NEAR = range(1, 9)


def choose_documents(
    index: Index, evaluation: list[Document], folder: Path, run: RunAll, *, similarity: float | None, at_once: int
) -> Choice:
    """Evaluation documents go by id, text and near text; then held-out ones and their copies; then copies of earlier ones.

    Without a `similarity` near-duplicates stay. They are sought in `folder`, by calls that `run` makes.
    """
    reason = np.zeros(len(index), np.int8)
    reason[_by_id(index, evaluation)] = _IN_SET
    reason[(reason == KEPT) & index.held_out] = _HELD
    eval_keys = np.array([text_key(normalise(document.text)) for document in evaluation], np.uint64)
    reason[(reason == KEPT) & np.isin(index.key, eval_keys)] = _SAME_EVAL

    # Held-out documents come first, so that of two copies the training copy is dropped.
    held, open_ = np.flatnonzero(reason == _HELD), np.flatnonzero(reason == KEPT)
    order = np.concatenate([held, open_])
    first = first_of_each(index.key[order])
    repeats = np.flatnonzero((first != np.arange(len(order))) & (np.arange(len(order)) >= len(held)))
    reason[order[repeats]] = np.where(first[repeats] < len(held), _SAME_HELD, _SAME)
    if similarity is None:
        return reason

    front, rows = len(evaluation), np.concatenate([held, np.flatnonzero(reason == KEPT)])
    entries = np.full(front + len(index), -1, np.int64)
    entries[:front] = np.arange(front)
    entries[front + rows] = np.arange(front, front + len(rows))
    own = folder / "evaluation"
    write_signatures(own, np.array([signature(d.text) for d in evaluation], np.uint32).reshape(-1, PERMUTATIONS))
    stems, counts = [own, *(shard.stem for shard in index.shards)], [front, *(shard.documents for shard in index.shards)]
    protected = front + len(held)
    found = near_duplicates(stems, counts, entries, folder, run, similarity=similarity, at_once=at_once, protected=protected)
    for entry, original in found:
        code = _NEAR_EVAL if original < front else _NEAR_HELD if original < protected else _NEAR
        reason[rows[entry - front]] = code
    return reason


def _by_id(index: Index, evaluation: list[Document]) -> NDArray[np.bool_]:
    """Documents whose source and id are those of an evaluation document; an id's rank represents the id."""
    found = np.zeros(len(index), np.bool_)
    by_source: dict[str, list[int]] = {}
    for document in evaluation:
        by_source.setdefault(document.source, []).extend({rank(document.id), rank(own_id(document))})
    for source, ranks in by_source.items():
        if source in index.sources:
            found |= (index.source == index.sources.index(source)) & np.isin(index.rank, np.array(ranks, np.int64))
    return found
