"""Results as lines for the terminal. In: evaluations, and words for a gap. Out: aligned text in Korean or English.

Every table of several checkpoints includes the base model, the copying baselines, and the share of items counted.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from coref_automl.base.progress import duration
from coref_automl.base.records import Estimate, Evaluation
from coref_automl.base.say import Lang, Say, align, cells_of
from coref_automl.evaluation.fill import Filled
from coref_automl.evaluation.metrics import METRICS, breakdown, leading, metric_named
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.evaluation.tasks import TASKS

_ALWAYS = ("real1", "real5", "lambada_top1")
"""The metrics of the evaluation guide, shown also where they were not run."""
_DEFAULT_METRIC = {"distance": "real_far1"}
_NARROWEST = 40
_COMPOSITE = ("종합 점수", "Composite score")
_COUNTED = ("집계한 문항", "Items counted")
_NOT_RUN = ("실행 안 함", "not run")


def format_result(evaluation: Evaluation, best: Evaluation | None, lang: Lang = "ko", *, out: Path | None = None) -> list[str]:
    """The lines that the evaluation guide prints, with intervals: checkpoint, length, items, metrics, time, the best so far (in
    `out`, if evaluations are stored there)."""
    say, estimates = Say(lang), evaluation.estimates
    score = evaluation.estimates.get("score")
    names = [name for name in METRICS if name in estimates or name in _ALWAYS]
    baselines = {baseline_name(name, lang): rows for name, rows in evaluation.baselines.items()}
    titles = (say("지표", "Metric"), say("정확도 [95% 구간]", "Accuracy [95% interval]"), *baselines)
    rows = [(METRICS[name].label, *_cells(name, (estimates, *baselines.values()), say)) for name in names if name != "score"]
    seconds = say(f"{evaluation.seconds:.1f}초", duration(evaluation.seconds))
    lines = [
        say("== 체크포인트 평가 결과 ==", "== Evaluation of a checkpoint =="),
        f"{say('체크포인트', 'Checkpoint')}: {evaluation.checkpoint}",
        f"{say('시퀀스 길이', 'Sequence length')}: {evaluation.seq_len}",
        f"{say('평가 세트', 'Evaluation set')}: {evaluation.evalset}",
        f"{say('Real 문항 수', 'Real items')}: {estimates['real1'].n if 'real1' in estimates else 0:,}",
        f"{say('LAMBADA 문항 수', 'LAMBADA items')}: {estimates['lambada_top1'].n if 'lambada_top1' in estimates else 0:,}",
        "",
        *align([titles, *rows]),
        f"{say(*_COMPOSITE)}: " + (f"{score.value:.4f} [{score.low:.4f}, {score.high:.4f}]" if score else say(*_NOT_RUN)),
        f"{say(*_COUNTED)}: {counted_text(evaluation, say)}",
        f"{say('선행사가 창 밖인 문항', 'Items whose antecedent is outside the window')}: {evaluation.out_of_reach:,}",
        f"{say('평가 시간', 'Time')}: {seconds}",
        "",
    ]
    if best is not None:
        return [*lines, *_compared(evaluation, best, say, out)]
    alone = say(
        "비교할 다른 평가가 디스크에 없습니다 (토크나이저와 문항이 같은 것만 비교합니다).",
        "No other evaluation on disk to compare with (only the same items under the same tokenizer are compared).",
    )
    return [*lines, alone]


def baseline_name(baseline: str, lang: str) -> str:
    """A baseline as tables name it; the glossary calls the model before training the base model."""
    korean = {
        "copy-most-frequent": "최빈 명사 복사", "copy-nearest": "최근접 명사 복사", "chance": "무작위",
        "un-adapted": "베이스 모델",
    }  # fmt: skip
    return korean.get(baseline, baseline) if lang == "ko" else baseline.replace("un-adapted", "base model")


def _cells(name: str, columns: Sequence[dict[str, Estimate]], say: Say) -> list[str]:
    """One metric of a checkpoint with its interval, and of the baselines without."""
    first, *others = (column.get(name) for column in columns)
    bare = [f"{100 * other.value:.2f}%" if other else "-" for other in others]
    return [str(first) if first else say(*_NOT_RUN), *bare]


def counted_text(evaluation: Evaluation, say: Say) -> str:
    """The share of items counted by task, and of the names among Real items."""
    shares = [f"{TASKS[task].label} {share:.1%}" for task, share in evaluation.counted.items() if task in TASKS]
    if "real" in evaluation.counted:
        shares.append(say(f"Real의 고유명사 {evaluation.counted_names:.1%}", f"names of Real {evaluation.counted_names:.1%}"))
    return ", ".join(shares)


def _compared(evaluation: Evaluation, best: Evaluation, say: Say, out: Path | None) -> list[str]:
    rows = [("", say("최고", "best"), say("이번", "this"), say("변화", "change"))]
    for name in ("real1", "real5"):
        top, this = best.estimates.get(name), evaluation.estimates.get(name)
        if top and this:
            change = f"{100 * (this.value - top.value):+.2f}{say('점', ' points')}"
            rows.append((METRICS[name].label, f"{100 * top.value:.2f}%", f"{100 * this.value:.2f}%", change))
    top, this = best.estimates.get("score"), evaluation.estimates.get("score")
    if top and this:
        rows.append((say(*_COMPOSITE), f"{top.value:.4f}", f"{this.value:.4f}", f"{this.value - top.value:+.4f}"))
    else:
        rows.append((say(*_COMPOSITE), say(*_NOT_RUN), say(*_NOT_RUN), "-"))
    lead = say("지금까지 가장 좋은 체크포인트와 비교", "Compared with the best checkpoint so far")
    differ = say("창 길이가 다릅니다", "window lengths differ")
    window = f" ({differ}: {best.seq_len})" if best.seq_len != evaluation.seq_len else ""
    test = say("차이가 우연인지 보려면", "To see whether the difference is chance")
    places = [str(out)] if out else [best.path, evaluation.path]
    command = shlex.join(["coref-automl", "compare", *places, "--reference", best.path])
    return [f"{lead}: {best.checkpoint}{window}", *align(rows), f"{test}: {command}"]


def best_of(evaluations: Sequence[StoredEvaluation], evaluation: Evaluation) -> Evaluation | None:
    """The best other evaluation of the same items by the same scorer: by composite where both have it, else by Real@1. Of the
    same tokenizer too: another one counts other items."""

    def conditions(scored: Evaluation) -> tuple[str | None, ...]:
        return scored.fingerprints.get("items"), scored.fingerprints.get("tokenizer"), scored.scorer

    others = [stored.evaluation for stored in evaluations if conditions(stored.evaluation) == conditions(evaluation)]
    others = [other for other in others if other.fingerprints.get("weights") != evaluation.fingerprints.get("weights")]
    others = [other for other in others if (other.path, other.seq_len) != (evaluation.path, evaluation.seq_len)]
    for name in ("score", *METRICS):
        scored = [other for other in others if name in other.estimates]
        if name in evaluation.estimates and scored:
            return max(scored, key=lambda other: other.estimates[name].value)
    return None


def format_overview(evaluations: Sequence[Evaluation], lang: Lang = "ko") -> list[str]:
    """One line per checkpoint and baseline; columns that no checkpoint has are left out."""
    shown = [name for name in METRICS if any(name in evaluation.estimates for evaluation in evaluations)]
    say = Say(lang)
    head = (say("체크포인트", "Checkpoint"), *(METRICS[name].label for name in shown), say(*_COUNTED))
    rows = [_row(e.checkpoint, e.estimates, shown, say(*_NOT_RUN), f"{e.counted.get('real', 0):.1%}") for e in evaluations]
    baselines: dict[tuple[str, str], dict[str, Estimate]] = {}
    for evaluation in evaluations:
        for name, estimates in evaluation.baselines.items():
            baselines.setdefault((name, evaluation.evalset if name != "un-adapted" else str(estimates)), estimates)
    rows += [_row(baseline_name(name, lang), estimates, shown, "-", "-") for (name, _), estimates in baselines.items()]
    return in_blocks([head, *rows], width())


def format_by_group(evaluations: Sequence[StoredEvaluation], by: str, metric: str | None = None, lang: Lang = "ko") -> list[str]:
    """One metric by source, tag, reach, distance or half: one row per group, one column per checkpoint."""
    metric = metric_named(metric).name if metric else _default_metric(evaluations, by)
    columns = [(stored.evaluation.checkpoint, breakdown(stored.scores(), metric, by)) for stored in evaluations]
    groups = list(dict.fromkeys(group for _, column in columns for group in column))
    if not groups:
        return [f"{METRICS[metric].label}: {Say(lang)(*_NOT_RUN)}"]
    head = (f"{METRICS[metric].label} / {by}", "n", *(name for name, _ in columns))
    rows = []
    for group in groups:
        cells = [str(column[group]) if group in column else "-" for _, column in columns]
        rows.append((group, str(max(column[group].n for _, column in columns if group in column)), *cells))
    return in_blocks([head, *rows], width())


def _default_metric(evaluations: Sequence[StoredEvaluation], by: str) -> str:
    names = {name for stored in evaluations for name in stored.evaluation.estimates}
    return _DEFAULT_METRIC[by] if _DEFAULT_METRIC.get(by) in names else leading(names)


def _row(name: str, estimates: dict[str, Estimate], shown: Sequence[str], absent: str, counted: str) -> tuple[str, ...]:
    return (name, *(f"{100 * estimates[column].value:.2f}" if column in estimates else absent for column in shown), counted)


def format_filled(filled: Sequence[Filled]) -> list[str]:
    """One column per model, one line per rank."""
    columns = [[f"{word} {100 * p:.1f}%" for word, p in zip(model.words, model.probabilities, strict=True)] for model in filled]
    rows = [[f"{rank}.", *cells] for rank, cells in enumerate(zip_longest(*columns, fillvalue=""), start=1)]
    return align([[" ", *(answer.model for answer in filled)], *rows])


def width() -> int | None:
    """The width of the terminal; None if output goes to a file or a pipe."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def in_colour() -> bool:
    """Is color wanted: on a terminal, unless NO_COLOR is set?"""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def in_blocks(rows: Sequence[Sequence[str]], most: int | None) -> list[str]:
    """Aligned rows; if wider than `most`, in blocks of columns that fit, each with the first column."""
    if not rows or most is None:
        return align(rows)
    widths = [max(cells_of(row[column]) for row in rows) for column in range(len(rows[0]))]
    blocks: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        if blocks[-1] and widths[0] + sum(2 + widths[inside] for inside in (*blocks[-1], column)) > most:
            blocks.append([])
        blocks[-1].append(column)
    parts = [align([[row[0], *(row[column] for column in block)] for row in rows]) for block in blocks]
    return [line for number, part in enumerate(parts) for line in (["", *part] if number else part)]
