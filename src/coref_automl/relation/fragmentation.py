"""Does fragmentation cost? In: answers of runs, rows as their tokenizer reads them. Out: micro-F1 by group, and verdicts.

Rows with many pieces differ from the others in labels and types too, and micro-F1 follows the share of no_relation. A verdict
compares rows of the same label and types alone: each such stratum counts on both sides by what both have of it
(Mantel and Haenszel's weights), and what only one side has is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coref_automl.records import Estimate, Record
from coref_automl.relation.outcomes import Bools, Floats, Ints, Outcomes, f1_values, gap, level
from coref_automl.relation.row_groups import RowPieces, TokenizerColumns
from coref_automl.relation.rows import RelationRow
from coref_automl.statistics.contrasts import interaction
from coref_automl.statistics.corrections import benjamini_hochberg
from coref_automl.statistics.crossed import CrossedVerdict

BUCKETS = {"1": (1, 1), "2": (2, 2), "3": (3, 3), "4+": (4, 10_000)}
_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class GroupScore(Record):
    """Micro-F1 on the rows of one group; None where it has fewer than two rows with a relation."""

    by: str
    group: str
    rows: int
    micro_f1: Estimate | None


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """Rows with something minus the others, in micro-F1, label and types alike. `compared` are the rows that have their like.

    `adjusted` is p corrected for the verdicts beside it (Benjamini-Hochberg).
    """

    by: str
    rows: int
    compared: int
    verdict: CrossedVerdict
    adjusted: float

    @property
    def shown(self) -> bool:
        return self.verdict.shown and self.adjusted < _ALPHA


@dataclass(frozen=True, slots=True)
class Fragmentation(Record):
    """One variant of one start: its tokenizer in numbers, scores by group, and what each kind of fragmentation costs."""

    model: str
    variant: str
    seeds: int
    tokenizer: TokenizerColumns
    groups: tuple[GroupScore, ...]
    costs: tuple[Cost, ...]


def fragmentation(outcomes: Outcomes, which: int, pieces: RowPieces) -> Fragmentation:
    """The answers of one variant (a place in `outcomes.answers`) by what its tokenizer makes of the entities."""
    answers, gold, sentences, rows = outcomes.answers[which], outcomes.gold, outcomes.sentences, outcomes.data.rows
    parts: list[tuple[str, str, Bools]] = [
        (by, name, (pieces.pieces[:, column] >= least) & (pieces.pieces[:, column] <= most))
        for column, by in enumerate(("subject pieces", "object pieces"))
        for name, (least, most) in BUCKETS.items()
    ]
    entity, anywhere = np.asarray(pieces.unknown.any(axis=1)), pieces.unknown_row
    parts += [("unknown", "none", ~anywhere), ("unknown", "elsewhere", anywhere & ~entity), ("unknown", "entity", entity)]
    parts += [("glued", name, pieces.any_glued == held) for name, held in (("no", False), ("yes", True))]
    asked = {"pieces": pieces.fragmented, "unknown": anywhere, "glued": pieces.any_glued}
    return Fragmentation(
        model=answers.model,
        variant=answers.variant,
        seeds=answers.seeds,
        tokenizer=pieces.columns,
        groups=tuple(_score(by, name, among, gold, answers.predicted, sentences) for by, name, among in parts),
        costs=_costs(asked, rows, gold, answers.predicted, sentences),
    )


def _score(by: str, name: str, among: Bools, gold: Ints, predicted: Ints, sentences: Ints) -> GroupScore:
    enough = int((gold[among] > 0).sum()) > 1
    found = level(f1_values(gold[among], predicted[:, among]), sentences[among]) if enough else None
    return GroupScore(by, name, int(among.sum()), found)


def _costs(
    asked: dict[str, Bools], rows: Sequence[RelationRow], gold: Ints, predicted: Ints, sentences: Ints
) -> tuple[Cost, ...]:
    found = []
    for by, among in asked.items():
        weights = alike_weights(rows, among)
        kept = weights > 0
        if kept.sum() < 4 or not _both(gold[kept], among[kept]):
            continue
        values = contrast(gold[kept], predicted[:, kept], among[kept], weights[kept])
        found.append((by, int(among.sum()), int(kept.sum()), gap(values, sentences[kept])))
    adjusted = benjamini_hochberg([verdict.p for *_, verdict in found]) if found else ()
    return tuple(Cost(*one, float(p)) for one, p in zip(found, adjusted, strict=True))


def contrast(gold: Ints, predicted: Ints, among: Bools, weights: Floats | None = None) -> Floats:
    """One value per run and row: their mean is micro-F1 on the rows `among` minus that on the others."""
    scale = np.ones(len(gold)) if weights is None else weights
    values = np.empty(predicted.shape)
    for side in (among, ~among):
        values[:, side] = f1_values(gold[side], predicted[:, side], scale[side])
    return interaction(values, among)


def alike_weights(rows: Sequence[RelationRow], among: Bools) -> Floats:
    """Weights under which both sides hold every (label, subject type, object type) alike; 0 where one side has none of it."""
    kinds = [(row.label, row.subject.type, row.object.type) for row in rows]
    count = Counter(zip(kinds, among.tolist(), strict=True))
    both = [(count[kind, True], count[kind, False]) for kind in kinds]
    own = [count[kind, side] for kind, side in zip(kinds, among.tolist(), strict=True)]
    return np.array([a * b / (a + b) / mine for (a, b), mine in zip(both, own, strict=True)])


def _both(gold: Ints, among: Bools) -> bool:
    return all(bool((gold[side] > 0).any()) for side in (among, ~among))
