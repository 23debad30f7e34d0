"""Results as tables. In: rows. Out: aligned lines for a terminal; a pandas frame, where pandas is there."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from coref_automl.errors import InputError


class Tabular(ABC):
    """A result that can be listed: `to_rows()` as dictionaries, `to_frame()` as a pandas table."""

    __slots__ = ()

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]: ...

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; install pandas for it, the package does not."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame() needs pandas, which is not installed; pip install pandas, or use to_rows().") from None
        return pandas.DataFrame(self.to_rows())

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the table as pandas draws it. Without pandas it is the short repr."""
        try:
            drawn: str = self.to_frame()._repr_html_()
        except InputError:
            return None
        return drawn


def align(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Rows with their columns aligned, all but the first to the right if asked; a Hangul syllable is two cells wide."""
    if not rows:
        return []
    widths = [max(cells_of(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        blanks = [" " * (width - cells_of(cell)) for cell, width in zip(row, widths, strict=True)]
        shown = [blank + cell if right and at else cell + blank for at, (cell, blank) in enumerate(zip(row, blanks, strict=True))]
        lines.append("  ".join(shown).rstrip())
    return lines


def cells_of(text: str) -> int:
    """The columns of a terminal that a text takes."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
