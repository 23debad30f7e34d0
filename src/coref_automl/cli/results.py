"""What commands share around their work: consent before training, and how results reach standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coref_automl.errors import InputError
from coref_automl.say import say

if TYPE_CHECKING:
    from coref_automl.experiment.estimate import Preflight


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_result(result: Any, as_json: bool, lines: Iterable[str] | None = None, **more: Any) -> None:
    """Print a result as JSON, with further keys from `more`; or as lines, by default its own."""
    if as_json:
        print_json({**result.to_json(), **more})
    else:
        print("\n".join(result.lines() if lines is None else lines))


def confirmation(yes: bool, as_json: bool) -> Callable[[Preflight], bool]:
    """A function that decides whether to train: --yes, the user's answer, or without a terminal whether steps are enough."""

    def confirm(preflight: Preflight) -> bool:
        if yes or as_json or not sys.stdin.isatty():
            return yes or not preflight.too_short
        return typer.confirm(say("계속할까요?", "Go on?"), err=True)

    return confirm


def note_foreign(text: str) -> None:
    from coref_automl.corpus.clean import foreign_note

    if note := foreign_note(text):
        print(note, file=sys.stderr)


def answers_file(data: str | None, out: Path | None, single: Mapping[str, Any]) -> bool:
    """Was --data FILE --out DIR passed? Options in `single`, which are for one text, exclude it."""
    of_file = [name for name, value in (("--data", data), ("--out", out)) if value is not None]
    of_text = [name for name, value in single.items() if value is not None]
    if of_file and of_text:
        raise InputError(f"{of_file[0]} is for a file of rows and {of_text[0]} for one text; pass one of them.")
    if len(of_file) == 1:
        raise InputError("A file of rows needs both --data FILE and --out DIR.")
    return bool(of_file)
