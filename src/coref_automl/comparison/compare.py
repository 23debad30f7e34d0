"""Which checkpoint is better, and is that more than noise? In: paths of evaluated checkpoints. Out: a ComparisonTable.

Values and verdicts come from the `confirm` half: nothing was chosen on it.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from coref_automl.comparison.groups import flat_paths
from coref_automl.comparison.pairing import choose_group, find_reference, settle_metric
from coref_automl.comparison.scores import Columns, Group
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison, Estimate, Half, Record
from coref_automl.statistics import (
    composite,
    concentration,
    detectable,
    difference_intervals,
    holm,
    mcnemar_exact,
    sign_flip_ps,
    standard_error,
)

ALPHA = 0.05
SAME = "the same on every item"
Finding = Literal["better", "worse", "same", "not shown"]


@dataclass(frozen=True, slots=True)
class ComparisonRow(Record):
    """One checkpoint: its value, and how it stands to the reference (None for the reference itself)."""

    name: str
    path: str
    seq_len: int
    value: Estimate
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class ComparisonTable(Record):
    """Checkpoints against a reference on one metric. Prints as a table, on a terminal and in a notebook."""

    metric: str
    evalset: str
    half: str
    items: int
    documents: int
    reference: str
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()

    def heading(self) -> str:
        label = METRICS[self.metric].label
        return f"{label} on {self.evalset}, {self.half} half: {self.items:,} items of {self.documents:,} documents"

    def cells(self) -> list[tuple[str, ...]]:
        return [_cells(row) for row in self.rows]

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, title in enumerate(_TITLES):
            table.add_column(
                title, justify="left" if number in (0, 5) else "right", overflow="fold", no_wrap=number not in (0, 5)
            )
        for cells in self.cells():
            table.add_row(*cells)
        console = Console(file=io.StringIO(), width=118, color_system=None, markup=False, highlight=False)
        console.print(self.heading())
        console.print(table)
        for note in self.notes:
            console.print(note)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in _TITLES)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>" for cells in self.cells())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p>{html.escape(self.heading())}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


_TITLES = ("checkpoint", "value %", "95% interval", "difference", "p (Holm)", "verdict")


def compare(
    *paths: Any,
    metric: str | None = None,
    reference: str | None = None,
    common: bool = False,
    evalset: str | None = None,
    seed: int = 0,
) -> ComparisonTable:
    """Compare evaluated checkpoints on the items they share.

    Args:
        paths: checkpoints, runs, folders of runs, model names; or lists of these.
        metric: strict Real@1 unless given; `word` where tokenizers differ.
        reference: name or path of the checkpoint to compare with; the base model, or the first, unless given.
        common: compare on the items that all have, where the sets are not the same.
        evalset: the set to compare on, where the checkpoints have several.
        seed: of the resampling.
    """
    group, notes = choose_group(flat_paths(paths), common=common, evalset=evalset)
    require_two(group)
    metric, more = settle_metric(group, metric)
    return compare_group(group, metric, reference=reference, common=common, seed=seed, notes=(*notes, *more))


def require_two(group: Group) -> None:
    if len(group.entries) < 2:
        raise ComparisonError(
            f"Only {group.entries[0].name} has been evaluated here; give a second checkpoint to compare it with."
        )


def compare_group(
    group: Group,
    metric: str,
    *,
    reference: str | None = None,
    common: bool = False,
    half: Half = "confirm",
    seed: int = 0,
    notes: Sequence[str] = (),
) -> ComparisonTable:
    columns = group.columns(metric, half=half)
    told = list(notes)
    if columns.dropped and not common:
        raise ComparisonError(
            f"{columns.dropped:,} items are missing from some of these evaluations (a file cut short?); "
            "run coref-automl evaluate again, or pass --common to compare the rest."
        )
    if not columns.items:
        raise ComparisonError(f"The {half} half has no item that all of these share, so nothing can be compared on {metric}.")
    if common:
        told.append(f"Compared on the {columns.items:,} items that all have ({columns.dropped:,} left out).")
    lengths = sorted({entry.evaluation.seq_len for entry in group.entries})
    if len(lengths) > 1:
        told.append(f"Window lengths differ: {', '.join(map(str, lengths))} tokens.")
    at = find_reference(group.entries, reference)
    values = composite(columns.parts, seed=seed)
    answers = against(columns, [entry.name for entry in group.entries], at, metric, seed=seed)
    rows = tuple(
        ComparisonRow(entry.name, entry.evaluation.path, entry.evaluation.seq_len, value, answer)
        for entry, value, answer in zip(group.entries, values, answers, strict=True)
    )
    name = group.entries[at].name
    return ComparisonTable(metric, group.evalset, half, columns.items, columns.documents, name, rows, tuple(told))


def against(
    columns: Columns, names: Sequence[str], reference: int, metric: str, *, seed: int, family: int | None = None
) -> list[Comparison | None]:
    """Every column against the reference's: one sign-flip test each, Holm over the family. None for the reference.

    `family` is how many comparisons the caller will adjust together, where they are more than these.
    """
    others = [number for number in range(len(names)) if number != reference]
    count = family or len(others)
    parts = columns.differences(reference)
    intervals = difference_intervals(parts, seed=seed)
    errors, held = standard_error(parts), concentration(parts)
    ps = sign_flip_ps(parts, seed=seed, family=count)
    adjusted = dict(zip(others, holm(ps[others]), strict=True))
    out: list[Comparison | None] = [None] * len(names)
    for number in others:
        answer = Comparison(
            name=names[number],
            reference=names[reference],
            metric=metric,
            difference=intervals[number],
            p=float(ps[number]),
            p_adjusted=float(adjusted[number]),
            mcnemar_p=_mcnemar(columns, number, reference) if not METRICS[metric].parts else None,
            detectable=detectable(float(errors[number]), ALPHA / count, held),
            verdict="",
            family=count,
        )
        same = all(not np.asarray(part.values)[:, number].any() for part in parts)
        out[number] = replace(answer, verdict=SAME if same else in_words(answer))
    return out


def adjusted_to(comparison: Comparison, p: float) -> Comparison:
    """The same with the p that a larger family gives it, and what then follows."""
    moved = replace(comparison, p_adjusted=p)
    return moved if comparison.verdict == SAME else replace(moved, verdict=in_words(replace(moved, verdict="")))


def finding(comparison: Comparison) -> Finding:
    if comparison.verdict == SAME:
        return "same"
    if comparison.p_adjusted >= ALPHA:
        return "not shown"
    return "better" if comparison.difference.value > 0 else "worse"


def in_words(comparison: Comparison) -> str:
    found = finding(comparison)
    if found != "not shown":
        return found
    could = f"; this set could show {100 * comparison.detectable:.1f} points" if comparison.detectable else ""
    return f"no difference shown{by_holm(comparison)}{could}"


def outdone_by_holm(comparison: Comparison) -> bool:
    """Not shown although it would be if it were the only comparison: p alone is under the level, or the interval excludes 0."""
    change = comparison.difference
    alone = comparison.p < ALPHA or change.low > 0 or change.high < 0
    return comparison.family > 1 and finding(comparison) == "not shown" and alone


def by_holm(comparison: Comparison) -> str:
    return f" after Holm's adjustment for {comparison.family} comparisons" if outdone_by_holm(comparison) else ""


def _mcnemar(columns: Columns, a: int, b: int) -> float:
    values = np.asarray(columns.parts[0].values)
    return mcnemar_exact(values[:, a] > 0, values[:, b] > 0)


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    value, answer = row.value, row.comparison
    first = (row.name, f"{100 * value.value:.2f}", f"{100 * value.low:.1f} to {100 * value.high:.1f}")
    if answer is None:
        return (*first, "", "", "the reference")
    change = answer.difference
    moved = f"{100 * change.value:+.2f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    return (*first, moved, f"{answer.p_adjusted:.4f}" if answer.p_adjusted >= 0.0001 else "<0.0001", answer.verdict)
