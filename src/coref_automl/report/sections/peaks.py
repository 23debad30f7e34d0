"""The best checkpoint of each run. In: a Subject. Out: peaks found on select, judged on confirm against their bases."""

from __future__ import annotations

from collections.abc import Mapping

from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import tokens
from coref_automl.report.page import Section, Table, Text, estimate_cells, row
from coref_automl.report.subject import Subject, epoch_text, label
from coref_automl.report.verdicts import checkpoint_cell, shows
from coref_automl.statistics.intervals import composite


def draw(study: Subject) -> Section | None:
    """The peak of each run, found on select, judged on confirm against the run's base.

    If every run has only its planned end, nothing was chosen and all documents judge.
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
        row(
            run,
            label(peak),
            epoch_text(peak),
            tokens(peak.recorded_tokens),
            value,
            change,
            checkpoint_cell(answer, say) if answer else "–",
        )
        for (run, peak), value, change, answer in zip(peaks.items(), values, moved, answers, strict=True)
    )
    head = (
        say("실행", "run"), say("최고", "best"), say("에폭", "epoch"), say("토큰", "tokens"), METRICS[study.metric].label,
        say("원래 모델과의 차이", "difference from base"), say("판정", "verdict"),
    )  # fmt: skip
    count = sum(answer is not None for answer in answers)
    family = say(f" max-T 보정, 실행 {count}개.", f", max-T over {count} {'run' if count == 1 else 'runs'}") if count else ""
    ko, en = (
        "최고는 선택용 절반에서 찾고 값과 차이는 확인용 절반의 것입니다.",
        ("The best is found on the select half; values and differences are on confirm"),
    )
    if study.group.judging is None:
        ko, en = (
            "실행마다 마지막 체크포인트이며, 고른 것이 없으므로 모든 문서에서 잰 값입니다.",
            ("The last checkpoint of each run on all documents: nothing was chosen"),
        )
    note = say(
        f"{ko}{family} 체크포인트의 판정이지 방법의 판정이 아닙니다.",
        f"{en}{family}. Verdicts are about checkpoints, not about methods.",
    )
    note += _other_bases(study, peaks)
    blocks = (Table(head, lines, frozenset({2, 3, 4, 5}), shows=shows(study.group.judging)), Text(note, "quiet"))
    return Section("families", say("실행별 최고", "Best of each run"), blocks)


def _other_bases(study: Subject, peaks: Mapping[str, Entry]) -> str:
    """Runs with another base than the study's, with its window length, and runs without a base."""
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
