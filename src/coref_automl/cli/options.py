"""Options that several commands share, and how results reach standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[
    Path, typer.Option("--out", "--output-dir", help="Folder to write; made if missing, refused if it holds something else.")
]
OptionalOut = Annotated[
    Path | None,
    typer.Option("--out", "--output-dir", help="Folder to write; made if missing, refused if it holds something else."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
