"""The errors of the troubleshooting pages are the errors of the package: each quoted sentence still stands in its source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import coref_automl
from tests.pages.markdown import DOCS

GAP = "…"
PAGES = ("troubleshooting.md", "troubleshooting.ko.md")


def quoted(page: Path) -> list[str]:
    """The quoted errors of a page, and those inside a line that have a gap."""
    text = page.read_text("utf-8")
    inside = [code for code in re.findall(r"`([^`\n]+)`", text) if GAP in code and code != GAP]
    return [*re.findall(r"^> (.+)$", text, re.MULTILINE), *inside]


@cache
def written() -> tuple[str, ...]:
    """Every text of the package, with a gap for each value put into it."""
    found = []
    for path in Path(coref_automl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(found)


def stands(message: str) -> bool:
    """Whether some text of the package has the message's fixed words, in order."""
    pattern = ".*".join(map(re.escape, message.split(GAP)))
    return any(re.search(pattern, text, re.DOTALL) for text in written())


@pytest.mark.parametrize("name", PAGES)
def test_every_quoted_error_is_one_of_the_package(name: str) -> None:
    assert [message for message in quoted(DOCS / name) if not stands(message)] == []


def test_both_languages_quote_the_same_twenty_errors() -> None:
    english, korean = (re.findall(r"^> (.+)$", (DOCS / name).read_text("utf-8"), re.MULTILINE) for name in PAGES)
    assert english == korean
    assert len(set(english)) == 20


def test_a_message_that_is_gone_is_noticed() -> None:
    assert not stands("The loss of step … is fine; go on.")
