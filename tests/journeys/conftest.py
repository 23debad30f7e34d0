"""What a newcomer brings: a folder of work, texts of one's own, models made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from coref_automl.corpus.synthetic.writer import documents
from tests.browser import opened
from tests.journeys.shell import Shell


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """One folder per module: a journey goes on where the last step stopped."""
    return Shell(tmp_path_factory.mktemp("journey"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def texts(shell: Shell) -> list[str]:
    """Articles of one's own in articles.jsonl, a title and a text each."""
    found = [made.document for made in documents(24, 11, least=600, most=1_400)]
    rows = [{"title": f"글 {number}", "text": document.text} for number, document in enumerate(found)]
    (shell.folder / "articles.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return [row["text"] for row in rows]
