"""The appendix. In: a Subject. Out: every checkpoint and its difference, the data, how to read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from coref_automl.comparison.judging import checkpoint_claim
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.cells import claims_table
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
    row,
    tokens,
)
from coref_automl.report.subject import Subject, epoch_text
from coref_automl.report.terminal import baseline_name

SHOWN_METRICS = ("real1", "real5", "lambada_top1", "score", "real1_strict", "real5_strict", "lambada_top1_strict", "score_strict")
WORD_METRICS = ("real_word", "lambada_word", "gold_word", "real_far1_strict", "real_far_word")
_MOST_BARS = 40
"""Longer tables have no bars, to keep the page light."""


def checkpoints(study: Subject) -> Section:
    """Every checkpoint against its reference; then with epoch, tokens, all metrics and the composite, baselines below."""
    say = study.say
    names = [*study.metrics(SHOWN_METRICS), *study.metrics(WORD_METRICS)]
    lead = tuple(dict.fromkeys([study.metric, *(name for name in ("real1", "real5", "lambada_top1", "score") if name in names)]))
    half, documents = study.group.judging, study.table.documents if study.table else 0
    claims = [
        replace(checkpoint_claim(study.group, "base", one, entry, half=half, documents=documents), b=one.reference)
        for entry, one in study.against_base().items()
    ]
    blocks: list[Block] = [claims_table(claims, say)] if claims else []
    for title, chosen in (
        (say("주요 수치", "main numbers"), lead),
        (say("그 밖의 수치", "other numbers"), [n for n in names if n not in lead]),
    ):
        if chosen:
            blocks.append(_table(study, title, list(chosen)))
    ceiling = ", ".join(sorted({f"{entry.evaluation.single_entry_share:.1%}" for entry in study.entries}))
    blocks.append(Text(note("values", say, ceiling=ceiling), "quiet"))
    return Section("checkpoints", say("체크포인트와 에폭", "Checkpoints and epochs"), tuple(blocks))


def _table(study: Subject, title: str, metrics: list[str]) -> Table:
    say = study.say
    ordered = sorted(study.entries, key=lambda entry: (entry.trained, entry.run, entry.tokens))
    found = [[entry.evaluation.estimates.get(name) for entry in ordered] for name in metrics]
    many = len(ordered) > _MOST_BARS
    columns = [[Cell(cell.text) for cell in estimate_cells(f)] if many else estimate_cells(f) for f in found]
    lines = []
    for number, entry in enumerate(ordered):
        mark: Tone = "strong" if entry is study.chosen else ""
        first = (Cell(entry.name, mark), epoch_text(entry), tokens(entry.recorded_tokens), str(entry.evaluation.seq_len))
        lines.append(row(*first, *(column[number] for column in columns)))
    baselines = {name: found for entry in ordered for name, found in entry.evaluation.baselines.items()}
    for name, held in baselines.items():
        if any(metric in held for metric in metrics):
            first = Cell(baseline_name(name, say.lang), "quiet"), "–", "–", "–"
            lines.append(row(*first, *(Cell(interval(held.get(metric)), "quiet") for metric in metrics)))
    head = (say("체크포인트", "checkpoint"), say("에폭", "epoch"), say("토큰", "tokens"), say("길이", "length"))
    return Table(
        (*head, *(METRICS[name].label for name in metrics)), tuple(lines), frozenset(range(1, 4 + len(metrics))), title, "all"
    )


def datasets(study: Subject) -> Section:
    """Items by task and source, and what the runs were trained on."""
    say, facts = study.say, study.group.items.facts
    rows = []
    for task in dict.fromkeys(facts["task"].tolist()):
        of_task = facts["task"] == task
        sources = Counter(facts["source"][of_task].tolist())
        halves = Counter(study.group.items.halves[of_task].tolist())
        documents = len(np.unique(facts["cluster"][of_task]))
        listed = ", ".join(f"{name} {count:,}" for name, count in sources.most_common(6))
        rows.append(row(task, f"{of_task.sum():,}", f"{documents:,}", f"{halves['select']:,} / {halves['confirm']:,}", listed))
    head = (
        say("과제", "task"),
        say("문항", "items"),
        say("문서", "documents"),
        say("선택 / 확인", "select / confirm"),
        say("데이터 소스", "sources"),
    )
    blocks: list[Block] = [Table(head, tuple(rows), frozenset({1, 2, 3}))]
    trained = sorted(
        {(p.run, p.objective, p.data, p.base, p.seq_len, p.seed) for e in study.entries if (p := e.evaluation.provenance)}
    )
    if trained:
        titles = (
            say("실행", "run"),
            say("목표", "objective"),
            say("데이터", "dataset"),
            say("시작 모델", "from"),
            say("길이", "length"),
            say("시드", "seed"),
        )
        lines = tuple(
            row(run, kind, data or "–", base, str(length), str(seed)) for run, kind, data, base, length, seed in trained
        )
        blocks.append(Table(titles, lines, frozenset({4, 5})))
    return Section("data", say("데이터", "Data"), tuple(blocks))


def reading(study: Subject) -> Section:
    """Intervals, differences and halves in plain words."""
    say, halves = study.say, "all documents judge" if study.group.judging is None else "one half judges"
    told = Points((*notes("reading", say), *notes(halves, say)))
    return Section("reading", say("읽는 법", "How to read this"), (told,))
