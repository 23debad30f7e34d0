"""coref-automl demo, adapt and study: the full pipeline on bundled data, on your own model and text, over methods and seeds."""

from __future__ import annotations

import sys
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coref_automl.base import handed
from coref_automl.base.config import choose
from coref_automl.base.errors import RecipeError
from coref_automl.base.progress import Progress, spent
from coref_automl.base.say import say
from coref_automl.cli.app import app, confirmation, print_result
from coref_automl.cli.options import AsJson, LangOption, OptionalOut, RecipeFile, Yes, options_from, recipe_from, set_language
from coref_automl.extras.study.recipe import ExperimentRecipe, step_kinds, with_methods

if TYPE_CHECKING:
    from coref_automl.extras.coreference.predict import Resolved
    from coref_automl.extras.study.adapt import Adapted


def _show(result: Adapted, since: float, as_json: bool, resolved: Resolved | None = None) -> None:
    from coref_automl.report.terminal import in_colour

    cost = spent(since)
    title = say("짧은 글의 상호참조 (coref-automl coref predict):", "Coreference in a short text (coref-automl coref predict):")
    chains = ["", title, *resolved.lines(colour=in_colour())] if resolved else []
    more = {**({"chains": resolved.strings} if resolved else {}), **cost.to_json()}
    print_result(result, as_json, [str(result), *chains, "", str(cost)], **more)


@app.command(epilog="Example: coref-automl demo")
def demo(
    out: OptionalOut = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use a fraction of the texts: a smoke test, not a measurement.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the full pipeline on bundled data; ends with a verdict, the report's path, a text's chains, time and peak memory."""
    since = time.monotonic()
    from coref_automl.extras.coreference.predict import coreference
    from coref_automl.extras.study.adapt import DEMO_TEXT
    from coref_automl.extras.study.adapt import demo as run_demo

    result = run_demo(out or Path("demo"), quick=quick, progress=Progress())
    _show(result, since, as_json, coreference(DEMO_TEXT))


_OF_ADAPT = {
    "model": "Hub id, folder, or bundled:ko-mini.",
    "out": "Output folder; must be empty or from the same command.",
    "texts.sources": "local:PATH or a named source; repeatable.",
    "evaluate.sets": "Evaluation set. Default: built from held-out documents of the sources.",
    "relation.train": "Relation rows to fine-tune the chosen checkpoint on.",
    "relation.dev": "Relation rows that are scored once at the end.",
    "coreference.data": "Annotated texts: coreference from the base and from the chosen checkpoint, as an outside check.",
    "coreference.seeds": "Seeds of the coreference runs.",
    "first_seed": "Random seed.",
}


def _options_of_adapt() -> dict[str, str]:
    """Without the options of outside checks that are not here."""
    known = {field.name for field in fields(ExperimentRecipe)} | handed.CHECKS.keys()
    return {path: text for path, text in _OF_ADAPT.items() if path.partition(".")[0] in known}


@app.command(epilog="Example: coref-automl adapt --model klue/roberta-base --source local:articles.jsonl --out adapted")
@options_from(ExperimentRecipe, _options_of_adapt(), {"texts.sources": ("--source",), "first_seed": ("--seed",)})
def adapt(
    recipe: RecipeFile = None,
    *,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens per block and window.  [default: 512]")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Epochs of each run.  [default: 1, more if few texts]")] = None,
    objective: Annotated[
        list[str] | None, typer.Option("--objective", help="mlm, combined or entity; repeatable.  [default: all three]")
    ] = None,
    coref_skip_bad: Annotated[
        bool, typer.Option("--coref-skip-bad", help="Skip bad rows of the annotated texts; they are counted and listed.")
    ] = False,
    tune: Annotated[
        float | None,
        typer.Option("--tune", min=0.1, help="Tune for about this many minutes first; the winner is a method beside the others."),
    ] = None,
    yes: Yes = False,
    lang: LangOption = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Run the full pipeline on your model and text: prepare, train, evaluate, recommend, report."""
    since = time.monotonic()
    from coref_automl.extras.study.adapt import adapt as run_adapt
    from coref_automl.extras.study.adapt import adapt_recipe, recipe_values

    given |= recipe_values(seq_len, epochs, objective or ())
    if coref_skip_bad:
        given.setdefault("coreference", {})["settings"] = {"skip_bad": True}
    settings = adapt_recipe(recipe, {**given, **({"lang": lang} if lang else {})})
    set_language(settings.lang)
    if tune is not None:
        settings, tuned = handed.offered("with_tuned")(settings, tune, Progress(shown=not as_json))
        print("\n".join([*tuned.lines(), ""]), file=sys.stderr)
    _show(run_adapt(settings, progress=Progress(), confirm=confirmation(yes, as_json)), since, as_json)


@app.command(epilog="Example: coref-automl study --recipe recipes/ko-mini-study.yaml --out studies/ko-mini --dry-run")
@options_from(ExperimentRecipe)
def study(
    recipe: RecipeFile = None,
    *,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="Method of the recipe to run; repeatable. Default: all of them.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Run one kind of step: train, evaluate, relation, coreference or report; repeatable."),
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", min=0.01, help="Stop after this many minutes; the same command resumes.")
    ] = None,
    until_shown: Annotated[
        bool,
        typer.Option("--until-shown", help="Add seeds, up to --seeds, until every method's difference from the first is known."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show steps, hours, disk space and memory, from a timed training step, and exit.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare training methods from one base: train every method at every length with every seed, evaluate every checkpoint,
    fine-tune relation extraction and coreference from the last ones, then write the report and an archive without text.

    Before training it says what the texts can show and what it takes. Methods must see equal numbers of tokens. Steps run side by
    side (--jobs), each in a process of its own; one that fails is named and the rest goes on. The same command resumes an
    interrupted study; nothing finished is run again.
    """
    from coref_automl.extras.study.preflight import before_training, lines_of, study_preflight
    from coref_automl.extras.study.run import run_experiment
    from coref_automl.extras.study.until_shown import run_until_shown

    for kind in only or ():
        choose(kind, dict.fromkeys((*step_kinds(), "report")), "kind of step")
    settings = with_methods(recipe_from(ExperimentRecipe, given, "study", recipe), method or ())
    set_language(settings.lang)
    progress = Progress(shown=not as_json)
    if dry_run:
        preflight = study_preflight(settings, only=only or (), progress=progress)
        print_result(preflight, as_json, lines_of(preflight))
        return

    before = partial(before_training, progress=progress, confirm=confirmation(yes, as_json), fit=False)
    if until_shown:
        if only:
            raise RecipeError("--until-shown trains and judges in turn; leave out --only.")
        result, known = run_until_shown(settings, max_minutes=max_minutes, progress=progress, before=before)
        print_result(result, as_json, [*result.lines(), *map(str, known)], known=[entry.to_json() for entry in known])
    else:
        check = before if not only or "train" in only else lambda plan: plan
        result = run_experiment(settings, only=only or (), max_minutes=max_minutes, progress=progress, before=check)
        print_result(result, as_json)
    if result.broken:
        raise typer.Exit(1)
