"""The five reasons for entity markers, tested. In: answers of runs without, with plain and with typed markers. Out: findings.

A reason names rows on which markers should help. It is tested twice: is the gain on those rows shown, and is it larger there
than on all other rows? Reasons about types, label mask and false relations are about all rows, or those without a relation.
Verdicts cross runs with sentences and are corrected for the number of findings (Benjamini-Hochberg).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coref_automl.records import Record
from coref_automl.relation.fragmentation import alike_weights, contrast
from coref_automl.relation.labels import NO_RELATION, LabelMask, pair_index
from coref_automl.relation.outcomes import Answers, Bools, Floats, Ints, Outcomes, f1_values
from coref_automl.relation.rows import RelationRow
from coref_automl.statistics.corrections import benjamini_hochberg
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict

Metric = Literal["micro_f1", "false_relations", "impossible"]
GAINS = (("plain", "none"), ("typed", "plain"))
"""What markers add, and what types add to them."""
REASONS: dict[int, tuple[str, ...]] = {
    1: ("long", "nouns"),
    2: ("same types",),
    3: ("all",),
    4: ("no_relation",),
    5: ("fragmented", "glued"),
}
"""The rows that each reason is about."""
UNMATCHED = ("same types",)
"""Groups that types define: no row outside is of the same types, so all rows outside are compared with."""
_ALPHA = 0.05
_LEAST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Variant a minus b on the rows `about`: the values of both, the verdict, and whether it is more than on the other rows.

    `adjusted` are p-values corrected for all findings. Less is better where the metric counts mistakes.
    """

    reason: int
    about: str
    metric: Metric
    a: str
    b: str
    rows: int
    values: tuple[float, float]
    here: CrossedVerdict
    more: CrossedVerdict | None = None
    adjusted: float = 1.0
    adjusted_more: float = 1.0

    @property
    def sign(self) -> int:
        """1: a is shown to be better on these rows, -1: worse, 0: no difference shown."""
        return _sign(self.here, self.adjusted, self.metric)

    @property
    def sign_more(self) -> int:
        """1: the gain is shown to be larger here than on the other rows, -1: smaller."""
        return _sign(self.more, self.adjusted_more, self.metric) if self.more is not None else 0


@dataclass(frozen=True, slots=True)
class Reasons(Record):
    """All findings of one experiment; `seeds` by variant. `missing` are reasons or groups that could not be tested, with why."""

    model: str
    split: str
    rows: int
    seeds: dict[str, int]
    findings: tuple[Finding, ...]
    missing: tuple[tuple[int, str], ...]


def judge_reasons(outcomes: Outcomes, answers: Sequence[Answers], groups: dict[str, Bools]) -> Reasons:
    """Test each reason on the variants of one experiment; `groups` are rows by name, without those that are not known."""
    held = {one.variant: one for one in answers}
    found: list[Finding] = []
    missing: list[tuple[int, str]] = []
    asked: dict[int, Iterator[Finding | str]] = {number: _on_groups(number, outcomes, held, groups) for number in (1, 2, 5)}
    asked |= {3: _types_and_mask(outcomes, held), 4: _false_relations(outcomes, held)}
    for number in sorted(asked):
        for one in asked[number]:
            if isinstance(one, str):
                missing.append((number, one))
            else:
                found.append(one)
    seeds = {one.variant: one.seeds for one in answers}
    return Reasons(answers[0].model, outcomes.data.split, len(outcomes.data.rows), seeds, _corrected(found), tuple(missing))


def _on_groups(number: int, outcomes: Outcomes, held: dict[str, Answers], groups: dict[str, Bools]) -> Iterator[Finding | str]:
    gold, sentences = outcomes.gold, outcomes.sentences
    for name in REASONS[number]:
        among = groups.get(name)
        if among is None:
            yield f"{name}: not known"
            continue
        if min(among.sum(), (~among).sum()) < _LEAST_ROWS:
            yield f"{name}: {int(among.sum()):,} rows"
            continue
        for a, b in GAINS:
            if pair := _pair(held, a, b):
                ours, theirs = (f1_values(gold[among], one.predicted[:, among]) for one in pair)
                here = crossed_verdict(ours, theirs, sentences[among])
                more = _more(pair, outcomes, among, matched=name not in UNMATCHED)
                yield _finding(number, name, "micro_f1", (a, b), (ours, theirs), here, more)
            else:
                yield f"{a} - {b}: no such runs"


def _more(pair: tuple[Answers, Answers], outcomes: Outcomes, among: Bools, *, matched: bool) -> CrossedVerdict | None:
    """The gain on some rows minus that on the others: on rows of the same label and types, unless types make the group."""
    weights = alike_weights(outcomes.data.rows, among) if matched else np.ones(len(among))
    kept, gold = weights > 0, outcomes.gold
    if min((gold[kept & among] > 0).sum(), (gold[kept & ~among] > 0).sum()) < _LEAST_ROWS:
        return None
    ours, theirs = (contrast(gold[kept], one.predicted[:, kept], among[kept], weights[kept]) for one in pair)
    return crossed_verdict(ours, theirs, outcomes.sentences[kept])


def _types_and_mask(outcomes: Outcomes, held: dict[str, Answers]) -> Iterator[Finding | str]:
    """Types alone, the mask alone, both; and how often an answer is impossible for the pair of types."""
    gold, sentences = outcomes.gold, outcomes.sentences
    masked = [(name, one.scheme) for name, one in held.items() if one.label_mask != "off" and not one.hard_negatives]
    pairs = [("typed", "plain"), *masked]
    mask = next((one.mask for one in held.values() if one.mask is not None and one.mask.kind == "hard"), None)
    outcome: dict[Metric, Callable[[Ints], Floats]] = {"micro_f1": lambda predicted: f1_values(gold, predicted)}
    if mask is not None:
        forbidden = _forbidden(mask, outcomes.data.rows)
        outcome["impossible"] = lambda predicted: np.take_along_axis(forbidden, predicted.T, axis=1).T.astype(np.float64)
    for a, b in pairs:
        if not (pair := _pair(held, a, b)):
            yield f"{a} - {b}: no such runs"
            continue
        for metric, values in outcome.items():
            both = values(pair[0].predicted), values(pair[1].predicted)
            yield _finding(3, "all", metric, (a, b), both, crossed_verdict(*both, sentences))
    if not masked:
        yield "label mask: no such runs"


def _false_relations(outcomes: Outcomes, held: dict[str, Answers]) -> Iterator[Finding | str]:
    """How often a relation is given to a row that has none."""
    among = outcomes.gold == NO_RELATION
    harder = [(name, one.scheme) for name, one in held.items() if one.hard_negatives and one.label_mask == "off"]
    if among.sum() < _LEAST_ROWS:
        yield f"no_relation: {int(among.sum()):,} rows"
        return
    for a, b in (*GAINS, *harder):
        if not (pair := _pair(held, a, b)):
            yield f"{a} - {b}: no such runs"
            continue
        ours, theirs = ((one.predicted[:, among] != NO_RELATION).astype(np.float64) for one in pair)
        here = crossed_verdict(ours, theirs, outcomes.sentences[among])
        yield _finding(4, "no_relation", "false_relations", (a, b), (ours, theirs), here)
    if not harder:
        yield "hard negatives: no such runs"


def _pair(held: dict[str, Answers], a: str, b: str) -> tuple[Answers, Answers] | None:
    return (held[a], held[b]) if a in held and b in held else None


def _finding(
    number: int,
    about: str,
    metric: Metric,
    names: tuple[str, str],
    values: tuple[Floats, Floats],
    here: CrossedVerdict,
    more: CrossedVerdict | None = None,
) -> Finding:
    means = float(values[0].mean()), float(values[1].mean())
    return Finding(number, about, metric, *names, values[0].shape[1], means, here, more)


def _forbidden(mask: LabelMask, rows: Sequence[RelationRow]) -> Bools:
    """For each row and label: does the mask rule the label out for the row's pair of types?"""
    return np.asarray(mask.bias[[pair_index(row) for row in rows]] < 0)


def _corrected(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """p-values of all verdicts, on the rows and against the others, as one family."""
    if not found:
        return ()
    ps = benjamini_hochberg([one.here.p for one in found] + [one.more.p for one in found if one.more is not None])
    contrasts = iter(ps[len(found) :].tolist())
    return tuple(
        replace(one, adjusted=float(p), adjusted_more=next(contrasts) if one.more is not None else 1.0)
        for one, p in zip(found, ps[: len(found)].tolist(), strict=True)
    )


def _sign(verdict: CrossedVerdict, adjusted: float, metric: Metric) -> int:
    if not verdict.shown or adjusted >= _ALPHA:
        return 0
    return (1 if verdict.difference > 0 else -1) * (1 if metric == "micro_f1" else -1)
