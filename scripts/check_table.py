"""Read a published table of checkpoints again: intervals, unpaired tests, composites recomputed.

    python scripts/check_table.py TABLE.csv --out DIR [--target real1=0.68,real5=0.83] [--lang ko|en]

In: a CSV. Out: report.html, report.md.
Columns: family, seq_len, checkpoint, epoch, real1, real5, lambada_top1, real_samples, lambada_samples; optionally stated_score.
Without items nothing can be paired: intervals follow from n, and tests are unpaired.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from coref_automl.base.errors import CorefError, InputError
from coref_automl.base.guard import LINE, check_size
from coref_automl.base.locks import claimed
from coref_automl.base.records import Estimate, grouped
from coref_automl.base.say import Say, speaking
from coref_automl.base.store import write_text
from coref_automl.comparison.claims import ALPHA
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.pages import charts
from coref_automl.extras.pages.checkpoint_report import KIND
from coref_automl.extras.pages.rendering import render_html, render_markdown
from coref_automl.extras.pages.sections import parse_target
from coref_automl.report.page import Cell, Charts, Page, Points, Section, Table, Text, estimate_cells, plotted, row
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, holm, wilson

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
        raise InputError(f"There is no table at {path}; pass the path of a CSV.")
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


def unpaired(a: Estimate, b: Estimate) -> tuple[Estimate, float]:
    """Difference a - b of two shares on different items, from their values and n: interval, and p of the pooled z test."""
    spread = math.sqrt(a.value * (1 - a.value) / a.n + b.value * (1 - b.value) / b.n)
    pooled = (a.value * a.n + b.value * b.n) / (a.n + b.n)
    error = math.sqrt(pooled * (1 - pooled) * (1 / a.n + 1 / b.n))
    difference, z = a.value - b.value, NORMAL.inv_cdf((1 + LEVEL) / 2)
    p = 2 * (1 - NORMAL.cdf(abs(difference) / error)) if error > 0 else 1.0
    return Estimate(difference, difference - z * spread, difference + z * spread, min(a.n, b.n)), p


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
        sentence=say(
            f"이 표에서 가장 높은 것은 {best.name}이지만, 문항별 자료가 없어 짝지어 판정할 수 없습니다. "
            "아래는 n만으로 말할 수 있는 것입니다.",
            f"The highest row is {best.name}; without item data no paired verdict is possible. "
            "Below is what n alone allows to say.",
        ),
        cannot_tell=(
            say(
                "문항별 점수가 없어 짝지은 검정을 할 수 없습니다. 같은 문항을 쓴 행끼리는 짝지으면 더 작은 차이도 검출됩니다.",
                "No item scores, so no paired test: rows on the same items might differ by less and still be told apart "
                "if paired.",
            ),
            say(
                "한 문서의 문항들이 서로 독립이라고 가정했습니다. 실제 구간은 이보다 넓을 수 있습니다.",
                "Items of one document are counted as if independent: the true intervals may be wider.",
            ),
        ),
        sections=(
            Section("findings", say("드러난 것", "Findings"), (Points(tuple(findings(rows, say))),)),
            _curves(rows, say, target),
            _tests(unpaired_tests(rows), say),
            _rows(rows, say),
        ),
        colophon=(
            say(
                "구간: Wilson, n에서. 검정: 짝짓지 않은 두 비율의 z, Holm은 같은 질문 안에서.",
                "Intervals: Wilson, from n. Tests: unpaired z of two shares, Holm within each question.",
            ),
        ),
    )


def findings(rows: Sequence[TableRow], say: Say) -> list[str]:
    """Wrong composites, different numbers of items, identical rows."""
    out = []
    if wrong := [line for line in rows if line.wrong]:
        families = ", ".join(dict.fromkeys(f"{line.family} {line.seq_len:,}" for line in wrong))
        worst = max(wrong, key=lambda line: abs((line.stated_score or 0) - line.score))
        stated, computed = f"{worst.stated_score:.4f}", f"{worst.score:.4f}"
        out.append(
            say(
                f"종합 점수가 {len(wrong)}개 행에서 틀렸습니다 ({families}). 가장 큰 차이: {worst.name}, "
                f"적힌 값 {stated}, 계산한 값 {computed}.",
                f"The composite is wrong in {len(wrong)} rows ({families}). Largest: {worst.name}, "
                f"stated {stated}, computed {computed}.",
            )
        )
    counts = sorted({(line.seq_len, line.estimates["real1"].n) for line in rows})
    if len({n for _, n in counts}) > 1:
        listed = ", ".join(f"{n:,} {say('문항', 'items')} @{length:,}" for length, n in counts)
        out.append(
            say(
                f"길이끼리 비교할 수 없습니다: 문항이 다릅니다 ({listed}).",
                f"Lengths are not comparable: their items differ ({listed}).",
            )
        )
    same = [(a, b) for curve in curves(rows).values() for a, b in pairwise(curve) if a.estimates == b.estimates]
    return out + [
        say(
            f"{a.name}과 {b.checkpoint}의 수치가 모두 같습니다.",
            f"{a.name} and {b.checkpoint} have identical numbers.",
        )
        for a, b in same
    ]


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


def write(table: Path, out: Path, *, target: str = "", lang: str | None = None) -> Page:
    """Write report.html and report.md about a table to a folder."""
    rows, goals = read_table(table), parse_target(target)
    with speaking(lang) as say, claimed(out, KIND):
        page = csv_page(rows, say, source=table.name, target=goals)
        write_text(out / "report.md", render_markdown(page))
        write_text(out / "report.html", render_html(page))
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="CSV, one row per checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.add_argument("--target", default="", help="values to reach, such as real1=0.68,real5=0.83")
    parser.add_argument("--lang", help="ko or en")
    given = parser.parse_args(arguments)
    try:
        page = write(given.table, given.out, target=given.target, lang=given.lang)
    except CorefError as error:
        print(f"check_table: {error}", file=sys.stderr)
        return 2
    print(page.sentence, given.out / "report.html", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
