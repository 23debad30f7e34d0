"""coref-automl demo and adapt: the full pipeline, on bundled data or on your own model and text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, LangOption, OptionalOut, RecipeFile, options_from, print_json, speak
from coref_automl.errors import RecipeError
from coref_automl.line import LineRecipe
from coref_automl.say import Say, language

if TYPE_CHECKING:
    from coref_automl.coreference.predict import Resolved
    from coref_automl.line import LineResult


def _show(result: LineResult, since: float, as_json: bool, found: Resolved | None = None) -> None:
    from coref_automl.progress import spent
    from coref_automl.report.terminal import in_colour

    took = spent(since)
    if as_json:
        print_json({**result.to_json(), **({"chains": found.strings} if found else {}), **took.to_json()})
        return
    chains = found.lines(colour=in_colour()) if found else []
    say = Say(language())
    title = say("짧은 글의 상호참조 (coref-automl coref predict):", "Coreference in a short text (coref-automl coref predict):")
    head = ["", title] if found else []
    print("\n".join([str(result), *head, *chains, "", str(took)]))


@app.command(epilog="Example: coref-automl demo")
def demo(
    out: OptionalOut = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use a fraction of the texts: a smoke test, not a measurement.")] = False,
    lang: LangOption = None,
    as_json: AsJson = False,
) -> None:
    """Run the full pipeline on bundled data; ends with a verdict, the report's path, a text's chains, time and peak memory."""
    since = time.monotonic()
    from coref_automl.demo import closing
    from coref_automl.demo import demo as run_demo
    from coref_automl.progress import Progress

    result = run_demo(out or Path("demo"), quick=quick, lang=language(lang), progress=Progress())
    _show(result, since, as_json, closing())


ADAPT_HELP = {
    "model": "Hub id, folder, or bundled:ko-mini.",
    "prepare.sources": "local:PATH or a named source; repeatable.",
    "prepare.seq_len": "Tokens per block and window.",
    "train.epochs": "Epochs of each run.",
    "train.objectives": "mlm, combined or entity; repeatable.",
    "evaluate.set": "Evaluation set. Default: built from held-out documents of the sources.",
    "relation.train": "Relation rows to fine-tune the chosen checkpoint on.",
    "relation.dev": "Relation rows that are scored once at the end.",
    "coref.data": "Annotated texts: coreference from the base and from the chosen checkpoint, as an outside check.",
    "coref.seeds": "Seeds of the coreference runs.",
    "coref.skip_bad": "Skip bad rows of the annotated texts; they are counted and listed.",
    "seed": "Random seed.",
}
_FLAGS = {
    "prepare.sources": ("--source",),
    "train.objectives": ("--objective",),
    "evaluate.set": ("--eval-set",),
    "relation.train": ("--re-train",),
    "relation.dev": ("--re-dev",),
    "coref.data": ("--coref",),
    "coref.seeds": ("--coref-seeds",),
    "coref.skip_bad": ("--coref-skip-bad",),
}


@app.command(epilog="Example: coref-automl adapt --model klue/roberta-base --source local:articles.jsonl --out adapted")
@options_from(LineRecipe, ADAPT_HELP, _FLAGS)
def adapt(
    recipe: RecipeFile = None, out: OptionalOut = None, *, lang: LangOption = None, as_json: AsJson = False, **given: Any
) -> None:
    """Run the full pipeline on your model and text: prepare, train, evaluate, recommend, report."""
    since = time.monotonic()
    from coref_automl.line import line_recipe, run_line
    from coref_automl.progress import Progress

    wanted = line_recipe(recipe, {**given, **({"lang": lang} if lang else {})})
    speak(wanted.lang)
    if out is None:
        raise RecipeError("Name the output folder with --out.")
    _show(run_line(wanted, out, progress=Progress()), since, as_json)
