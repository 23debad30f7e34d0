"""coref-automl demo and adapt: the full pipeline, on bundled data or on your own model and text."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, LangOption, OptionalOut, RecipeFile, options_from, print_json, speak
from coref_automl.experiment.recipe import FLAGS, ExperimentRecipe
from coref_automl.say import Say, language, say

if TYPE_CHECKING:
    from coref_automl.coreference.predict import Resolved
    from coref_automl.experiment.adapt import Adapted
    from coref_automl.experiment.preflight import Preflight


def _show(result: Adapted, since: float, as_json: bool, found: Resolved | None = None) -> None:
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
    from coref_automl.experiment.demo import closing
    from coref_automl.experiment.demo import demo as run_demo
    from coref_automl.progress import Progress

    result = run_demo(out or Path("demo"), quick=quick, lang=language(lang), progress=Progress())
    _show(result, since, as_json, closing())


HELP = {
    "model": "Hub id, folder, or bundled:ko-mini.",
    "out": "Output folder; must be empty or from the same command.",
    "texts.sources": "local:PATH or a named source; repeatable.",
    "evaluate.sets": "Evaluation set. Default: built from held-out documents of the sources.",
    "relation.train": "Relation rows to fine-tune the chosen checkpoint on.",
    "relation.dev": "Relation rows that are scored once at the end.",
    "coreference.data": "Annotated texts: coreference from the base and from the chosen checkpoint, as an outside check.",
    "first_seed": "Random seed.",
}
_FLAGS = {**FLAGS, "texts.sources": ("--source",), "first_seed": ("--seed",)}


@app.command(epilog="Example: coref-automl adapt --model klue/roberta-base --source local:articles.jsonl --out adapted")
@options_from(ExperimentRecipe, HELP, _FLAGS)
def adapt(
    recipe: RecipeFile = None,
    *,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens per block and window.  [default: 512]")] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", help="Epochs of each run.  [default: 1, more where texts are few]")
    ] = None,
    objective: Annotated[
        list[str] | None, typer.Option("--objective", help="mlm, combined or entity; repeatable.  [default: all three]")
    ] = None,
    coref_seeds: Annotated[int | None, typer.Option("--coref-seeds", min=1, help="Seeds of the coreference runs.")] = None,
    coref_skip_bad: Annotated[
        bool, typer.Option("--coref-skip-bad", help="Skip bad rows of the annotated texts; they are counted and listed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Train even where the texts give too few steps.")] = False,
    lang: LangOption = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Run the full pipeline on your model and text: prepare, train, evaluate, recommend, report."""
    since = time.monotonic()
    from coref_automl.experiment.adapt import adapt as run_adapt
    from coref_automl.experiment.adapt import adapt_recipe
    from coref_automl.progress import Progress

    given |= {"lengths": [seq_len]} if seq_len is not None else {}
    given |= {"train": {"epochs": epochs}} if epochs is not None else {}
    given |= {"methods": {name: {} for name in objective}} if objective else {}
    if coref_seeds or coref_skip_bad:
        given.setdefault("coreference", {}).update({"seeds": coref_seeds} if coref_seeds else {})
        given["coreference"].update({"settings": {"skip_bad": True}} if coref_skip_bad else {})
    wanted = adapt_recipe(recipe, {**given, **({"lang": lang} if lang else {})})
    speak(wanted.lang)

    def agreed(told: Preflight) -> bool:
        asked = say("그래도 학습할까요?", "Train all the same?")
        return yes or not told.too_short or (sys.stdin.isatty() and not as_json and typer.confirm(asked, err=True))

    _show(run_adapt(wanted, progress=Progress(), agreed=agreed), since, as_json)
