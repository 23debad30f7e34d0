"""Commands in the pages are commands of this tool: every verb and every option exists and takes such a value."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from coref_automl.base.errors import RecipeError
from coref_automl.cli.app import TyperException, load_commands
from tests.pages.markdown import DOCS, ROOT, blocks, pages, prose

GENERATED = {
    DOCS / "cli.md",
    *(DOCS / "cli").iterdir(),
    ROOT / "CHANGELOG.md",
}  # commands' own words; older versions
VALUES = {"length": "1536", "objective": "entity", "seed": "0", "start": "entity-2048-s0", "SLURM_ARRAY_TASK_ID": "0"}
TOOL = r"(?:coref-automl|(?:accelerate launch|torchrun)[^\n;|`]* -m coref_automl\.cli) "


def commands(text: str) -> list[str]:
    """What a page tells its reader to type: lines of its blocks, variables filled in, loops unrolled once."""
    shell = "\n".join(block for language, block in blocks(text) if language in ("", "bash", "sh", "console"))
    shell = shell.replace("\\\n", " ")
    values = VALUES | dict(re.findall(r"""^(\w+)=["']?([^"'\n]*)""", shell, re.MULTILINE))
    shell = re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found.group(1), found.group()), shell)
    typed = re.findall(rf"^\s*(?:[A-Z_]+=\S+ )*{TOOL}([^\n;|>]*)", shell, re.MULTILINE)
    return [line.replace(" ...", "").strip() for line in typed]


def mentioned(text: str) -> list[str]:
    """Commands in a page's sentences; these may leave out what does not matter there."""
    return [line.replace(" ...", "").strip() for line in re.findall(rf"`{TOOL}([^`]*)`", prose(text).replace("\n", " "))]


@cache
def tool() -> Any:
    return typer.main.get_command(load_commands())


def parse(line: str) -> None:
    words = shlex.split(line, comments=True)
    words = [word for word in words if word not in ("--debug", "--help")]
    command = tool()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if words and not hasattr(command, "commands"):
        command.make_context("coref-automl", words)
    assert not words or not words[0].isidentifier() or not hasattr(command, "commands"), f"no command {words[0]}"


PAGES = [page for page in pages() if page not in GENERATED and "coref-automl " in page.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_parses(page: Path) -> None:
    wrong, text = [], page.read_text("utf-8")
    for whole, lines in ((True, commands(text)), (False, mentioned(text))):
        for line in lines:
            try:
                parse(line)
            except (TyperException, RecipeError, AssertionError) as error:
                if whole or not str(error).startswith("Missing"):
                    wrong.append(f"coref-automl {line}: {error}")
    assert wrong == []


def test_the_check_would_notice_an_option_or_a_command_that_is_gone() -> None:
    with pytest.raises(TyperException, match="no-such-option"):
        parse("evaluate runs --no-such-option 1")
    with pytest.raises(AssertionError, match="nosuch"):
        parse("nosuch runs")
    assert len(commands((DOCS / "kf-deberta.md").read_text("utf-8"))) > 15
    assert len(PAGES) > 15
