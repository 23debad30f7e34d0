"""Does the adaptation carry over to coreference? In: a Subject with coreference runs. Out: scores, and verdicts about methods."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.coreference_methods import CoreferenceAnswer, pretraining_in
from coref_automl.comparison.coreference_runs import CoreferenceRun
from coref_automl.comparison.scores import model_label
from coref_automl.records import Estimate
from coref_automl.report.coreference_verdicts import judge, lead, no_verdict, phrase, verdict
from coref_automl.report.language import interval, p_text
from coref_automl.report.page import Block, Cell, Check, Section, Table, Text, question, row
from coref_automl.report.subject import Subject
from coref_automl.report.verdicts import badge, difference_cell


def draw(study: Subject) -> Section | None:
    """Scores of all coreference runs, and verdicts between methods."""
    runs, say = study.coreference, study.say
    if not runs:
        return None
    found = judge(runs, pretraining_in(study.entries), say)
    blocks: list[Block] = [_results(study, runs)]
    answer = say("비교할 다른 방법의 실행이 없어 판정하지 않습니다.", "No run of another method to compare with, so no verdict.")
    if found.answers:
        blocks += [_differences(found.answers, study), Text(_rule(study), "quiet")]
        asked = [one for one in found.answers if one.objectives == found.answers[0].objectives]
        told = "; ".join(f"{one.a} - {one.b} {phrase(one, say)}" for one in found.answers[:3])
        first = lead(asked, say)
        if asked[0].about == "checkpoints" and not asked[0].gold.reason:
            first += say(" 방법이 아니라 이 체크포인트들에 대한 답입니다.", " That is said of these checkpoints, not of methods.")
        unit = say(f"정답 언급 CoNLL (점, 문서 {found.documents}개)", f"Gold-mention CoNLL (points, {found.documents} documents)")
        answer = f"{first} {unit}: {told}."
    if found.notes:
        blocks.append(Text(" ".join(found.notes), "quiet"))
    title = say("적응이 상호참조 해결로 이어지는가?", "Does the adaptation carry over to coreference?")
    short = say("상호참조", "coreference")
    return question("coreference", title, answer, blocks, short, checks=_checks(found.answers, short))


def _checks(found: Sequence[CoreferenceAnswer], label: str) -> list[Check]:
    """The first two methods that are compared."""
    asked = [one for one in found if one.objectives == found[0].objectives]
    firm = {one.sign for one in asked if not one.gold.reason}
    return [Check(label, "coreference", badge(firm), asked[-1].gold.interval, f"{asked[-1].a} - {asked[-1].b}")] if asked else []


def _results(study: Subject, runs: Sequence[CoreferenceRun]) -> Table:
    say, lines = study.say, []
    for run in runs:
        held = run.result.get("estimates", {})
        numbers = [interval(_estimate(held.get(way, {}).get("conll"))) for way in ("gold", "found")]
        more = [interval(_estimate(held.get("gold", {}).get(metric))).split(" ")[0] for metric in ("muc", "b_cubed", "ceaf_e")]
        lines.append(
            row(run.name, model_label(run.model), str(len(run.seeds)), *numbers, *more, str(run.result.get("split", "–")))
        )
    head = (
        say("실행", "run"), say("인코더", "encoder"), say("시드", "seeds"), say("정답 언급 CoNLL %", "gold-mention CoNLL %"),
        say("예측 언급 CoNLL %", "found-mention CoNLL %"), "MUC", "B-cubed", "CEAF-e", say("분할", "split"),
    )  # fmt: skip
    return Table(head, tuple(lines), frozenset(range(2, 8)), shows="all")


def _differences(found: Sequence[CoreferenceAnswer], study: Subject) -> Table:
    say = study.say
    lines = tuple(
        row(
            one.a,
            one.b,
            f"{one.gold.seeds[0]} / {one.gold.seeds[1]}",
            f"{100 * one.values['gold'][0]:.1f}",
            f"{100 * one.values['gold'][1]:.1f}",
            difference_cell(one.gold.interval),
            p_text(one.p),
            difference_cell(one.found.interval),
            _cell(one, study),
        )
        for one in found
    )
    head = (
        say("방법", "from"), say("상대", "against"), say("실행 수", "runs"), say("앞 %", "first %"), say("뒤 %", "second %"),
        say("차이", "difference"), "p (BH)", say("차이, 예측 언급", "difference, found mentions"), say("판정", "verdict"),
    )  # fmt: skip
    caption = say("정답 언급 CoNLL의 차이 (점)", "differences in gold-mention CoNLL (points)")
    return Table(head, lines, frozenset(range(2, 8)), caption, "all")


def _cell(one: CoreferenceAnswer, study: Subject) -> Cell:
    if one.gold.reason:
        return Cell(no_verdict(one, study.say), "quiet")
    return Cell(verdict(one, study.say), {1: "good", -1: "bad"}.get(one.sign, "quiet"))  # type: ignore[arg-type]


def _rule(study: Subject) -> str:
    return study.say(
        "구간은 실행과 문서를 교차한 95% 신뢰구간입니다. CoNLL은 문서에 걸친 비율이므로 문서가 점수를 움직이는 "
        "만큼(1차 영향)을 그 문서의 값으로 삼고 언급 수로 가중합니다. 시작이 여럿인 방법은 시작마다 상호참조 시드의 "
        "평균 하나로, 시작이 하나면(원래 모델, 체크포인트 하나) 상호참조 시드로 셉니다. p는 표의 판정 수에 대해 "
        "보정했고(Benjamini-Hochberg), 예측 언급의 차이는 참고용입니다.",
        "Intervals are 95% over runs crossed with documents. CoNLL is a ratio over documents: a document's value is how far it "
        "moves the score (first order), weighted by its mentions. A method with several starts counts each once, with the mean "
        "over its coreference seeds; a single start (the base, one checkpoint) is counted by its coreference seeds. p is "
        "adjusted for the verdicts of this table (Benjamini-Hochberg); differences with found mentions are descriptive.",
    )


def _estimate(held: dict[str, float] | None) -> Estimate | None:
    return Estimate(held["value"], held["low"], held["high"], int(held["n"])) if held else None
