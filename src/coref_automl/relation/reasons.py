"""The five reasons for entity markers as one table. In: answers of runs without, with plain and typed markers. Out: findings.

Each reason names rows on which markers, types, a label mask or hard negatives should help; a finding compares two variants there.
Verdicts cross runs with sentences and are corrected for the number of findings (Benjamini-Hochberg).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coref_automl.records import Record
from coref_automl.relation.labels import NO_RELATION, pair_index
from coref_automl.relation.outcomes import Answers, Bools, Floats, Ints, Outcomes, f1_values
from coref_automl.statistics.corrections import benjamini_hochberg
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict

Metric = Literal["micro_f1", "false_relations", "impossible"]
GAINS = (("plain", "none"), ("typed", "plain"))
"""What markers add, and what types add to them."""
GROUPS: dict[int, tuple[str, ...]] = {1: ("long", "nouns"), 2: ("same types",), 5: ("fragmented", "glued")}
"""Reasons about a group of rows; 3 (types and label mask) is about all rows, 4 (false relations) about those without one."""
_ALPHA = 0.05
_LEAST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Variant a minus b on the rows `about`; `adjusted` is p corrected for all findings. Less is better where mistakes count."""

    reason: int
    about: str
    metric: Metric
    a: str
    b: str
    rows: int
    values: tuple[float, float]
    here: CrossedVerdict
    adjusted: float = 1.0

    @property
    def sign(self) -> int:
        """1: a is shown to be better on these rows, -1: worse, 0: no difference shown."""
        if not self.here.shown or self.adjusted >= _ALPHA:
            return 0
        return (1 if self.here.difference > 0 else -1) * (1 if self.metric == "micro_f1" else -1)


@dataclass(frozen=True, slots=True)
class Reasons(Record):
    """All findings of one experiment; `seeds` by variant. `missing` are the reasons that no runs here can test."""

    model: str
    split: str
    rows: int
    seeds: dict[str, int]
    findings: tuple[Finding, ...]
    missing: tuple[int, ...]


def judge_reasons(outcomes: Outcomes, answers: Sequence[Answers], groups: dict[str, Bools]) -> Reasons:
    """Test each reason on the variants of one experiment; `groups` are rows by name, without those that are not known."""
    held = {one.variant: one for one in answers}
    gold, forbidden, found = outcomes.gold, _forbidden(outcomes, answers), list[Finding]()
    for reason, about, metric, (a, b), among in _questions(gold, held, groups):
        if a not in held or b not in held or among.sum() < _LEAST_ROWS or (metric == "impossible" and forbidden is None):
            continue
        ours, theirs = (_values(metric, gold[among], held[name].predicted[:, among], forbidden) for name in (a, b))
        verdict = crossed_verdict(ours, theirs, outcomes.sentences[among])
        means = float(ours.mean()), float(theirs.mean())
        found.append(Finding(reason, about, metric, a, b, int(among.sum()), means, verdict))
    adjusted = benjamini_hochberg([one.here.p for one in found]).tolist() if found else []
    return Reasons(
        model=answers[0].model,
        split=outcomes.data.split,
        rows=len(outcomes.data.rows),
        seeds={one.variant: one.seeds for one in answers},
        findings=tuple(replace(one, adjusted=p) for one, p in zip(found, adjusted, strict=True)),
        missing=tuple(reason for reason in range(1, 6) if reason not in {one.reason for one in found}),
    )


def _questions(
    gold: Ints, held: dict[str, Answers], groups: dict[str, Bools]
) -> Iterator[tuple[int, str, Metric, tuple[str, str], Bools]]:
    """Reason, group, metric, the two variants, the rows: in the order of the table."""
    masks = [(name, one.scheme) for name, one in held.items() if one.label_mask != "off" and not one.hard_negatives]
    harder = [(name, one.scheme) for name, one in held.items() if one.hard_negatives and one.label_mask == "off"]
    for reason in range(1, 6):
        for name in GROUPS.get(reason, ()):
            if name in groups and (gold[groups[name]] != NO_RELATION).any():
                yield from ((reason, name, "micro_f1", pair, groups[name]) for pair in GAINS)
        if reason == 3:
            for pair in (GAINS[1], *masks):
                yield 3, "all", "micro_f1", pair, np.ones(len(gold), np.bool_)
                yield 3, "all", "impossible", pair, np.ones(len(gold), np.bool_)
        if reason == 4:
            yield from ((4, "no_relation", "false_relations", pair, gold == NO_RELATION) for pair in (*GAINS, *harder))


def _values(metric: Metric, gold: Ints, predicted: Ints, forbidden: Bools | None) -> Floats:
    """One value per run and row."""
    if metric == "impossible" and forbidden is not None:
        return np.asarray(np.take_along_axis(forbidden, predicted.T, axis=1).T, np.float64)
    if metric == "false_relations":
        return np.asarray(predicted != NO_RELATION, np.float64)
    return f1_values(gold, predicted)


def _forbidden(outcomes: Outcomes, answers: Sequence[Answers]) -> Bools | None:
    """For each row and label: does the hard mask of one of the variants rule the label out for the row's pair of types?"""
    mask = next((one.mask for one in answers if one.mask is not None and one.mask.kind == "hard"), None)
    return None if mask is None else np.asarray(mask.bias[[pair_index(row) for row in outcomes.data.rows]] < 0)
