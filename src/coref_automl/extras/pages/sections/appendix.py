"""The appendix. In: a Subject. Out: methods side by side, grades of the runs, every checkpoint, the data, how to read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from coref_automl.base.records import Comparison
from coref_automl.base.say import Say
from coref_automl.comparison.differences import compare_with
from coref_automl.comparison.judging import means
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages.sections import Subject, epoch_text
from coref_automl.extras.pages.sections.questions import claim_cell, claims_table
from coref_automl.report.page import Cell, Points, Section, Table, Text, estimate_cells, note, notes, points, row, tokens
from coref_automl.report.terminal import baseline_name, counted_text
from coref_automl.report.wording import which_documents

_SHOWN = ("noun1", "real1", "new1", "real_far1", "lambada_top1")
_UNRECORDED = ("학습 토큰 기록 없음", "tokens not recorded")
Grade = tuple[str, str]
"""A letter, and its reason: a number or words."""
_MOST_BARS = 40
"""Longer tables have no bars, to keep the page light."""


def methods(subject: Subject) -> Section | None:
    """Every method at its last checkpoint, and the bases: means over seeds on all items, the best checkpoint, gain per token."""
    arms, say = subject.arms, subject.say
    if not arms:
        return None
    metrics = subject.metrics(list(dict.fromkeys((subject.metric, *_SHOWN))))
    bases = list(dict.fromkeys(base for arm in arms if (base := subject.own_base(arm.ends[0])) is not None))
    sides = [*([base] for base in bases), *(arm.ends for arm in arms)]
    columns = [estimate_cells(means(subject.group, sides, metric, seed=subject.seed)) for metric in metrics]
    values = [[column[number] for column in columns] for number in range(len(sides))]
    question = subject.answer.question("base")
    gains = {claim.a: claim for claim in question.claims} if question else {}
    lines = []
    for base, cells in zip(bases, values, strict=False):
        name = f"{model_label(base.evaluation.checkpoint).split('/')[0]} @{base.evaluation.seq_len:,}"
        lines.append(row(Cell(name, "quiet"), "–", "–", *cells, "–", "–", "–"))
    for arm, cells in zip(arms, values[len(bases) :], strict=True):
        seeds, gain = str(arm.seeds) if arm.seeds > 1 else say("하나", "one seed"), gains.get(arm.name)
        rate = f"{1e8 * gain.difference.value / arm.tokens:+.2f}" if gain and arm.tokens else "–"
        best = subject.choice.peak([entry for run in arm.runs.values() for entry in run if entry in subject.choice.candidates])
        lines.append(row(arm.name, seeds, tokens(arm.tokens), *cells, epoch_text(best), claim_cell(gain, say), rate))
    first = (say("방법과 길이", "method, length"), say("시드", "seeds"), say("토큰", "tokens"))
    last = (
        say("최고 (에폭)", "best (epoch)"), say("베이스 모델 대비 (점)", "over the base (points)"),
        say("백만 토큰당 (점)", "points per million tokens"),
    )  # fmt: skip
    head = (*first, *(METRICS[name].label for name in metrics), *last)
    table = Table(head, tuple(lines), frozenset(range(1, len(head))), shows="all")
    blocks = (table, Text(note("methods", say), "quiet"))
    return Section("arms", say("방법과 길이를 나란히", "Methods side by side"), blocks, say("나란히", "side by side"))


def rating(subject: Subject) -> Section | None:
    """Grade every run in six respects: A, B or C, with the rule of each."""
    runs, say = subject.runs(), subject.say
    if not runs:
        return None
    respects = (
        say("시작", "initial"), say("최고", "best"), say("속도", "speed"), say("데이터", "data"), say("안정", "stability"),
        say("효율", "efficiency"),
    )  # fmt: skip
    peaks = {run: subject.choice.peak(entries) for run, entries in runs.items()}
    behind = _against(subject, {peak: subject.choice.best for peak in peaks.values() if peak is not subject.choice.best})
    falls = _against(subject, {peaks[run]: entries[-1] for run, entries in runs.items() if peaks[run] is not entries[-1]})
    lines = []
    for run, entries in runs.items():
        peak = peaks[run]
        grades = (
            _initial(subject.judged.get(entries[0]), say),
            _best(subject, peak, behind.get(peak)),
            _speed(subject, entries, peak),
            _data(peak, list(peaks.values()), say),
            _stability(subject, peak, entries[-1], falls.get(peak)),
            _efficiency(subject, peak, list(peaks.values())),
        )
        lines.append(row(run, *(_grade_cell(letter, reason) for letter, reason in grades)))
    caption = note("peaks", say, which=which_documents(subject.group.verdict_half, say))
    table = Table((say("실행", "run"), *respects), tuple(lines), caption=caption, shows="both")
    rules = Points(notes("rating", say, margin=f"{100 * subject.margin:g}"))
    return Section("rating", say("요약 평가", "Summary rating"), (table, rules))


def _against(subject: Subject, pairs: dict[Entry, Entry]) -> dict[Entry, Comparison | None]:
    """Peaks against other checkpoints on the confirm half, max-T over runs."""
    peaks, others = list(pairs), list(pairs.values())
    comparisons = compare_with(subject.group, subject.metric, peaks, others, seed=subject.seed, half="confirm")
    return dict(zip(peaks, comparisons, strict=True))


def _initial(start: Comparison | None, say: Say) -> Grade:
    if start is None:
        return "–", say("기준 없음", "no base")
    return {"better": "A", "worse": "C"}.get(start.verdict, "B"), points(start.difference)


def _best(subject: Subject, peak: Entry, behind: Comparison | None) -> Grade:
    candidate = subject.choice.candidates[peak]
    letter = "C" if behind is not None and behind.verdict == "worse" else "B"
    close = candidate.bound <= subject.margin or peak is subject.choice.best
    return "A" if close else letter, f"{METRICS[subject.metric].label} {100 * candidate.value.value:.1f}%"


def _speed(subject: Subject, entries: list[Entry], peak: Entry) -> Grade:
    values = {entry: candidate.value.value for entry, candidate in subject.choice.candidates.items()}
    first_close = next(entry for entry in entries if values[peak] - values[entry] <= subject.margin)
    share = first_close.tokens / entries[-1].tokens if entries[-1].tokens else 1.0
    return _grade(share, 1 / 3, 2 / 3), f"{100 * share:.0f}%"


def _data(peak: Entry, peaks: list[Entry], say: Say) -> Grade:
    if peak.recorded_tokens is None:
        return "–", say(*_UNRECORDED)
    times = peak.recorded_tokens / (min(other.recorded_tokens for other in peaks if other.recorded_tokens is not None) or 1)
    return _grade(times, 1.5, 3), f"×{times:.1f}"


def _stability(subject: Subject, peak: Entry, last: Entry, fall: Comparison | None) -> Grade:
    if peak is last:
        return "A", subject.say("마지막이 최고", "the last is the peak")
    if fall is None:
        return "–", subject.say("알 수 없음", "unknown")
    detectable = fall.detectable is not None and fall.detectable <= subject.margin
    letters = {"better": "C", "worse": "A"}  # the peak against the last
    return letters.get(fall.verdict, "A" if detectable else "B"), points(fall.difference)


def _efficiency(subject: Subject, peak: Entry, peaks: list[Entry]) -> Grade:
    say = subject.say
    if peak.recorded_tokens is None:
        return "–", say(*_UNRECORDED)
    gain = _gain_per_million(subject, peak)
    if gain is None:
        return "–", say("기준 없음", "no base")
    top = max(rate for other in peaks if (rate := _gain_per_million(subject, other)) is not None)
    letter = "C" if top <= 0 or gain <= 0 else _grade(1 - gain / top, 1 / 3, 2 / 3)
    return letter, say(f"{gain:+.2f}점/백만", f"{gain:+.2f} points/M")


def _gain_per_million(subject: Subject, peak: Entry) -> float | None:
    """Points gained over the base per million tokens; None if the base was not evaluated or the tokens not recorded."""
    base, tokens = subject.own_base(peak), peak.recorded_tokens
    base_value = base.evaluation.estimates.get(subject.metric) if base else None
    if base_value is None or tokens is None:
        return None
    value = peak.evaluation.estimates.get(subject.metric)
    return 1e8 * (value.value - base_value.value) / tokens if value and tokens else 0.0


def _grade_cell(letter: str, reason: str) -> Cell:
    return Cell(f"{letter} · {reason}", "good" if letter == "A" else "bad" if letter == "C" else "quiet")


def _grade(value: float, a: float, b: float) -> str:
    """A up to `a`, B up to `b`, else C."""
    return "A" if value <= a + 1e-9 else "B" if value <= b + 1e-9 else "C"


def checkpoints(subject: Subject) -> Section:
    """Every checkpoint against its reference; then all metrics with epoch and tokens, baselines below."""
    say = subject.say
    claims = [replace(claim, b=subject.judged[entry].reference) for entry, claim in subject.checkpoint_claims().items()]
    tables = [claims_table(claims, say)] if claims else []
    tables.append(_table(subject, say("수치", "numbers"), subject.metrics(list(METRICS))))
    counted = ", ".join(dict.fromkeys(counted_text(entry.evaluation, say) for entry in subject.entries))
    values = Text(note("values", say, counted=counted), "quiet")
    return Section("checkpoints", say("체크포인트와 에폭", "Checkpoints and epochs"), (*tables, values))


def _table(subject: Subject, title: str, metrics: list[str]) -> Table:
    say = subject.say
    ordered = sorted(subject.entries, key=lambda entry: (entry.trained, entry.run, entry.tokens))
    columns = [estimate_cells([entry.evaluation.estimates.get(name) for entry in ordered]) for name in metrics]
    if len(ordered) > _MOST_BARS:
        columns = [[Cell(cell.text) for cell in column] for column in columns]
    lines = []
    for number, entry in enumerate(ordered):
        label = Cell(entry.name, "strong" if entry is subject.chosen else "")
        first = (label, epoch_text(entry), tokens(entry.recorded_tokens), str(entry.evaluation.seq_len))
        lines.append(row(*first, *(column[number] for column in columns)))
    baselines = {name: estimates for entry in ordered for name, estimates in entry.evaluation.baselines.items()}
    for name, estimates in baselines.items():
        if any(metric in estimates for metric in metrics):
            first = Cell(baseline_name(name, say.lang), "quiet"), "–", "–", "–"
            cells = estimate_cells([estimates.get(metric) for metric in metrics])
            lines.append(row(*first, *(replace(cell, tone="quiet", bar=None) for cell in cells)))
    first_head = (say("체크포인트", "checkpoint"), say("에폭", "epoch"), say("토큰", "tokens"), say("길이", "length"))
    head = (*first_head, *(METRICS[name].label for name in metrics))
    return Table(head, tuple(lines), frozenset(range(1, len(head))), title, "all")


def datasets(subject: Subject) -> Section:
    """Items by task and source, and what the runs were trained on."""
    say, facts = subject.say, subject.group.items.facts
    rows = []
    for task in dict.fromkeys(facts["task"].tolist()):
        of_task = facts["task"] == task
        sources = Counter(facts["source"][of_task].tolist())
        halves = Counter(subject.group.items.halves[of_task].tolist())
        documents = len(np.unique(facts["cluster"][of_task]))
        listed = ", ".join(f"{name} {count:,}" for name, count in sources.most_common(6))
        rows.append(row(task, f"{of_task.sum():,}", f"{documents:,}", f"{halves['select']:,} / {halves['confirm']:,}", listed))
    head = (
        say("과제", "task"), say("문항", "items"), say("문서", "documents"), say("선택 / 확인", "select / confirm"),
        say("데이터 소스", "sources"),
    )  # fmt: skip
    tables = [Table(head, tuple(rows), frozenset({1, 2, 3}))]
    trained = sorted(
        {(p.run, p.objective, p.data, p.base, p.seq_len, p.seed) for e in subject.entries if (p := e.evaluation.provenance)}
    )
    if trained:
        titles = (
            say("실행", "run"), say("목표", "objective"), say("데이터", "dataset"), say("시작 모델", "from"),
            say("길이", "length"), say("시드", "seed"),
        )  # fmt: skip
        lines = tuple(row(*(str(part) or "–" for part in run)) for run in trained)
        tables.append(Table(titles, lines, frozenset({4, 5})))
    return Section("data", say("데이터", "Data"), tuple(tables))


def reading(subject: Subject) -> Section:
    """Intervals, differences and halves in plain words."""
    say, halves = subject.say, "all documents judge" if subject.group.verdict_half is None else "one half judges"
    return Section("reading", say("읽는 법", "How to read this"), (Points((*notes("reading", say), *notes(halves, say))),))
