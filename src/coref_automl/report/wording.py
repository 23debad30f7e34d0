"""Claims in words, Korean and English. In: claims. Out: phrases, sentences, cells and tables; nothing is decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coref_automl.comparison.claims import BASE, Answer, Caveat, Claim, QuestionId, Verdict
from coref_automl.comparison.differences import ComparisonRow, lost_to_family
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison, Half
from coref_automl.report.page import Cell, Shows, Table, Tone, bound, is_same, note, p_text, plotted, points, row, tokens
from coref_automl.say import Say

TONES: dict[str, Tone] = {
    "better": "good",
    "worse": "bad",
    "equivalent": "even",
    "no gain": "even",
    "same": "even",
    "not judged": "blank",
}
_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "better": ("더 좋음", "better"),
    "worse": ("더 나쁨", "worse"),
    "equivalent": ("{near}점 이내로 동등", "equivalent within {near} points"),
    "no gain": ("{most}점을 넘는 향상 없음", "no gain above {most} points"),
    "same": ("같음", "the same"),
    "not shown": ("차이 미확인", "not shown"),
    "not judged": ("판정 없음", "not judged"),
}
_SAME = ("모든 문항에서 같음", "the same on every item")
_PARTS = {
    "last step": ("마지막 구간", "last interval"),
    "peak to end": ("정점 - 마지막", "peak - end"),
    "equal tokens": ("같은 토큰 수에서", "at equal tokens"),
}
_CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg", "max-t": "max-T"}
_MOST_COUNTS = 4
"""Claims on so many different counts of documents have none in their caption."""


def title(name: QuestionId, say: Say) -> str:
    if name in CHECKS:
        ko, en = CHECKS[name].name
        return say(f"{ko}로 전이되는가?", f"Does it carry over to {en}?")
    return note(f"question: {name}", say)


def short_title(name: QuestionId, say: Say) -> str:
    return say(*CHECKS[name].name) if name in CHECKS else note(f"short: {name}", say)


def side(name: str, say: Say) -> str:
    return say("베이스 모델", "base") if name == BASE else name


def outcome(claim: Claim, say: Say) -> str:
    """What was measured, with the share of rows in words."""
    if claim.question in CHECKS:
        return say(*CHECKS[claim.question].metric) + rows(claim, say)
    metric, _, measure = claim.outcome.partition(":")
    label = METRICS[metric].label
    return label if not measure else f"{label}, {measure.upper()}"


def task(claim: Claim, say: Say) -> str:
    label = METRICS[claim.outcome.partition(":")[0]].label if claim.question not in CHECKS else ""
    return label.split("@")[0].split(" ")[0] or say(*CHECKS[claim.question].name)


def levels(claim: Claim) -> str:
    """What both sides score: ` 44.1 → 46.3%`."""
    return f" {100 * claim.values[1]:.1f} → {100 * claim.values[0]:.1f}%" if claim.values is not None else ""


def rows(claim: Claim, say: Say) -> str:
    if claim.rows is None:
        return ""
    count = f"{claim.rows:,}"
    if claim.share is None:
        return say(f" (학습 데이터 {count}행)", f" ({count} rows of train)")
    if claim.share == 1:
        return say(f" (학습 데이터 전체 {count}행)", f" (all {count} rows of train)")
    return say(f" (학습 데이터의 {100 * claim.share:g}%, {count}행)", f" ({100 * claim.share:g}% of train, {count} rows)")


def part(claim: Claim, say: Say) -> str:
    return say(*_PARTS[claim.part]) if claim.part in _PARTS else claim.part


def about(claim: Claim, say: Say) -> str:
    """What is compared: `entity 2,048 - base`; of one method, which of its checkpoints."""
    if claim.a == claim.b:
        return f"{claim.a}, {part(claim, say)}"
    text = f"{claim.a} - {side(claim.b, say)}"
    return f"{text}, {part(claim, say)}" if claim.part else text


def change(claim: Claim, say: Say) -> str:
    if not claim.judged and is_same(claim.difference):
        return "–"  # the same on every item would be a verdict
    return say(*_SAME) if is_same(claim.difference) else points(claim.difference)


def verdict(claim: Claim, say: Say) -> str:
    """The verdict in words, with what it could have shown or why there is none."""
    return in_a_word(claim, say) + caveat(claim, say)


def in_a_word(claim: Claim, say: Say) -> str:
    """The verdict alone."""
    near, most = f"{100 * (claim.within or 0):.1f}", bound(claim.difference.high).lstrip("+")
    return say(*_VERDICTS[claim.verdict]).format(near=near, most=most)


def caveat(claim: Claim, say: Say) -> str:
    """After a verdict: what could have been shown, what loss is still possible, or why there is none."""
    text = ""
    if claim.verdict == "not shown" and claim.detectable:
        least = f"{100 * claim.detectable:.1f}"
        text = say(f" (검출 가능 차이 {least}점)", f" (detectable: {least} points)")
    elif claim.verdict == "not judged" and (why := why_not(claim, say)):
        text = f" ({why})"
    elif claim.verdict == "no gain" and -claim.difference.low > claim.difference.high:
        loss = bound(-claim.difference.low).lstrip("+")
        text = say(f" ({loss}점까지의 하락은 배제되지 않음)", f" (a loss of up to {loss} not excluded)")
    if "before correction" not in claim.against:
        return text
    text += say(", 보정 전에만 유의", ", significant before correction only")
    return text + (say(" (하락)", " (a loss)") if claim.difference.value < 0 else "")


def why_not(claim: Claim, say: Say) -> str:
    """Why a claim has no verdict."""
    seen = " / ".join(map(tokens, claim.tokens))
    reasons: tuple[Caveat, ...] = ("one seed", "copies", "one document", "unequal training", "no room")
    return ", ".join(note(f"why: {code}", say, seen=seen) for code in claim.against if code in reasons)


def phrase(claim: Claim, say: Say) -> str:
    """`+2.3 [+1.4, +3.1], better`."""
    if claim.verdict == "same" or is_same(claim.difference):
        return say(*_SAME) if claim.judged else verdict(claim, say)
    return f"{change(claim, say)}, {verdict(claim, say)}"


def documents(claim: Claim, say: Say) -> str:
    """How many, and why these: all of a source or a task, or those that took no part in choosing."""
    count, of = f"{claim.count:,}", claim.part if claim.question == "sources" else ""
    of = task(claim, say) if claim.question in ("far", "lambada") else of
    ko, en = (f"{of}의 ", f" of {of}") if of else ("", "")
    return {
        "all": say(f"{ko}모든 문서 {count}개", f"all {count} documents{en}"),
        "confirm": say(f"{ko}고르는 데 쓰지 않은 문서 {count}개", f"{count} documents{en} held back from choosing"),
        "rows": say(f"모든 문장 {count}개", f"all {count} sentences"),
        "texts": say(f"글 {count}편", f"{count} texts"),
    }[claim.documents]


def seeds(claim: Claim, say: Say) -> str:
    if claim.test == "sign flips":
        return say("체크포인트 하나", "one checkpoint")
    both = claim.seeds[:1] if claim.b == BASE or claim.seeds[0] == claim.seeds[1] else claim.seeds
    text = "/".join(map(str, both))
    return say(f"시드 {text}개", f"{text} seed{'s' * (both != (1,))}")


def corrected(claim: Claim, say: Say) -> str:
    if claim.family < 2:
        return ""
    name = _CORRECTIONS[claim.correction]
    return say(f"비교 {claim.family}개 보정 ({name})", f"corrected for {claim.family} ({name})")


def basis(claim: Claim, say: Say) -> str:
    """On what a claim rests, in brackets."""
    return f"({', '.join(filter(None, (seeds(claim, say), documents(claim, say), corrected(claim, say))))})"


def sentence(claim: Claim, say: Say, *, judged: bool = True) -> str:
    """The whole claim: `Real@1 strict 44.1 → 46.3%, entity 2,048 - base: +2.2 [+1.3, +3.1], better (3 seeds, ...).` Not `judged`:
    its verdict stands before it."""
    told = phrase(claim, say) if judged else change(claim, say)
    return f"{outcome(claim, say)}{levels(claim)}, {about(claim, say)}: {told} {basis(claim, say)}."


def brief(claim: Claim, say: Say) -> str:
    """Where its sides and its difference stand beside it."""
    return f"{outcome(claim, say)}{levels(claim)}, {verdict(claim, say)} ({seeds(claim, say)}, {documents(claim, say)})."


def expected_gain(claim: Claim, say: Say) -> str:
    """What to expect of a side that was chosen by the data; empty where none was."""
    if claim.expected is None:
        return ""
    return note("expected gain", say, count=claim.family, name=claim.a, gain=f"{100 * claim.expected:+.1f}")


def comparison_verdict(answer: Comparison, say: Say) -> str:
    """A checkpoint's verdict in words, with the detectable difference where nothing is shown."""
    if answer.verdict == "not shown":
        least = f"{100 * (answer.detectable or 0):.1f}"
        could = say(f" (검출 가능 차이 {least}점)", f"; detectable difference {least} points") if answer.detectable else ""
        lost = say(", 보정 후", " after correction") if lost_to_family(answer) else ""
        return say("유의한 차이 미확인", "no difference shown") + lost + could
    return say(*_SAME) if answer.verdict == "same" else say(*_VERDICTS[answer.verdict])


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
    text = say("확인", "shown") if claim.shown else "" if claim.judged else why_not(claim, say)
    return Cell(f"{points(claim.difference)} {text}".rstrip(), TONES.get(claim.verdict, "quiet"), estimate=claim.difference)


def claims_table(claims: Sequence[Claim], say: Say, *, beside: tuple[str, Sequence[Claim]] | None = None) -> Table:
    """One row per claim. What all of them share stands in the caption; `beside` is a further column of the same pairs."""
    name, others = beside or ("", ())
    more = {(claim.a, claim.b): claim for claim in others}
    outcomes = say("지표", "outcome") if len({outcome(claim, say) for claim in claims}) > 1 else ""
    parts = say("문항", "items") if any(claim.part for claim in claims) else ""
    lines = tuple(
        row(
            claim.a,
            side(claim.b, say),
            *([outcome(claim, say)] if outcomes else []),
            *([part(claim, say)] if parts else []),
            *_sides(claim),
            Cell(change(claim, say), estimate=None if is_same(claim.difference) else claim.difference),
            p_text(claim.p),
            Cell(verdict(claim, say), TONES.get(claim.verdict, "quiet")),
            *([claim_cell(more.get((claim.a, claim.b)), say)] if more else []),
        )
        for claim in claims
    )
    about = ["a", "b", *filter(None, (outcomes, parts))]
    numbers = [say("실행", "runs"), "a %", "b %", say("차이 (점)", "difference (points)"), "p"]
    head = (*about, *numbers, say("판정", "verdict"), *([name] if more else []))
    numeric = frozenset(range(len(about), len(about) + len(numbers)))
    return Table(head, lines, numeric, _caption(claims, say), _shows(claims))


def _sides(claim: Claim) -> tuple[str, ...]:
    """The numbers of runs, and the values of both sides."""
    values = [f"{100 * value:.1f}" for value in claim.values] if claim.values else ["–", "–"]
    return (f"{claim.seeds[0]} / {claim.seeds[1]}", *values)


def pivot_table(claims: Sequence[Claim], say: Say) -> Table:
    """One row per pair, one column per part of the items."""
    by_place = {(claim.a, claim.b, claim.part): claim for claim in claims}
    pairs, parts = dict.fromkeys((a, b) for a, b, _ in by_place), {claim.part: part(claim, say) for claim in claims}
    lines = tuple(
        row(f"{a} - {side(b, say)}", *(claim_cell(by_place.get((a, b, name)), say) for name in parts)) for a, b in pairs
    )
    head = (say("방법", "methods"), *parts.values())
    return Table(head, lines, frozenset(range(1, len(head))), _caption(claims, say), _shows(claims))


def verdicts_table(answer: Answer, say: Say) -> Table:
    """Every claim of every question, with the interval that it would have by itself: what a study leaves beside its report."""
    claims = answer.claims
    lines = tuple(
        row(
            f"{outcome(claim, say)}, {part(claim, say)}" if claim.part else outcome(claim, say),
            claim.a,
            side(claim.b, say),
            *_sides(claim),
            change(claim, say),
            points(claim.alone or claim.difference),
            p_text(claim.p),
            f"{100 * claim.detectable:.1f}" if claim.detectable else "–",
            verdict(claim, say),
        )
        for claim in claims
    )
    head = (
        say("지표", "outcome"), "a", "b", say("실행", "runs"), "a %", "b %",
        say("a - b (점), 보정 구간", "a - b (points), corrected interval"), say("95% 구간, 단독", "95% interval by itself"), "p",
        say("검출 가능 차이", "detectable difference"), say("판정", "verdict"),
    )  # fmt: skip
    return Table(head, lines, frozenset(), shows=_shows(claims))


def _caption(claims: Sequence[Claim], say: Say) -> str:
    """Outcomes, documents and correction: what claims share, or differ in."""
    few = len({claim.count for claim in claims}) < _MOST_COUNTS
    told = [outcome(claim, say) for claim in claims] + [documents(claim, say) for claim in claims if few]
    return " · ".join(dict.fromkeys(filter(None, [*told, *(corrected(claim, say) for claim in claims)])))


def _shows(claims: Sequence[Claim]) -> Shows:
    which = {claim.documents for claim in claims}
    return "all" if which <= {"all", "rows", "texts"} else "confirm" if which == {"confirm"} else "both"


def forest_row(group: str, name: str, compared: Claim | Comparison) -> dict[str, Any]:
    """A difference as a forest plot draws it: coloured if something is shown."""
    finding = compared.verdict if compared.verdict in ("better", "worse") else "not shown"
    return {"task": group, "name": name, **plotted(compared.difference), "finding": finding}


def unjudged(checkpoint: ComparisonRow, say: Say) -> str:
    """Why a checkpoint has no reference."""
    if checkpoint.scratch:
        return say("베이스 모델 없음: 새 모델", "no base: a new model")
    return say("베이스 모델이 평가되지 않음", "its base was not evaluated")


def which_documents(half: Half | None, say: Say) -> str:
    """The documents of a table, for its caption: those of a half, or all."""
    if half is None:
        return say("모든 문서", "all documents")
    return say("고르는 데 쓰지 않은 문서(확인용 절반)", "held-back documents (confirm half)")
