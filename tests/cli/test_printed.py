"""Commands in the sentences of the source: each is one that exists, with options that it has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import coref_automl
from coref_automl.cli.app import load_commands
from tests.printed import printed_in, wrong_with

ROOT = Path(coref_automl.__file__).parent
_COMMAND = re.compile(r"coref-automl ((?:[a-z][a-z0-9]* ?)+)((?:[^`\n.;,&]|\.(?=\S))*)")


def sentences() -> Iterator[tuple[str, str]]:
    """Every string of the source that names a command, values in it written as X; docstrings are for programmers."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        inside = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
        }
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in inside or id(node) in docs:
                continue
            text = ""
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else " X" for part in node.values)
            if "coref-automl " in text:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def test_every_command_that_a_sentence_names_exists_with_its_options() -> None:
    application = typer.main.get_command(load_commands())
    wrong, seen = [], 0
    for where, text in sentences():
        for match in _COMMAND.finditer(text):
            command, names = application, match[1].split()
            while names and hasattr(command, "commands") and names[0] in command.commands:
                command = command.commands[names.pop(0)]
            if command is application:
                wrong.append(f"{where}: {match[0]}")
                continue
            known = {option for param in getattr(command, "params", ()) for option in (*param.opts, *param.secondary_opts)}
            flags = re.findall(r"(?<!\S)--[a-z][a-z-]*", match[2])
            seen += 1
            wrong += [f"{where}: {command.name} has no {flag}" for flag in flags if known and flag not in {*known, "--help"}]
    assert seen > 60
    assert not wrong


@pytest.mark.parametrize(
    ("text", "found", "wrong"),
    [
        ("Next: coref-automl compare . bundled:ko-mini", ["coref-automl compare . bundled:ko-mini"], ""),
        ("- `coref-automl report runs/none --out r`", ["coref-automl report runs/none --out r"], "missing: runs/none"),
        (
            "coref-automl tune --recipe recipes/none.yaml",
            ["coref-automl tune --recipe recipes/none.yaml"],
            "missing: recipes/none.yaml",
        ),
        ("coref-automl fill --modle x", ["coref-automl fill --modle x"], "NoSuchOption"),
        ("made by coref-automl tune", [], ""),
    ],
)
def test_a_command_that_would_not_run_is_noticed(text: str, found: list[str], wrong: str) -> None:
    assert printed_in(text) == found
    assert all(wrong_with(line).startswith(wrong) and bool(wrong_with(line)) == bool(wrong) for line in found)
