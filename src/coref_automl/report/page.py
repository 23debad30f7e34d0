"""A page as data. In: texts, tables and charts. Out: blocks that both templates render, so Markdown and HTML agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from coref_automl.records import Estimate
from coref_automl.report.language import Lang, points

Tone = Literal["", "good", "bad", "quiet", "strong"]


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval drawn in a cell, as fractions of the column's width."""

    low: float
    value: float
    high: float
    zero: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""
    bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """`numeric` are the right-aligned columns."""

    kind = "table"
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    caption: str = ""


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


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions with their answers: section id, question, answer."""

    kind = "answers"
    items: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """A stretch of a text that is drawn in one way: `style` are classes of the page's sheet, `tokens` is shown where over 1."""

    text: str
    style: str = ""
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Readings:
    """One text as several tokenizers read it, under each other: names and atoms; `plain` is the same for Markdown."""

    kind = "readings"
    rows: tuple[tuple[str, tuple[Atom, ...], str], ...]
    caption: str = ""


Block = Table | Text | Points | Charts | Commands | Answers | Readings


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page. `short` replaces a long title in the contents; `answer` is there if the title is a question."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    short: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure at the top of the page."""

    label: str
    value: str
    detail: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Page:
    lang: Lang
    title: str
    subtitle: str
    lead: str
    headline: str
    sentence: str
    tiles: tuple[Tile, ...]
    cannot_tell: tuple[str, ...]
    sections: tuple[Section, ...]
    colophon: tuple[str, ...]
    explorer: dict[str, Any] | None = None
    notes: tuple[str, ...] = field(default=())


def question(name: str, title: str, answer: str, blocks: Sequence[Block], short: str) -> Section:
    """A section that asks a question: its answer comes first, and again among the conclusions."""
    return Section(name, title, (Text(answer, "strong"), *blocks), short, answer)


def row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def estimate_cells(estimates: Sequence[Estimate | None], *, difference: bool = False) -> list[Cell]:
    """A column of estimates: number, interval, and a bar on the column's common scale."""
    known = [estimate for estimate in estimates if estimate is not None]
    low = min((e.low for e in known), default=0.0)
    high = max((e.high for e in known), default=1.0)
    if difference:
        low, high = min(low, 0.0), max(high, 0.0)
    span = (high - low) or 1.0
    zero = (0 - low) / span if difference else None
    out = []
    for e in estimates:
        if e is None:
            out.append(Cell("–", "quiet"))
            continue
        text = points(e) if difference else f"{100 * e.value:.1f} [{100 * e.low:.1f}, {100 * e.high:.1f}]"
        out.append(Cell(text, bar=Bar((e.low - low) / span, (e.value - low) / span, (e.high - low) / span, zero)))
    return out


def in_percent(estimate: Estimate) -> dict[str, float]:
    """An estimate as a chart row takes it."""
    return {
        key: round(100 * value, 3) for key, value in (("value", estimate.value), ("low", estimate.low), ("high", estimate.high))
    }
