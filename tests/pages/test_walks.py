"""The marked blocks of the pages are run as a reader would type them, on small files of the names that the page uses.

A block is marked by `<!-- run with my-encoder articles.jsonl -->` in the line before it; `run in journeys` gives the
long ones a folder of their own. The blocks of a page are run in order in one folder, by `make journeys`. Commands of this tool
run in this process, others in bash.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from coref_automl.cli.app import run
from coref_automl.corpus.sources import bundled_rows
from coref_automl.extras.coreference.documents import write_documents
from tests.extras.coreference.conftest import tale
from tests.journeys.foreign import write_foreign
from tests.pages.markdown import ROOT, pages

MARKED = re.compile(r"^<!-- run( in journeys)?(?: with ([^>]*?))? -->\n```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


def articles() -> list[str]:
    return [row["text"] for row in islice(bundled_rows("synthetic-short"), 24)]


def _articles(path: Path) -> None:
    rows = [{"title": f"글 {number}", "text": text} for number, text in enumerate(articles())]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def _cloze(path: Path) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in islice(bundled_rows("cloze"), 12)), "utf-8")


def _relations(first: int, last: int, *, labelled: bool = True) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        held = islice(bundled_rows("relations"), first, last)
        rows = [row if labelled else {**row, "label": None} for row in held]
        path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")

    return write


FILES: dict[str, Callable[[Path], object]] = {
    "my-encoder": lambda path: write_foreign("bert", articles(), path),
    "articles.jsonl": _articles,
    "cloze.jsonl": _cloze,
    "train.json": _relations(0, 160),
    "dev.json": _relations(160, 220),
    "new.json": _relations(220, 240, labelled=False),
    "tales.jsonl": lambda path: write_documents(path, [tale(number) for number in range(12)]),
    "tale.txt": lambda path: path.write_text(tale(0).text, "utf-8"),
}
"""What a reader brings, small."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The marked blocks of a page that are run together."""

    page: Path
    journey: bool
    files: tuple[str, ...]
    lines: tuple[str, ...]


def walks() -> Iterator[Walk]:
    for page in pages():
        found = MARKED.findall(page.read_text("utf-8"))
        for journey in (False, True):
            marked = [(files, block) for in_journeys, files, block in found if bool(in_journeys) == journey]
            if marked:
                files = tuple(dict.fromkeys(name for files, _ in marked for name in files.split()))
                text = "".join(block for _, block in marked).replace("\\\n", " ")
                yield Walk(page, journey, files, tuple(line for line in text.splitlines() if line.strip()))


def walked(walk: Walk, folder: Path) -> None:
    for name in walk.files:
        FILES[name](folder / name)
    for line in walk.lines:
        words = shlex.split(line, comments=True)
        if words[:1] == ["coref-automl"]:
            assert run(words[1:]) == 0, line
        elif words:
            assert subprocess.run(["bash", "-c", line], cwd=folder, check=False).returncode == 0, line


CASES = [pytest.param(walk, id=f"{walk.page.relative_to(ROOT)}", marks=pytest.mark.journey) for walk in walks()]


@pytest.mark.parametrize("walk", CASES)
def test_a_page_can_be_walked(walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    walked(walk, tmp_path)


def test_a_line_that_fails_stops_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="no-such"):
        walked(Walk(ROOT / "README.md", False, (), ("coref-automl compare no-such-folder",)), tmp_path)
    assert len(CASES) > 5
