"""Rows of a kind. In: relation rows, a tokenizer, a tagger if there is one. Out: columns of facts per row, and groups of rows.

A group is what a reason for entity markers is about: long sentences, many candidate nouns, several entities of a type, entities
in many pieces, particles glued to an entity. Long and many mean the upper third of these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.korean import PRONOUN, Tagger
from coref_automl.models.segmentation import span_facts
from coref_automl.models.vocabulary import tokenize_all
from coref_automl.records import Record
from coref_automl.relation.data import sentence_key
from coref_automl.relation.rows import RelationRow

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
MANY_PIECES = 3
"""Tokens from which on an entity counts as fragmented."""


@dataclass(frozen=True, slots=True)
class TokenizerColumns(Record):
    """What a table of scores says of a tokenizer: mean pieces per entity, and shares of rows and of entities."""

    entries: int
    pieces: float
    unknown: float
    edges: float


@dataclass(frozen=True, slots=True, eq=False)
class RowPieces:
    """Rows as one tokenizer reads them; `pieces`, `glued` and `on_edges` have a column for subject and for object."""

    entries: int
    pieces: Ints
    glued: Bools
    on_edges: Bools
    unknown_row: Bools

    @classmethod
    def of(cls, rows: Sequence[RelationRow], tokenizer: PreTrainedTokenizerFast) -> RowPieces:
        unknown = tokenizer.unk_token_id
        read = tokenize_all(tokenizer, [row.sentence for row in rows])
        facts = [
            span_facts(row.sentence, pieces, [(one.start, one.end) for one in (row.subject, row.object)], unknown)
            for row, pieces in zip(rows, read, strict=True)
        ]
        return cls(
            entries=len(tokenizer),
            pieces=np.stack([one.pieces for one in facts]),
            glued=np.stack([one.glued for one in facts]),
            on_edges=np.stack([one.on_edges for one in facts]),
            unknown_row=np.array([unknown is not None and unknown in pieces.ids for pieces in read], np.bool_),
        )

    @property
    def columns(self) -> TokenizerColumns:
        shares = (self.pieces, self.unknown_row, self.on_edges)
        return TokenizerColumns(self.entries, *(float(share.mean()) for share in shares))

    @property
    def fragmented(self) -> Bools:
        return np.asarray(self.pieces.max(axis=1) >= MANY_PIECES)

    @property
    def any_glued(self) -> Bools:
        return np.asarray(self.glued.any(axis=1))


def long_sentences(rows: Sequence[RelationRow]) -> Bools:
    return _upper_third([len(row.sentence) for row in rows])


def many_nouns(rows: Sequence[RelationRow], tagger: Tagger) -> Bools:
    """Candidates for an entity: common and proper nouns."""
    return _upper_third([int((tags.kinds != PRONOUN).sum()) for tags in tagger.tag(row.sentence for row in rows)])


def same_types(rows: Sequence[RelationRow]) -> Bools:
    """Another entity of the sentence has the type of the subject or of the object, as far as these rows say."""
    held: dict[str, set[tuple[int, int, str]]] = {}
    for row in rows:
        held.setdefault(sentence_key(row.sentence), set()).update((e.start, e.end, e.type) for e in (row.subject, row.object))
    return np.array([_shares_type(row, held[sentence_key(row.sentence)]) for row in rows], np.bool_)


def _shares_type(row: RelationRow, entities: set[tuple[int, int, str]]) -> bool:
    kinds = [kind for _, _, kind in entities]
    return any(kinds.count(kind) > 1 for kind in (row.subject.type, row.object.type))


def _upper_third(values: Sequence[int]) -> Bools:
    return np.asarray(np.array(values) > np.quantile(values, 2 / 3))
