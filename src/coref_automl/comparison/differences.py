"""Which checkpoint is better, and is that more than noise? In: a group of evaluations. Out: a ComparisonTable.

Values and verdicts come from the `confirm` half, on which nothing was chosen; from all documents if nothing was chosen at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.claims import ALPHA
from coref_automl.comparison.scores import Columns, Entry, Group, find_reference, references
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
    """Compare all with the reference, or each with its base; a caller that knows the bases passes them as `own`."""
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
        advice = " Pass --eval-set to compare the evaluations of one set." if common else ""
        raise ComparisonError(f"{where} no item that all of these share, so nothing can be compared on {metric}.{advice}")
    if common:
        told.append(
            say(
                f"모든 평가에 있는 문항 {columns.items:,}개로 비교했습니다 ({columns.dropped:,}개 제외).",
                f"Compared on the {columns.items:,} items that all have ({columns.dropped:,} left out).",
            )
        )
    lengths = sorted({entry.evaluation.seq_len for entry in group.entries})
    if len(lengths) > 1:
        listed = ", ".join(map(str, lengths))
        told.append(say(f"창 길이가 서로 다릅니다: {listed}토큰.", f"Window lengths differ: {listed} tokens."))
    first = reference if isinstance(reference, Entry) else group.entries[find_reference(group.entries, reference)]
    if own is None:
        own = references(group.entries, first) if reference is None else [first] * len(group.entries)
    number = {id(entry): at for at, entry in enumerate(group.entries)}
    beside = [
        number[id(one)] if one is not None and one is not entry else None for entry, one in zip(group.entries, own, strict=True)
    ]
    used = [group.entries[at] for at in dict.fromkeys(at for at in beside if at is not None)]
    values = composite(columns.parts, seed=seed)
    answers = compare_each(columns, [entry.name for entry in group.entries], beside, metric, seed=seed)
    rows = tuple(
        ComparisonRow(entry.name, entry.evaluation.path, entry.evaluation.seq_len, value, answer, entry.scratch)
        for entry, value, answer in zip(group.entries, values, answers, strict=True)
    )
    name = (first if first in used or not used else used[0]).name
    table = ComparisonTable(metric, group.evalset, half or "all", columns.items, columns.documents, name, rows)
    return replace(table, notes=(*told, *_own_notes(table, group)))


def _own_notes(table: ComparisonTable, group: Group) -> list[str]:
    """Notes for a table whose rows do not share one reference."""
    out = []
    if len(table.references) > 1:
        listed = ", ".join(f"{number} {name}" for number, name in enumerate(table.references, 1))
        out.append(
            say(
                f"각 체크포인트를 그 베이스 모델과 비교했습니다 ({listed}). --reference NAME은 모두를 하나와 비교합니다.",
                f"Each is compared with its own base model ({listed}); --reference NAME compares all with one.",
            )
        )
    if lost := dict.fromkeys(
        entry.run for entry, row in zip(group.entries, table.rows, strict=True) if row.name in table.unjudged
    ):
        names = ", ".join(lost)
        out.append(
            say(
                f"{names}: 같은 창 길이로 평가된 베이스 모델이 없습니다. 평가하거나 --reference NAME을 주세요.",
                f"{names}: no base evaluated in windows of that length; evaluate it, or pass --reference NAME.",
            )
        )
    return out


def compare_each(
    columns: Columns, names: Sequence[str], beside: Sequence[int | None], metric: str, *, seed: int
) -> list[Comparison | None]:
    """Compare every column with the one that `beside` numbers; None without a number. Sign-flip tests, step-down max-T."""
    pairs = [(number, other) for number, other in enumerate(beside) if other is not None]
    out: list[Comparison | None] = [None] * len(names)
    if not pairs:
        return out
    parts = columns.differences([number for number, _ in pairs], [other for _, other in pairs])
    errors, held = standard_error(parts), concentration(parts)
    flipped = step_down_max_t(parts, seed=seed)
    for at, (number, other) in enumerate(pairs):
        value, half, p = (
            float(found)
            for found in (sum(np.asarray(q.values)[:, at].mean() for q in parts), flipped.half[at], flipped.adjusted[at])
        )
        same = all(not np.asarray(part.values)[:, at].any() for part in parts)
        out[number] = Comparison(
            name=names[number],
            reference=names[other],
            metric=metric,
            difference=Estimate(value, value - half, value + half, columns.items),
            p=float(flipped.alone[at]),
            p_adjusted=p,
            detectable=detectable(float(errors[at]), flipped.level, held),
            verdict="same" if same else "not shown" if p >= ALPHA else "better" if value > 0 else "worse",
            family=len(pairs),
            correction="max-t" if len(pairs) > 1 else "none",
        )
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
    """Compare entries with others each, max-T over all, on all items or `among` some; None without another or a document."""
    every = list(dict.fromkeys([*(one for one in own if one is not None), *entries]))
    columns = group.columns(metric, half=half, entries=every, among=among) if entries else None
    if columns is None or not columns.items:
        return [None] * len(entries)
    others = dict(zip(entries, own, strict=True))
    beside = [every.index(one) if (one := others.get(entry)) is not None and one is not entry else None for entry in every]
    answers = compare_each(columns, [entry.name for entry in every], beside, metric, seed=seed)
    return [answers[every.index(entry)] for entry in entries]


def lost_to_family(comparison: Comparison) -> bool:
    """Significant as a single comparison, and not among so many."""
    return comparison.verdict == "not shown" and comparison.p < ALPHA
