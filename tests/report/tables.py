"""Tables that do not say which documents they show."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coref_automl.report.page import Section, Table

_MEASURED = re.compile(r"\d\.\d")
_NAMED = {
    "en": re.compile(r"\b(all documents|confirm half|select half|select or confirm|all sentences)\b"),
    "ko": re.compile(r"모든 문서|확인 쪽|선택 쪽|모든 문장"),
}


def silent_tables(sections: Iterable[Section], lang: str) -> list[tuple[str, str]]:
    """Section and caption of every table that holds a measured number and does not name its documents."""
    found = [(section.id, block) for section in sections for block in section.blocks if isinstance(block, Table)]
    return [
        (name, table.caption)
        for name, table in found
        if not _NAMED[lang].search(table.caption) and any(_MEASURED.search(cell.text) for line in table.rows for cell in line)
    ]


def silent_in_markdown(page: str, lang: str) -> list[str]:
    """The same for the sections of a written page: the heads of such tables. A caption is the line in italics above a table."""
    page = page[page.index("\n## ") :]
    tables = re.findall(r"(?:^\*(.*)\*\n\n)?((?:^\|.*\n)+)", page, re.MULTILINE)
    return [
        body.splitlines()[0]
        for caption, body in tables
        if not _NAMED[lang].search(caption) and _MEASURED.search(body.partition("\n")[2])
    ]
