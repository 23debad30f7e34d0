"""coref-automl demo and adapt: the whole line, on bundled data or on your own model and text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, OptionalOut, print_json
from coref_automl.errors import RecipeError

if TYPE_CHECKING:
    from coref_automl.line import LineResult

Lang = Annotated[str, typer.Option("--lang", help="Language of the report: ko or en.")]


def _checked(lang: str) -> str:
    if lang not in ("ko", "en"):
        raise RecipeError(f"--lang is ko or en, not {lang!r}.")
    return lang


def _show(result: LineResult, since: float, as_json: bool) -> None:
    from coref_automl.progress import spent

    took = spent(since)
    if as_json:
        print_json({**result.to_json(), **took.to_json()})
    else:
        print(f"{result}\n\n{took}")


@app.command()
def demo(
    out: OptionalOut = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A fraction of the texts: shows that everything runs, measures nothing.")
    ] = False,
    lang: Lang = "ko",
    as_json: AsJson = False,
) -> None:
    """The whole line on bundled data; ends with a verdict, the report's path, and what it took in time and memory.

    Example: coref-automl demo
    """
    since = time.monotonic()
    from coref_automl.demo import demo as run_demo
    from coref_automl.progress import Progress

    _show(run_demo(out or Path("demo"), quick=quick, lang=_checked(lang), progress=Progress()), since, as_json)


@app.command()
def adapt(
    model: Annotated[str | None, typer.Option("--model", help="Hub id, folder, or bundled:ko-mini.")] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", help="local:PATH or a named source; may be given several times.")
    ] = None,
    out: OptionalOut = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A YAML file; options win over it.")] = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens of a block and of a window.")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Epochs of each run.")] = None,
    objective: Annotated[
        list[str] | None, typer.Option("--objective", help="mlm, combined, entity; may be given several times.")
    ] = None,
    eval_set: Annotated[
        str | None, typer.Option("--eval-set", help="A prepared set; otherwise held-out documents of the sources.")
    ] = None,
    re_train: Annotated[str | None, typer.Option("--re-train", help="Relation rows to carry the chosen checkpoint into.")] = None,
    re_dev: Annotated[str | None, typer.Option("--re-dev", help="Relation rows that are scored once at the end.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of everything random; 0 unless the recipe says otherwise.")
    ] = None,
    lang: Annotated[
        str | None, typer.Option("--lang", help="Language of the report, ko or en; ko unless the recipe says otherwise.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The same line on your model and your text: prepare, train, evaluate, recommend, report.

    Example: coref-automl adapt --model klue/roberta-base --source local:articles.jsonl --out adapted
    """
    since = time.monotonic()
    from coref_automl.line import line_recipe, run_line
    from coref_automl.progress import Progress

    asked = {
        "model": model,
        "seed": seed,
        "lang": _checked(lang) if lang else None,
        "prepare": {"sources": source, "seq_len": seq_len},
        "train": {"epochs": epochs, "objectives": objective},
        "evaluate": {"set": eval_set},
        "relation": {"train": re_train, "dev": re_dev},
    }
    if out is None:
        raise RecipeError("Name the folder to write with --out.")
    _show(run_line(line_recipe(recipe, asked), out, progress=Progress()), since, as_json)
