"""Commands that the product prints. In: its output. Out: the commands in it, and what is wrong with one, unrun."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer.main

from coref_automl.cli.app import load_commands

_LINE = re.compile(r"coref-automl [a-z][^`\n<>]*")
_INPUTS = {"--recipe", "--dataset", "--eval-set", "--data", "--train", "--dev"}
"""Options that name what must be there; a model may also be on the hub."""


def printed_in(text: str) -> list[str]:
    """Every command of a text that begins a line, a list entry or a code span, two that are joined by && as two."""
    lines = (match[0].strip().rstrip(".") for match in _LINE.finditer(text) if _begins(text, match.start()))
    return list(dict.fromkeys(part.strip() for line in lines for part in line.split(" && ")))


def made_by(lines: Iterable[str]) -> tuple[str, ...]:
    """The folders that commands write: a later one may read them."""
    return tuple(word for line in lines for flag, word in pairwise(shlex.split(line, comments=True)) if flag == "--out")


def wrong_with(line: str, made: tuple[str, ...] = ()) -> str:
    """Why a printed command would not run from here; empty if nothing is. `made` are paths that an earlier command makes."""
    words = shlex.split(line, comments=True)[1:]
    try:
        given = _parsed(words)
    except Exception as error:  # whatever the parser raises for it
        return f"{type(error).__name__}: {error}"
    named = [word for flag, word in pairwise(words) if flag in _INPUTS]
    named += [one for one in given.get("paths") or () if "/" in one]
    lost = [one for one in named if ":" not in one and one not in made and not Path(one).exists()]
    return f"missing: {', '.join(lost)}" if lost else ""


def _begins(text: str, at: int) -> bool:
    before = text[:at].rsplit("\n", 1)[-1].rstrip()
    return not before or before.endswith(("`", ":", "&&", "-", "|", "&amp;&amp;"))


@cache
def _application() -> Any:
    return typer.main.get_command(load_commands())


def _parsed(words: list[str]) -> dict[str, Any]:
    """The options of a command line as the application reads them; nothing is run."""
    command, context, left = _application(), None, words
    while True:
        context = command.make_context(command.name, list(left), parent=context)
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "commands") or not rest:
            return dict(context.params)
        _, command, left = command.resolve_command(context, rest)
