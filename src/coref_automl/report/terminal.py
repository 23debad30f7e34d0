"""Results as lines for the terminal. In: evaluations, and words for a gap. Out: aligned text in Korean or English.

Every table of several checkpoints has the un-adapted model, the copying baselines, and the ceiling of strict.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from coref_automl.evaluation.fill import Filled
from coref_automl.evaluation.metrics import METRICS, PRIMARY, breakdown
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.evaluation.tasks import TASKS
from coref_automl.progress import duration
from coref_automl.records import Estimate, Evaluation
from coref_automl.tabular import align, cells_of

WORDS: dict[str, dict[str, str]] = {
    "ko": {
        "title": "체크포인트 평가 결과",
        "checkpoint": "체크포인트",
        "length": "시퀀스 길이",
        "set": "평가 세트",
        "items": "Real 문항 수",
        "lambada": "LAMBADA 문항 수",
        "metric": "지표",
        "lenient": "관대",
        "strict": "엄격",
        "word": "단어",
        "score": "종합 점수",
        "not run": "실행 안 함",
        "ceiling": "정답이 한 어휘 항목인 비율 (엄격 지표의 상한)",
        "reach": "선행사가 창 밖인 문항",
        "time": "평가 시간",
        "baselines": "기준선 (Real@1 엄격 / Real@1 / Real 단어)",
        "best": "지금까지 가장 좋은 체크포인트와 비교",
        "no best": "비교할 다른 평가가 디스크에 없습니다 (토크나이저와 문항이 같은 것만 비교합니다).",
        "before": "최고",
        "now": "이번",
        "change": "변화",
        "points": "%p",
        "seconds": "초",
        "test": "차이가 우연인지 보려면",
        "unlike length": "창 길이가 다릅니다",
    },
    "en": {
        "title": "Evaluation of a checkpoint",
        "checkpoint": "Checkpoint",
        "length": "Sequence length",
        "set": "Evaluation set",
        "items": "Real items",
        "lambada": "LAMBADA items",
        "metric": "Metric",
        "lenient": "lenient",
        "strict": "strict",
        "word": "word",
        "score": "Composite score",
        "not run": "not run",
        "ceiling": "Answers that are one vocabulary entry (the ceiling of strict)",
        "reach": "Items whose antecedent is outside the window",
        "time": "Time",
        "baselines": "Baselines (Real@1 strict / Real@1 / Real word)",
        "best": "Compared with the best checkpoint so far",
        "no best": "No other evaluation on disk to compare with (only the same items under the same tokenizer are compared).",
        "before": "best",
        "now": "this",
        "change": "change",
        "points": " points",
        "seconds": "s",
        "test": "To see whether the difference is chance",
        "unlike length": "window lengths differ",
    },
}

_ROWS = (
    ("Real@1", "real1", "real1_strict", "real_word"),
    ("Real@5", "real5", "real5_strict", None),
    ("Real-far@1", "real_far1", "real_far1_strict", "real_far_word"),
    ("LAMBADA@1", "lambada_top1", "lambada_top1_strict", "lambada_word"),
    ("Gold", None, None, "gold_word"),
)
_OTHERS = tuple(
    (f"{task.label}@1", *(metric.name for metric in METRICS.values() if metric.task == name))
    for name, task in TASKS.items()
    if name not in ("real", "real-far", "lambada", "gold")
)
"""Tasks with the usual three metrics."""
_ALWAYS = {"Real@1", "Real@5", "LAMBADA@1"}
_COLUMNS = (
    "real1_strict",
    "real1",
    "real5",
    "real_word",
    "real_far1_strict",
    "real_far_word",
    "lambada_top1",
    "lambada_word",
    "gold_word",
    *(name for _, _, *names in _OTHERS for name in names),
    "score",
)
_DEFAULT_METRIC = {"distance": "real_far1_strict"}
_NARROWEST = 40


def format_result(evaluation: Evaluation, best: Evaluation | None, lang: str = "ko") -> list[str]:
    """What the evaluation guide prints, with intervals: checkpoint, length, items, metrics, time, and the best so far."""
    say = WORDS[lang]
    found = evaluation.estimates
    lines = [
        f"== {say['title']} ==",
        f"{say['checkpoint']}: {evaluation.checkpoint}",
        f"{say['length']}: {evaluation.seq_len}",
        f"{say['set']}: {evaluation.evalset}",
        f"{say['items']}: {found['real1'].n if 'real1' in found else 0:,}",
        f"{say['lambada']}: {found['lambada_top1'].n if 'lambada_top1' in found else 0:,}",
        "",
        *align([(say["metric"], say["lenient"], say["strict"], say["word"]), *_metric_rows(evaluation, say["not run"])]),
        f"{say['score']}: {_score(evaluation, say['not run'])}",
        f"{say['ceiling']}: {100 * evaluation.single_entry_share:.1f}%",
        f"{say['reach']}: {evaluation.out_of_reach:,}",
        f"{say['time']}: {duration(evaluation.seconds) if lang == 'en' else f'{evaluation.seconds:.1f}초'}",
        "",
        say["baselines"],
        *align(
            [(f"  {baseline_name(name, lang)}", *_baseline(rows, say["not run"])) for name, rows in evaluation.baselines.items()]
        ),
        "",
    ]
    return [*lines, *(_compared(evaluation, best, say) if best else [say["no best"]])]


def baseline_name(baseline: str, lang: str) -> str:
    """A baseline as tables name it; the glossary's word for what was not trained here is the base model."""
    korean = {
        "copy-most-frequent": "최빈 명사 복사",
        "copy-nearest": "최근접 명사 복사",
        "chance": "무작위",
        "un-adapted": "원래 모델",
    }
    return korean.get(baseline, baseline) if lang == "ko" else baseline.replace("un-adapted", "base model")


def _metric_rows(evaluation: Evaluation, absent: str) -> list[tuple[str, ...]]:
    rows = []
    for label, *names in (*_ROWS, *_OTHERS):
        held = [evaluation.estimates.get(name) if name else None for name in names]
        if any(held) or label in _ALWAYS:
            cells = [str(value) if value else "-" if name is None else absent for name, value in zip(names, held, strict=True)]
            rows.append((str(label), *cells))
    return rows


def _score(evaluation: Evaluation, absent: str) -> str:
    value = evaluation.estimates.get("score")
    return f"{value.value:.4f} [{value.low:.4f}, {value.high:.4f}]" if value else absent


def _baseline(rows: dict[str, Estimate], absent: str) -> tuple[str, ...]:
    return tuple(f"{100 * rows[name].value:.2f}%" if name in rows else absent for name in ("real1_strict", "real1", "real_word"))


def _compared(evaluation: Evaluation, best: Evaluation, say: dict[str, str]) -> list[str]:
    rows = [("", say["before"], say["now"], say["change"])]
    for name in ("real1", "real5"):
        before, now = best.estimates.get(name), evaluation.estimates.get(name)
        if before and now:
            change = f"{100 * (now.value - before.value):+.2f}{say['points']}"
            rows.append((METRICS[name].label, f"{100 * before.value:.2f}%", f"{100 * now.value:.2f}%", change))
    before, now = best.estimates.get("score"), evaluation.estimates.get("score")
    if before and now:
        rows.append((say["score"], f"{before.value:.4f}", f"{now.value:.4f}", f"{now.value - before.value:+.4f}"))
    else:
        rows.append((say["score"], say["not run"], say["not run"], "-"))
    unlike = f" ({say['unlike length']}: {best.seq_len})" if best.seq_len != evaluation.seq_len else ""
    return [
        f"{say['best']}: {best.checkpoint}{unlike}",
        *align(rows),
        f"{say['test']}: {shlex.join(['coref-automl', 'compare', best.path, evaluation.path, '--reference', best.path])}",
    ]


def best_of(stored: Sequence[StoredEvaluation], evaluation: Evaluation) -> Evaluation | None:
    """The best other evaluation of the same items by the same scorer: by composite where both have it, else by Real@1.

    Of the same tokenizer too: under another, strict and lenient ranks are not comparable.
    """
    others = [
        entry.evaluation
        for entry in stored
        if all(entry.evaluation.fingerprints.get(name) == evaluation.fingerprints.get(name) for name in ("items", "tokenizer"))
        and entry.evaluation.scorer == evaluation.scorer
        and (entry.evaluation.path, entry.evaluation.seq_len) != (evaluation.path, evaluation.seq_len)
        and entry.evaluation.fingerprints.get("weights") != evaluation.fingerprints.get("weights")
    ]
    for name in ("score", "real1", "real_far1", "gold_word"):
        held = [other for other in others if name in other.estimates]
        if name in evaluation.estimates and held:
            return max(held, key=lambda other: other.estimates[name].value)
    return None


def format_overview(evaluations: Sequence[Evaluation], lang: str = "ko") -> list[str]:
    """One line per checkpoint and baseline; columns that no checkpoint has are left out."""
    shown = [name for name in _COLUMNS if any(name in evaluation.estimates for evaluation in evaluations)]
    say = WORDS[lang]
    head = (say["checkpoint"], *(METRICS[name].label for name in shown), say["ceiling"].split(" (")[0])
    rows = [_row(e.checkpoint, e.estimates, shown, say["not run"], f"{100 * e.single_entry_share:.1f}%") for e in evaluations]
    seen: dict[tuple[str, str], dict[str, Estimate]] = {}
    for evaluation in evaluations:
        for name, estimates in evaluation.baselines.items():
            seen.setdefault((name, evaluation.evalset if name != "un-adapted" else str(estimates)), estimates)
    rows += [_row(baseline_name(name, lang), estimates, shown, "-", "-") for (name, _), estimates in seen.items()]
    return in_blocks([head, *rows], width())


def format_by_group(stored: Sequence[StoredEvaluation], by: str, metric: str | None = None, lang: str = "ko") -> list[str]:
    """One metric by source, tag, pieces, reach or distance: one row per group, one column per checkpoint."""
    metric = metric or _DEFAULT_METRIC.get(by, PRIMARY)
    split = [(entry.evaluation.checkpoint, breakdown(entry.scores(), metric, by)) for entry in stored]
    groups = list(dict.fromkeys(group for _, parts in split for group in parts))
    if not groups:
        return [f"{METRICS[metric].label}: {WORDS[lang]['not run']}"]
    head = (f"{METRICS[metric].label} / {by}", "n", *(name for name, _ in split))
    rows = []
    for group in groups:
        cells = [str(parts[group]) if group in parts else "-" for _, parts in split]
        rows.append((group, str(max(parts[group].n for _, parts in split if group in parts)), *cells))
    return in_blocks([head, *rows], width())


def _row(name: str, estimates: dict[str, Estimate], shown: Sequence[str], absent: str, ceiling: str) -> tuple[str, ...]:
    return (name, *(f"{100 * estimates[column].value:.2f}" if column in estimates else absent for column in shown), ceiling)


def format_filled(filled: Sequence[Filled]) -> list[str]:
    """One column per model, one line per rank."""
    head = [" ", *(entry.model for entry in filled)]
    depth = max(len(entry.words) for entry in filled)
    rows = [[f"{place + 1}.", *(_cell(entry, place) for entry in filled)] for place in range(depth)]
    return align([head, *rows])


def _cell(entry: Filled, place: int) -> str:
    return f"{entry.words[place]} {100 * entry.probabilities[place]:.1f}%" if place < len(entry.words) else ""


def width() -> int | None:
    """Columns of the terminal that is printed to; None where there is none (a file, a pipe)."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def in_colour() -> bool:
    """Colour on a terminal, unless NO_COLOR asks for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def in_blocks(rows: Sequence[Sequence[str]], most: int | None) -> list[str]:
    """Aligned rows; where they are wider than `most`, in blocks of columns that fit, the first column in each of them."""
    if not rows or most is None:
        return align(rows)
    widths = [max(cells_of(row[at]) for row in rows) for at in range(len(rows[0]))]
    blocks: list[list[int]] = [[]]
    for at in range(1, len(widths)):
        if blocks[-1] and widths[0] + sum(2 + widths[one] for one in (*blocks[-1], at)) > most:
            blocks.append([])
        blocks[-1].append(at)
    parts = [align([[row[0], *(row[at] for at in block)] for row in rows]) for block in blocks]
    return [line for number, part in enumerate(parts) for line in (["", *part] if number else part)]
