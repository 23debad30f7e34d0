"""Which checkpoint is better, and is that more than noise? In: a group of evaluations. Out: a ComparisonTable.

Values and verdicts come from the `confirm` half: nothing was chosen on it. Where nothing was chosen at all, from all documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coref_automl.comparison.references import find_reference, references
from coref_automl.comparison.scores import Columns, Entry, Group
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison, Estimate, Record
from coref_automl.statistics.closed_forms import holm, mcnemar_exact
from coref_automl.statistics.intervals import (
    composite,
    concentration,
    detectable,
    difference_intervals,
    sign_flip_ps,
    standard_error,
)

ALPHA = 0.05
SAME = "the same on every item"
Finding = Literal["better", "worse", "same", "not shown"]


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
    """Checkpoints against their references on one metric.

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


def require_two(group: Group) -> None:
    if len(group.entries) < 2:
        raise ComparisonError(
            f"Only {group.entries[0].name} has been evaluated here; give a second checkpoint to compare it with."
        )


def compare_group(
    group: Group,
    metric: str,
    *,
    reference: str | Entry | None = None,
    own: Sequence[Entry | None] | None = None,
    common: bool = False,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> ComparisonTable:
    """All against the reference, or each against the model it began from; `own` gives these where the caller knows them."""
    half = group.judging
    columns = group.columns(metric, half=half)
    told = list(notes)
    if columns.dropped and not common:
        raise ComparisonError(
            f"{columns.dropped:,} items are missing from some of these evaluations (a file cut short?); "
            "run coref-automl evaluate again, or pass --common to compare the rest."
        )
    if not columns.items:
        where = f"The {half} half has" if half else "There is"
        raise ComparisonError(f"{where} no item that all of these share, so nothing can be compared on {metric}.")
    if common:
        told.append(f"Compared on the {columns.items:,} items that all have ({columns.dropped:,} left out).")
    lengths = sorted({entry.evaluation.seq_len for entry in group.entries})
    if len(lengths) > 1:
        told.append(f"Window lengths differ: {', '.join(map(str, lengths))} tokens.")
    first = reference if isinstance(reference, Entry) else group.entries[find_reference(group.entries, reference)]
    if own is None:
        own = references(group.entries, first) if reference is None else [first] * len(group.entries)
    number = {id(entry): at for at, entry in enumerate(group.entries)}
    beside = [
        number[id(one)] if one is not None and one is not entry else None for entry, one in zip(group.entries, own, strict=True)
    ]
    used = [group.entries[at] for at in dict.fromkeys(at for at in beside if at is not None)]
    values = composite(columns.parts, seed=seed)
    answers = against_each(columns, [entry.name for entry in group.entries], beside, metric, seed=seed)
    rows = tuple(
        ComparisonRow(entry.name, entry.evaluation.path, entry.evaluation.seq_len, value, answer, entry.scratch)
        for entry, value, answer in zip(group.entries, values, answers, strict=True)
    )
    name = (first if first in used or not used else used[0]).name
    table = ComparisonTable(metric, group.evalset, half or "all", columns.items, columns.documents, name, rows)
    return replace(table, notes=(*told, *_own_notes(table, group)))


def _own_notes(table: ComparisonTable, group: Group) -> list[str]:
    """What the verdicts are against where that is not one model for all."""
    out = []
    if len(table.references) > 1:
        listed = ", ".join(f"{number} {name}" for number, name in enumerate(table.references, 1))
        out.append(f"Each is compared with the model it began from ({listed}); --reference NAME compares all with one.")
    unjudged = [entry for entry, row in zip(group.entries, table.rows, strict=True) if row.name in table.unjudged]
    if lost := dict.fromkeys(entry.run for entry in unjudged if not entry.scratch):
        out.append(
            f"What {', '.join(lost)} began from was not evaluated here in windows as long: evaluate it, or pass --reference."
        )
    if new := dict.fromkeys(entry.run for entry in unjudged if entry.scratch):
        out.append(f"There is no base of {', '.join(new)}, begun as new models; --reference NAME compares all with one.")
    return out


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


def against_each(
    columns: Columns, names: Sequence[str], beside: Sequence[int | None], metric: str, *, seed: int
) -> list[Comparison | None]:
    """Every column against the one whose number `beside` gives it, Holm over all of them; None where it gives none."""
    family = sum(one is not None for one in beside)
    out: list[Comparison | None] = [None] * len(names)
    for reference in dict.fromkeys(one for one in beside if one is not None):
        at = [number for number, one in enumerate(beside) if one == reference or number == reference]
        answers = against(
            columns.only(at), [names[number] for number in at], at.index(reference), metric, seed=seed, family=family
        )
        for number, answer in zip(at, answers, strict=True):
            out[number] = answer or out[number]
    adjusted = iter(holm([answer.p for answer in out if answer]))
    return [adjusted_to(answer, float(next(adjusted))) if answer else None for answer in out]


def over_own(
    group: Group, metric: str, entries: Sequence[Entry], own: Sequence[Entry | None], *, seed: int
) -> list[Comparison | None]:
    """Entries against the models they began from, Holm over all; None without one, or where no document may judge."""
    every = list(dict.fromkeys([*(one for one in own if one is not None), *entries]))
    columns = group.columns(metric, half=group.judging, entries=every)
    if not columns.items:
        return [None] * len(entries)
    bases = dict(zip(entries, own, strict=True))
    beside = [every.index(one) if (one := bases.get(entry)) is not None else None for entry in every]
    answers = against_each(columns, [entry.name for entry in every], beside, metric, seed=seed)
    return [answers[every.index(entry)] for entry in entries]


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
