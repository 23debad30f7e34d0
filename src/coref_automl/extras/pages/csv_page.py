"""A published table without item data. In: a CSV of checkpoints. Out: a Page: intervals, tests, composites recomputed.

Columns: family, seq_len, checkpoint, epoch, real1, real5, lambada_top1, real_samples, lambada_samples; optionally stated_score.
Without items nothing can be paired: intervals follow from n, and tests are unpaired.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from coref_automl.base.errors import InputError
from coref_automl.base.guard import LINE, check_size
from coref_automl.base.records import Estimate, grouped
from coref_automl.base.say import Say
from coref_automl.comparison.claims import ALPHA
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages import charts
from coref_automl.report.page import Cell, Charts, Page, Points, Section, Table, Text, estimate_cells, note, notes, plotted, row
from coref_automl.statistics.closed_forms import holm, unpaired, wilson

_SAMPLES = {"real1": "real_samples", "real5": "real_samples", "lambada_top1": "lambada_samples"}
_NUMBERS = ("seq_len", "epoch", *_SAMPLES, "real_samples", "lambada_samples")
_ROUNDING = 0.00015
"""Stated composites and their parts have four digits."""
_QUESTIONS = {
    "first to last": ("첫 에폭에서 마지막까지", "first to last epoch"),
    "peak over last": ("과적합 (최고 - 마지막)", "over-fitting (peak - last)"),
    "peak over first": ("최고점 (최고 - 처음)", "peak (peak - first)"),
    "length against length": ("길이 간 비교", "length against length"),
    "family against family": ("계열 간 비교", "family against family"),
}


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
    def real1(self) -> float:
        return self.estimates["real1"].value

    @property
    def score(self) -> float:
        """The composite, recomputed from its definition."""
        return sum(weight * self.estimates[name].value for name, weight in METRICS["score"].parts)

    @property
    def wrong(self) -> bool:
        return self.stated_score is not None and abs(self.stated_score - self.score) > _ROUNDING


@dataclass(frozen=True, slots=True)
class Unpaired:
    """An unpaired comparison of two rows on Real@1, adjusted (Holm) within its question."""

    question: str
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
    check_size(path, LINE)
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


def _table_row(line: Mapping[str, str | None], where: str) -> TableRow:
    columns = (*_NUMBERS, *(["stated_score"] if line.get("stated_score") else []))
    try:
        numbers = {name: float(line.get(name) or "") for name in columns}
    except ValueError as error:
        raise InputError(f"{where} holds something that is not a number ({error}).") from error
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise InputError(f"{where}: {name} is {number:g}; it must be a finite number.")
    estimates = {}
    for name, samples in _SAMPLES.items():
        value, n = numbers[name], round(numbers[samples])
        if not 0 <= value <= 1 or n < 1:
            raise InputError(f"{where}: {name} {value:g} with n {n} cannot be; values are shares between 0 and 1.")
        estimates[name] = wilson(value * n, n)
    labels = line["family"] or "", round(numbers["seq_len"]), line["checkpoint"] or ""
    return TableRow(*labels, numbers["epoch"], estimates, numbers.get("stated_score"))


def curves(rows: Sequence[TableRow]) -> dict[tuple[str, int], list[TableRow]]:
    """Rows by family and length, in order of epochs."""
    return grouped(sorted(rows, key=lambda line: line.epoch), lambda line: (line.family, line.seq_len))


def unpaired_tests(rows: Sequence[TableRow]) -> list[Unpaired]:
    """Compare rows along every curve, and the peaks of one family at two lengths or of two families at one length."""
    families = list(curves(rows).values())
    peaks = [max(curve, key=lambda line: line.real1) for curve in families]
    pairs = list(combinations(sorted(peaks, key=lambda line: line.seq_len), 2))
    questions: dict[str, list[tuple[TableRow, TableRow]]] = {
        "first to last": [(curve[-1], curve[0]) for curve in families],
        "peak over last": [(peak, curve[-1]) for peak, curve in zip(peaks, families, strict=True)],
        "peak over first": [(peak, curve[0]) for peak, curve in zip(peaks, families, strict=True)],
        "length against length": [(a, b) for a, b in pairs if a.family == b.family],
        "family against family": [(a, b) if a.real1 > b.real1 else (b, a) for a, b in pairs if a.seq_len == b.seq_len],
    }
    out = []
    for question, asked in questions.items():
        tests = [(a, b, *unpaired(a.estimates["real1"], b.estimates["real1"])) for a, b in asked if a is not b]
        adjusted = holm([p for *_, p in tests])
        out += [Unpaired(question, a, b, change, p, float(q)) for (a, b, change, p), q in zip(tests, adjusted, strict=True)]
    return out


def csv_page(rows: Sequence[TableRow], say: Say, *, source: str, target: Mapping[str, float]) -> Page:
    best = max(rows, key=lambda line: line.real1)
    return Page(
        lang=say.lang,
        title=say("표 다시 읽기", "A table, read again"),
        subtitle=f"{source} · {say(f'{len(rows)}행', f'{len(rows)} rows')}",
        lead=say("먼저", "First"),
        headline=say("문항 없이 말할 수 있는 것", "What can be said without items"),
        sentence=note("table: highest", say, name=best.name),
        cannot_tell=notes("table: cannot tell", say),
        sections=(
            Section("findings", say("드러난 것", "Findings"), (Points(tuple(findings(rows, say))),)),
            _curves(rows, say, target),
            _tests(unpaired_tests(rows), say),
            _rows(rows, say),
        ),
        colophon=(note("table: tests", say),),
    )


def findings(rows: Sequence[TableRow], say: Say) -> list[str]:
    """Wrong composites, different numbers of items, identical rows."""
    out = []
    if wrong := [line for line in rows if line.wrong]:
        families = ", ".join(dict.fromkeys(f"{line.family} {line.seq_len:,}" for line in wrong))
        worst = max(wrong, key=lambda line: abs((line.stated_score or 0) - line.score))
        scores = {"stated": f"{worst.stated_score:.4f}", "computed": f"{worst.score:.4f}"}
        out.append(note("table: wrong composites", say, count=len(wrong), families=families, name=worst.name, **scores))
    counts = sorted({(line.seq_len, line.estimates["real1"].n) for line in rows})
    if len({n for _, n in counts}) > 1:
        listed = ", ".join(f"{n:,} {say('문항', 'items')} @{length:,}" for length, n in counts)
        out.append(note("table: other items", say, listed=listed))
    same = [(a, b) for curve in curves(rows).values() for a, b in pairwise(curve) if a.estimates == b.estimates]
    return [*out, *(note("table: identical", say, one=a.name, two=b.checkpoint) for a, b in same)]


def _curves(rows: Sequence[TableRow], say: Say, target: Mapping[str, float]) -> Section:
    drawn = []
    for metric in _SAMPLES:
        points = [
            {"run": f"{family} {length:,}", "x": line.epoch, "name": line.checkpoint, **plotted(line.estimates[metric])}
            for (family, length), curve in curves(rows).items()
            for line in curve
        ]
        goal = 100 * target[metric] if metric in target else None
        spec = charts.learning_curve(points, say, axis=say("에폭", "epoch"), target=goal)
        drawn.append((METRICS[metric].label, spec))
    caption = say("띠는 n에서 얻은 95% 구간입니다.", "Bands are 95% intervals from n.")
    return Section("curves", say("학습 곡선", "Learning curves"), (Charts(tuple(drawn)), Text(caption, "quiet")))


def _tests(tests: Sequence[Unpaired], say: Say) -> Section:
    head = (
        say("질문", "question"), say("비교 대상", "rows"), say("Real@1 차이 (점)", "Real@1, points"), "p", "p (Holm)",
        say("판정", "verdict"),
    )  # fmt: skip
    verdicts = {True: Cell(say("확인", "shown"), "good"), False: Cell(say("미확인", "not shown"), "quiet")}
    cells = estimate_cells([test.difference for test in tests], difference=True)
    lines = []
    for test, cell in zip(tests, cells, strict=True):
        sides, ps = f"{test.a.name} - {test.b.name}", (f"{test.p:.3f}", f"{test.p_adjusted:.3f}")
        lines.append(row(say(*_QUESTIONS[test.question]), sides, cell, *ps, verdicts[test.shown]))
    return Section("tests", say("차이", "Differences"), (Table(head, tuple(lines), frozenset({2, 3, 4})),))


def _rows(rows: Sequence[TableRow], say: Say) -> Section:
    """Every row with its intervals, and the composite as stated and as computed from its definition."""
    columns = [estimate_cells([line.estimates[name] for line in rows]) for name in _SAMPLES]
    lines = []
    for line, *cells in zip(rows, *columns, strict=True):
        stated = Cell("–", "quiet")
        if line.stated_score is not None:
            stated = Cell(f"{line.stated_score:.4f}", "bad" if line.wrong else "")
        sizes, computed = (f"{line.epoch:g}", f"{line.estimates['real1'].n:,}"), f"{line.score:.4f}"
        lines.append(row(line.name, *sizes, *cells, stated, computed, say("틀림", "wrong") if line.wrong else ""))
    head = (
        say("행", "row"), say("에폭", "epoch"), "n", *(METRICS[name].label for name in _SAMPLES),
        say("적힌 종합 점수", "stated composite"), say("계산한 값", "computed"), "",
    )  # fmt: skip
    parts = " + ".join(f"{weight:g} x {METRICS[name].label}" for name, weight in METRICS["score"].parts)
    title = say("모든 행과 종합 점수", "All rows and the composite")
    return Section("rows", title, (Text(f"{parts}."), Table(head, tuple(lines), frozenset(range(1, 8)))))
