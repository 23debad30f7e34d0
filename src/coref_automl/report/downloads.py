"""Tables and lists to take away. In: a table as a page shows it. Out: CSV or JSON, intervals in columns of their own."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coref_automl.report.page import Table

KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json; charset=utf-8"}
Row = dict[str, Any]
_INTERVAL = re.compile(r"([+-]?[\d.]+)%? \[([+-]?[\d.]+), ([+-]?[\d.]+)\]\s*(.*)")
_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?%?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would run."""


@dataclass(frozen=True, slots=True)
class Download:
    name: str
    kind: str
    text: str


def of_table(table: Table, name: str, kind: str) -> Download:
    rows = [
        dict(pair for title, cell in zip(table.head, line, strict=True) for pair in _parts(title, cell.text))
        for line in table.rows
    ]
    return of_rows(rows, name, kind)


def of_rows(rows: Sequence[Row], name: str, kind: str) -> Download:
    if kind == "json":
        return Download(f"{name}.json", KINDS[kind], json.dumps(rows, ensure_ascii=False, indent=1))
    text = io.StringIO()
    head = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, head, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return Download(f"{name}.csv", KINDS[kind], f"\ufeff{text.getvalue()}")


def _parts(title: str, text: str) -> Iterable[tuple[str, Any]]:
    if found := _INTERVAL.fullmatch(text):
        value, low, high, rest = found.groups()
        yield from ((title, float(value)), (f"{title} low", float(low)), (f"{title} high", float(high)))
        if rest:
            yield f"{title} verdict", rest
    elif _NUMBER.fullmatch(text):
        yield title, float(text.replace(",", "").rstrip("%"))
    else:
        yield title, "" if text == "–" else text


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
