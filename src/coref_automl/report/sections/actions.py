"""What to do next. In: a Subject, with or without targets. Out: the distance to each target, and actions."""

from __future__ import annotations

from collections.abc import Mapping

from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.headline import next_time, what_it_takes
from coref_automl.report.language import interval, rounded, tokens
from coref_automl.report.page import Block, Cell, Points, Section, Table, row
from coref_automl.report.subject import Subject


def draw(study: Subject) -> Section:
    """The chosen checkpoint against the targets, and what could improve it."""
    say, target = study.say, study.target
    blocks: list[Block] = []
    if target:
        blocks.append(_against_target(study, target))
    actions, it = [], study.recommendation
    if (ahead := it.next_time) is not None and ahead.more_documents and ahead.promising is not None:
        count, point = rounded(ahead.more_documents), tokens(ahead.promising)
        actions.append(
            say(
                f"선택용 절반에 문서를 약 {count:,}개 더하면 {point} 토큰으로 충분한지 80% 검정력으로 확인됩니다.",
                f"Add about {count:,} documents to the select half to learn with 80% power whether {point} tokens would do.",
            )
        )
    if told := what_it_takes(study) if it.use.status == "not better than the base" else next_time(study):
        actions.append(told)
    if not study.relation:
        actions.append(say("고른 체크포인트를 관계 추출로 확인하세요.", "Check the chosen checkpoint on relation extraction."))
    if actions:
        blocks.append(Points(tuple(actions)))
    return Section("next", say("다음 할 일", "Next actions"), tuple(blocks), part="next")


def _against_target(study: Subject, target: Mapping[str, float]) -> Table:
    say = study.say
    found = {name: study.chosen.evaluation.estimates.get(name) for name in target}
    lines = []
    for name, goal in target.items():
        estimate = found[name]
        if estimate is None:
            told = Cell(say("평가되지 않음", "not run"), "quiet")
        elif estimate.low >= goal:
            told = Cell(say("도달", "reached"), "good")
        elif estimate.high < goal:
            told = Cell(
                say(f"{100 * (goal - estimate.value):.1f}점 모자람", f"{100 * (goal - estimate.value):.1f} points short"), "bad"
            )
        else:
            told = Cell(say("구간 안: 아직 알 수 없음", "inside the interval: cannot tell yet"), "quiet")
        lines.append(row(METRICS[name].label, f"{100 * goal:.1f}", interval(estimate), told))
    head = (say("수치", "metric"), say("목표 %", "target %"), study.chosen.name, say("판정", "verdict"))
    return Table(head, tuple(lines), frozenset({1, 2}), shows="all")
