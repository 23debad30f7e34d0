"""A table of comparisons. In: values and how each stands to its reference. Out: a ComparisonTable that prints itself."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping
from dataclasses import dataclass

from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison, Estimate, Record

_TITLES = ("checkpoint", "value %", "95% interval", "difference", "p (Holm)", "verdict")


@dataclass(frozen=True, slots=True)
class ComparisonRow(Record):
    """One checkpoint: its value, and how it stands to its reference; None for a reference, and where there is none for it.

    `scratch`: it began as a new model.
    """

    name: str
    path: str
    seq_len: int
    value: Estimate
    comparison: Comparison | None
    scratch: bool = False


@dataclass(frozen=True, slots=True)
class ComparisonTable(Record):
    """Checkpoints against their references on one metric. Prints as a table, on a terminal and in a notebook.

    `reference` is the one for all, or the first of several. `half` is the one that judges, or "all" where nothing was chosen.
    """

    metric: str
    evalset: str
    half: str
    items: int
    documents: int
    reference: str
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """Everything that a row is compared with, `reference` first."""
        return tuple(dict.fromkeys([self.reference, *(row.comparison.reference for row in self.rows if row.comparison)]))

    @property
    def unjudged(self) -> frozenset[str]:
        """Rows without a reference: what they began from was not evaluated, or there is none."""
        return frozenset(row.name for row in self.rows if row.comparison is None) - set(self.references)

    def heading(self) -> str:
        label = METRICS[self.metric].label
        where = "all documents" if self.half == "all" else f"{self.half} half"
        return f"{label} on {self.evalset}, {where}: {self.items:,} items of {self.documents:,} documents"

    def titles(self) -> tuple[str, ...]:
        """Several references have numbers, and a row has the number of its own: names would take the room."""
        return (*_TITLES[:3], "against", *_TITLES[3:]) if len(self.references) > 1 else _TITLES

    def cells(self) -> list[tuple[str, ...]]:
        numbers = {name: str(number) for number, name in enumerate(self.references, 1)}
        return [_cells(row, numbers) for row in self.rows]

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in self.titles():
            words = title in ("checkpoint", "verdict")
            table.add_column(title, justify="left" if words else "right", overflow="fold", no_wrap=not words)
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
        head = "".join(f"<th>{title}</th>" for title in self.titles())
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>" for cells in self.cells())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p>{html.escape(self.heading())}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _cells(row: ComparisonRow, numbers: Mapping[str, str]) -> tuple[str, ...]:
    value, answer, several = row.value, row.comparison, len(numbers) > 1
    first: tuple[str, ...] = (row.name, f"{100 * value.value:.2f}", f"{100 * value.low:.1f} to {100 * value.high:.1f}")
    if several:
        first = (*first, numbers[answer.reference] if answer else "")
    if answer is None:
        own = f"reference {numbers.get(row.name)}" if several else "the reference"
        lost = "no base: a new model" if row.scratch else "its base was not evaluated"
        return (*first, "", "", own if row.name in numbers else lost)
    change = answer.difference
    moved = f"{100 * change.value:+.2f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    return (*first, moved, f"{answer.p_adjusted:.4f}" if answer.p_adjusted >= 0.0001 else "<0.0001", answer.verdict)
