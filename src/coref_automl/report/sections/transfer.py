"""The question of carrying over. In: a Study. Out: does a gain on Real hold on every source, on far items, LAMBADA and gold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Among, Arm, Versus, arms, base_of, equally_trained, versus
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import Say, points
from coref_automl.report.method_pairs import at_length
from coref_automl.report.page import Block, Section, Table, Text, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import lead, phrase, rule, short_cell

_FEWEST = 50
"""Items of the confirm half below which a source has no row of its own."""
_FEWEST_DOCUMENTS = 10
"""Documents below which it has none either: resampling so few says too little."""
_OUTSIDE = (
    ("real_far1_strict", "real_far_word"),
    ("lambada_top1_strict", "lambada_word"),
    ("gold_word", "gold_word"),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """Something to carry over to: a metric, on all its items or on those of one source; `items` and `documents` of confirm."""

    label: str
    metric: str
    items: int
    documents: int
    among: Among = None

    def counted(self, say: Say) -> str:
        items, documents = f"{self.items:,}", f"{self.documents:,}"
        return f"{self.label} ({say(f'문서 {documents}개, 문항 {items}개', f'{items} items, {documents} documents')})"


def draw(study: Subject) -> Section | None:
    """Does it carry over to every source, to far items, to LAMBADA and to gold coreference?"""
    say, found = study.say, arms(study)
    if study.alone or METRICS[study.metric].parts or not found:
        return None
    measures = _measures(study)
    pairs = _pairs(found)
    blocks: list[Block] = []
    judged: list[Versus | None] = []
    told = ""
    if pairs:
        table = [versus(study, pairs, measure.metric, among=measure.among) for measure in measures]
        head = (say("무엇에서", "on"), *(f"{a.name} - {b.method}" for a, b in pairs))
        lines = tuple(
            row(measure.counted(say), *(short_cell(one, say) for one in column))
            for measure, column in zip(measures, table, strict=True)
        )
        caption = say("같은 양의 mlm과의 차이 (점)", "difference from as much more mlm (points)")
        blocks.append(Table(head, lines, frozenset(range(1, len(head))), caption))
        told = _answer(study, measures, pairs, table)
        judged += [one for column in table for one in column]
    against, more = _against_base(study, found, measures)
    if against is not None:
        blocks.append(against)
        judged += more
    if not blocks:
        return None
    blocks.append(rule(judged, say))
    if "gold_word" not in {measure.metric for measure in measures}:
        blocks.append(Text(say("gold는 평가되지 않았습니다.", "Gold was not run here."), "quiet"))
    title = say("다른 출처, 먼 문항, LAMBADA, gold로 이어지는가?", "Does it carry over to other sources, to LAMBADA and to gold?")
    told = told or say("같은 양의 mlm과 짝지을 학습이 없습니다.", "No run to pair with as much mlm.")
    return question("transfer", title, told, tuple(blocks), say("다른 과제로", "carrying over"))


def _measures(study: Subject) -> list[Measure]:
    """The study's metric on all items and by source, then the metrics outside the training's form; LAMBADA by source too."""
    several = study.group.tokenizers > 1
    out = [_measure(study, study.metric), *_by_source(study, study.metric)]
    for strict, word in _OUTSIDE:
        metric = word if several else strict
        if metric != study.metric and any(metric in entry.evaluation.estimates for entry in study.entries):
            out.append(_measure(study, metric))
            out += _by_source(study, metric) if METRICS[metric].task == "lambada" else []
    return out


def _by_source(study: Subject, metric: str) -> list[Measure]:
    facts = study.group.items.facts
    names = np.unique(facts["source"][_confirm(study, metric)]).tolist()
    found = [_measure(study, metric, name) for name in names] if len(names) > 1 else []
    return [one for one in found if one.items >= _FEWEST and one.documents >= _FEWEST_DOCUMENTS]


def _measure(study: Subject, metric: str, source: str | None = None) -> Measure:
    """A metric, on the items of one source where it is named."""
    facts, label = study.group.items.facts, METRICS[metric].label
    among = None if source is None else np.asarray(facts["source"] == source)
    rows = _confirm(study, metric) & (True if among is None else among)
    documents = len(np.unique(facts["cluster"][rows]))
    return Measure(label if source is None else f"{label} {source}", metric, int(rows.sum()), documents, among)


def _confirm(study: Subject, metric: str) -> NDArray[np.bool_]:
    items = study.group.items
    return np.asarray((items.facts["task"] == METRICS[metric].task) & (items.halves == "confirm"))


def _pairs(found: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Entity and mixes against as much mlm from the same base at the same length, those of several seeds first."""
    pairs = [
        (a, b) for a in found for b in found if b.objective == "mlm" and a.objective in ("entity", "combined") and a.alike(b)
    ]
    pairs = [pair for pair in pairs if equally_trained(*pair)]
    order = {"entity": 0, "combined": 1}
    return sorted(pairs, key=lambda pair: (min(pair[0].seeds, pair[1].seeds) < 2, order[pair[0].objective]))


def _answer(
    study: Subject, measures: Sequence[Measure], pairs: Sequence[tuple[Arm, Arm]], table: Sequence[list[Versus | None]]
) -> str:
    """Entity against mlm on each task outside Real, by length; of the mixes what they lose. Sources are left to the table."""
    say = study.say
    firm = [n for n, (a, b) in enumerate(pairs) if a.objective == "entity" and min(a.seeds, b.seeds) > 1]
    chosen = firm or [n for n, (a, _) in enumerate(pairs) if a.objective == "entity"] or [0]
    told = []
    for measure, column in zip(measures, table, strict=True):
        found = [(pairs[n][0], one) for n in chosen if (one := column[n]) is not None]
        if measure.among is None and measure.metric != study.metric and found:
            own = pairs[chosen[0]][0].base
            numbers = "; ".join(f"{at_length(a, own, say)} {phrase(one, say)}" for a, one in found)
            first = lead([one for a, one in found if a.base == own], say).rstrip(".")
            told.append(f"{measure.label}: {first} ({numbers})." if firm else f"{measure.label}: {numbers}.")
    a, b = pairs[chosen[0]]
    opening = "" if firm else f"{lead([], say)} "
    answer = f"{opening}{a.method} - {b.method} ({say('점', 'points')}). {' '.join(told)}"
    lost = [
        f"{measure.label}, {pairs[n][0].name} - {pairs[n][1].method} {points(one.answer.interval)}"
        for measure, column in zip(measures, table, strict=True)
        for n, one in enumerate(column)
        if measure.among is None and n not in chosen and one and one.seeds > 1 and one.answer.shown and one.answer.difference < 0
    ]
    return answer + (say(" 더 나쁨이 보이는 것: ", " Shown worse: ") + "; ".join(lost) + "." if lost else "")


def _against_base(study: Subject, found: Sequence[Arm], measures: Sequence[Measure]) -> tuple[Table | None, list[Versus | None]]:
    """Every arm against the model it began from; the table, and what was judged."""
    say = study.say
    asked: list[tuple[Arm, Entry]] = [(arm, base) for arm in found if (base := base_of(study, arm)) is not None]
    if not asked:
        return None, []
    columns = [versus(study, asked, measure.metric, among=measure.among) for measure in measures]
    lines = tuple(
        row(arm.name, *(short_cell(column[number], say) for column in columns)) for number, (arm, _) in enumerate(asked)
    )
    head = (say("방법과 길이", "method, length"), *(measure.counted(say) for measure in measures))
    caption = say("시작한 모델과의 차이 (점)", "difference from the model it began from (points)")
    return Table(head, lines, frozenset(range(1, len(head))), caption), [one for column in columns for one in column]
