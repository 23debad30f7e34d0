"""Does a gain carry over? In: a Subject. Out: differences on every source, on far items and LAMBADA; gold beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Among, Arm, Versus, arms, base_of, equally_trained, speaking_of, versus
from coref_automl.comparison.corrections import corrected_columns
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.speaking import Speaking
from coref_automl.evaluation.metrics import DESCRIPTIVE, METRICS
from coref_automl.report.language import Say, points
from coref_automl.report.method_pairs import at_length
from coref_automl.report.page import Block, Cell, Check, Section, Table, Text, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import check, lead, phrase, rule, short_cell, shows

_FEWEST = 50
"""Sources with fewer items have no row of their own."""
_FEWEST_DOCUMENTS = 10
"""The same for documents: resampling fewer says too little."""
_OUTSIDE = (
    ("real_far1_strict", "real_far_word"),
    ("lambada_top1_strict", "lambada_word"),
    ("gold_word", "gold_word"),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric on all its items or on those of one source; `items` and `documents` count those that speak."""

    label: str
    metric: str
    items: int
    documents: int
    among: Among = None

    @property
    def descriptive(self) -> bool:
        return METRICS[self.metric].task in DESCRIPTIVE

    def cell(self, one: Versus | None, say: Say) -> Cell:
        if not self.descriptive or one is None:
            return short_cell(one, say)
        return Cell(points(one.answer.interval), "quiet", estimate=one.answer.interval)

    def counted(self, say: Say) -> str:
        items, documents = f"{self.items:,}", f"{self.documents:,}"
        held = say(f"문서 {documents}개, 문항 {items}개", f"{items} items, {documents} documents")
        return f"{self.label} ({held}{say(', 참고용', ', descriptive') if self.descriptive else ''})"


def draw(study: Subject) -> Section | None:
    """Compare entity training and combined with mlm, and every method with its base, on every measure."""
    say, found = study.say, arms(study)
    if study.alone or METRICS[study.metric].parts or not found:
        return None
    pairs = _pairs(found)
    asked = [(arm, base) for arm in found if (base := base_of(study, arm)) is not None]
    speak = speaking_of([*pairs, *asked])
    measures = _measures(study, speak)
    blocks: list[Block] = []
    told, checks = "", []
    found_on = {("mlm", n): versus(study, pairs, one.metric, among=one.among, speak=speak) for n, one in enumerate(measures)}
    found_on |= {("base", n): versus(study, asked, one.metric, among=one.among, speak=speak) for n, one in enumerate(measures)}
    judged = corrected_columns({key: column for key, column in found_on.items() if not measures[key[1]].descriptive})
    columns = {**found_on, **judged}
    if pairs:
        table = [columns["mlm", number] for number in range(len(measures))]
        head = (say("방법", "methods"), *(measure.counted(say) for measure in measures))
        lines = tuple(
            row(f"{a.name} - {b.method}", *(one.cell(column[number], say) for one, column in zip(measures, table, strict=True)))
            for number, (a, b) in enumerate(pairs)
        )
        caption = say("같은 양의 mlm과의 차이 (점)", "difference from the same amount of mlm (points)")
        blocks.append(Table(head, lines, frozenset(range(1, len(head))), caption, shows(speak.half)))
        told, checks = _answer(study, measures, pairs, table), _checks(study, measures, pairs, table)
    if asked:
        blocks.append(_against_base(study, asked, measures, [columns["base", number] for number in range(len(measures))], speak))
    if not blocks:
        return None
    blocks.append(rule([one for column in judged.values() for one in column], say))
    if any(measure.descriptive for measure in measures):
        blocks.append(Text(_why_descriptive(say), "quiet"))
    title = say(
        "다른 데이터 소스, 먼 문항, LAMBADA로 이어지는가?", "Does it carry over to other sources, to far items and to LAMBADA?"
    )
    told = told or say("같은 양의 mlm과 짝지을 실행이 없습니다.", "No run to pair with as much mlm.")
    return question("transfer", title, told, blocks, say("다른 과제로", "carrying over"), checks=checks)


def _why_descriptive(say: Say) -> str:
    return say(
        "gold 빈칸은 참고용이며 판정하지 않습니다: 마스크의 개수가 답의 길이를 알려 주고, 그 정보의 값어치는 학습에 따라 "
        "달라집니다. 그 자리의 외부 확인은 상호참조 해결입니다.",
        "Gold cloze is descriptive and has no verdict: the number of masks tells how long the answer is, and training changes "
        "what that is worth. Coreference resolution is the outside check in its place.",
    )


def _measures(study: Subject, speak: Speaking) -> list[Measure]:
    """The study's metric on all items and by source, then metrics of other form; LAMBADA by source too."""
    several = study.group.tokenizers > 1
    out = [_measure(study, study.metric, speak), *_by_source(study, study.metric, speak)]
    for strict, word in _OUTSIDE:
        metric = word if several else strict
        if metric != study.metric and any(metric in entry.evaluation.estimates for entry in study.entries):
            out.append(_measure(study, metric, speak))
            out += _by_source(study, metric, speak) if METRICS[metric].task == "lambada" else []
    return out


def _by_source(study: Subject, metric: str, speak: Speaking) -> list[Measure]:
    facts = study.group.items.facts
    names = np.unique(facts["source"][_spoken(study, metric, speak)]).tolist()
    found = [_measure(study, metric, speak, name) for name in names] if len(names) > 1 else []
    return [one for one in found if one.items >= _FEWEST and one.documents >= _FEWEST_DOCUMENTS]


def _measure(study: Subject, metric: str, speak: Speaking, source: str | None = None) -> Measure:
    """A metric, on the items of one source if given."""
    facts, label = study.group.items.facts, METRICS[metric].label
    among = None if source is None else np.asarray(facts["source"] == source)
    rows = _spoken(study, metric, speak) & (True if among is None else among)
    documents = len(np.unique(facts["cluster"][rows]))
    return Measure(label if source is None else f"{label} {source}", metric, int(rows.sum()), documents, among)


def _spoken(study: Subject, metric: str, speak: Speaking) -> NDArray[np.bool_]:
    items = study.group.items
    return np.asarray((items.facts["task"] == METRICS[metric].task) & (speak.half is None or items.halves == speak.half))


def _pairs(found: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Every other objective against mlm at equal tokens, base and length; several seeds first."""
    pairs = [(a, b) for a in found for b in found if b.objective == "mlm" and a.objective != "mlm" and a.alike(b)]
    pairs = [pair for pair in pairs if equally_trained(*pair)]
    first = {"entity": 0, "combined": 1}
    return sorted(pairs, key=lambda pair: (min(pair[0].seeds, pair[1].seeds) < 2, first.get(pair[0].objective, 2)))


def _checks(
    study: Subject, measures: Sequence[Measure], pairs: Sequence[tuple[Arm, Arm]], table: Sequence[list[Versus | None]]
) -> list[Check]:
    """LAMBADA, which the entity objective does not train: the pairs of the first method and base, the recommended length last."""
    first, here = pairs[0][0], study.chosen.evaluation.seq_len
    own = sorted(
        (n for n, (a, _) in enumerate(pairs) if (a.objective, a.base) == (first.objective, first.base)),
        key=lambda n: (pairs[n][0].length == here, pairs[n][0].length),
    )
    out = []
    for measure, column in zip(measures, table, strict=True):
        found = [one for n in own if (one := column[n]) is not None]
        if measure.among is None and METRICS[measure.metric].task == "lambada" and found:
            out.append(check(METRICS[measure.metric].label, "transfer", found))
    return out


def _answer(
    study: Subject, measures: Sequence[Measure], pairs: Sequence[tuple[Arm, Arm]], table: Sequence[list[Versus | None]]
) -> str:
    """Entity against mlm on each task other than Real, by length; what combined loses. Sources are in the table only."""
    say = study.say
    firm = [n for n, (a, b) in enumerate(pairs) if a.objective == "entity" and min(a.seeds, b.seeds) > 1]
    chosen = firm or [n for n, (a, _) in enumerate(pairs) if a.objective == "entity"] or [0]
    told = []
    for measure, column in zip(measures, table, strict=True):
        found = [(pairs[n][0], one) for n in chosen if (one := column[n]) is not None]
        if measure.among is None and measure.metric != study.metric and found and not measure.descriptive:
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
        if measure.among is None and n not in chosen and not measure.descriptive
        if one and one.seeds > 1 and one.shown and one.answer.difference < 0
    ]
    return answer + (say(" 하락 확인: ", " Shown worse: ") + "; ".join(lost) + "." if lost else "")


def _against_base(
    study: Subject,
    asked: Sequence[tuple[Arm, Entry]],
    measures: Sequence[Measure],
    columns: Sequence[Sequence[Versus | None]],
    speak: Speaking,
) -> Table:
    """Every arm against its base."""
    say = study.say
    lines = tuple(
        row(arm.name, *(one.cell(column[number], say) for one, column in zip(measures, columns, strict=True)))
        for number, (arm, _) in enumerate(asked)
    )
    head = (say("방법과 길이", "method, length"), *(measure.counted(say) for measure in measures))
    caption = say("시작한 모델과의 차이 (점)", "difference from the model it began from (points)")
    return Table(head, lines, frozenset(range(1, len(head))), caption, shows(speak.half))
