"""The questions that people ask, answered. In: a Subject. Out: a section for each: its leading claim, then all claims."""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.comparison.claims import Claim, Question, QuestionId
from coref_automl.comparison.judging import ends, means
from coref_automl.comparison.outside_checks import CHECKS, not_compared
from coref_automl.comparison.questions import TASKS, by_distance
from coref_automl.comparison.scores import model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.answer_wording import answer_line, badge
from coref_automl.report.page import Block, Section, Table, Text, VerdictLine, estimate_cells, interval, note, row
from coref_automl.report.subject import Subject
from coref_automl.report.wording import TONES, about, change, claims_table, pivot_table, sentence, short_title, title
from coref_automl.say import Say


def draw(study: Subject) -> list[Section]:
    """Questions with claims, then runs that no claim could be made of."""
    asked = {one.id: _section(study, one) for one in study.answer.questions}
    say, none = study.say, study.say("짝지을 실행이 없어 판정하지 않습니다.", "No two runs can be paired, so no verdict.")
    for name in CHECKS:
        if study.checks.get(name) and name not in asked:
            asked[name] = _asked(name, none, _runs(study, name), say)
    return list(asked.values())


def _asked(name: QuestionId, answer: str, blocks: Sequence[Block], say: Say, verdict: VerdictLine | None = None) -> Section:
    """A section that asks a question: its answer comes first, and in one sentence on the first screen."""
    shown = (Text(answer, "strong"), *blocks)
    return Section(name, title(name, say), shown, short_title(name, say), answer, verdict, "questions")


def _section(study: Subject, asked: Question) -> Section:
    say, lead = study.say, asked.lead
    blocks = [*_tables(asked.claims, say), Text(_rule(asked.claims, say), "quiet")]
    if asked.id == "length":
        blocks += _by_distance(study)
    if asked.id in CHECKS:
        blocks += _runs(study, asked.id)
    text, tone = answer_line(asked, study.answer, say), TONES.get(lead.verdict, "quiet") if asked.tested else "blank"
    words, known = badge(asked, study.answer, say), asked.tested and change(lead, say) != "–"
    verdict = VerdictLine(words, text, lead.difference if known else None, about(lead, say) if known else "", tone)
    told = sentence(lead, say) if asked.tested else text
    return _asked(asked.id, told, blocks, say, verdict)


def _tables(claims: Sequence[Claim], say: Say) -> list[Block]:
    """Claims on all items, ranks as a column beside hits; those on parts of the items one column per part."""
    ranked = [one for one in claims if one.outcome.endswith(":mrr")]
    parts = [one for one in claims if one.part and one.a != one.b and "equal tokens" not in one.against]
    left = [one for one in claims if one not in ranked and one not in parts]
    ordered = sorted(left, key=lambda one: one.part)
    blocks: list[Block] = [claims_table(ordered, say, beside=("MRR", ranked))] if left else []
    return [*blocks, *([pivot_table(parts, say)] if parts else [])]


def _rule(claims: Sequence[Claim], say: Say) -> str:
    """How these verdicts are reached."""
    tests = dict.fromkeys(f"test: {one.test}" for one in claims)
    return " ".join(note(name, say) for name in (*tests, "corrected level"))


def _by_distance(study: Subject) -> list[Block]:
    """Accuracy of every method by distance to the other mention: means over seeds, all items."""
    say, metric = study.say, TASKS["far"][study.group.tokenizers > 1]
    sides = [ends(arm) for arm in study.arms]
    columns = {name: means(study, sides, metric, among=rows) for name, rows in by_distance(study.group, metric).items()}
    caption = say(f"거리별 {METRICS[metric].label} (%)", f"{METRICS[metric].label} by distance (%)")
    cells = {bucket: estimate_cells(column) for bucket, column in columns.items() if any(column)}
    lines = tuple(row(arm.name, *(column[n] for column in cells.values())) for n, arm in enumerate(study.arms))
    head = (say("방법과 길이", "method, length"), *cells)
    return [Table(head, lines, frozenset(range(1, len(head))), caption, "all")] if cells else []


def _runs(study: Subject, name: QuestionId) -> list[Block]:
    """The runs of an outside check, and which of them take part in no claim."""
    say, lines = study.say, []
    for run in study.checks[name]:
        found = [interval(value) for value in run.result.measures().values()]
        lines.append(row(run.name, model_label(run.model) or "–", str(len(run.seeds)), *found, run.result.split))
    measured = (f"{label} %" for label in study.checks[name][0].result.measures())
    head = (say("실행", "run"), say("시작 모델", "from"), say("시드", "seeds"), *measured, say("분할", "split"))
    caption = say("실행마다 그 분할의 모든 데이터", "all of each run's split")
    blocks: list[Block] = [Table(head, tuple(lines), frozenset(range(2, len(head) - 1)), caption)]
    lost = dict(zip(("start not evaluated", "other conditions"), not_compared(study, name), strict=True))
    return [*blocks, *(Text(note(why, say, names=", ".join(runs))) for why, runs in lost.items() if runs)]
