"""The appendix. In: a Subject. Out: methods side by side, grades of the runs, every checkpoint, the data, how to read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from coref_automl.comparison.arms import base_of
from coref_automl.comparison.differences import compare_with
from coref_automl.comparison.judging import means
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison
from coref_automl.report.page import (
    Block,
    Cell,
    Points,
    Section,
    Table,
    Text,
    Tone,
    estimate_cells,
    interval,
    note,
    notes,
    points,
    row,
    tokens,
)  # fmt: skip
from coref_automl.report.sections import Subject, epoch_text
from coref_automl.report.terminal import baseline_name
from coref_automl.report.wording import claim_cell, claims_table, which_documents
from coref_automl.say import Say

_SHOWN = ("real1_strict", "real1", "real_far1_strict", "lambada_top1_strict", "gold_word")
_TONES: dict[str, Tone] = {"A": "good", "B": "quiet", "C": "bad"}
_UNRECORDED = ("학습 토큰 기록 없음", "tokens not recorded")
Grade = tuple[str, str]
"""A letter, and the number or the words behind it."""
_METRICS = (
    "real1", "real5", "lambada_top1", "score", "real1_strict", "real5_strict", "lambada_top1_strict", "score_strict",
    "real_word", "lambada_word", "gold_word", "real_far1_strict", "real_far_word",
)  # fmt: skip
_MOST_BARS = 40
"""Longer tables have no bars, to keep the page light."""


def methods(subject: Subject) -> Section | None:
    """Every method at its last checkpoint and its base, means over seeds on all items; the best of each, gain per token."""
    arms, say = subject.arms, subject.say
    if not arms:
        return None
    metrics = [name for name in dict.fromkeys((subject.metric, *_SHOWN)) if _comparable(subject, name)]
    began = [base_of(subject.entries, arm) or subject.own_base(arm.ends[0]) for arm in arms]
    bases = list(dict.fromkeys(base for base in began if base is not None))
    sides = [*([base] for base in bases), *(arm.ends for arm in arms)]
    columns = [estimate_cells(means(subject.group, sides, metric, seed=subject.seed)) for metric in metrics]
    values = [[column[number] for column in columns] for number in range(len(sides))]
    asked = subject.answer.question("base")
    gains = {claim.a: claim for claim in asked.claims} if asked else {}
    lines = []
    for base, cells in zip(bases, values, strict=False):
        name = f"{model_label(base.evaluation.checkpoint).split('/')[0]} @{base.evaluation.seq_len:,}"
        lines.append(row(Cell(name, "quiet"), "–", "–", *cells, "–", "–", "–"))
    for arm, cells in zip(arms, values[len(bases) :], strict=True):
        seeds, gain = str(arm.seeds) if arm.seeds > 1 else say("하나", "one seed"), gains.get(arm.name)
        rate = f"{1e8 * gain.difference.value / arm.tokens:+.2f}" if gain and arm.tokens else "–"
        best = subject.choice.peak([entry for run in arm.runs.values() for entry in run if entry in subject.choice.candidates])
        lines.append(row(arm.name, seeds, tokens(arm.tokens), *cells, epoch_text(best), claim_cell(gain, say), rate))
    head = (say("방법과 길이", "method, length"), say("시드", "seeds"), say("토큰", "tokens"))
    after = (
        say("최고 (에폭)", "best (epoch)"), say("베이스 모델 대비 (점)", "over the base (points)"),
        say("백만 토큰당 (점)", "points per million tokens"),
    )  # fmt: skip
    titles = (*head, *(METRICS[name].label for name in metrics), *after)
    table = Table(titles, tuple(lines), frozenset(range(1, len(titles))), shows="all")
    shown = (table, Text(note("methods", say), "quiet"))
    return Section("arms", say("방법과 길이를 나란히", "Methods side by side"), shown, say("나란히", "side by side"))


def _comparable(subject: Subject, metric: str) -> bool:
    if subject.group.tokenizers > 1 and METRICS[metric].rule != "word":
        return False
    return any(metric in entry.evaluation.estimates for entry in subject.entries)


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
    starts = subject.judged
    behind = _against(subject, {peak: subject.choice.best for peak in peaks.values() if peak is not subject.choice.best})
    falls = _against(subject, {peaks[run]: entries[-1] for run, entries in runs.items() if peaks[run] is not entries[-1]})
    lines = []
    for run, entries in runs.items():
        peak = peaks[run]
        grades = (
            _initial(starts.get(entries[0]), say),
            _best(subject, peak, behind.get(peak)),
            _speed(subject, entries, peak),
            _data(peak, list(peaks.values()), say),
            _stability(subject, peak, entries[-1], falls.get(peak)),
            _efficiency(subject, peak, list(peaks.values())),
        )
        lines.append(row(run, *(Cell(f"{letter} · {because}", _TONES.get(letter, "quiet")) for letter, because in grades)))
    caption = note("peaks", say, which=which_documents(subject.group.judging, say))
    table = Table((say("실행", "run"), *respects), tuple(lines), caption=caption, shows="both")
    rules = Points(notes("rating", say, margin=f"{100 * subject.margin:g}"))
    return Section("rating", say("요약 평가", "Summary rating"), (table, rules))


def _against(subject: Subject, pairs: dict[Entry, Entry]) -> dict[Entry, Comparison | None]:
    """Peaks against other checkpoints on confirm, max-T over runs."""
    found = compare_with(subject.group, subject.metric, list(pairs), list(pairs.values()), seed=subject.seed, half="confirm")
    return dict(zip(pairs, found, strict=True))


def _initial(start: Comparison | None, say: Say) -> Grade:
    if start is None:
        return "–", say("기준 없음", "no base")
    return {"better": "A", "worse": "C"}.get(start.verdict, "B"), points(start.difference)


def _best(subject: Subject, peak: Entry, lost: Comparison | None) -> Grade:
    held = subject.choice.candidates[peak]
    letter = "C" if lost is not None and lost.verdict == "worse" else "B"
    close = held.bound <= subject.margin or peak is subject.choice.best
    return "A" if close else letter, f"{METRICS[subject.metric].label} {100 * held.value.value:.1f}%"


def _speed(subject: Subject, entries: list[Entry], peak: Entry) -> Grade:
    values = {entry: one.value.value for entry, one in subject.choice.candidates.items()}
    near = next(entry for entry in entries if values[peak] - values[entry] <= subject.margin)
    share = near.tokens / entries[-1].tokens if entries[-1].tokens else 1.0
    return _under(share, 1 / 3, 2 / 3), f"{100 * share:.0f}%"


def _data(peak: Entry, peaks: list[Entry], say: Say) -> Grade:
    if peak.recorded_tokens is None:
        return "–", say(*_UNRECORDED)
    times = peak.recorded_tokens / (min(one.recorded_tokens for one in peaks if one.recorded_tokens is not None) or 1)
    return _under(times, 1.5, 3), f"×{times:.1f}"


def _stability(subject: Subject, peak: Entry, last: Entry, fall: Comparison | None) -> Grade:
    if peak is last:
        return "A", subject.say("마지막이 최고", "the last is the peak")
    if fall is None:
        return "–", subject.say("알 수 없음", "unknown")
    could = fall.detectable is not None and fall.detectable <= subject.margin
    shown = {"better": "C", "worse": "A"}  # the peak against the last
    return shown.get(fall.verdict, "A" if could else "B"), points(fall.difference)


def _efficiency(subject: Subject, peak: Entry, peaks: list[Entry]) -> Grade:
    say = subject.say
    if peak.recorded_tokens is None:
        return "–", say(*_UNRECORDED)
    own = _gained(subject, peak)
    if own is None:
        return "–", say("기준 없음", "no base")
    top = max(rate for one in peaks if (rate := _gained(subject, one)) is not None)
    letter = "C" if top <= 0 or own <= 0 else _under(1 - own / top, 1 / 3, 2 / 3)
    return letter, say(f"{own:+.2f}점/백만", f"{own:+.2f} points/M")


def _gained(subject: Subject, peak: Entry) -> float | None:
    """Points gained over the base per million tokens; None if the base was not evaluated or the tokens not recorded."""
    base, trained = subject.own_base(peak), peak.recorded_tokens
    before = base.evaluation.estimates.get(subject.metric) if base else None
    if before is None or trained is None:
        return None
    value = peak.evaluation.estimates.get(subject.metric)
    return 1e8 * (value.value - before.value) / trained if value and trained else 0.0


def _under(value: float, a: float, b: float) -> str:
    return "A" if value <= a + 1e-9 else "B" if value <= b + 1e-9 else "C"


def checkpoints(subject: Subject) -> Section:
    """Every checkpoint against its reference; then with epoch, tokens, all metrics and the composite, baselines below."""
    say = subject.say
    names = subject.metrics(_METRICS)
    lead = list(dict.fromkeys([subject.metric, *(name for name in ("real1", "real5", "lambada_top1", "score") if name in names)]))
    claims = [replace(one, b=subject.judged[entry].reference) for entry, one in subject.checkpoint_claims().items()]
    blocks: list[Block] = [claims_table(claims, say)] if claims else []
    rest = [name for name in names if name not in lead]
    blocks.append(_table(subject, say("주요 수치", "main numbers"), lead))
    blocks += [_table(subject, say("그 밖의 수치", "other numbers"), rest)] if rest else []
    ceiling = ", ".join(sorted({f"{entry.evaluation.single_entry_share:.1%}" for entry in subject.entries}))
    blocks.append(Text(note("values", say, ceiling=ceiling), "quiet"))
    return Section("checkpoints", say("체크포인트와 에폭", "Checkpoints and epochs"), tuple(blocks))


def _table(subject: Subject, title: str, metrics: list[str]) -> Table:
    say = subject.say
    ordered = sorted(subject.entries, key=lambda entry: (entry.trained, entry.run, entry.tokens))
    found = [[entry.evaluation.estimates.get(name) for entry in ordered] for name in metrics]
    many = len(ordered) > _MOST_BARS
    columns = [[Cell(cell.text) for cell in estimate_cells(f)] if many else estimate_cells(f) for f in found]
    lines = []
    for number, entry in enumerate(ordered):
        mark: Tone = "strong" if entry is subject.chosen else ""
        first = (Cell(entry.name, mark), epoch_text(entry), tokens(entry.recorded_tokens), str(entry.evaluation.seq_len))
        lines.append(row(*first, *(column[number] for column in columns)))
    baselines = {name: found for entry in ordered for name, found in entry.evaluation.baselines.items()}
    for name, held in baselines.items():
        if any(metric in held for metric in metrics):
            first = Cell(baseline_name(name, say.lang), "quiet"), "–", "–", "–"
            lines.append(row(*first, *(Cell(interval(held.get(metric)), "quiet") for metric in metrics)))
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
    blocks: list[Block] = [Table(head, tuple(rows), frozenset({1, 2, 3}))]
    trained = sorted(
        {(p.run, p.objective, p.data, p.base, p.seq_len, p.seed) for e in subject.entries if (p := e.evaluation.provenance)}
    )
    if trained:
        titles = (
            say("실행", "run"), say("목표", "objective"), say("데이터", "dataset"), say("시작 모델", "from"),
            say("길이", "length"), say("시드", "seed"),
        )  # fmt: skip
        lines = tuple(row(*(str(part) or "–" for part in run)) for run in trained)
        blocks.append(Table(titles, lines, frozenset({4, 5})))
    return Section("data", say("데이터", "Data"), tuple(blocks))


def reading(subject: Subject) -> Section:
    """Intervals, differences and halves in plain words."""
    say, halves = subject.say, "all documents judge" if subject.group.judging is None else "one half judges"
    told = Points((*notes("reading", say), *notes(halves, say)))
    return Section("reading", say("읽는 법", "How to read this"), (told,))
