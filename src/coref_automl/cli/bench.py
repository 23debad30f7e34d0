"""coref-automl bench: throughput beside the usual way, in one run on the same inputs."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from coref_automl.bench.measurement import EvaluateBench, PrepareBench, RelationBench, TrainBench
from coref_automl.cli.app import COMMANDS, app
from coref_automl.cli.options import AsJson, options_from, print_result, recipe_from

bench_app = typer.Typer(help=COMMANDS["bench"][1], no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")

BENCHES: dict[str, tuple[str, type[Any], str, str]] = {
    "evaluate": (
        "evaluate",
        EvaluateBench,
        "Score Real items in one pass, against the fill-mask pipeline with its top 50 and Kiwi on each candidate, twice.",
        "--items 200 --seq-len 256",
    ),
    "prepare": (
        "prepare",
        PrepareBench,
        "Prepare texts stage by stage, against one Kiwi call per document, tokenising and padding.",
        "--source local:wiki.jsonl --megabytes 5",
    ),
    "re": (
        "relation",
        RelationBench,
        "Train relation rows in batches of similar length, against rows padded to one length.",
        "--rows 256 --padded 256",
    ),
    "train": (
        "train",
        TrainBench,
        "Train packed rows with the head at masked positions only, against padded rows and joined chunks with full logits.",
        "--source local:wiki.jsonl --seq-len 512",
    ),
}
"""Each command: its module beside the others, its options, its help, an example."""


def _add_command(name: str) -> None:
    module, recipe, about, example = BENCHES[name]

    @bench_app.command(name, help=about, epilog=f"Example: coref-automl bench {name} {example}")
    @options_from(recipe)
    def command(*, as_json: AsJson = False, **given: Any) -> None:
        run = importlib.import_module(f"coref_automl.bench.{module}").run
        result = run(recipe_from(recipe, given, f"bench {name}"))
        print_result(result, as_json, [*result.lines, result.closing_line()], ratio=result.ratio)


for _name in BENCHES:
    _add_command(_name)
