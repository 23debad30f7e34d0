"""A published table without item data. In: a CSV of checkpoints. Out: rows with intervals, and unpaired tests between them.

Columns: family, seq_len, checkpoint, epoch, real1, real5, lambada_top1, real_samples, lambada_samples; stated_score if any.
Without items nothing can be paired: intervals follow from n, and tests are unpaired.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from coref_automl.errors import InputError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Estimate
from coref_automl.statistics.closed_forms import holm, unpaired, wilson

_NUMBERS = ("seq_len", "epoch", "real1", "real5", "lambada_top1", "real_samples", "lambada_samples")
_ROUNDING = 0.00015
"""Stated composites and their parts have four digits."""
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class TableRow:
    family: str
    seq_len: int
    checkpoint: str
    epoch: float
    estimates: Mapping[str, Estimate]
    stated_score: float | None

    @property
    def name(self) -> str:
        return f"{self.family} {self.seq_len:,} {self.checkpoint}"

    @property
    def curve(self) -> tuple[str, int]:
        return self.family, self.seq_len

    @property
    def score(self) -> float:
        """The composite, recomputed from its definition."""
        return sum(weight * self.estimates[name].value for name, weight in METRICS["score"].parts)


@dataclass(frozen=True, slots=True)
class Unpaired:
    """An unpaired comparison of two rows on Real@1."""

    what: str
    a: TableRow
    b: TableRow
    difference: Estimate
    p: float
    p_adjusted: float

    @property
    def shown(self) -> bool:
        return self.p_adjusted < ALPHA


def read_table(path: Path) -> list[TableRow]:
    if not path.is_file():
        raise InputError(f"There is no table at {path}; pass --table the path of a CSV.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            lines = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"Cannot read the table {path} ({error}).") from error
    if not lines:
        raise InputError(f"{path} holds no row below its heading.")
    missing = [name for name in ("family", "checkpoint", *_NUMBERS) if name not in lines[0]]
    if missing:
        raise InputError(f"{path} lacks the column {missing[0]!r}; it needs family, checkpoint, {', '.join(_NUMBERS)}.")
    return [_table_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 2)]


def wrong_composites(rows: Sequence[TableRow]) -> list[TableRow]:
    return [one for one in rows if one.stated_score is not None and abs(one.stated_score - one.score) > _ROUNDING]


def within(rows: Sequence[TableRow]) -> list[Unpaired]:
    """For each family and length: first to last, peak over last (over-fitting), peak over first. Holm within each question."""
    out: list[Unpaired] = []
    for what in ("first to last", "peak over last", "peak over first"):
        pairs = []
        for curve in curves(rows).values():
            peak = max(curve, key=lambda one: one.estimates["real1"].value)
            a, b = {
                "first to last": (curve[-1], curve[0]),
                "peak over last": (peak, curve[-1]),
                "peak over first": (peak, curve[0]),
            }[what]
            if a is not b:
                pairs.append((a, b))
        out += _tests(what, pairs)
    return out


def between(rows: Sequence[TableRow]) -> list[Unpaired]:
    """The best of each family at one length against its best at another; families against each other at one length."""
    peaks = {key: max(curve, key=lambda one: one.estimates["real1"].value) for key, curve in curves(rows).items()}
    lengths, families = [], []
    for (family, length), one in peaks.items():
        for (other, size), two in peaks.items():
            if family == other and length < size:
                lengths.append((one, two))
            if length == size and family < other:
                families.append((one, two) if one.estimates["real1"].value > two.estimates["real1"].value else (two, one))
    return [*_tests("length against length", lengths), *_tests("family against family", families)]


def _tests(what: str, pairs: Sequence[tuple[TableRow, TableRow]]) -> list[Unpaired]:
    raw = [(a, b, *unpaired(a.estimates["real1"], b.estimates["real1"])) for a, b in pairs]
    adjusted = holm([p for _, _, _, p in raw])
    return [Unpaired(what, a, b, difference, p, float(q)) for (a, b, difference, p), q in zip(raw, adjusted, strict=True)]


def curves(rows: Sequence[TableRow]) -> dict[tuple[str, int], list[TableRow]]:
    out: dict[tuple[str, int], list[TableRow]] = {}
    for one in sorted(rows, key=lambda one: one.epoch):
        out.setdefault(one.curve, []).append(one)
    return out


def twins(rows: Sequence[TableRow]) -> list[tuple[TableRow, TableRow]]:
    return [
        (one, two)
        for curve in curves(rows).values()
        for one, two in pairwise(curve)
        if all(one.estimates[name] == two.estimates[name] for name in one.estimates)
    ]


def _table_row(line: Mapping[str, str | None], where: str) -> TableRow:
    try:
        numbers = {name: float(line[name] or "") for name in _NUMBERS}
        stated = float(line["stated_score"]) if line.get("stated_score") else None  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"{where} holds something that is not a number ({error}).") from error
    for name, number in {**numbers, "stated_score": stated}.items():
        if number is not None and not math.isfinite(number):
            raise InputError(f"{where}: {name} is {number:g}; it must be a finite number.")
    counts = {"real1": "real_samples", "real5": "real_samples", "lambada_top1": "lambada_samples"}
    estimates = {}
    for name, samples in counts.items():
        value, n = numbers[name], round(numbers[samples])
        if not 0 <= value <= 1 or n < 1:
            raise InputError(f"{where}: {name} {value:g} with n {n} cannot be; values are shares between 0 and 1.")
        estimates[name] = wilson(value * n, n)
    return TableRow(
        line["family"] or "", round(numbers["seq_len"]), line["checkpoint"] or "", numbers["epoch"], estimates, stated
    )
