"""Labels and types. In: KLUE-RE rows. Out: the 30 labels in KLUE's order, and what a pair of entity types says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.relation.rows import TYPES, RelationRow

LABELS = (
    "no_relation",
    "org:dissolved",
    "org:founded",
    "org:place_of_headquarters",
    "org:alternate_names",
    "org:member_of",
    "org:members",
    "org:political/religious_affiliation",
    "org:product",
    "org:founded_by",
    "org:top_members/employees",
    "org:number_of_employees/members",
    "per:date_of_birth",
    "per:date_of_death",
    "per:place_of_birth",
    "per:place_of_death",
    "per:place_of_residence",
    "per:origin",
    "per:employee_of",
    "per:schools_attended",
    "per:alternate_names",
    "per:parents",
    "per:children",
    "per:siblings",
    "per:spouse",
    "per:other_family",
    "per:colleagues",
    "per:product",
    "per:religion",
    "per:title",
)
"""The order of KLUE's relation_list.json and of the hub's `klue`/`re`. Course material uses another: never compare indices."""

NO_RELATION = 0
INDEX = {label: index for index, label in enumerate(LABELS)}

MaskKind = Literal["off", "hard", "soft"]
_FORBIDDEN = -1e4
"""Minus infinity in practice: exp(-1e4) is 0 in every float type, and a gradient through it is 0 and not NaN."""


@dataclass(frozen=True, slots=True)
class LabelMask:
    """What to add to the logits of a row, by its pair of types. Learned from train; nothing of dev enters it."""

    kind: MaskKind
    bias: NDArray[np.float32]

    @classmethod
    def learn(cls, rows: Sequence[RelationRow], kind: MaskKind, *, support: int = 1, smoothing: float = 1.0) -> LabelMask:
        """`hard` forbids a label seen fewer than `support` times with the pair; `soft` adds log P(label | pair), smoothed.

        no_relation is never forbidden, and a pair never seen in train forbids nothing.
        """
        counts = np.zeros((len(TYPES) ** 2, len(LABELS)))
        for row in rows:
            if row.label is not None:
                counts[pair_index(row), INDEX[row.label]] += 1
        bias = np.zeros(counts.shape, np.float32)
        if kind == "hard":
            forbidden = counts < support
            forbidden[:, NO_RELATION] = False
            forbidden[counts.sum(1) == 0] = False
            bias[forbidden] = _FORBIDDEN
        elif kind == "soft":
            share = (counts + smoothing) / (counts + smoothing).sum(1, keepdims=True)
            bias = np.log(share).astype(np.float32)
        return cls(kind, bias)

    def forbids(self, rows: Sequence[RelationRow]) -> NDArray[np.bool_]:
        """For each row: does the mask rule out its gold label? Such a row cannot be answered right."""
        gold = np.array([INDEX[row.label] if row.label else NO_RELATION for row in rows], np.int64)
        pairs = np.array([pair_index(row) for row in rows], np.int64)
        return self.bias[pairs, gold] <= _FORBIDDEN


def pair_index(row: RelationRow) -> int:
    return TYPES.index(row.subject.type) * len(TYPES) + TYPES.index(row.object.type)


def gold_indices(rows: Sequence[RelationRow]) -> NDArray[np.int64]:
    """The labels of rows as indices; rows without a label are a caller's mistake."""
    return np.array([INDEX[row.label] for row in rows if row.label is not None], np.int64)
