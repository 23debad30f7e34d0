"""A page as files. In: a Page, or the chains of a text. Out: report.md and report.html, one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from coref_automl.base.locks import claimed
from coref_automl.base.records import Record
from coref_automl.base.say import Say
from coref_automl.base.store import write_json, write_text
from coref_automl.extras.pages import charts
from coref_automl.report.page import Charts, Page, Table, is_same, points

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
TEMPLATES = Path(__file__).parent / "templates"


def words(say: Say) -> dict[str, Any]:
    """The labels of the page itself; words.json has each in Korean and in English."""

    def in_language(entry: Any) -> Any:
        return {name: in_language(value) for name, value in entry.items()} if isinstance(entry, dict) else say(*entry)

    return dict(in_language(json.loads(_read("words.json"))))


def write_page(page: Page, record: Record, out: Path, name: str, kind: str) -> Path:
    """Write NAME.html, NAME.md and NAME.json to a folder of this kind; return the page's path."""
    with claimed(out, kind):
        write_json(out / f"{name}.json", record.to_json())
        write_text(out / f"{name}.md", render_markdown(page))
        write_text(out / f"{name}.html", render_html(page))
    return out / f"{name}.html"


def render_markdown(page: Page) -> str:
    text = environment().get_template("report.md.j2").render(page=page, ui=words(Say(page.lang)))
    return re.sub(r"\n{3,}", "\n\n", text.replace("| \n", "|\n")).strip() + "\n"


def markdown_table(table: Table) -> str:
    """One table as Markdown, without its caption."""
    rule = ("---:" if number in table.numeric else "---" for number in range(len(table.head)))
    body = ((f"**{_cell(c.text)}**" if c.tone == "strong" else _cell(c.text) for c in line) for line in table.rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in (map(_cell, table.head), rule, *body))


def render_html(page: Page) -> str:
    """One self-contained file. Its policy lists the scripts by hash: nothing else can run, and nothing can be fetched."""
    specs = [spec for part in page.sections for block in part.blocks if isinstance(block, Charts) for _, spec in block.charts]
    library = charts.runtime() if specs else None
    scripts = [script for script in (library, _read("page.js")) if script]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    ui = words(Say(page.lang))
    values = {
        "policy": f"{_POLICY} script-src {hashes}",
        "style": _read("style.css"),
        "data": for_script({"ui": ui, "charts": specs if library else []}),
        "scripts": scripts,
        "drawn": library is not None,
        "how_to_get": charts.HOW_TO_GET,
    }
    return str(environment().get_template("report.html.j2").render(page=page, ui=ui, **values))


def for_script(value: Any) -> str:
    """JSON that cannot close the script element around it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


@cache
def environment(*more: Path) -> Any:
    """The environment of the report's templates, and of those in other folders."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*more, TEMPLATES]),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    filters = {"md": _markdown, "cell": _cell, "table": markdown_table, "points": points, "pieces": _pieces, "same": is_same}
    environment.filters.update(filters)
    return environment


def _pieces(text: str) -> tuple[str, str, str]:
    """`+3.3 [+2.6, +4.1] shown` as value, interval and the rest."""
    match = re.fullmatch(r"(.*?) (\[[^\]]*\])\s*(.*)", text)
    return (match[1], match[2], match[3]) if match else (text, "", "")


def _cell(text: str) -> str:
    return _markdown(text).replace("|", "\\|")


def _markdown(text: str) -> str:
    """Escape text from the data: no tag, no line break, no emphasis by accident."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\*`]|(?<!\w)_|_(?!\w)|\](?=\()|^[#>-]", r"\\\g<0>", plain)
