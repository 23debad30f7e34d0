"""The questions that people ask, answered. In: a Subject. Out: a section for each: its leading claim, then all claims."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.claims import Claim, Question, QuestionId
from coref_automl.comparison.judging import means
from coref_automl.comparison.outside_checks import CHECKS, not_compared
from coref_automl.comparison.questions import by_distance, metric_of
from coref_automl.comparison.scores import model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.answer_wording import answer_line, badge
from coref_automl.report.page import Block, Section, Table, Text, VerdictLine, estimate_cells, interval, note, row
from coref_automl.report.sections import Subject
from coref_automl.report.wording import TONES, about, change, claims_table, pivot_table, sentence, short_title, title
from coref_automl.say import Say


def draw(subject: Subject) -> list[Section]:
    """Questions with claims, then runs that no claim could be made of."""
    say = subject.say
    sections = {question.id: _section(subject, question) for question in subject.answer.questions}
    for name in CHECKS:
        if subject.checks.get(name) and name not in sections:
            none = say("짝지을 실행이 없어 판정하지 않습니다.", "No two runs can be paired, so no verdict.")
            sections[name] = _asked(name, none, _runs(subject, name), say)
    return list(sections.values())


def _asked(name: QuestionId, answer: str, blocks: Sequence[Block], say: Say, verdict: VerdictLine | None = None) -> Section:
    """A section that asks a question: its answer comes first, and in one sentence on the first screen."""
    shown = (Text(answer, "strong"), *blocks)
    return Section(name, title(name, say), shown, short_title(name, say), answer, verdict, "questions")


def _section(subject: Subject, question: Question) -> Section:
    say, lead, claims = subject.say, question.lead, question.claims
    blocks = [*_tables(claims, say), Text(_rule(claims, say), "quiet")]
    if question.id == "length":
        blocks += _by_distance(subject)
    if question.id in CHECKS:
        blocks += _runs(subject, question.id)
    words, line = badge(question, subject.answer, say), answer_line(question, subject.answer, say)
    known, tone = question.tested and change(lead, say) != "–", TONES.get(lead.verdict, "quiet") if question.tested else "blank"
    verdict = VerdictLine(words, line, lead.difference if known else None, about(lead, say) if known else "", tone)
    return _asked(question.id, sentence(lead, say) if question.tested else line, blocks, say, verdict)


def _tables(claims: Sequence[Claim], say: Say) -> list[Block]:
    """Claims on all items, ranks as a column beside hits; those on parts of the items one column per part."""
    ranked = [claim for claim in claims if claim.outcome.endswith(":mrr")]
    parts = [claim for claim in claims if claim.part and claim.a != claim.b and "equal tokens" not in claim.against]
    whole = sorted((claim for claim in claims if claim not in ranked and claim not in parts), key=lambda claim: claim.part)
    blocks: list[Block] = [claims_table(whole, say, beside=("MRR", ranked))] if whole else []
    return [*blocks, *([pivot_table(parts, say)] if parts else [])]


def _rule(claims: Sequence[Claim], say: Say) -> str:
    """How these verdicts are reached."""
    tests = dict.fromkeys(f"test: {claim.test}" for claim in claims)
    return " ".join(note(name, say) for name in (*tests, "corrected level"))


def _by_distance(subject: Subject) -> list[Block]:
    """Accuracy of every method by distance to the other mention: means over seeds, all items."""
    say, group, metric = subject.say, subject.group, metric_of(subject.group, "far")
    sides, distances = [arm.ends for arm in subject.arms], by_distance(group, metric)
    columns = {name: means(group, sides, metric, seed=subject.seed, among=rows) for name, rows in distances.items()}
    caption = say(f"거리별 {METRICS[metric].label} (%)", f"{METRICS[metric].label} by distance (%)")
    cells = {bucket: estimate_cells(column) for bucket, column in columns.items() if any(column)}
    lines = tuple(row(arm.name, *(column[n] for column in cells.values())) for n, arm in enumerate(subject.arms))
    head = (say("방법과 길이", "method, length"), *cells)
    return [Table(head, lines, frozenset(range(1, len(head))), caption, "all")] if cells else []


def _runs(subject: Subject, name: QuestionId) -> list[Block]:
    """The runs of an outside check, and which of them take part in no claim."""
    say, lines, found = subject.say, [], subject.checks[name]
    for run in found:
        values = [interval(value) for value in run.result.measures().values()]
        lines.append(row(run.name, model_label(run.model) or "–", str(len(run.seeds)), *values, run.result.split))
    measured = (f"{label} %" for label in found[0].result.measures())
    head = (say("실행", "run"), say("시작 모델", "from"), say("시드", "seeds"), *measured, say("분할", "split"))
    caption = say("실행마다 그 분할의 모든 데이터", "all of each run's split")
    blocks: list[Block] = [Table(head, tuple(lines), frozenset(range(2, len(head) - 1)), caption)]
    lost = dict(zip(("start not evaluated", "other conditions"), not_compared(name, subject.entries, found), strict=True))
    return [*blocks, *(Text(note(why, say, names=", ".join(runs))) for why, runs in lost.items() if runs)]
