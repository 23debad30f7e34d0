"""coref-automl train: train on prepared data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coref_automl.base.config import to_mapping, to_yaml
from coref_automl.base.folders import is_done
from coref_automl.base.progress import Progress
from coref_automl.cli.app import app, print_json, print_result
from coref_automl.cli.options import AsJson, RecipeFile, options_from, recipe_from
from coref_automl.training.recipe import TrainRecipe


@app.command(epilog="Several GPUs: accelerate launch -m coref_automl.cli train ...")
@options_from(TrainRecipe)
def train(
    recipe: RecipeFile = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and exit.")] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a model on prepared data, with a checkpoint every half epoch. The same command resumes an interrupted run.

    Example: coref-automl train --model klue/roberta-base --dataset prepared_datasets/entity_512 --objective entity --epochs 3
    --out runs/entity_512
    """
    settings = recipe_from(TrainRecipe, given, "train", recipe)
    if dry_run:
        _show_plan(settings, as_json)
        return
    from coref_automl.training.run import train as run_it

    result = run_it(settings, progress=Progress(shown=not as_json))
    print_result(result, as_json)


def _show_plan(settings: TrainRecipe, as_json: bool) -> None:
    from coref_automl.training.folder import check_run, describe_state, resumable
    from coref_automl.training.setup import prepare_run

    work = prepare_run(settings)
    check_run(work.recipe, work.fingerprints, work.summary())
    run = Path(work.recipe.out)
    finished = is_done(run)
    if as_json:
        resume = None if finished else resumable(run)
        plan = {"recipe": to_mapping(work.recipe), "plan": work.summary()}
        print_json({**plan, "finished": finished, "resume": str(resume) if resume else None})
        return
    print(to_yaml(work.recipe).rstrip())
    if note := describe_state(run):
        print(note)
    for line in () if finished else (*work.notes, *work.lines()):
        print(line)
