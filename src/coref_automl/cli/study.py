"""coref-automl study: methods x lengths x seeds from one base at equal tokens, judged, reported and archived."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, RecipeFile, options_from, print_json, recipe_from, speak
from coref_automl.experiment.recipe import FLAGS, HELP, KINDS, ExperimentRecipe, with_methods


@app.command(epilog="Example: coref-automl study --recipe recipes/ko-mini-study.yaml --out studies/ko-mini --dry-run")
@options_from(ExperimentRecipe, HELP, FLAGS)
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show steps, hours, disk space and memory, from a measured probe, and exit.")
    ] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare training methods from one base: train every method at every length with every seed, evaluate every checkpoint,
    fine-tune relation extraction and coreference from the last ones, then write the report and an archive without text.

    Methods must see equal numbers of tokens. Steps run side by side (--jobs), each in a process of its own; one that fails is
    named and the rest goes on. The same command resumes an interrupted study; nothing finished is run again.
    """
    from coref_automl.config import choose
    from coref_automl.experiment.budget import budget
    from coref_automl.experiment.run import run_experiment
    from coref_automl.progress import Progress

    for kind in only or ():
        choose(kind, dict.fromkeys((*KINDS, "report")), "kind of step")
    speak(given.get("lang"))
    wanted = with_methods(recipe_from(ExperimentRecipe, given, "study", recipe), method or ())
    speak(wanted.lang)
    progress = Progress(shown=not as_json)
    if dry_run:
        planned = budget(wanted, progress=progress)
        print_json(planned.to_json()) if as_json else print("\n".join(planned.lines()))
        return
    result = run_experiment(wanted, only=only or (), max_minutes=max_minutes, progress=progress)
    print_json(result.to_json()) if as_json else print("\n".join(result.lines()))
    if result.broken:
        raise typer.Exit(1)
