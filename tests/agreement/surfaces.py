"""What every surface prints of a study. In: its folder. Out: texts by surface and language, as a person sees them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from coref_automl.base.say import Lang
from coref_automl.cli.app import run as command
from coref_automl.extras.studio import compare_page, leaderboard
from coref_automl.extras.studio.pages import Address
from coref_automl.extras.studio.workspace import Pending, Workspace
from coref_automl.report.printout import recommend

LANGUAGES: tuple[Lang, ...] = ("en", "ko")


@dataclass(frozen=True)
class Printed:
    """`kind` is terminal, json, python, markdown, html or studio."""

    kind: str
    lang: Lang
    text: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.lang}"


def printed(root: Path, out: Path) -> list[Printed]:
    """Every surface in both languages. `compare` refuses a single evaluation, so that its terminal and JSON are not there."""
    found = [_command(["compare", str(root), "--lang", lang], "terminal", lang) for lang in LANGUAGES]
    found.append(_command(["compare", str(root), "--json"], "json", "en"))
    told = recommend(root)
    found += [Printed("python", lang, str(replace(told, lang=lang))) for lang in LANGUAGES]
    for lang in LANGUAGES:
        folder = out / lang
        found.append(_command(["report", str(root), "--out", str(folder), "--lang", lang], "report", lang))
        found.append(Printed("markdown", lang, (folder / "report.md").read_text("utf-8")))
        found.append(Printed("html", lang, (folder / "report.html").read_text("utf-8")))
    return [one for one in (*found, *studio(root)) if one.text]


def _command(line: list[str], kind: str, lang: Lang) -> Printed:
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(io.StringIO()):
        failed = command(line)
    return Printed(kind, lang, "" if failed else text.getvalue())


def studio(root: Path) -> list[Printed]:
    """The leaderboard and the Compare page as they open."""
    workspace = Workspace([root])
    workspace.folders.scan()
    pages = [partial(page, workspace) for page in (leaderboard.page, compare_page.page)]
    try:
        return [
            Printed("studio", lang, "".join(_when_ready(page, Address("/", {}, lang)) for page in pages)) for lang in LANGUAGES
        ]
    finally:
        workspace.stop()


def _when_ready(page: Callable[[Address], object], address: Address) -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if 'id="later"' not in (made := str(page(address))):
                return made
        except Pending:
            continue
    raise TimeoutError("the page did not come")
