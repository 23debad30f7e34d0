"""`adapt --tune`: a search before the methods of a study. In: an ExperimentRecipe. Out: the same with a method "tuned"."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from coref_automl.base.errors import RecipeError
from coref_automl.base.folders import EVENTS, EXPERIMENT
from coref_automl.base.locks import claimed
from coref_automl.base.machine import pick_first_gpu
from coref_automl.base.progress import Progress
from coref_automl.extras.study.plan import open_plan
from coref_automl.extras.study.preflight import sized_to_texts
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.tune.masked import PLAIN
from coref_automl.extras.tune.outputs import StudyResult
from coref_automl.extras.tune.page import write_study_page
from coref_automl.extras.tune.preflight import before_tuning
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.run import run_study
from coref_automl.extras.tune.space import TUNABLE

_PORTFOLIO_RUNS, _SEARCH_RUNS = 24, 90
"""With --tune: about how many runs a study of the portfolio takes, and one with a search."""
_OF_A_RUN = ("epochs", "max_tokens", "max_minutes", "save_every", "checkpoints", "average")
"""Settings of training that tuning decides itself."""
_LEAST_SEARCH_MINUTES = 2.0
"""A search needs this many minutes per run."""


def with_tuned(recipe: ExperimentRecipe, minutes: float, progress: Progress) -> tuple[ExperimentRecipe, StudyResult]:
    """Tune for about this many minutes, and add the winner's settings as a method named "tuned".

    The winner was chosen on the `select` half, so the methods are then compared on `confirm` alone.
    """
    if recipe.evaluate.half == "select":
        raise RecipeError("--tune chooses settings on the select half and judges on confirm; leave out evaluate.half: select.")
    if "tuned" in recipe.methods:
        raise RecipeError('--tune adds a method called "tuned", which the recipe has; name that one otherwise.')
    out = Path(recipe.out)
    pick_first_gpu(recipe.device)  # as `adapt`, which follows, would refuse it
    search = minutes / _SEARCH_RUNS >= _LEAST_SEARCH_MINUTES
    with claimed(out, EXPERIMENT):  # until the end, because the study lies in it
        whole_sets = replace(recipe, evaluate=replace(recipe.evaluate, half=None))  # tuning halves the set itself
        plan = open_plan(whole_sets, out, progress.into(out / EVENTS))
        sized = sized_to_texts(plan)
        batch = sized.recipe.train.get("batch") or sized.first_run.plan.batch
        kept = {name: value for name, value in recipe.train.items() if name not in (*TUNABLE["mlm"], *_OF_A_RUN)}
        tune_recipe = TuneRecipe(
            models=(plan.recipe.model,), out=str(out / "tune"), datasets=(str(plan.datasets[recipe.lengths[0]]),),
            eval_set=str(plan.sets[0].folder), metric=recipe.evaluate.metric, device=recipe.device, lang=recipe.lang,
            settings={**kept, "batch": int(batch)},  # with other batches, some methods would see more tokens
            max_minutes=minutes / (_SEARCH_RUNS if search else _PORTFOLIO_RUNS), portfolio_only=not search,
            finalists=6 if search else 1, seeds=24 if search else 4, ablate=search,
        )  # fmt: skip
        before = partial(before_tuning, progress=progress, confirm=lambda _: True)  # the user chose the minutes
        result = run_study(tune_recipe, progress=progress, draw=write_study_page, before=before)
    assert result.final is not None
    params = result.final.recommended.params
    plain = {name: PLAIN[name] for name in recipe.train if name in TUNABLE["mlm"] and name != "batch"}  # as trials were trained
    tuned = {"objective": "mlm", **plain}  # where the data leave no choice
    tuned |= {name: value for name, value in params.items() if name not in ("average", "model", "dataset")}
    datasets = tuple(map(str, plan.datasets.values()))  # they exclude the documents of whole sets, not of halves
    evaluate = replace(recipe.evaluate, half="confirm", sets=tuple(str(evalset.folder) for evalset in plan.sets))
    return replace(recipe, methods={**recipe.methods, "tuned": tuned}, datasets=datasets, evaluate=evaluate), result
