"""Sections about checkpoints. In: a Study. Out: data sources, the checkpoint map, the best of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Estimate
from coref_automl.report.language import tokens
from coref_automl.report.page import Block, Cell, Section, Table, Text, Tone, estimate_cells, row
from coref_automl.report.sections.pairs import verdict_cell
from coref_automl.report.subject import Subject
from coref_automl.statistics.intervals import composite

SHOWN_METRICS = ("real1", "real5", "lambada_top1", "score", "real1_strict", "real5_strict", "lambada_top1_strict", "score_strict")
WORD_METRICS = ("real_word", "lambada_word", "gold_word", "real_far1_strict", "real_far_word")
_MOST_BARS = 40
"""Rows above which a table has numbers without bars: a page of a hundred checkpoints stays light."""


def data_sources(study: Subject) -> Section:
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
        say("출처", "sources"),
    )
    blocks: list[Block] = [Table(head, tuple(rows), frozenset({1, 2, 3}))]
    trained = sorted(
        {(p.run, p.objective, p.data, p.base, p.seq_len, p.seed) for e in study.entries if (p := e.evaluation.provenance)}
    )
    if trained:
        titles = (
            say("학습", "run"),
            say("목표", "objective"),
            say("데이터", "dataset"),
            say("시작 모델", "from"),
            say("길이", "length"),
            "seed",
        )
        lines = tuple(
            row(run, kind, data or "–", base, str(length), str(seed)) for run, kind, data, base, length, seed in trained
        )
        blocks.append(Table(titles, lines, frozenset({4, 5})))
    return Section("data", say("데이터", "Data"), tuple(blocks))


def checkpoint_map(study: Subject) -> Section:
    """Every checkpoint with its epoch, its tokens, all metrics and the composite; baselines below."""
    say = study.say
    names = [*study.metrics(SHOWN_METRICS), *study.metrics(WORD_METRICS)]
    lead = tuple(dict.fromkeys([study.metric, *(name for name in ("real1", "real5", "lambada_top1", "score") if name in names)]))
    blocks: list[Block] = []
    for title, chosen in (
        (say("주요 수치", "main numbers"), lead),
        (say("그 밖의 수치", "other numbers"), [n for n in names if n not in lead]),
    ):
        if chosen:
            blocks.append(_map_table(study, title, list(chosen)))
    ceiling = ", ".join(sorted({f"{entry.evaluation.single_entry_share:.1%}" for entry in study.entries}))
    blocks.append(
        Text(
            say(
                f"값은 모든 문항에 대한 것(%)이고 괄호는 95% 구간입니다. 답이 어휘 항목 하나인 비율(엄격 수치의 상한): "
                f"{ceiling}.",
                f"Values are on all items (%), brackets are 95% intervals. The ceiling of strict (answers of one entry): "
                f"{ceiling}.",
            ),
            "quiet",
        )
    )
    return Section("checkpoints", say("체크포인트와 에폭", "Checkpoints and epochs"), tuple(blocks))


def best_of_families(study: Subject) -> Section | None:
    """The peak of each run, found on select, judged on confirm against the model that the run began from.

    Where every run has its planned end alone, that is its peak without a choice, and all documents judge.
    """
    runs, say = study.runs(), study.say
    if not runs:
        return None
    peaks = {run: study.peak(entries) for run, entries in runs.items()}
    answers = study.over_own_base(list(peaks.values()))
    columns = study.group.columns(study.metric, half=study.group.judging, entries=list(peaks.values()))
    held = composite(columns.parts, seed=study.seed) if columns.items else [None] * len(peaks)
    values = estimate_cells(held)
    moved = estimate_cells([answer.difference if answer else None for answer in answers], difference=True)
    lines = tuple(
        row(run, _short(peak), _epoch(peak), tokens(peak.tokens), value, change, verdict_cell(answer, study) if answer else "–")
        for (run, peak), value, change, answer in zip(peaks.items(), values, moved, answers, strict=True)
    )
    head = (
        say("학습", "run"), say("최고", "best"), say("에폭", "epoch"), say("토큰", "tokens"), METRICS[study.metric].label,
        say("원래 모델과의 차이", "difference from base"), say("판정", "verdict"),
    )  # fmt: skip
    count = sum(answer is not None for answer in answers)
    family = say(f" Holm, 학습 {count}개.", f", Holm over {count} {'run' if count == 1 else 'runs'}") if count else ""
    ko, en = (
        "최고는 선택 쪽 절반에서 찾고 값과 차이는 확인 쪽 절반의 것입니다.",
        ("The best is found on the select half; values and differences are on confirm"),
    )
    if study.group.judging is None:
        ko, en = (
            "학습마다 마지막 체크포인트이며, 고른 것이 없으므로 모든 문서에서 잰 값입니다.",
            ("The last checkpoint of each run on all documents: nothing was chosen"),
        )
    note = say(
        f"{ko}{family} 체크포인트의 판정이지 방법의 판정이 아닙니다.",
        f"{en}{family}. Verdicts are about checkpoints, not about methods.",
    )
    note += _other_bases(study, peaks)
    blocks = (Table(head, lines, frozenset({2, 3, 4, 5})), Text(note, "quiet"))
    return Section("families", say("학습별 최고", "Best of each run"), blocks)


def _other_bases(study: Subject, peaks: Mapping[str, Entry]) -> str:
    """Which runs are set beside another model than the study's base, in windows of which length, and which beside none."""
    say, out = study.say, ""
    others: dict[str, list[str]] = {}
    alone = {}
    for run, peak in peaks.items():
        base = study.own_base(peak)
        if base is None:
            alone[run] = peak
        elif base is not study.base:
            windows = say(f"{base.evaluation.seq_len}토큰 창", f"windows of {base.evaluation.seq_len} tokens")
            others.setdefault(f"{base.evaluation.checkpoint} ({windows})", []).append(run)
    for name, runs in others.items():
        listed = ", ".join(runs)
        out += say(f" {listed}의 원래 모델은 {name}입니다.", f" The base of {listed} is {name}.")
    if alone and (others or study.base is not None):
        out += study.explain_missing_bases(alone, "차이를 적지 않았습니다.", "no difference is given.")
    return out


def _map_table(study: Subject, title: str, metrics: list[str]) -> Table:
    say = study.say
    ordered = sorted(study.entries, key=lambda entry: (entry.trained, entry.run, entry.tokens))
    found = [[entry.evaluation.estimates.get(name) for entry in ordered] for name in metrics]
    many = len(ordered) > _MOST_BARS
    columns = [[Cell(cell.text) for cell in estimate_cells(f)] if many else estimate_cells(f) for f in found]
    lines = []
    for number, entry in enumerate(ordered):
        mark: Tone = "strong" if entry is study.chosen else ""
        first = (
            Cell(entry.name, mark),
            _epoch(entry),
            tokens(entry.tokens) if entry.trained else "–",
            str(entry.evaluation.seq_len),
        )
        lines.append(row(*first, *(column[number] for column in columns)))
    baselines = {name: found for entry in ordered for name, found in entry.evaluation.baselines.items()}
    for name, held in baselines.items():
        if any(metric in held for metric in metrics):
            lines.append(row(Cell(name, "quiet"), "–", "–", "–", *estimate_cells_plain([held.get(metric) for metric in metrics])))
    head = (say("체크포인트", "checkpoint"), say("에폭", "epoch"), say("토큰", "tokens"), say("길이", "length"))
    return Table((*head, *(METRICS[name].label for name in metrics)), tuple(lines), frozenset(range(1, 4 + len(metrics))), title)


def estimate_cells_plain(estimates: Sequence[Estimate | None]) -> list[Cell]:
    return [Cell(f"{100 * e.value:.1f} [{100 * e.low:.1f}, {100 * e.high:.1f}]" if e else "–", "quiet") for e in estimates]


def _epoch(entry: Entry) -> str:
    return f"{entry.evaluation.provenance.epoch:.2f}" if entry.evaluation.provenance else "–"


def _short(entry: Entry) -> str:
    return entry.evaluation.checkpoint.rsplit("/", 1)[-1]
