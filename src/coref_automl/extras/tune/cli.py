"""coref-automl tune: search settings and confirm them with fresh seeds; find the micro-batch that fits."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from coref_automl.base.config import described, to_mapping, to_yaml
from coref_automl.base.progress import Progress
from coref_automl.cli.app import COMMANDS, app, confirmation, print_json, print_result
from coref_automl.cli.options import AsJson, RecipeFile, Yes, options_from, recipe_from, set_language
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.training.recipe import TrainRecipe

tune_app = typer.Typer(help=COMMANDS["tune"][1], invoke_without_command=True, rich_markup_mode=None)


app.add_typer(tune_app, name="tune")


@tune_app.callback(epilog="Example: coref-automl tune --recipe recipes/tune-smoke.yaml --out smoke-study")
@options_from(TuneRecipe)
def tune(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the recipe with its search space and exit.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Search for the best settings of training (or of relation extraction), then judge the best with new seeds.

    What is known is tried first: train's default, the recommended settings, the portfolio. Fresh seeds choose among the best
    trials, other fresh seeds judge the winner until its gain is shown or excluded. The same command resumes an interrupted study.
    Writes best-recipe.yaml, best-model/, study.html and trials.csv.
    """
    if context.invoked_subcommand is not None:
        return
    from coref_automl.extras.tune.page import write_study_page
    from coref_automl.extras.tune.preflight import before_tuning
    from coref_automl.extras.tune.run import read_tune_recipe, run_study, with_space

    settings = read_tune_recipe(recipe, given)
    set_language(settings.lang)
    progress = Progress(shown=not as_json)
    if dry_run:
        plan = with_space(settings, progress)
        print_json(to_mapping(plan)) if as_json else print(to_yaml(plan), end="")
        return
    before = partial(before_tuning, progress=progress, confirm=confirmation(yes, as_json))
    result = run_study(settings, progress=progress, draw=write_study_page, before=before)
    print_result(result, as_json)


_PROBED = ("model", "dataset", "tokenizer", "objective", "gradient_checkpointing", "device")


@tune_app.command(epilog="Example: coref-automl tune probe --model bundled:ko-mini --dataset prepared_datasets/entity_512")
@options_from(TrainRecipe, {name: described(TrainRecipe)[name].help for name in _PROBED})
def probe(
    *,
    largest: Annotated[int, typer.Option("--largest", min=1, help="Largest micro-batch to try, in rows.")] = 256,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Timed steps per size.")] = 3,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Find the largest micro-batch that trains, optimizer state included; step time, throughput, suggested accumulation."""
    from coref_automl.extras.study.probe import probe as measure

    recipe = recipe_from(TrainRecipe, {**given, "out": ""}, "tune probe")
    result = measure(recipe, largest=largest, steps=steps, progress=Progress(shown=not as_json))
    print_result(result, as_json)
