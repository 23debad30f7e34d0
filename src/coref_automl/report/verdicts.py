"""Verdicts as cells and phrases. In: verdicts about checkpoints and about methods. Out: what tables and answers write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coref_automl.comparison.arms import Versus
from coref_automl.comparison.differences import Finding, finding
from coref_automl.comparison.speaking import Speaking
from coref_automl.records import Comparison, Estimate, Half
from coref_automl.report.language import Say, is_same, points
from coref_automl.report.page import Badge, Cell, Check, Shows, Text, Tone, row
from coref_automl.report.sentences import verdict
from coref_automl.statistics.crossed import CrossedVerdict

_TONES: dict[Finding, Tone] = {"better": "good", "worse": "bad"}


def checkpoint_cell(answer: Comparison | None, say: Say) -> Cell:
    if answer is None:
        return Cell("–", "quiet")
    found = finding(answer)
    return Cell(verdict(answer, say.lang), _TONES.get(found, "quiet"))


def lead(found: Sequence[Versus], say: Say) -> str:
    """Yes, no, in part, or not shown: the short answer. Pairs with one seed do not count."""
    firm = [one for one in found if one.seeds > 1]
    if not firm:
        return say("시드가 하나뿐이라 판정할 수 없습니다.", "One seed only, so no verdict.")
    return short_answer({(one.answer.difference > 0) - (one.answer.difference < 0) if one.shown else 0 for one in firm}, say)


def short_answer(signs: set[int], say: Say) -> str:
    """From what was shown of each pair: better (1), worse (-1) or nothing (0)."""
    if signs == {1}:
        return say("그렇습니다.", "Yes.")
    if signs == {-1}:
        return say("아닙니다, 더 나쁩니다.", "No, it is worse.")
    if signs == {0}:
        return say("유의한 차이가 확인되지 않았습니다.", "No difference shown.")
    if 1 not in signs:
        return say("아닙니다, 일부에서는 더 나쁩니다.", "No, in part it is worse.")
    return (
        say("일부에서만.", "In part.")
        if -1 not in signs
        else say("일부에서는 더 좋고 일부에서는 더 나쁩니다.", "In part better, in part worse.")
    )


def sign(one: Versus) -> int:
    """What is shown of a pair over several seeds: better (1), worse (-1) or nothing (0)."""
    return (one.answer.difference > 0) - (one.answer.difference < 0) if one.seeds > 1 and one.shown else 0


def tone(way: int) -> Tone:
    """Of a difference that is shown better (1), worse (-1) or not (0)."""
    return {1: "good", -1: "bad"}.get(way, "quiet")  # type: ignore[return-value]


def badge(signs: set[int]) -> Badge:
    """How firm an answer is, from what was shown of each of its pairs."""
    return "open" if signs <= {0} else "shown" if len(signs) == 1 else "part"


def detectable(found: Iterable[float | None], say: Say) -> str:
    """The largest detectable difference of verdicts that show nothing, in brackets; empty if it is not known."""
    could = max((one for one in found if one), default=None)
    return say(f" (검출 가능 차이 {100 * could:.1f}점)", f" (detectable: {100 * could:.1f} points)") if could else ""


def check(label: str, section: str, found: Sequence[Versus]) -> Check:
    """An outside check from verdicts of one kind, the last of which is drawn."""
    firm = [one for one in found if one.seeds > 1]
    main = (firm or list(found))[-1]
    return Check(label, section, badge({sign(one) for one in firm}), main.answer.interval, f"{main.a} - {main.b}")


def phrase(found: Versus, say: Say) -> str:
    """The difference in points, and whether it is shown."""
    answer, change = found.answer, points(found.answer.interval)
    could = f"{100 * answer.detectable:.1f}" if answer.detectable else ""
    if is_same(answer.interval):
        return same(say)
    if found.seeds < 2:
        return f"{change} " + say("(시드 하나)", "(one seed)")
    if found.alone:
        return f"{change}, " + before_correction(say)
    if answer.shown:
        return f"{change}, " + (say("더 좋음", "better") if answer.difference > 0 else say("더 나쁨", "worse"))
    return (
        f"{change}, "
        + say("미확인", "not shown")
        + (say(f" (검출 가능 차이 {could}점)", f" (detectable: {could} points)") if could else "")
    )


def verdict_cell(found: Versus | None, say: Say) -> Cell:
    """The verdict in a few words."""
    if found is None:
        return Cell(say("평가되지 않음", "not run"), "quiet")
    if is_same(found.answer.interval):
        return Cell(same(say), "quiet")
    if found.seeds < 2:
        return Cell(say("시드 하나", "one seed"), "quiet")
    if found.alone:
        return Cell(before_correction(say), "quiet")
    if found.answer.shown:
        return Cell(say("더 좋음", "better"), "good") if found.answer.difference > 0 else Cell(say("더 나쁨", "worse"), "bad")
    could = found.answer.detectable
    limit = say(f" (검출 가능 차이 {100 * could:.1f}점)", f" (detectable: {100 * could:.1f} points)") if could else ""
    return Cell(say("미확인", "not shown") + limit, "quiet")


def short_cell(found: Versus | None, say: Say) -> Cell:
    """Difference and verdict in one cell: green or red if significant, "one seed" if it cannot be."""
    if found is None:
        return Cell("–", "quiet")
    held = found.answer.interval
    if is_same(held):
        return Cell(same(say), "quiet")
    text = points(held)
    if found.seeds < 2:
        return Cell(f"{text} " + say("시드 하나", "one seed"), "quiet", estimate=held)
    tone: Tone = "quiet" if not found.shown else "good" if found.answer.difference > 0 else "bad"
    word = say(" 확인", " shown") if found.shown else f" {before_correction(say)}" if found.alone else ""
    return Cell(text + word, tone, estimate=held)


def same(say: Say) -> str:
    return say("모든 문항에서 같음", "the same on every item")


def before_correction(say: Say) -> str:
    """The mark of a verdict that is significant by itself and not within its family."""
    return say("보정 전에만", "before correction only")


def versus_rows(found: Sequence[tuple[tuple[str, ...], Versus]], say: Say) -> tuple[tuple[Cell, ...], ...]:
    """One row per pair: labels, seeds, both values, the difference, its standard errors (or its two intervals), the verdict."""
    return tuple(
        row(
            *labels,
            str(one.seeds),
            f"{100 * one.values[0]:.1f}",
            f"{100 * one.values[1]:.1f}",
            *_spread(one),
            verdict_cell(one, say),
        )
        for labels, one in found
    )


def _spread(one: Versus) -> tuple[Cell, Cell]:
    answer = one.answer
    if isinstance(answer, CrossedVerdict):
        added = f"{100 * answer.by_seeds:.2f}" if one.seeds > 1 else "–"
        return difference_cell(answer.interval), Cell(f"{100 * answer.by_documents:.2f} / {added}")
    over_seeds = difference_cell(answer.over_seeds) if answer.over_seeds else Cell("–", "quiet")
    return over_seeds, difference_cell(answer.over_documents)


def difference_cell(estimate: Estimate) -> Cell:
    return Cell(points(estimate), estimate=estimate)


def versus_head(first: Sequence[str], a: str, b: str, say: Say) -> tuple[str, ...]:
    return (
        *first, say("시드", "seeds"), f"{a} %", f"{b} %", say("차이 (점)", "difference (points)"),
        say("표준오차: 문서 / 시드 추가분", "standard error: documents / added by seeds"), say("판정", "verdict"),
    )  # fmt: skip


def paired_head(first: Sequence[str], a: str, b: str, say: Say) -> tuple[str, ...]:
    """For relation extraction: paired by seed, sentences resampled."""
    return (
        *first, say("시드", "seeds"), f"{a} %", f"{b} %", say("차이, 시드 간 (t)", "difference over seeds (t)"),
        say("차이, 문장 간", "over sentences"), say("판정", "verdict"),
    )  # fmt: skip


def shows(half: Half | None) -> Shows:
    return half or "all"


def shown_on(found: Sequence[Versus | None]) -> Shows:
    """The documents that verdicts over several seeds of one table come from."""
    return shows(next((one.speaking.half for one in found if one is not None and one.speaking), None))


def which_documents(half: Half | None, say: Say) -> str:
    """The documents of a table, for its caption: those of a half, or all."""
    if half is None:
        return say("모든 문서", "all documents")
    return say("확인용 절반의 문서", "confirm half of the documents")


def counted(found: Sequence[Versus | None], say: Say) -> str:
    """The documents of a table on one metric, with their number and that of the items."""
    one = next((one for one in found if one is not None), None)
    if one is None or not isinstance(one.answer, CrossedVerdict):
        return ""
    which, items, documents = (
        which_documents(one.speaking.half if one.speaking else None, say),
        one.answer.interval.n,
        one.answer.documents,
    )
    return f"{which} ({say(f'문서 {documents:,}개, 문항 {items:,}개', f'{items:,} items of {documents:,} documents')})"


def family(found: Sequence[Versus | None], say: Say, *, primary: bool = False) -> str:
    """The number of verdicts of a question and what corrects for it; empty for a single one."""
    firm = [one for one in found if one is not None and one.seeds > 1]
    if len(firm) < 2:
        return ""
    count, alone = len(firm), sum(one.alone for one in firm)
    told = (
        say(
            f" 주 판정 {count}건을 Holm 방법으로 다중비교 보정했습니다.",
            f" The {count} primary verdicts of the study, Holm-adjusted.",
        )
        if primary
        else say(
            f" 이 질문의 판정 {count}건을 Benjamini-Hochberg 방법으로 다중비교 보정했습니다: 확인된 것 중 틀린 것은 평균 5% "
            "이하입니다.",
            f" Benjamini-Hochberg over the {count} verdicts of this question: of those shown, at most 5% are false on average.",
        )
    )
    return told + (
        say(
            f" {alone}건은 보정 전에만 유의합니다('보정 전에만').",
            f" {alone} {'is' if alone == 1 else 'are'} significant before correction only.",
        )
        if alone
        else ""
    )


def rule(found: Sequence[Versus | None], say: Say, *, primary: bool = False) -> Text:
    """How a verdict about a method is reached, and from which documents; a note under every such table."""
    speak = next((one.speaking for one in found if one is not None), None)
    return Text(
        _why(speak, say)
        + say(
            " 구간은 실행과 문서를 교차한 95% 신뢰구간입니다: 문서의 분산에 시드가 더하는 분산을 합합니다. 구간이 0을 포함하지 "
            "않으면 '확인'입니다.",
            " Intervals are 95% from runs crossed with documents: the variance over documents, and what seeds add to it. Shown "
            "if the interval excludes 0.",
        )
        + family(found, say, primary=primary),
        "quiet",
    )


def _why(speak: Speaking | None, say: Say) -> str:
    """Which documents speak, and why."""
    if speak is None or speak.why == "chosen":
        return say(
            "각 실행의 마지막 체크포인트, 확인용 절반의 문서: 이 세트로 조기 종료하거나 고른 실행이 있습니다(또는 아니라는 "
            "기록이 없습니다).",
            "Last checkpoints, confirm half of the documents: a run was stopped or chosen by this set (or no record says it was "
            "not).",
        )
    ends = say("모두 계획된 종료 지점이어서", "each is the planned end of its run")
    if speak.why == "same end":
        ends = say("한 방법의 실행이 모두 같은 에폭에서 끝나", "all runs of a method end at the same epoch")
    return say(
        f"각 실행의 마지막 체크포인트, 모든 문서: {ends} 이 세트로 고른 것이 없습니다.",
        f"Last checkpoints, all documents: {ends}, so nothing was chosen on this set.",
    )
