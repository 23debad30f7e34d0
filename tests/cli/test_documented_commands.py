"""Commands in the step-by-step pages are commands of this tool: every verb and every option exists and takes such a value."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from coref_automl.cli.app import TyperException, load_commands

DOCS = Path(__file__).resolve().parents[2] / "docs"
VALUES = {"length": "1536", "objective": "entity", "seed": "0", "start": "entity-2048-s0"}


def commands(page: Path) -> list[str]:
    """Lines of the page's shell blocks that call the tool, loops unrolled once."""
    blocks = re.findall(r"```(?:bash)?\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    text = re.sub(r"\$(\w+)", lambda found: VALUES.get(found.group(1), found.group()), text)
    return re.findall(r"^\s*(coref-automl [^\n;|]*)", text, re.MULTILINE)


def parse(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(load_commands())
    while words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    assert not hasattr(command, "commands")
    command.make_context("coref-automl", words)


PAGES = ("kf-deberta.md", "coreference.md", "annotated-data.md", "study.md")


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(DOCS / page)])
def test_a_documented_command_parses(line: str) -> None:
    parse(line)


def test_the_check_would_notice_an_option_that_is_gone() -> None:
    with pytest.raises(TyperException, match="no-such-option"):
        parse("coref-automl evaluate runs --no-such-option 1")
    assert len(commands(DOCS / "kf-deberta.md")) > 15
