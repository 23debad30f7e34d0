"""Verdicts as cells and phrases. In: verdicts about checkpoints and about methods. Out: what tables and answers write."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.arms import Versus
from coref_automl.comparison.differences import Finding, finding
from coref_automl.records import Comparison
from coref_automl.report.language import Say, points
from coref_automl.report.page import Cell, Text, Tone, row
from coref_automl.report.sentences import verdict

_TONES: dict[Finding, Tone] = {"better": "good", "worse": "bad"}


def checkpoint_cell(answer: Comparison | None, say: Say) -> Cell:
    if answer is None:
        return Cell("–", "quiet")
    found = finding(answer)
    return Cell(verdict(answer, say.lang), _TONES.get(found, "quiet"))


def lead(found: Sequence[Versus], say: Say) -> str:
    """Yes, no, in part, or not shown: the short answer. Pairs with one seed do not count."""
    firm = [one.answer for one in found if one.seeds > 1]
    if not firm:
        return say("시드가 하나뿐이라 판정할 수 없습니다.", "One seed only, so no verdict.")
    return short_answer({(answer.difference > 0) - (answer.difference < 0) if answer.shown else 0 for answer in firm}, say)


def short_answer(signs: set[int], say: Say) -> str:
    """From what was shown of each pair: better (1), worse (-1) or nothing (0)."""
    if signs == {1}:
        return say("그렇습니다.", "Yes.")
    if signs == {-1}:
        return say("아닙니다, 더 나쁩니다.", "No, it is worse.")
    if signs == {0}:
        return say("차이가 보이지 않습니다.", "No difference shown.")
    if 1 not in signs:
        return say("아닙니다, 일부에서는 더 나쁩니다.", "No, in part it is worse.")
    return (
        say("일부에서만.", "In part.")
        if -1 not in signs
        else say("일부에서는 더 좋고 일부에서는 더 나쁩니다.", "In part better, in part worse.")
    )


def phrase(found: Versus, say: Say) -> str:
    """The difference in points, and whether it is shown."""
    answer, change = found.answer, points(found.answer.interval)
    could = f"{100 * answer.detectable:.1f}" if answer.detectable else ""
    if found.seeds < 2:
        return f"{change} " + say("(시드 하나)", "(one seed)")
    if answer.shown:
        return f"{change}, " + (say("더 좋음", "better") if answer.difference > 0 else say("더 나쁨", "worse"))
    return (
        f"{change}, "
        + say("보이지 않음", "not shown")
        + (say(f" ({could}점쯤이면 보임)", f" (about {could} could be shown)") if could else "")
    )


def verdict_cell(found: Versus | None, say: Say) -> Cell:
    """The verdict in a few words."""
    if found is None:
        return Cell(say("평가되지 않음", "not run"), "quiet")
    if found.seeds < 2:
        return Cell(say("시드 하나", "one seed"), "quiet")
    if found.answer.shown:
        return Cell(say("더 좋음", "better"), "good") if found.answer.difference > 0 else Cell(say("더 나쁨", "worse"), "bad")
    could = found.answer.detectable
    limit = say(f" (약 {100 * could:.1f}점이면 보임)", f" (about {100 * could:.1f} points could be shown)") if could else ""
    return Cell(say("보이지 않음", "not shown") + limit, "quiet")


def short_cell(found: Versus | None, say: Say) -> Cell:
    """Difference and verdict in one cell: green or red if significant, "one seed" if it cannot be."""
    if found is None:
        return Cell("–", "quiet")
    text = points(found.answer.interval)
    if found.seeds < 2:
        return Cell(f"{text} " + say("시드 하나", "one seed"), "quiet")
    tone: Tone = "" if not found.answer.shown else "good" if found.answer.difference > 0 else "bad"
    return Cell(text + (say(" 보임", " shown") if found.answer.shown else ""), tone)


def versus_rows(found: Sequence[tuple[tuple[str, ...], Versus]], say: Say) -> tuple[tuple[Cell, ...], ...]:
    """One row per pair: labels, seeds, both values, the difference over seeds and over documents, the verdict."""
    return tuple(
        row(
            *labels,
            str(one.seeds),
            f"{100 * one.values[0]:.1f}",
            f"{100 * one.values[1]:.1f}",
            points(one.answer.over_seeds) if one.answer.over_seeds else Cell("–", "quiet"),
            points(one.answer.over_documents),
            verdict_cell(one, say),
        )
        for labels, one in found
    )


def versus_head(first: Sequence[str], a: str, b: str, say: Say, *, unit: str = "") -> tuple[str, ...]:
    """`unit` is what was resampled, if not documents."""
    return (
        *first, say("시드", "seeds"), f"{a} %", f"{b} %", say("차이, 시드에 걸쳐 (t)", "difference over seeds (t)"),
        unit or say("차이, 문서에 걸쳐", "over documents"), say("판정", "verdict"),
    )  # fmt: skip


def family(found: Sequence[Versus | None], say: Say) -> str:
    """The number of verdicts of a question, uncorrected for multiplicity; empty for a single one."""
    count = sum(one is not None and one.seeds > 1 for one in found)
    if count < 2:
        return ""
    return say(
        f" 이 물음의 판정 {count}개는 하나씩 따로 낸 것이고 개수에 대한 보정은 없습니다: 참된 차이가 없어도 스물에 하나쯤은 "
        "'보임'이 됩니다.",
        f" The {count} verdicts of this question are each taken by itself, not corrected for their number: where nothing truly "
        "differs, about one in twenty is shown all the same.",
    )


def rule(found: Sequence[Versus | None], say: Say) -> Text:
    """How a verdict about a method is reached; a note under every such table."""
    return Text(
        say(
            "같은 시드끼리 짝지은 학습의 마지막 체크포인트, 확인 쪽 절반. 시드에 걸친 구간(t), 문서에 걸친 구간(부트스트랩), "
            "둘의 분산을 더한 구간이 모두 0을 벗어나야 '보임'입니다. 한 칸에 적힌 구간은 셋을 합친 것입니다.",
            "Last checkpoints of runs paired by seed, confirm half. Shown only if the interval over seeds (t), the one over "
            "documents (bootstrap) and the one of both variances all exclude 0. An interval written alone spans all three.",
        )
        + family(found, say),
        "quiet",
    )
