"""A whole study. In: a TuneRecipe. Out: StudyResult, and in its folder best-recipe.yaml, best-model/, study.html, trials.csv."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coref_automl.base.binding import check_binding
from coref_automl.base.config import from_mapping, overlaid, read_yaml, to_mapping, to_yaml
from coref_automl.base.decoder import hints_of
from coref_automl.base.errors import FolderError, InputError, RecipeError, StorageError
from coref_automl.base.folders import EVENTS, check_folder, is_done, remove
from coref_automl.base.job import Launcher
from coref_automl.base.launch import launcher_of
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.say import say, speaking
from coref_automl.base.schedule import sleep
from coref_automl.base.store import write_text
from coref_automl.extras.tune.choosing import (
    EARLY_TRIALS,
    JobRunner,
    TrialCandidate,
    completed_candidates,
    gain_ceiling,
    rank_early,
)
from coref_automl.extras.tune.finish import Final, finish
from coref_automl.extras.tune.masked import open_masked
from coref_automl.extras.tune.outputs import Draw, StudyResult, states, write_outputs
from coref_automl.extras.tune.portfolio import KnownSettings, remember
from coref_automl.extras.tune.problem import SAMPLED, Problem, models_bytes, shape_of
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.relation import open_relation
from coref_automl.extras.tune.search import Search, origin_of
from coref_automl.extras.tune.space import TUNABLE, refuse_idle
from coref_automl.extras.tune.storage import counts, open_study, storage_of
from coref_automl.training.recipe import TrainRecipe

KIND = "study"


def read_tune_recipe(path: Path | None, options: Mapping[str, Any]) -> TuneRecipe:
    """Read a recipe from a YAML file, from options, or from both; options win."""
    values = overlaid(read_yaml(path) if path else {}, options)
    for name, other in (("datasets", "texts"), ("texts", "datasets")):
        if name in options and other not in options:
            values.pop(other, None)
    for name, example in (("models", "--model bundled:ko-mini"), ("out", "--out studies/first")):
        if name not in values and values.keys() <= hints_of(TuneRecipe).keys():
            raise RecipeError(f"A study needs {name.rstrip('s')}; pass {example}.")
    return from_mapping(TuneRecipe, values, str(path or "tune"))


def with_space(recipe: TuneRecipe, progress: Progress) -> TuneRecipe:
    """Fill in the recipe's space, for a person to read and edit. What that needs is prepared in a temporary folder."""
    check_folder(Path(recipe.out), KIND)
    with tempfile.TemporaryDirectory() as folder:
        problem = open_problem(recipe, Path(folder), progress)
    return replace(recipe, space=problem.space.plain())


def open_problem(recipe: TuneRecipe, out: Path, progress: Progress) -> Problem:
    problem: Problem = (open_relation if recipe.task == "re" else open_masked)(recipe, out, progress)
    refuse_idle(problem.space, problem.fixed, recipe)
    return problem


def run_study(
    recipe: TuneRecipe,
    *,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    wait: Callable[[], None] = sleep,
    draw: Draw | None = None,
    before: Callable[[Problem], None] | None = None,
) -> StudyResult:
    """Search, or resume searching, then finish; finished work is recognised. `before` may refuse a study without any trial."""
    out, progress = Path(recipe.out), progress or quiet()
    if recipe.storage is not None:
        storage_of(recipe.storage, out)  # refuses one that does not answer before texts are prepared
    is_new = not out.exists()
    owner = f"{socket.gethostname()}:{out.resolve()}"
    with speaking(recipe.lang), claimed(out, KIND):
        try:
            _check_begun(recipe, out)
            progress = progress.into(out / EVENTS)
            problem, study = _open(recipe, out, progress, before)
        except (InputError, StorageError):
            if is_new and not (out / "datasets").exists():
                remove(out)  # a refused command leaves nothing half-made; texts that were prepared stay
            raise
        write_text(out / "recipe.yaml", to_yaml(replace(recipe, space=problem.space.plain())))
        launcher = launcher or launcher_of(recipe.engine, recipe.workers, recipe.device)
        search = Search(study, problem, recipe, launcher, progress, owner, wait)
        early = run_search(search)
        current = {**problem.binding["bytes"], "models": models_bytes(recipe)}  # a model may have been replaced meanwhile
        check_binding(out, problem.binding, {**problem.binding, "bytes": current})
        if elsewhere := states(study)["running"]:
            note = say(
                f"{recipe.study}의 시도 {elsewhere}개가 다른 곳에서 진행 중입니다. 마지막으로 끝나는 쪽이 최종 비교를 합니다.",
                f"{elsewhere} trials of {recipe.study} are still running elsewhere; the last to finish compares the best.",
            )
            return StudyResult(recipe.study, problem.metric, states(study), (note,))
        final = finish(study, recipe, JobRunner(problem, launcher, progress, wait), early)
        portfolio = _remember_winner(final, problem, recipe, out, progress)
        return write_outputs(study, problem, recipe, final, out, draw, portfolio)


def _open(recipe: TuneRecipe, out: Path, progress: Progress, before: Callable[[Problem], None] | None) -> tuple[Problem, Any]:
    """Open the problem and its Optuna study; while no trial has ended, `before` may still refuse."""
    problem = open_problem(recipe, out, progress)
    study = open_study(recipe, out, problem.binding, starts=problem.starts())
    if before and not any(trial.state.is_finished() for trial in study.get_trials(deepcopy=False)):
        before(problem)
    return problem, study


def run_search(search: Search) -> list[TrialCandidate]:
    """Run the starts, then sampled trials. After the first of these, stop if no setting can gain what matters, and return the
    candidates ranked for that check; else an empty list.

    A resumed study that is beyond the check goes on; one that is not decides as the first call would have. Its starts are those
    that it was begun with: the portfolio may have grown, by its own winner.
    """
    recipe, known = search.recipe, search.study.get_trials(deepcopy=False)
    starts = sum(counts(trial) and origin_of(trial) != SAMPLED for trial in known)
    total = starts if recipe.portfolio_only else recipe.trials
    until_check = min(total, starts + EARLY_TRIALS)
    if until_check < total and recipe.storage is None and search.ended_trials() <= until_check:
        search.run(until_check)
        runner = JobRunner(search.problem, search.launcher, search.progress, search.wait)
        ranked = rank_early(completed_candidates(search.study, search.problem, recipe), recipe, runner)
        ceiling = gain_ceiling(search.study, ranked, search.problem)
        if ceiling is not None and 100 * ceiling < recipe.worth:
            return ranked
    search.run(total)
    return []


def _remember_winner(final: Final, problem: Problem, recipe: TuneRecipe, out: Path, progress: Progress) -> Path | None:
    """Add a winner that is shown to be better to the user's own portfolio; failing to write it is only noted."""
    comparison, (family, hidden) = final.comparison, shape_of(final.best.params.get("model", recipe.models[0]))
    if comparison is None or comparison.verdict.decision != "better" or final.refused:
        return None
    if not (recipe.remember and recipe.task == "mlm" and hidden):
        return None  # entries are about pretrained models
    defaults, settings = to_mapping(TrainRecipe("", "", "")), {**recipe.settings, **final.best.params}
    names = [name for name in TUNABLE["mlm"] if name in settings and name not in ("model", "dataset")]
    changed = {name: settings[name] for name in names if settings[name] != defaults[name]}
    gain = {problem.metric: round(100 * comparison.verdict.difference, 2)}
    source = f"{out.resolve().name}: {len(comparison.seeds)} pairs on {problem.confirm_name}"
    try:
        return remember(KnownSettings(f"{recipe.study}, trial {final.winner}", changed, source, (family,), hidden, gain))
    except (InputError, StorageError, OSError) as error:
        progress.note(str(error))
        return None


def _check_begun(recipe: TuneRecipe, out: Path) -> None:
    """Refuse a recipe that the folder was not begun with, before anything changes: it is opened in a temporary folder."""
    if not (out / "recipe.yaml").is_file():
        return
    if (begun := read_yaml(out / "recipe.yaml").get("study")) != recipe.study:
        raise FolderError(f"{out} holds the study {begun!r}; give {recipe.study!r} an --out of its own.")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "datasets").mkdir()
        for prepared in (out / "datasets").glob("*"):
            if is_done(prepared):
                (Path(folder) / "datasets" / prepared.name).symlink_to(prepared.resolve())
        try:
            problem = open_problem(recipe, Path(folder), quiet())
        except InputError as error:
            if folder not in str(error):
                raise
            raise FolderError(str(error).replace(folder, str(out))) from error
    open_study(recipe, out, problem.binding, starts=problem.starts())
