"""Which checkpoint is better, and is that more than noise? In: a group of evaluations. Out: a ComparisonTable.

Values and verdicts come from the `confirm` half, on which nothing was chosen; from all documents if nothing was chosen at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.bases import find_reference, references
from coref_automl.comparison.claims import ALPHA
from coref_automl.comparison.scores import Columns, Entry, Group
from coref_automl.errors import ComparisonError
from coref_automl.records import Comparison, Estimate, Half, Record
from coref_automl.say import say
from coref_automl.statistics.intervals import composite, concentration, detectable, standard_error, step_down_max_t


@dataclass(frozen=True, slots=True)
class ComparisonRow(Record):
    """One checkpoint: its value, and its comparison; None for a reference and for a checkpoint without one.

    `scratch`: trained from scratch.
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

    `reference` is the common one, or the first of several. `half` is the one that judges, or "all" if nothing was chosen.
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
        """All references, `reference` first."""
        return tuple(dict.fromkeys([self.reference, *(row.comparison.reference for row in self.rows if row.comparison)]))

    @property
    def unjudged(self) -> frozenset[str]:
        """Rows without a reference: their base was not evaluated, or they have none."""
        return frozenset(row.name for row in self.rows if row.comparison is None) - set(self.references)


def compare_group(
    group: Group, metric: str, *, reference: str | None = None, common: bool = False, seed: int = 0, notes: Sequence[str] = ()
) -> ComparisonTable:
    """Compare all with the reference, or each with its base."""
    half, told = group.judging, list(notes)
    columns = judging_columns(group, metric, common=common)
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
        told.append(shared)
    lengths = sorted({entry.evaluation.seq_len for entry in group.entries})
    if len(lengths) > 1:
        listed = ", ".join(map(str, lengths))
        told.append(say(f"창 길이가 서로 다릅니다: {listed}토큰.", f"Window lengths differ: {listed} tokens."))
    first = group.entries[find_reference(group.entries, reference)]
    own = references(group.entries, first) if reference is None else [first] * len(group.entries)
    answers = compare_with(group, metric, group.entries, own, seed=seed, half=half)
    rows = tuple(
        ComparisonRow(entry.name, entry.evaluation.path, entry.evaluation.seq_len, value, answer, entry.scratch)
        for entry, value, answer in zip(group.entries, composite(columns.parts, seed=seed), answers, strict=True)
    )
    used = [answer.reference for answer in answers if answer is not None]
    name = first.name if first.name in used or not used else used[0]
    table = ComparisonTable(metric, group.evalset, half or "all", columns.items, columns.documents, name, rows)
    return replace(table, notes=(*told, *_own_notes(table, group)))


def judging_columns(group: Group, metric: str, *, common: bool) -> Columns:
    """The items that judge: those that all evaluations share; an error if there are none."""
    half = group.judging
    columns = group.columns(metric, half=half)
    if not columns.items:
        where = f"The {half} half has" if half else "There is"
        advice = " Pass --eval-set to compare the evaluations of one set." if common else ""
        raise ComparisonError(f"{where} no item that all of these share, so nothing can be compared on {metric}.{advice}")
    return columns


def _own_notes(table: ComparisonTable, group: Group) -> list[str]:
    """Notes for a table whose rows do not share one reference."""
    out = []
    if len(table.references) > 1:
        listed = ", ".join(f"{number} {name}" for number, name in enumerate(table.references, 1))
        own_bases = say(
            f"각 체크포인트를 그 베이스 모델과 비교했습니다 ({listed}). --reference NAME은 모두를 하나와 비교합니다.",
            f"Each is compared with its own base model ({listed}); --reference NAME compares all with one.",
        )
        out.append(own_bases)
    lost = (entry.run for entry, row in zip(group.entries, table.rows, strict=True) if row.name in table.unjudged)
    if names := ", ".join(dict.fromkeys(lost)):
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
    own: Sequence[Entry | None],
    *,
    seed: int,
    half: Half | None,
    among: NDArray[np.bool_] | None = None,
) -> list[Comparison | None]:
    """Compare entries with others each, on all items or `among` some; None without another or a document. Sign-flip tests,
    step-down max-T over all."""
    pairs = [(entry, one) for entry, one in zip(entries, own, strict=True) if one is not None and one is not entry]
    every = list(dict.fromkeys([*(one for one in own if one is not None), *entries]))
    columns = group.columns(metric, half=half, entries=every, among=among) if pairs else None
    if columns is None or not columns.items:
        return [None] * len(entries)
    parts = columns.differences([every.index(entry) for entry, _ in pairs], [every.index(one) for _, one in pairs])
    errors, held, flipped = standard_error(parts), concentration(parts), step_down_max_t(parts, seed=seed)
    out: dict[Entry, Comparison] = {}
    for at, (entry, one) in enumerate(pairs):
        values = [np.asarray(part.values)[:, at] for part in parts]
        value, half_width, p = float(sum(v.mean() for v in values)), float(flipped.half[at]), float(flipped.adjusted[at])
        same = not any(v.any() for v in values)
        out[entry] = Comparison(
            name=entry.name,
            reference=one.name,
            metric=metric,
            difference=Estimate(value, value - half_width, value + half_width, columns.items),
            p=float(flipped.alone[at]),
            p_adjusted=p,
            detectable=detectable(float(errors[at]), flipped.level, held),
            verdict="same" if same else "not shown" if p >= ALPHA else "better" if value > 0 else "worse",
            family=len(pairs),
            correction="max-t" if len(pairs) > 1 else "none",
        )
    return [out.get(entry) for entry in entries]


def lost_to_family(comparison: Comparison) -> bool:
    """Significant as a single comparison, and not among so many."""
    return comparison.verdict == "not shown" and comparison.p < ALPHA
