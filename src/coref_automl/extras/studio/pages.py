"""Pages of the studio. In: a template, an address, values. Out: HTML in the language of the address; tables as CSV or JSON.

The state of a page is its address: forms send it, links change a part of it, and opening it again shows the same page.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from coref_automl.base.fingerprints import fingerprint_files
from coref_automl.base.say import LANGUAGES, Lang, Say
from coref_automl.extras.pages import charts
from coref_automl.extras.pages.rendering import TEMPLATES, environment, for_script, words
from coref_automl.report.page import Charts, Section, Table

_HERE = Path(__file__).parent
COLORS = ("#3f74e8", "#e07a2f", "#1f9d78", "#c2498f", "#8a6fe0", "#b38a00", "#3d9bb5", "#6a9a2d",
          "#5458b0", "#9c5c2e", "#0e7c86", "#a64fc9", "#7d8c1c", "#4f7f5c")  # fmt: skip
"""The report's colors in its order, without red and grey, which carry a meaning."""
_EMBED = {"defaultStyle": False, "tooltip": {"disableDefaultStyle": True, "theme": "custom"}}
"""The policy forbids Vega's own style elements; studio.css replaces them."""
LANG, AS, TABLE = "lang", "as", "table"
_OF_A_SET = ("/", "/compare", "/items", "/item", "/run")


@dataclass(frozen=True, slots=True)
class Address:
    """The path and the query of a page. `default` is the language that the studio was started with."""

    path: str
    query: Mapping[str, str]
    default: Lang

    @property
    def lang(self) -> Lang:
        return LANGUAGES.get(self.query.get(LANG, ""), self.default)

    @property
    def say(self) -> Say:
        return Say(self.lang)

    def get(self, name: str) -> str:
        return self.query.get(name, "").strip()

    def shared(self, path: str) -> dict[str, str]:
        """Return the part of the query that another page shares: the set, and A and B if both pages have them."""
        names = {"/": ["set"], "/compare": ["set", "a", "b"], "/items": ["set", "a", "b"]}.get(path, [])
        return {name: self.get(name) for name in names if self.path in _OF_A_SET}

    def link(self, path: str | None = None, /, **changes: Any) -> str:
        """Return the address of this page with another query, or of another page in the same language; None removes a value."""
        current = {name: value for name, value in self.query.items() if name not in (AS, TABLE)}
        base = current if path is None else {name: self.query[name] for name in (LANG,) if name in self.query}
        query = {name: str(value) for name, value in {**base, **changes}.items() if value not in (None, "")}
        return f"{path or self.path}?{urlencode(query)}" if query else path or self.path


class Pages:
    """Renders templates; compiled once."""

    def __init__(self) -> None:
        self._templates = environment(_HERE / "templates")
        self._templates.globals["zip"] = zip

    def page(self, name: str, address: Address, *, title: str, sections: Sequence[Section] = (), **values: Any) -> str | Download:
        """Render a page, or return the table of it that the address names. `sections` hold the blocks of reports."""
        say = address.say
        if (kind := address.get(AS)) in KINDS:
            for section in sections:
                for block in section.blocks:
                    if section.id == address.get(TABLE) and isinstance(block, Table):
                        return of_table(block, section.id, kind)
        blocks = [block for section in sections for block in section.blocks if isinstance(block, Charts)]
        specs = [spec for block in blocks for _, spec in block.charts]
        drawn = find_spec("vl_convert") is not None
        drawable = [{**spec, "usermeta": {**spec.get("usermeta", {}), "embedOptions": _EMBED}} for spec in specs if drawn]
        rendered = self._templates.get_template(name).render(
            address=address, say=say, title=title, sections=sections, ui=words(say), drawn=drawn, how_to_get=charts.HOW_TO_GET,
            data=for_script({"ui": {}, "charts": drawable}), scripts=[LIBRARY] * bool(specs and drawn) + ["page.js"],
            static=static_link, colors=COLORS, **values,
        )  # fmt: skip
        return str(rendered)

    def part(self, name: str, address: Address, **values: Any) -> str:
        return str(self._templates.get_template(name).render(address=address, say=address.say, ui=words(address.say), **values))


_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_STATIC = {
    "page.js": (_SCRIPT, TEMPLATES),
    "style.css": (_STYLE, TEMPLATES),
    "studio.js": (_SCRIPT, _HERE / "static"),
    "chains.js": (_SCRIPT, _HERE / "static"),
    "studio.css": (_STYLE, _HERE / "static"),
}
"""All files that pages load, besides the chart library."""
LIBRARY = "vega.js"


@cache
def static_file(name: str) -> tuple[str, bytes] | None:
    if name == LIBRARY:
        library = charts.runtime()
        return (_SCRIPT, library.encode()) if library else None
    if name not in _STATIC:
        return None
    kind, folder = _STATIC[name]
    return kind, (folder / name).read_bytes()


@cache
def static_link(name: str) -> str:
    """Return the address of a file with a hash of its content, so that browsers may cache it."""
    mark = version("vl-convert-python") if name == LIBRARY else fingerprint_files([_STATIC[name][1] / name])[:12]
    return f"/static/{name}?{mark}"


KINDS = {"csv": "text/csv; charset=utf-8", "json": "application/json; charset=utf-8"}
Row = dict[str, Any]
_INTERVAL = re.compile(r"([+-]?[\d.]+)%? \[([+-]?[\d.]+), ([+-]?[\d.]+)\]\s*(.*)")
_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?%?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet would run."""


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
    for row in rows:
        texts = {key: f"'{value}" for key, value in row.items() if isinstance(value, str) and value.startswith(_FORMULA)}
        writer.writerow(row | texts)
    return Download(f"{name}.csv", KINDS[kind], f"\ufeff{text.getvalue()}")


def _parts(title: str, text: str) -> Iterable[tuple[str, Any]]:
    if match := _INTERVAL.fullmatch(text):
        value, low, high, rest = match.groups()
        yield from ((title, float(value)), (f"{title} low", float(low)), (f"{title} high", float(high)))
        if rest:
            yield f"{title} verdict", rest
    elif _NUMBER.fullmatch(text):
        yield title, float(text.replace(",", "").rstrip("%"))
    else:
        yield title, "" if text == "–" else text
