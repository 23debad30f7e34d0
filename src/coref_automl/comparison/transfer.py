"""The question of carrying over. In: a Study. Out: does a gain on Real hold on every source, on far items, LAMBADA and gold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coref_automl.comparison.arms import Among, Arm, Versus, arms, base_of, versus
from coref_automl.comparison.page import Block, Table, Text, row
from coref_automl.comparison.question import Question, lead, rule, short_cell
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.sentences import points
from coref_automl.comparison.study import Study
from coref_automl.evaluation.metrics import METRICS

_FEWEST = 50
"""Items of the confirm half below which a source has no row of its own."""
_OUTSIDE = (
    ("real_far1_strict", "real_far_word"),
    ("lambada_top1_strict", "lambada_word"),
    ("gold_word", "gold_word"),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """Something to carry over to: a metric, on all its items or on those of one source."""

    label: str
    metric: str
    among: Among = None
    items: int | None = None

    @property
    def counted(self) -> str:
        return self.label if self.items is None else f"{self.label} (n {self.items:,})"


def carry_over(study: Study) -> Question | None:
    """Does it carry over to every source, to far items, to LAMBADA and to gold coreference?"""
    say, found = study.say, arms(study)
    if METRICS[study.metric].parts or not found:
        return None
    measures = _measures(study)
    pairs = _pairs(found)
    blocks: list[Block] = []
    told = ""
    if pairs:
        table = [versus(study, pairs, measure.metric, among=measure.among) for measure in measures]
        head = (say("무엇에서", "on"), *(f"{a.name} - {b.method}" for a, b in pairs))
        lines = tuple(
            row(measure.counted, *(short_cell(one, say) for one in column))
            for measure, column in zip(measures, table, strict=True)
        )
        caption = say("같은 양의 mlm과의 차이 (점)", "difference from as much more mlm (points)")
        blocks.append(Table(head, lines, frozenset(range(1, len(head))), caption))
        told = _answer(study, measures, pairs, table)
    if (against := _against_base(study, found, measures)) is not None:
        blocks.append(against)
    if not blocks:
        return None
    blocks.append(rule(say))
    if "gold_word" not in {measure.metric for measure in measures}:
        blocks.append(Text(say("gold는 평가되지 않았습니다.", "Gold was not run here."), "quiet"))
    title = say("다른 출처, 먼 문항, LAMBADA, gold로 이어지는가?", "Does it carry over to other sources, to LAMBADA and to gold?")
    told = told or say("mlm과 짝지을 학습이 없습니다.", "No run to pair with mlm.")
    return Question("transfer", title, told, tuple(blocks), say("다른 과제로", "carrying over"))


def _measures(study: Study) -> list[Measure]:
    """The study's metric on all items and by source, then the metrics outside the training's form; LAMBADA by source too."""
    several = study.group.tokenizers > 1
    out = [Measure(METRICS[study.metric].label, study.metric), *_by_source(study, study.metric)]
    for strict, word in _OUTSIDE:
        metric = word if several else strict
        if metric != study.metric and any(metric in entry.evaluation.estimates for entry in study.entries):
            out.append(Measure(METRICS[metric].label, metric))
            out += _by_source(study, metric) if METRICS[metric].task == "lambada" else []
    return out


def _by_source(study: Study, metric: str) -> list[Measure]:
    facts = study.group.items.facts
    rows = (facts["task"] == METRICS[metric].task) & (study.group.items.halves == "confirm")
    names, counts = np.unique(facts["source"][rows], return_counts=True)
    wanted = [(str(name), int(n)) for name, n in zip(names, counts, strict=True) if n >= _FEWEST]
    if len(names) < 2:
        return []
    label = METRICS[metric].label
    return [Measure(f"{label} {name}", metric, np.asarray(facts["source"] == name), n) for name, n in wanted]


def _pairs(found: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Entity and mixes against the mlm of the same base and length, those of several seeds first."""
    pairs = [
        (a, b)
        for a in found
        for b in found
        if b.objective == "mlm" and a.objective in ("entity", "combined") and (a.base, a.length) == (b.base, b.length)
    ]
    order = {"entity": 0, "combined": 1}
    return sorted(pairs, key=lambda pair: (min(pair[0].seeds, pair[1].seeds) < 2, order[pair[0].objective]))


def _answer(
    study: Study, measures: Sequence[Measure], pairs: Sequence[tuple[Arm, Arm]], table: Sequence[list[Versus | None]]
) -> str:
    """Entity against mlm, by length: where it is shown, with numbers, and where it is not."""
    say = study.say
    firm = [n for n, (a, b) in enumerate(pairs) if a.objective == "entity" and min(a.seeds, b.seeds) > 1]
    chosen = firm or [n for n, (a, _) in enumerate(pairs) if a.objective == "entity"] or [0]
    told = []
    for number in chosen:
        a, b = pairs[number]
        found = [(m.label, one) for m, column in zip(measures, table, strict=True) if (one := column[number])]
        if all(one.seeds < 2 for _, one in found):
            parts = [say("시드 하나, 판정 없음: ", "one seed, no verdict: ") + _listed(found)]
        else:
            shown = [(label, one) for label, one in found if one.answer.shown]
            open_ = [(label, one) for label, one in found if not one.answer.shown]
            parts = [say("보임: ", "shown on ") + _listed(shown)] if shown else []
            parts += [say("보이지 않음: ", "not shown on ") + ", ".join(label for label, _ in open_)] if open_ else []
        told.append(f"{a.name} - {b.method}: {'; '.join(parts)}")
    outside = [column[n] for m, column in zip(measures, table, strict=True) if _is_outside(m) for n in chosen]
    first = lead([one for one in outside if one is not None], say)
    return f"{first} {'. '.join(told)}."


def _is_outside(measure: Measure) -> bool:
    """LAMBADA and gold, on all their items: not the form that entity trains."""
    return measure.among is None and METRICS[measure.metric].task in ("lambada", "gold")


def _listed(found: Sequence[tuple[str, Versus]]) -> str:
    return ", ".join(f"{label} {points(one.answer.interval)}" for label, one in found)


def _against_base(study: Study, found: Sequence[Arm], measures: Sequence[Measure]) -> Table | None:
    """Every arm against the model it began from."""
    say = study.say
    asked: list[tuple[Arm, Entry]] = [(arm, base) for arm in found if (base := base_of(study, arm)) is not None]
    if not asked:
        return None
    columns = [versus(study, asked, measure.metric, among=measure.among) for measure in measures]
    lines = tuple(
        row(arm.name, *(short_cell(column[number], say) for column in columns)) for number, (arm, _) in enumerate(asked)
    )
    head = (say("방법과 길이", "method, length"), *(measure.counted for measure in measures))
    caption = say("시작한 모델과의 차이 (점)", "difference from the model it began from (points)")
    return Table(head, lines, frozenset(range(1, len(head))), caption)
