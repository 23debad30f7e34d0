"""Throughput beside that of the usual way, in the same run on the same inputs: a ratio.

python benchmarks/throughput.py evaluate|prepare|re|train [options]    (--help lists the options of each)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import typer

from bench import EvaluateBench, PrepareBench, RelationBench, TrainBench
from coref_automl.base.errors import CorefError
from coref_automl.cli.app import print_result
from coref_automl.cli.options import AsJson, options_from, recipe_from

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

BENCHES: dict[str, tuple[str, type[Any], str, str]] = {
    "evaluate": ("evaluate:run", EvaluateBench,
        "Score Real items in one pass, against the fill-mask pipeline with its top 50 and Kiwi on each candidate, twice.",
        "--items 200 --seq-len 256"),
    "prepare": ("prepare:run", PrepareBench,
        "Prepare texts stage by stage, against one Kiwi call per document, tokenising and padding.",
        "--source local:wiki.jsonl --megabytes 5"),
    "re": ("train:run_relation", RelationBench,
        "Train relation rows in batches of similar length, against rows padded to one length.", "--rows 256 --padded 256"),
    "train": ("train:run", TrainBench,
        "Train packed rows with the head at masked positions only, against padded rows and joined chunks with full logits.",
        "--source local:wiki.jsonl --seq-len 512"),
}  # fmt: skip
"""By command: module and function, options, help, and an example."""


def _add_command(name: str) -> None:
    entry_point, recipe, about, example = BENCHES[name]

    @app.command(name, help=about, epilog=f"Example: python benchmarks/throughput.py {name} {example}")
    @options_from(recipe)
    def command(*, as_json: AsJson = False, **given: Any) -> None:
        module, _, function = entry_point.partition(":")
        run = getattr(importlib.import_module(f"bench.{module}"), function)
        result = run(recipe_from(recipe, given, name))
        print_result(result, as_json, [*result.lines, result.closing_line()], ratio=result.ratio)


for _name in BENCHES:
    _add_command(_name)


def main(arguments: Sequence[str]) -> None:
    try:
        app(list(arguments), standalone_mode=False)
    except CorefError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
