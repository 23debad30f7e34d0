"""What a newcomer brings: a folder of work, texts of one's own, models made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from coref_automl.corpus.sources import bundled_rows
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
    found = islice(bundled_rows("synthetic-short"), 24)
    rows = [{"title": f"글 {number}", "text": row["text"]} for number, row in enumerate(found)]
    (shell.folder / "articles.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return [row["text"] for row in rows]
