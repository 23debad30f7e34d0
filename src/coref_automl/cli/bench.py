"""coref-automl bench: speed side by side with the usual way, in one run on the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import print_json

if TYPE_CHECKING:
    from coref_automl.bench.result import BenchResult

bench_app = typer.Typer(help="Measure our speed against the usual way, as a ratio.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")


def show(result: BenchResult, as_json: bool) -> None:
    if as_json:
        print_json({**result.to_json(), "ratio": result.ratio})
        return
    for line in result.lines:
        print(line)
    print(result.closing_line())
