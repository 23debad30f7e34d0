"""Checkpoints against their references. In: a group of evaluations. Out: a ComparisonTable.

Values and verdicts come from the `confirm` half, on which nothing was chosen, or from all documents if nothing was chosen at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coref_automl.base.errors import ComparisonError
from coref_automl.base.records import Comparison, Estimate, Half, Record
from coref_automl.base.say import say
from coref_automl.comparison.bases import find_reference, references
from coref_automl.comparison.claims import ALPHA, VocabularyPair
from coref_automl.comparison.scores import Columns, Entry, Group, ItemMask
from coref_automl.evaluation.metrics import METRICS
from coref_automl.statistics.intervals import composite, concentration, detectable, standard_error, step_down_max_t


@dataclass(frozen=True, slots=True)
class ComparisonRow(Record):
    """One checkpoint, its value and its comparison (None for a reference, or without one). `scratch`: trained from scratch."""

    name: str
    path: str
    seq_len: int
    value: Estimate
    comparison: Comparison | None
    scratch: bool = False


@dataclass(frozen=True, slots=True)
class ComparisonTable(Record):
    """Checkpoints against their references on one metric. `reference` is the common one, or the first of several. `half` are the
    documents used, "all" if nothing was chosen. `others` are the tables of the same items under other tokenizers, `pairs` the
    models that lead under two tokenizers."""

    metric: str
    evalset: str
    half: str
    items: int
    documents: int
    reference: str
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()
    others: tuple[ComparisonTable, ...] = ()
    pairs: tuple[VocabularyPair, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All references, `reference` first."""
        return tuple(dict.fromkeys([self.reference, *(row.comparison.reference for row in self.rows if row.comparison)]))

    @property
    def unjudged(self) -> frozenset[str]:
        """Rows without a reference: their base was not evaluated, or they have none."""
        return frozenset(row.name for row in self.rows if row.comparison is None) - set(self.references)


def compare_group(
    group: Group, metric: str, *, reference: str | None = None, common: bool = False, seed: int = 0, notes: Sequence[str] = ()
) -> ComparisonTable:
    """Compare all checkpoints with the reference, or each with its base if none is given."""
    half, table_notes = group.verdict_half, list(notes)
    columns = shared_columns(group, metric, common=common)
    if columns.dropped and not common:
        raise ComparisonError(
            f"{columns.dropped:,} items are missing from some of these evaluations (a file cut short?); "
            "run coref-automl evaluate again, or pass --common to compare the rest."
        )
    if common:
        shared = say(
            f"모든 평가에 있는 문항 {columns.items:,}개로 비교했습니다 ({columns.dropped:,}개 제외).",
            f"Compared on the {columns.items:,} items that all have ({columns.dropped:,} left out).",
        )
        table_notes.append(shared)
    lengths = sorted({entry.evaluation.seq_len for entry in group.entries})
    if len(lengths) > 1:
        listed = ", ".join(map(str, lengths))
        table_notes.append(say(f"창 길이가 서로 다릅니다: {listed}토큰.", f"Window lengths differ: {listed} tokens."))
    first = group.entries[find_reference(group.entries, reference)]
    against = references(group.entries, first) if reference is None else [first] * len(group.entries)
    comparisons = compare_with(group, metric, group.entries, against, seed=seed, half=half)
    rows = tuple(
        ComparisonRow(entry.name, entry.evaluation.path, entry.evaluation.seq_len, value, comparison, entry.scratch)
        for entry, value, comparison in zip(group.entries, composite(columns.parts, seed=seed), comparisons, strict=True)
    )
    used = [comparison.reference for comparison in comparisons if comparison is not None]
    name = first.name if first.name in used or not used else used[0]
    table = ComparisonTable(metric, group.evalset, half or "all", columns.items, columns.documents, name, rows)
    return replace(table, notes=(*table_notes, *_reference_notes(table, group)))


def shared_columns(group: Group, metric: str, *, common: bool) -> Columns:
    """Hits on the items that all evaluations share, on the documents that judge checkpoints; an error if they share none."""
    half = group.verdict_half
    columns = group.columns(metric, half=half)
    if not columns.items:
        where = f"The {half} half has" if half else "There is"
        advice = " Pass --eval-set to compare the evaluations of one set." if common else ""
        raise ComparisonError(
            f"{where} no item that all of these share, so nothing can be compared on {METRICS[metric].label}.{advice}"
        )
    return columns


def _reference_notes(table: ComparisonTable, group: Group) -> list[str]:
    """Notes on rows that do not share one reference, or have none."""
    out = []
    if len(table.references) > 1:
        listed = ", ".join(f"{number} {name}" for number, name in enumerate(table.references, 1))
        own_bases = say(
            f"각 체크포인트를 그 베이스 모델과 비교했습니다 ({listed}). --reference NAME은 모두를 하나와 비교합니다.",
            f"Each is compared with its own base model ({listed}); --reference NAME compares all with one.",
        )
        out.append(own_bases)
    without = (entry.run for entry, row in zip(group.entries, table.rows, strict=True) if row.name in table.unjudged)
    if names := ", ".join(dict.fromkeys(without)):
        no_base = say(
            f"{names}: 같은 창 길이로 평가된 베이스 모델이 없습니다. 평가하거나 --reference NAME을 주세요.",
            f"{names}: no base evaluated in windows of that length; evaluate it, or pass --reference NAME.",
        )
        out.append(no_base)
    return out


def compare_with(
    group: Group,
    metric: str,
    entries: Sequence[Entry],
    against: Sequence[Entry | None],
    *,
    seed: int,
    half: Half | None,
    mask: ItemMask = None,
) -> list[Comparison | None]:
    """Compare each entry with the other beside it, by sign flips with step-down max-T over all pairs. None for an entry without
    another, and for all if they share no item."""
    pairs = [(entry, other) for entry, other in zip(entries, against, strict=True) if other is not None and other is not entry]
    compared = list(dict.fromkeys([*(other for other in against if other is not None), *entries]))
    columns = group.columns(metric, half=half, entries=compared, mask=mask) if pairs else None
    if columns is None or not columns.items:
        return [None] * len(entries)
    parts = columns.differences([compared.index(entry) for entry, _ in pairs], [compared.index(other) for _, other in pairs])
    errors, shares, flipped = standard_error(parts), concentration(parts), step_down_max_t(parts, seed=seed)
    comparisons: dict[Entry, Comparison] = {}
    for number, (entry, other) in enumerate(pairs):
        values = [np.asarray(part.values)[:, number] for part in parts]
        value = float(sum(v.mean() for v in values))
        half_width, p = float(flipped.half[number]), float(flipped.adjusted[number])
        same = not any(v.any() for v in values)
        comparisons[entry] = Comparison(
            name=entry.name,
            reference=other.name,
            metric=metric,
            difference=Estimate(value, value - half_width, value + half_width, columns.items),
            p=float(flipped.alone[number]),
            p_adjusted=p,
            detectable=detectable(float(errors[number]), flipped.level, shares),
            verdict="same" if same else "not shown" if p >= ALPHA else "better" if value > 0 else "worse",
            family=len(pairs),
            correction="max-t" if len(pairs) > 1 else "none",
        )
    return [comparisons.get(entry) for entry in entries]


def lost_to_family(comparison: Comparison) -> bool:
    """Did it lose significance by the correction for several comparisons?"""
    return comparison.verdict == "not shown" and comparison.p < ALPHA
