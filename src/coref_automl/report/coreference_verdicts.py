"""Verdicts about coreference, in words. In: coreference runs, or their paths. Out: tables for the terminal, one line, phrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from coref_automl.comparison.copies import repeated
from coref_automl.comparison.coreference_methods import CoreferenceAnswer, CoreferenceComparison, Made, compare_coreference
from coref_automl.comparison.coreference_runs import CoreferenceRun, alike, look_for_coreference
from coref_automl.config import as_paths
from coref_automl.errors import ComparisonError
from coref_automl.report.language import Say, language, p_text, points
from coref_automl.report.verdicts import short_answer
from coref_automl.tabular import align


@dataclass(frozen=True, slots=True)
class PrintedCoreference(CoreferenceComparison):
    """A CoreferenceComparison that prints as two tables: methods, and verdicts between them."""

    def __str__(self) -> str:
        say = Say(language())
        head = say(
            f"CoNLL, 문서 {self.documents}개, 언급 {self.mentions:,}개. 신뢰구간은 실행과 문서를 교차해 구했습니다.",
            f"CoNLL over {self.documents} documents, {self.mentions:,} mentions; intervals over runs crossed with documents",
        )
        gold, found = say("정답 언급", "gold mentions"), say("찾은 언급", "found mentions")
        scores: list[tuple[str, ...]] = [(say("방법", "method"), say("실행", "runs"), gold, found)]
        scores += [(one.name, str(one.runs), *(f"{100 * value:.2f}" for value in one.conll.values())) for one in self.methods]
        lines = [head, "", *align(scores)]
        if self.answers:
            rows: list[tuple[str, ...]] = [(say("차이", "difference"), gold, "p (BH)", found, say("판정", "verdict"))]
            rows += [_cells(one, say) for one in self.answers]
            lines += ["", *align(rows)]
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes])


def compare_runs(*paths: Any) -> PrintedCoreference:
    """Verdicts between the methods whose coreference runs are under the paths."""
    names = as_paths(paths, "paths")
    runs, unread = look_for_coreference(names)
    if not runs:
        none = f"No finished coreference run under {', '.join(names)}; make one with: coref-automl coref train"
        raise ComparisonError(unread[0] if unread else none)
    say = Say(language())
    left = [*unread, *repeated(runs)]
    found = compare_coreference(runs, notes=[say(f"제외: {wrong}", f"Left out: {wrong}") for wrong in left])
    return PrintedCoreference(**{part.name: getattr(found, part.name) for part in fields(found)})


def judge(runs: Sequence[CoreferenceRun], made: Made, say: Say) -> CoreferenceComparison:
    """The comparison of those runs that belong together, the most there are; the others are named in its notes."""
    first, *others = alike(runs)
    left = ", ".join(run.name for group in others for run in group)
    told = say(
        f"문서, 분할 또는 설정이 달라 함께 비교하지 않은 실행: {left}.",
        f"Not compared, because documents, folds or settings differ: {left}.",
    )
    return compare_coreference(first, made, notes=[told] if left else [])


def outside_check(found: CoreferenceComparison, say: Say) -> str:
    """One line for a recommendation: what coreference says about the methods."""
    where = say(
        f"외부 확인, 상호참조 (정답 언급 CoNLL, 문서 {found.documents}개): ",
        f"Outside check, coreference (gold-mention CoNLL, {found.documents} documents): ",
    )
    if not found.answers:
        scores = ", ".join(f"{one.name} {100 * one.conll['gold']:.1f}" for one in found.methods)
        return where + say(f"{scores}. 비교할 다른 방법이 없습니다.", f"{scores}. No other method to compare with.")
    told = "; ".join(f"{one.a} - {one.b} {points(one.gold.interval)}, {_word(one, say)}" for one in found.answers)
    open_ones = [one.gold.detectable for one in found.answers if not one.shown and one.gold.detectable]
    limit = f"{100 * max(open_ones):.1f}" if open_ones else ""
    return where + told + (say(f"; 검출 가능한 차이 {limit}점.", f"; detectable difference {limit} points.") if limit else ".")


def lead(answers: Sequence[CoreferenceAnswer], say: Say) -> str:
    """Yes, no, in part, or not shown; pairs that could show nothing do not count."""
    firm = {one.sign for one in answers if not one.gold.reason}
    return short_answer(firm, say) if firm else no_verdict(answers[0], say) + "."


def phrase(one: CoreferenceAnswer, say: Say) -> str:
    return f"{points(one.gold.interval)}, {verdict(one, say)}"


def verdict(one: CoreferenceAnswer, say: Say) -> str:
    """The verdict, with the detectable difference where nothing is shown."""
    could = one.gold.detectable if not one.shown and not one.gold.reason else None
    limit = say(f" (검출 가능한 차이 {100 * could:.1f}점)", f" (detectable difference {100 * could:.1f} points)") if could else ""
    return _word(one, say) + limit


def _word(one: CoreferenceAnswer, say: Say) -> str:
    if one.gold.reason:
        return no_verdict(one, say)
    words = {1: say("더 좋음", "better"), -1: say("더 나쁨", "worse"), 0: say("유의한 차이 미확인", "no difference shown")}
    return words[one.sign]


def no_verdict(one: CoreferenceAnswer, say: Say) -> str:
    """Why there is no verdict, whatever the difference."""
    return {
        "one seed": say("시드가 하나뿐이라 판정 없음", "one seed only, no verdict"),
        "copies": say("실행들이 서로 같아 판정 없음", "the runs are copies of each other, no verdict"),
        "one document": say("문서가 하나뿐이라 판정 없음", "one document only, no verdict"),
        "same": say("모든 문서에서 같음", "the same on every document"),
    }[one.gold.reason]


def _cells(one: CoreferenceAnswer, say: Say) -> tuple[str, ...]:
    gold, found = (_change(answer.interval) for answer in (one.gold, one.found))
    about = "" if one.about == "methods" else say(" (이 체크포인트들)", " (these checkpoints)")
    return f"{one.a} - {one.b}", gold, p_text(one.p), found, verdict(one, say) + about


def _change(interval: Any) -> str:
    return f"{100 * interval.value:+.2f} [{100 * interval.low:+.2f}, {100 * interval.high:+.2f}]"
