"""What was evaluated and trained on. In: a Subject. Out: items by task and source, and the runs' datasets."""

from __future__ import annotations

from collections import Counter

import numpy as np

from coref_automl.report.page import Block, Section, Table, row
from coref_automl.report.subject import Subject


def draw(study: Subject) -> Section:
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
