"""Every checkpoint with all its metrics. In: a Subject. Out: two tables, baselines below."""

from __future__ import annotations

from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import interval, tokens
from coref_automl.report.page import Block, Cell, Section, Table, Text, Tone, estimate_cells, row
from coref_automl.report.subject import Subject, epoch_text
from coref_automl.report.terminal import baseline_name

SHOWN_METRICS = ("real1", "real5", "lambada_top1", "score", "real1_strict", "real5_strict", "lambada_top1_strict", "score_strict")
WORD_METRICS = ("real_word", "lambada_word", "gold_word", "real_far1_strict", "real_far_word")
_MOST_BARS = 40
"""Longer tables have no bars, to keep the page light."""


def draw(study: Subject) -> Section:
    """Every checkpoint with epoch, tokens, all metrics and the composite; baselines below."""
    say = study.say
    names = [*study.metrics(SHOWN_METRICS), *study.metrics(WORD_METRICS)]
    lead = tuple(dict.fromkeys([study.metric, *(name for name in ("real1", "real5", "lambada_top1", "score") if name in names)]))
    blocks: list[Block] = []
    for title, chosen in (
        (say("주요 수치", "main numbers"), lead),
        (say("그 밖의 수치", "other numbers"), [n for n in names if n not in lead]),
    ):
        if chosen:
            blocks.append(_table(study, title, list(chosen)))
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


def _table(study: Subject, title: str, metrics: list[str]) -> Table:
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
            epoch_text(entry),
            tokens(entry.recorded_tokens),
            str(entry.evaluation.seq_len),
        )
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
