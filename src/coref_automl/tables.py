"""Tables as lines of text. In: rows of cells. Out: lines whose columns are aligned where text is shown in cells of one width."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


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
    """The columns of a terminal that a text takes. A name from macOS has its syllables taken apart, and shows them whole."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in unicodedata.normalize("NFC", text))
