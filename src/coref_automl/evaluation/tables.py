"""Tables over several evaluations. In: stored evaluations. Out: rows of text: one metric a column, or one group a row.

The un-adapted model and the copying baselines stand in every table, and so does the share of answers that strict can reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from coref_automl.evaluation.block import WORDS, columns
from coref_automl.evaluation.metrics import METRICS, PRIMARY, breakdown
from coref_automl.evaluation.stored import StoredEvaluation
from coref_automl.records import Estimate, Evaluation

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
    "score",
)
_DEFAULT_METRIC = {"distance": "real_far1_strict"}


def overview(evaluations: Sequence[Evaluation], lang: str = "ko") -> list[str]:
    """One line a checkpoint and a baseline; columns that no checkpoint has are left out."""
    shown = [name for name in _COLUMNS if any(name in evaluation.estimates for evaluation in evaluations)]
    say = WORDS[lang]
    head = (say["checkpoint"], *(METRICS[name].label for name in shown), say["ceiling"].split(" (")[0])
    rows = [_row(e.checkpoint, e.estimates, shown, say["not run"], f"{100 * e.single_entry_share:.1f}%") for e in evaluations]
    seen: dict[tuple[str, str], dict[str, Estimate]] = {}
    for evaluation in evaluations:
        for name, estimates in evaluation.baselines.items():
            seen.setdefault((name, evaluation.evalset if name != "un-adapted" else str(estimates)), estimates)
    rows += [_row(name, estimates, shown, "-", "-") for (name, _), estimates in seen.items()]
    return columns([head, *rows])


def by_group(stored: Sequence[StoredEvaluation], by: str, metric: str | None = None, lang: str = "ko") -> list[str]:
    """One metric by source, tag, pieces, reach or distance: a group a row, a checkpoint a column."""
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
    return columns([head, *rows])


def _row(name: str, estimates: dict[str, Estimate], shown: Sequence[str], absent: str, ceiling: str) -> tuple[str, ...]:
    return (name, *(f"{100 * estimates[column].value:.2f}" if column in estimates else absent for column in shown), ceiling)
