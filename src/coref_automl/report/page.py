"""A page as data. In: texts, tables and charts. Out: blocks that both templates render, so Markdown and HTML agree."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from coref_automl.base.records import Estimate
from coref_automl.base.say import Lang, Say, align
from coref_automl.comparison.claims import NextStep

Tone = Literal["", "good", "bad", "quiet", "strong", "even", "blank"]
_CLOSE = 0.1
"""Labels of an axis nearer than this share of it would overlap."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval drawn in a cell, as fractions of the column's width."""

    low: float
    value: float
    high: float
    zero: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. If its text ends with an interval in brackets, HTML draws that as the bar, with the numbers on hover."""

    text: str
    tone: Tone = ""
    bar: Bar | None = None
    estimate: Estimate | None = None


Shows = Literal["", "all", "select", "confirm", "both"]
"""The documents a table is about: all, one half, or a column of each half; "" if it is not about documents."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption; `numeric` are the right-aligned columns."""

    kind = "table"
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    caption: str = ""
    shows: Shows = ""

    def drawn(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows; cells with an estimate get bars on one scale for the table."""
        estimates = [cell.estimate for line in self.rows for cell in line]
        if not any(estimates):
            return self.rows
        bars = iter(bars_of(estimates))
        return tuple(tuple(replace(cell, bar=bar) if (bar := next(bars)) else cell for cell in line) for line in self.rows)

    def lines(self) -> list[str]:
        """The table for a terminal, under its caption."""
        lines = align([self.head, *([cell.text for cell in line] for line in self.rows)])
        return [self.caption, *lines] if self.caption else lines


@dataclass(frozen=True, slots=True)
class Text:
    kind = "text"
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Points:
    kind = "points"
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Charts:
    """Vega-Lite charts side by side; each has a title and a specification."""

    kind = "charts"
    charts: tuple[tuple[str, dict[str, Any]], ...]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Commands:
    kind = "commands"
    title: str
    lines: tuple[str, ...]


Block = Table | Text | Points | Charts | Commands
Part = Literal["evidence", "target", "questions", "appendix"]


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """The answer to a question in a few words and in one sentence, and the difference behind it. `tone` is its verdict's."""

    badge: str
    sentence: str
    estimate: Estimate | None = None
    about: str = ""
    tone: Tone = "quiet"


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page. `short` replaces a long title in the contents; `answer` is there if the title is a question. `verdict`
    puts the question into the answer table of the first screen. On a page of several parts, `part` says which."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    short: str = ""
    answer: str = ""
    verdict: VerdictLine | None = None
    part: Part = "appendix"


@dataclass(frozen=True, slots=True)
class KeepPanel:
    """What to keep: its path if it is on this disk, whether that is the base, lines on it, the command that makes it again, and
    the next step with its reason."""

    path: str
    base: bool
    status: tuple[str, ...]
    again: NextStep | None
    step: NextStep | None
    why: str


@dataclass(frozen=True, slots=True)
class Page:
    lang: Lang
    title: str
    subtitle: str
    lead: str
    headline: str
    sentence: str
    cannot_tell: tuple[str, ...]
    sections: tuple[Section, ...]
    colophon: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    keep: KeepPanel | None = None
    below: str = ""
    parts: tuple[tuple[Part, str], ...] = ()

    def of_part(self, part: Part) -> list[Section]:
        return [section for section in self.sections if section.part == part]

    def answers(self) -> list[tuple[Section, VerdictLine, Bar | None]]:
        """The rows of the answer table; their bars share one scale."""
        rows = [(section, section.verdict) for section in self.sections if section.verdict is not None]
        bars = bars_of([verdict.estimate for _, verdict in rows], ends=self._ends())
        return [(section, verdict, bar) for (section, verdict), bar in zip(rows, bars, strict=True)]

    def axis(self) -> list[tuple[float, str]]:
        """The labels of that scale in points, each with its place: both ends and 0; an end close to 0 has none. Empty if there is
        no difference to draw."""
        if all(map(is_same, self._differences())):
            return []
        low, high = self._ends()
        zero = -low / (high - low)
        ends = [(0.0, f"{100 * low:+.0f}")] * (zero > _CLOSE) + [(1.0, f"{100 * high:+.0f}")] * (zero < 1 - _CLOSE)
        return [(zero, "0"), *ends]

    def _ends(self) -> tuple[float, float]:
        """Whole points around every difference of the answer table: at least one on either side of 0, and no more than 100."""
        differences = self._differences()
        low, high = min((e.low for e in differences), default=0.0), max((e.high for e in differences), default=0.0)
        return max(-100, min(math.floor(100 * low), -1)) / 100, min(100, max(math.ceil(100 * high), 1)) / 100

    def _differences(self) -> list[Estimate]:
        verdicts = [section.verdict for section in self.sections if section.verdict is not None]
        return [verdict.estimate for verdict in verdicts if verdict.estimate is not None]


def row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def estimate_cells(estimates: Sequence[Estimate | None], *, difference: bool = False) -> list[Cell]:
    """A column of estimates: number, interval, and a bar on the column's common scale."""
    text = points if difference else interval
    bars = bars_of(estimates, zero=difference)
    return [Cell("–", "quiet") if e is None else Cell(text(e), bar=bar) for e, bar in zip(estimates, bars, strict=True)]


def bars_of(
    estimates: Sequence[Estimate | None], *, zero: bool = True, ends: tuple[float, float] | None = None
) -> list[Bar | None]:
    """Intervals on one scale, with the given ends or those of the intervals; with `zero`, it includes 0 and marks it."""
    known = [e for e in estimates if e is not None]
    low, high = ends or (min((e.low for e in known), default=0.0), max((e.high for e in known), default=1.0))
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:  # a single point: draw it in the middle
        low, high = low - 0.5, high + 0.5
    span = high - low
    zero_at = -low / span if zero else None
    return [Bar((e.low - low) / span, (e.value - low) / span, (e.high - low) / span, zero_at) if e else None for e in estimates]


def plotted(estimate: Estimate) -> dict[str, float]:
    """An estimate in percent, as the row of a chart."""
    return {name: round(100 * getattr(estimate, name), 3) for name in ("value", "low", "high")}


def percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f}% [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def interval(estimate: Estimate | None) -> str:
    """A value in percent with its interval, without the percent sign: tables name the unit in their head."""
    if estimate is None:
        return "–"
    return f"{100 * estimate.value:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def points(estimate: Estimate) -> str:
    """A difference. A bound that would round to zero has one more digit, because its side of zero decides."""
    clipped = estimate.within(-1.0, 1.0)
    return f"{100 * clipped.value + 0.0:+.1f} [{bound(clipped.low)}, {bound(clipped.high)}]"


def bound(share: float) -> str:
    text = f"{100 * (share := round(share, 8) + 0.0):+.1f}"  # what rounding errors leave of zero is zero
    return text if share == 0 or float(text) else f"{100 * share:+.2f}"


def is_same(difference: Estimate) -> bool:
    """Does nothing differ at all? An interval of no width would feign precision, so words say it."""
    return difference.value == difference.low == difference.high == 0


def p_text(p: float | None) -> str:
    return "–" if p is None else f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def tokens(count: int | None) -> str:
    if count is None:
        return "–"
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def rounded(count: int) -> int:
    """Rounded up to two leading digits, for counts that are extrapolated."""
    size = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // size) * size


def note(name: str, say: Say, /, **values: Any) -> str:
    """The sentence of that name in notes.json."""
    return " ".join(notes(name, say, **values))


def notes(name: str, say: Say, /, **values: Any) -> tuple[str, ...]:
    """The sentences of that name in notes.json, which has each in Korean and in English, with values filled in."""
    sentences = json.loads((Path(__file__).parent / "templates" / "notes.json").read_text("utf-8"))
    return tuple(say(ko, en).format(**values) for ko, en in sentences[name])
