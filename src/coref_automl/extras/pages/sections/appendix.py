"""The appendix. In: a Subject. Out: methods side by side, aspects of runs, every checkpoint, the data, how to read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from coref_automl.base.records import Comparison
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


def aspects(subject: Subject) -> Section | None:
    """Six measured aspects of every run, each defined in a sentence below the table."""
    runs, say = subject.runs(), subject.say
    if not runs:
        return None
    peaks = {run: subject.choice.peak(entries) for run, entries in runs.items()}
    falls = _falls(subject, {peak: runs[run][-1] for run, peak in peaks.items()})
    label, unknown = METRICS[subject.metric].label, Cell("–", "quiet")
    at_end = say("마지막이 최고", "the last is the peak")
    unrecorded = say("학습 토큰 기록 없음", "tokens not recorded")
    lines = []
    for run, entries in runs.items():
        peak, start, fall = peaks[run], subject.judged.get(entries[0]), falls.get(peaks[run])
        gain = _gain_per_million(subject, peak)
        lines.append(
            row(
                run,
                points(start.difference) if start else unknown,
                f"{label} {100 * subject.choice.candidates[peak].value.value:.1f}%",
                f"{100 * _share_to_peak(subject, entries, peak):.0f}%",
                unrecorded if peak.recorded_tokens is None else tokens(peak.recorded_tokens),
                at_end if peak is entries[-1] else points(fall.difference) if fall else unknown,
                unknown if gain is None else f"{gain:+.2f}",
            )
        )
    head = (
        say("실행", "run"),
        say("시작 (점)", "initial (points)"),
        say("최고", "best"),
        say("수렴 속도", "speed of convergence"),
        say("데이터 (토큰)", "data (tokens)"),
        say("안정 (점)", "stability (points)"),
        say("효율 (백만 토큰당 점)", "efficiency (points per million tokens)"),
    )
    table = Table(head, tuple(lines), frozenset({1, 3, 4, 5, 6}), shows="both")
    which = which_documents(subject.group.verdict_half, say)
    meaning = Points(notes("aspects", say, margin=f"{100 * subject.margin:g}", which=which))
    return Section("aspects", say("여섯 가지 측면", "Six aspects of each run"), (table, meaning))


def _falls(subject: Subject, pairs: dict[Entry, Entry]) -> dict[Entry, Comparison | None]:
    """Peaks against the last checkpoints of their runs on the confirm half, max-T over runs."""
    fallen = {peak: last for peak, last in pairs.items() if peak is not last}
    peaks, lasts = list(fallen), list(fallen.values())
    compared = compare_with(subject.group, subject.metric, peaks, lasts, seed=subject.seed, half="confirm")
    return dict(zip(peaks, compared, strict=True))


def _share_to_peak(subject: Subject, entries: list[Entry], peak: Entry) -> float:
    """The share of a run's tokens at which it first came within the margin of its peak."""
    values = {entry: found.value.value for entry, found in subject.choice.candidates.items()}
    near = values[peak] - subject.margin
    first = next(entry for entry in entries if values[entry] >= near)
    return first.tokens / entries[-1].tokens if entries[-1].tokens else 1.0


def _gain_per_million(subject: Subject, peak: Entry) -> float | None:
    """Points gained over the base per million tokens; None if the base was not evaluated or the tokens not recorded."""
    base, tokens = subject.own_base(peak), peak.recorded_tokens
    base_value = base.evaluation.estimates.get(subject.metric) if base else None
    if base_value is None or tokens is None:
        return None
    value = peak.evaluation.estimates.get(subject.metric)
    return 1e8 * (value.value - base_value.value) / tokens if value and tokens else 0.0


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
