"""Verdicts as cells and tables. In: claims, and checkpoints against their references. Out: what tables write."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.claims import Answer, Claim
from coref_automl.comparison.differences import ComparisonRow, lost_to_family
from coref_automl.records import Comparison, Finding, Half
from coref_automl.report.page import Cell, Shows, Table, is_same, p_text, points, row
from coref_automl.report.wording import TONES, change, corrected, documents, outcome, part, phrase, side, verdict, why_not
from coref_automl.say import Say

_MOST = 4
"""More counts of documents than this are not listed in a caption."""


def comparison_verdict(answer: Comparison, say: Say) -> str:
    """A checkpoint's verdict in words, with the detectable difference where nothing is shown."""
    if answer.verdict == "not shown":
        limit = f"{100 * (answer.detectable or 0):.1f}"
        could = say(f" (검출 가능 차이 {limit}점)", f"; detectable difference {limit} points") if answer.detectable else ""
        lost = say(", 보정 후", " after correction")
        return say("유의한 차이 미확인", "no difference shown") + (lost if lost_to_family(answer) else "") + could
    return {
        "better": say("더 좋음", "better"),
        "worse": say("더 나쁨", "worse"),
        "same": say("모든 문항에서 같음", "the same on every item"),
    }[answer.verdict]


def checkpoint_cell(answer: Comparison | None, say: Say) -> Cell:
    if answer is None:
        return Cell("–", "quiet")
    return Cell(comparison_verdict(answer, say), TONES.get(answer.verdict, "quiet"))


def claim_cell(claim: Claim | None, say: Say) -> Cell:
    """Difference and verdict in one cell: green or red if something is shown."""
    if claim is None:
        return Cell("–", "quiet")
    if is_same(claim.difference):
        return Cell(phrase(claim, say), "quiet")
    text = why_not(claim, say) if claim.verdict == "not judged" else ""
    text = text or (say("확인", "shown") if claim.shown else "")
    return Cell(f"{points(claim.difference)} {text}".rstrip(), TONES.get(claim.verdict, "quiet"), estimate=claim.difference)


def claims_table(claims: Sequence[Claim], say: Say, *, beside: tuple[str, Sequence[Claim]] | None = None) -> Table:
    """One row per claim. What all of them share stands in the caption; `beside` is a further column of the same pairs."""
    name, others = beside or ("", ())
    more = {(one.a, one.b): one for one in others}
    outcomes, parts = {outcome(one, say) for one in claims}, {one.part for one in claims}
    several, apart = len(outcomes) > 1, parts != {""}
    lines = tuple(
        row(
            one.a,
            side(one.b, say),
            *([outcome(one, say)] if several else []),
            *([part(one, say)] if apart else []),
            *_sides(one),
            Cell(change(one, say), estimate=None if is_same(one.difference) else one.difference),
            p_text(one.p),
            Cell(verdict(one, say), TONES.get(one.verdict, "quiet")),
            *([claim_cell(more.get((one.a, one.b)), say)] if more else []),
        )
        for one in claims
    )
    head = (
        "a", "b", *([say("지표", "outcome")] if several else []), *([say("문항", "items")] if apart else []),
        say("실행", "runs"), "a %", "b %", say("차이 (점)", "difference (points)"), "p", say("판정", "verdict"),
        *([name] if more else []),
    )  # fmt: skip
    first = len(head) - 6 - bool(more)
    return Table(head, lines, frozenset(range(first, first + 5)), _caption(claims, say), _shows(claims))


def _sides(claim: Claim) -> tuple[str, ...]:
    """The numbers of runs, and the values of both sides."""
    values = [f"{100 * value:.1f}" for value in claim.values] if claim.values else ["–", "–"]
    return (f"{claim.seeds[0]} / {claim.seeds[1]}", *values)


def pivot_table(claims: Sequence[Claim], say: Say) -> Table:
    """One row per pair, one column per part of the items."""
    pairs, parts = dict.fromkeys((one.a, one.b) for one in claims), dict.fromkeys(one.part for one in claims)
    held = {(one.a, one.b, one.part): one for one in claims}
    names = {one.part: part(one, say) for one in claims}
    lines = tuple(row(f"{a} - {side(b, say)}", *(claim_cell(held.get((a, b, one)), say) for one in parts)) for a, b in pairs)
    head = (say("방법", "methods"), *(names[one] for one in parts))
    return Table(head, lines, frozenset(range(1, len(head))), _caption(claims, say), _shows(claims))


def verdicts_table(answer: Answer, say: Say) -> Table:
    """Every claim of every question, with the interval that it would have by itself: what a study leaves beside its report."""
    claims = answer.claims
    lines = tuple(
        row(
            f"{outcome(one, say)}, {part(one, say)}" if one.part else outcome(one, say),
            one.a,
            side(one.b, say),
            *_sides(one),
            change(one, say),
            points(one.alone or one.difference),
            p_text(one.p),
            f"{100 * one.detectable:.1f}" if one.detectable else "–",
            verdict(one, say),
        )
        for one in claims
    )
    head = (
        say("지표", "outcome"), "a", "b", say("실행", "runs"), "a %", "b %",
        say("a - b (점), 보정 구간", "a - b (points), corrected interval"), say("95% 구간, 단독", "95% interval by itself"), "p",
        say("검출 가능 차이", "detectable difference"), say("판정", "verdict"),
    )  # fmt: skip
    return Table(head, lines, frozenset(), shows=_shows(claims))


def _caption(claims: Sequence[Claim], say: Say) -> str:
    text = dict.fromkeys(outcome(one, say) for one in claims)
    text |= dict.fromkeys(documents(one, say) for one in claims) if len({one.count for one in claims}) < _MOST else {}
    text |= dict.fromkeys(filter(None, (corrected(one, say) for one in claims)))
    return " · ".join(text)


def _shows(claims: Sequence[Claim]) -> Shows:
    which = {one.documents for one in claims}
    return "all" if which <= {"all", "rows", "texts"} else "confirm" if which == {"confirm"} else "both"


def plotted(found: Finding) -> Finding:
    """A verdict as charts colour it."""
    return "not shown" if found == "same" else found


def unjudged(row: ComparisonRow, say: Say) -> str:
    """Why a checkpoint has no reference."""
    if row.scratch:
        return say("베이스 모델 없음: 새 모델", "no base: a new model")
    return say("베이스 모델이 평가되지 않음", "its base was not evaluated")


def which_documents(half: Half | None, say: Say) -> str:
    """The documents of a table, for its caption: those of a half, or all."""
    if half is None:
        return say("모든 문서", "all documents")
    return say("고르는 데 쓰지 않은 문서(확인용 절반)", "held-back documents (confirm half)")
