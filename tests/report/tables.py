"""Tables that do not say which documents they show."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coref_automl.report.page import Section, Table

_MEASURED = re.compile(r"\d\.\d")
_SENTENCES = re.compile("all sentences|모든 문장")


def silent_tables(sections: Iterable[Section]) -> list[tuple[str, str]]:
    """Section and caption of every table that holds a measured number and names neither documents nor sentences."""
    tables = [(section.id, block) for section in sections for block in section.blocks if isinstance(block, Table)]
    return [
        (name, table.caption)
        for name, table in tables
        if not table.shows
        and not _SENTENCES.search(table.caption)
        and any(_MEASURED.search(cell.text) for line in table.rows for cell in line)
    ]
