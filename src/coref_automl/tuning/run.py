"""A whole study. In: a TuneRecipe. Out: StudyResult, and in its folder best-recipe.yaml, best-model/, study.html, trials.csv."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coref_automl.config import from_mapping, overlaid, read_yaml, to_mapping, to_yaml
from coref_automl.decoder import hints_of
from coref_automl.engine.binding import check_binding
from coref_automl.engine.job import Launcher
from coref_automl.engine.launch import launcher_of
from coref_automl.engine.schedule import sleep
from coref_automl.errors import FolderError, InputError, RecipeError, StorageError
from coref_automl.folders import EVENTS, check_folder, is_done, remove
from coref_automl.locks import claimed
from coref_automl.progress import Progress, quiet
from coref_automl.say import say, speaking
from coref_automl.store import write_text
from coref_automl.training.recipe import TrainRecipe
from coref_automl.tuning.choosing import FIRST, Contender, Trainer, candidates, ceiling_of, looked_at
from coref_automl.tuning.finish import Final, finish
from coref_automl.tuning.masked import open_masked
from coref_automl.tuning.outputs import Draw, StudyResult, states, write_outputs
from coref_automl.tuning.portfolio import KnownSettings, remember
from coref_automl.tuning.problem import Problem, models_bytes
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.relation import open_relation
from coref_automl.tuning.search import Search, origin_of, running_elsewhere
from coref_automl.tuning.space import TUNABLE, refuse_idle
from coref_automl.tuning.storage import counts, open_study, storage_of

KIND = "study"


def read_tune_recipe(path: Path | None, given: Mapping[str, Any]) -> TuneRecipe:
    """A recipe from a YAML file, from options, or from both; an option that was given wins."""
    values = overlaid(read_yaml(path) if path else {}, given)
    for name, other in (("datasets", "texts"), ("texts", "datasets")):
        if name in given and other not in given:
            values.pop(other, None)
    for name, example in (("models", "--model bundled:ko-mini"), ("out", "--out studies/first")):
        if name not in values and values.keys() <= hints_of(TuneRecipe).keys():
            raise RecipeError(f"A study needs {name.rstrip('s')}; pass {example}.")
    return from_mapping(TuneRecipe, values, str(path or "tune"))


def settled(recipe: TuneRecipe, progress: Progress) -> TuneRecipe:
    """The recipe with its space, for a person to look at and edit; what it takes to know it is made in a folder that vanishes."""
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
    """Search, or resume searching, then finish; what is done already is recognised. `before` may refuse a study not yet begun."""
    out, progress = Path(recipe.out), progress or quiet()
    if recipe.storage is not None:
        storage_of(recipe.storage, out)  # one that does not answer is refused before texts are prepared
    new = not out.exists()
    owner = f"{socket.gethostname()}:{out.resolve()}"
    with speaking(recipe.lang), claimed(out, KIND):
        try:
            _same_as_begun(recipe, out)
            progress = progress.into(out / EVENTS)
            problem = open_problem(recipe, out, progress)
            study = open_study(recipe, out, problem.binding, starts=problem.starts())
            if before and not any(one.state.is_finished() for one in study.get_trials(deepcopy=False)):
                before(problem)
        except (InputError, StorageError):
            if new:
                remove(out)  # a command that is refused leaves nothing half-made
            raise
        write_text(out / "recipe.yaml", to_yaml(replace(recipe, space=problem.space.plain())))
        launcher = launcher or launcher_of(recipe.engine, recipe.workers, recipe.device)
        search = Search(study, problem, recipe, launcher, progress, owner, wait)
        looked = run_search(search, len(problem.starts()))
        now = {**problem.binding["bytes"], "models": models_bytes(recipe)}  # a model may have been replaced meanwhile
        check_binding(out, problem.binding, {**problem.binding, "bytes": now})
        if elsewhere := running_elsewhere(study):
            note = say(
                f"{recipe.study}의 시도 {elsewhere}개가 다른 곳에서 진행 중입니다. 마지막으로 끝나는 쪽이 최종 비교를 합니다.",
                f"{elsewhere} trials of {recipe.study} are still running elsewhere; the last to finish compares the best.",
            )
            return StudyResult(recipe.study, problem.metric, states(study), (note,))
        final = finish(study, problem, recipe, Trainer(problem, launcher, progress, wait), looked)
        kept = _remembered(final, problem, recipe, out, progress)
        return write_outputs(study, problem, recipe, final, out, draw, kept)


def run_search(search: Search, starts: int) -> list[Contender]:
    """The starts, then drawn trials; after the first of these the search is looked at. Gives what was seen if it stopped there.

    A resumed study that is beyond the look goes on; one that is not decides as the first call would have.
    """
    recipe = search.recipe
    whole = starts if recipe.portfolio_only else recipe.trials
    first = min(whole, starts + FIRST)
    if search.ended() <= first:
        search.run(first)
    if first == whole or recipe.storage is not None or search.ended() > first:
        search.run(max(whole, first))
        return []
    drawn = [one for one in search.study.get_trials(deepcopy=False) if counts(one) and origin_of(one) == "drawn"]
    if drawn:
        train = Trainer(search.problem, search.launcher, search.progress, search.wait)
        raced = looked_at(candidates(search.study, search.problem, recipe), search.problem, train, recipe)
        most = ceiling_of(search.study, raced, search.problem)
        if most is not None and 100 * most < recipe.worth:
            return raced
    search.run(whole)
    return []


def _remembered(final: Final, problem: Problem, recipe: TuneRecipe, out: Path, progress: Progress) -> Path | None:
    """A winner that is shown goes to the user's own portfolio; one that cannot be written is said, and takes nothing with it."""
    found, (family, hidden) = final.comparison, problem.shape
    shown = found is not None and found.verdict.decision == "better" and not final.refused
    if found is None or not (shown and recipe.remember and recipe.task == "mlm" and hidden):
        return None  # what is known is about trained models
    plain, settings = to_mapping(TrainRecipe("", "", "")), {**recipe.settings, **final.won.params}
    names = [name for name in TUNABLE["mlm"] if name in settings and name not in ("model", "dataset")]
    changed = {name: settings[name] for name in names if settings[name] != plain[name]}
    gain = {problem.metric: round(100 * found.verdict.difference, 2)}
    source = f"{out.resolve().name}: {len(found.seeds)} pairs on {problem.confirm_name}"
    try:
        return remember(KnownSettings(f"{recipe.study}, trial {final.winner}", changed, source, (family,), hidden, gain))
    except (InputError, OSError) as error:
        progress.note(str(error))
        return None


def _same_as_begun(recipe: TuneRecipe, out: Path) -> None:
    """Refuse what the folder was not begun with before anything in it changes; looked at in a folder that vanishes."""
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
