"""The command reference. In: the commands on the app. Out: Markdown, the same on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import typer.main

_WIDTH = 100


def reference() -> str:
    """One section a command, each with the text that its `--help` prints."""
    from coref_automl.cli import commands  # noqa: F401 - importing it puts every verb on the app
    from coref_automl.cli.app import app

    os.environ["COLUMNS"] = str(_WIDTH)
    sections = ["# Commands", "Written from the commands by `make docs`; a test holds this page to them."]
    for path, command in _walk("coref-automl", typer.main.get_command(app)):
        sections.append(f"## {path}\n\n```\n{_help(path, command)}\n```")
    return "\n\n".join(sections) + "\n"


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(f"{path} {name}", child)


def _help(path: str, command: Any) -> str:
    with command.make_context(path, [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH) as context:
        lines = command.get_help(context).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()
