"""The questions that people ask, answered. In: a Subject. Out: a section for each: its leading claim, tables of all claims."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.base.say import Say
from coref_automl.comparison.carry_over import not_compared
from coref_automl.comparison.claims import Claim, Question, QuestionId
from coref_automl.comparison.judging import means
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.questions import TASKS, by_distance
from coref_automl.comparison.scores import model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages.sections import Subject
from coref_automl.report.answer_wording import answer_line, badge
from coref_automl.report.page import Block, Cell, Section, Shows, Table, Text, VerdictLine, estimate_cells, interval, note, row
from coref_automl.report.wording import TONES, ClaimText, short_title, title

_MOST_COUNTS = 4
"""Claims on so many different numbers of documents have none in their caption."""


def draw(subject: Subject) -> list[Section]:
    """Questions with claims, then outside checks whose runs allow no claim."""
    say = subject.say
    sections = {question.id: _section(subject, question) for question in subject.answer.questions}
    for name in CHECKS:
        if subject.checks.get(name) and name not in sections:
            none = say("짝지을 실행이 없어 판정하지 않습니다.", "No two runs can be paired, so no verdict.")
            sections[name] = _question_section(name, none, _runs(subject, name), say)
    return list(sections.values())


def _question_section(
    name: QuestionId, answer: str, blocks: Sequence[Block], say: Say, verdict: VerdictLine | None = None
) -> Section:
    """A section that opens with the answer; `verdict` is its line on the first screen."""
    blocks = (Text(answer, "strong"), *blocks)
    return Section(name, title(name, say), blocks, short_title(name, say), answer, verdict, "questions")


def _section(subject: Subject, question: Question) -> Section:
    say, lead, claims = subject.say, question.lead, question.claims
    text = ClaimText(lead, say)
    blocks = [*_tables(claims, say), Text(_tests(claims, say), "quiet")]
    if question.id == "length":
        blocks += _by_distance(subject)
    if question.id in CHECKS:
        blocks += _runs(subject, question.id)
    line = answer_line(question, subject.answer, say)
    tone = TONES.get(lead.verdict, "quiet") if question.tested else "blank"
    verdict = VerdictLine(badge(question, subject.answer, say), line, tone=tone)
    if question.tested and text.change() != "–":
        verdict = VerdictLine(verdict.badge, line, lead.difference, text.about(), tone)
    return _question_section(question.id, text.sentence() if question.tested else line, blocks, say, verdict)


def _tables(claims: Sequence[Claim], say: Say) -> list[Block]:
    """One row per claim, parts of the items after the whole, with MRR as a column beside hits."""
    by_rank = [claim for claim in claims if claim.outcome.endswith(":mrr")]
    rows = sorted((claim for claim in claims if claim not in by_rank), key=lambda claim: claim.part)
    return [claims_table(rows, say, beside=("MRR", by_rank))] if rows else []


def _tests(claims: Sequence[Claim], say: Say) -> str:
    """How these verdicts are reached."""
    tests = dict.fromkeys(f"test: {claim.test}" for claim in claims)
    return " ".join(note(name, say) for name in (*tests, "corrected level"))


def _by_distance(subject: Subject) -> list[Block]:
    """Accuracy of every method by distance to the other mention: means over seeds, all items."""
    say, group, metric = subject.say, subject.group, TASKS["far"]
    sides, distances = [arm.ends for arm in subject.arms], by_distance(group, metric)
    columns = {name: means(group, sides, metric, seed=subject.seed, mask=mask) for name, mask in distances.items()}
    caption = say(f"거리별 {METRICS[metric].label} (%)", f"{METRICS[metric].label} by distance (%)")
    cells = {bucket: estimate_cells(column) for bucket, column in columns.items() if any(column)}
    lines = tuple(row(arm.name, *(column[n] for column in cells.values())) for n, arm in enumerate(subject.arms))
    head = (say("방법과 길이", "method, length"), *cells)
    return [Table(head, lines, frozenset(range(1, len(head))), caption, "all")] if cells else []


def _runs(subject: Subject, name: QuestionId) -> list[Block]:
    """The runs of an outside check, and which of them take part in no claim."""
    say, lines, runs = subject.say, [], subject.checks[name]
    for run in runs:
        values = [interval(value) for value in run.result.measures().values()]
        lines.append(row(run.name, model_label(run.model) or "–", str(len(run.seeds)), *values, run.result.split))
    measures = (f"{label} %" for label in runs[0].result.measures())
    head = (say("실행", "run"), say("시작 모델", "from"), say("시드", "seeds"), *measures, say("분할", "split"))
    caption = say("실행마다 그 분할의 모든 데이터", "all of each run's split")
    blocks: list[Block] = [Table(head, tuple(lines), frozenset(range(2, len(head) - 1)), caption)]
    left_out = dict(zip(("start not evaluated", "other conditions"), not_compared(name, subject.entries, runs), strict=True))
    return [*blocks, *(Text(note(why, say, names=", ".join(names))) for why, names in left_out.items() if names)]


def claim_cell(claim: Claim | None, say: Say) -> Cell:
    """Difference and verdict in one cell: green or red if something is shown."""
    if claim is None:
        return Cell("–", "quiet")
    text = ClaimText(claim, say)
    if text.drawn() is None:
        return Cell(text.phrase(), "quiet")
    verdict = say("확인", "shown") if claim.shown else "" if claim.judged else text.why_unjudged()
    return Cell(f"{text.change()} {verdict}".rstrip(), TONES.get(claim.verdict, "quiet"), estimate=text.drawn())


def claims_table(claims: Sequence[Claim], say: Say, *, beside: tuple[str, Sequence[Claim]] | None = None) -> Table:
    """One row per claim, with what all of them share in the caption; `beside` is the title and the claims of one more column."""
    name, others = beside or ("", ())
    of_pair = {(claim.a, claim.b): claim for claim in others}
    texts = [ClaimText(claim, say) for claim in claims]
    outcomes = say("지표", "outcome") if len({text.outcome() for text in texts}) > 1 else ""
    parts = say("문항", "items") if any(claim.part for claim in claims) else ""
    lines = tuple(
        row(
            claim.a,
            text.b_name(),
            *([text.outcome()] if outcomes else []),
            *([text.part()] if parts else []),
            *_sides(claim),
            Cell(text.change(), estimate=text.drawn()),
            text.p(),
            Cell(text.verdict(), TONES.get(claim.verdict, "quiet")),
            *([claim_cell(of_pair.get((claim.a, claim.b)), say)] if of_pair else []),
        )
        for claim, text in zip(claims, texts, strict=True)
    )
    labels = ["a", "b", *filter(None, (outcomes, parts))]
    numbers = [say("실행", "runs"), "a %", "b %", say("차이 (점)", "difference (points)"), "p"]
    head = (*labels, *numbers, say("판정", "verdict"), *([name] if of_pair else []))
    numeric = frozenset(range(len(labels), len(labels) + len(numbers)))
    return Table(head, lines, numeric, _caption(texts), _shows(claims))


def _sides(claim: Claim) -> tuple[str, ...]:
    """The numbers of runs, and the values of both sides."""
    values = [f"{100 * value:.1f}" for value in claim.values] if claim.values else ["–", "–"]
    return (f"{claim.seeds[0]} / {claim.seeds[1]}", *values)


def _caption(texts: Sequence[ClaimText]) -> str:
    """The outcomes, documents and corrections of the claims, each once."""
    few = len({text.claim.count for text in texts}) < _MOST_COUNTS
    parts = [
        *(text.outcome() for text in texts),
        *(text.documents() for text in texts if few),
        *(text.correction() for text in texts),
    ]
    return " · ".join(dict.fromkeys(filter(None, parts)))


def _shows(claims: Sequence[Claim]) -> Shows:
    documents = {claim.documents for claim in claims}
    return "all" if documents <= {"all", "rows", "texts"} else "confirm" if documents == {"confirm"} else "both"
