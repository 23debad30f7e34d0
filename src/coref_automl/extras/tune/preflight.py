"""Before a search: what it takes and can show is printed, and confirmed where that is needed. In: a Problem. Out: a Preflight."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from coref_automl.base.progress import Progress, peak_gigabytes
from coref_automl.extras.study.estimate import (
    Preflight,
    StepEstimate,
    measure,
    preflight_of,
    scoring_tokens,
    speed_text,
)
from coref_automl.extras.study.preflight import Confirm, print_and_confirm
from coref_automl.extras.tune.masked import MaskedProblem
from coref_automl.extras.tune.problem import Problem
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.score import outside_guards
from coref_automl.statistics.planning import looks_of
from coref_automl.training.folder import check_disk_space

_OPTIMIZER_MODELS = 2
"""Size of the optimizer's state, in models: two moments per weight."""


def before_tuning(problem: Problem, progress: Progress, confirm: Confirm) -> None:
    """Print the preflight of `tune` for pretraining; other tasks have none."""
    if isinstance(problem, MaskedProblem):
        length_given = any((problem.recipe.epochs, problem.recipe.max_tokens, problem.recipe.max_minutes))
        print_and_confirm(tuning_preflight(problem, progress), progress, confirm, length_given=length_given)


def tuning_preflight(problem: MaskedProblem, progress: Progress) -> Preflight:
    """Estimate the trials of a search at their full budget, though pruning ends some early; every report scores `select`."""
    from coref_automl.training.optimizer import OPEN_END
    from coref_automl.training.setup import prepare_run

    recipe, starts = problem.recipe, problem.starts()
    run = prepare_run(problem.training(starts[0].params, recipe.seed))
    disk = _disk_of_tuning(recipe, run.disk())
    check_disk_space(problem.out, disk)
    size = measure(run, recipe.device, progress)
    speed = size.tokens_per_second
    runs = len(starts) if recipe.portfolio_only else recipe.trials
    in_steps = run.plan.tokens_after(run.last) if run.last < OPEN_END else inf
    in_time = 60 * recipe.max_minutes * speed if recipe.max_minutes is not None else inf
    tokens = int(min(in_steps, in_time))  # one of them is finite
    scored = REPORTS * scoring_tokens(problem.halves["select"], run.dataset.seq_len)
    preflight = preflight_of(run, recipe.device, runs, tokens, disk=disk, jobs=recipe.workers, evidence=problem.power())
    share = StepEstimate("train", runs, runs, runs * (tokens + scored) / speed, speed_text(size))
    return replace(preflight, memory=size.gigabytes or peak_gigabytes(), shares=(share,))


def _disk_of_tuning(recipe: TuneRecipe, run: float) -> float:
    """Gigabytes that a study holds at once: active runs, each with an averaged model; a model per judging run that is read again
    (of the first look, or of all if guards are fine-tuned from them); and best-model/."""
    model = run / (REPORTS + _OPTIMIZER_MODELS)  # a run holds its checkpoints and the newest's optimizer state
    pairs = recipe.seeds if outside_guards(recipe) else looks_of(recipe.seeds)[0].pairs
    return recipe.workers * (run + model) + (2 * pairs + 1) * model
