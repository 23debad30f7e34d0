"""A page as files. In: a Page. Out: report.md and report.html; the HTML is one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, get_args

from coref_automl.comparison.claims import Verdict as Code
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.report import charts
from coref_automl.report.language import Say, is_same, points
from coref_automl.report.page import Charts, Page, Table
from coref_automl.report.wording import word
from coref_automl.store import write_json, write_text

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
TEMPLATES = Path(__file__).parent / "templates"


def words(say: Say) -> dict[str, Any]:
    """The texts of the page itself."""
    return {
        "contents": say("차례", "contents"),
        "theme": say("밝게 / 어둡게", "light / dark"),
        "cannot_tell": say("이 데이터가 말해 주지 못하는 것", "What these data cannot tell"),
        "no_charts": say("그림을 그리려면 설치하세요:", "To have charts here, run:"),
        "explorer": say("문항 살펴보기", "Item explorer"),
        "explorer_intro": say(
            "모델들이 가장 갈린 문항입니다. 빈칸은 파란색, 앞선 언급은 밑줄, 그 아래는 각 모델의 답 다섯 개입니다.",
            "The items on which the models part most. The gap is blue, the other mention underlined; below are each model's "
            "top five.",
        ),
        "ranges": say("표에 신뢰구간 숫자 보이기", "show intervals as numbers"),
        "badges": {code: word(code, say) for code in get_args(Code)},
        "shows": {
            "": "",
            "all": say("모든 문서", "all documents"),
            "select": say("고르는 데 쓴 문서(선택용 절반)", "documents that chose (select half)"),
            "confirm": say("고르는 데 쓰지 않은 문서(확인용 절반)", "held-back documents (confirm half)"),
            "both": say("선택용 · 확인용 절반", "select and confirm halves"),
        },
        "question": say("질문", "question"),
        "verdict": say("판정", "verdict"),
        "answer_title": say("답", "answer"),
        "difference": say("차이 (점)", "difference (points)"),
        "unit": say("점", "points"),
        "same": say("모든 문항에서 같음", "the same on every item"),
        "keep": say("선택:", "Keep:"),
        "base": say("원래 모델", "the base model"),
        "next": say("다음:", "Next:"),
        "copy_path": say("경로 복사", "copy path"),
        "copy_command": say("명령 복사", "copy command"),
        "copied": say("복사됨", "copied"),
        "show": say("보기", "show"),
        "task": say("과제", "task"),
        "search": say("찾기", "search"),
        "more": say("더 보기", "more"),
        "all_tasks": say("모두", "all"),
        "which": {
            "a-not-b": say("A 맞고 B 틀림", "A right, B wrong"),
            "b-not-a": say("B 맞고 A 틀림", "B right, A wrong"),
            "both-wrong": say("둘 다 틀림", "both wrong"),
            "both-right": say("둘 다 맞음", "both right"),
            "all": say("모두", "all"),
        },
        "rank": say("순위", "rank"),
        "no_rank": say("어휘에 없음", "not in the vocabulary"),
        "word_rank": say("후보 중", "among candidates"),
        "distance": say("거리", "distance"),
        "answer": say("답", "answer"),
        "others": say("다른 모델의 답", "other models' answers"),
        "count": say(
            "{found}개 (가장 갈린 {kept}개 중; 전체 {total}개는 items.jsonl에 있습니다)",
            "{found} items (of the {kept} most telling; all {total} are in items.jsonl)",
        ),
    }


def write_page(page: Page, record: Record, out: Path, name: str, kind: str) -> Path:
    """NAME.html, NAME.md and NAME.json in a folder of this kind; returns the page's path."""
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
    specs = [
        spec for section in page.sections for block in section.blocks if isinstance(block, Charts) for _, spec in block.charts
    ]
    library = charts.runtime() if specs else None
    scripts = [script for script in (library, _read("page.js")) if script]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    ui = words(Say(page.lang))
    data = {"ui": ui, "charts": specs if library else [], "explorer": page.explorer}
    return str(
        environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            ui=ui,
            policy=f"{_POLICY} script-src {hashes}",
            style=_read("style.css"),
            data=for_script(data),
            scripts=scripts,
            drawn=library is not None,
            how_to_get=charts.HOW_TO_GET,
        )
    )


def for_script(value: Any) -> str:
    """JSON that cannot close the script element around it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


@cache
def environment(*more: Path) -> Any:
    """The templates of the report, and those of other folders."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*more, TEMPLATES]),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = _markdown
    environment.filters["cell"] = _cell
    environment.filters["table"] = markdown_table
    environment.filters["points"] = points
    environment.filters["pieces"] = _pieces
    environment.filters["same"] = is_same
    return environment


def _pieces(text: str) -> tuple[str, str, str]:
    """`+3.3 [+2.6, +4.1] shown` as value, interval and the rest."""
    found = re.fullmatch(r"(.*?) (\[[^\]]*\])\s*(.*)", text)
    return (found[1], found[2], found[3]) if found else (text, "", "")


def _cell(text: str) -> str:
    return _markdown(text).replace("|", "\\|")


def _markdown(text: str) -> str:
    """Text from the data stays text: no tag, no line break, no emphasis by accident."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\*`]|(?<!\w)_|_(?!\w)|\](?=\()|^[#>-]", r"\\\g<0>", plain)
