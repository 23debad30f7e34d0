"""A whole study. In: a TuneRecipe. Out: StudyResult, and in its folder best-recipe.yaml, best-model/, study.html, trials.csv."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from coref_automl.config import from_mapping, nearest, read_yaml, shown, to_mapping
from coref_automl.engine.binding import check_binding
from coref_automl.engine.launch import Launcher, launcher_of
from coref_automl.errors import FolderError, InputError, RecipeError
from coref_automl.locks import claimed
from coref_automl.progress import Progress, quiet
from coref_automl.say import say, speaking
from coref_automl.store import check_folder, is_done, remove, write_text
from coref_automl.tuning.finish import finish, pause
from coref_automl.tuning.outputs import Draw, StudyResult, named, states, write_outputs
from coref_automl.tuning.problem import Problem, models_bytes
from coref_automl.tuning.recipe import Sampler, TuneRecipe
from coref_automl.tuning.search import Search, running_elsewhere
from coref_automl.tuning.space import read_space, refuse_idle
from coref_automl.tuning.storage import arms, open_study

__all__ = ["StudyResult", "read_tune_recipe", "recipe_text", "run_study", "settled"]

KIND = "study"


def read_tune_recipe(path: Path | None, given: Mapping[str, Any]) -> TuneRecipe:
    """A recipe from a YAML file, from options, or from both; an option that was given wins."""
    values = read_yaml(path) if path else {}
    known = [field.name for field in fields(TuneRecipe)]
    for key in values:
        if key not in known:
            raise RecipeError(f"{path}: unknown key {shown(key)}. {nearest(key, known)}")
    values |= {key: str(value) if isinstance(value, Path) else value for key, value in given.items() if value not in (None, [])}
    if given.get("datasets"):
        values.pop("texts", None)
    for name, example in (("models", "--model bundled:ko-mini"), ("out", "--out studies/first")):
        if name not in values:
            raise RecipeError(f"A study needs {name.rstrip('s')}; pass {example}.")
    return from_mapping(TuneRecipe, values, str(path or "tune"))


def settled(recipe: TuneRecipe, progress: Progress) -> TuneRecipe:
    """The recipe with its space, for a person to look at and edit; what it takes to know it is made in a folder that vanishes."""
    check_folder(Path(recipe.out), KIND)
    with tempfile.TemporaryDirectory() as folder:
        problem = open_problem(recipe, Path(folder), progress)
    return replace(recipe, space=problem.space.plain())


def open_problem(recipe: TuneRecipe, out: Path, progress: Progress) -> Problem:
    problem = _open(recipe, out, progress)
    refuse_idle(problem.space, problem.fixed, recipe)
    return problem


def _open(recipe: TuneRecipe, out: Path, progress: Progress) -> Problem:
    if recipe.task == "re":
        from coref_automl.tuning.relation import open_relation

        return open_relation(recipe, out, progress)
    from coref_automl.tuning.masked import open_masked

    return open_masked(recipe, out, progress)


def run_study(
    recipe: TuneRecipe,
    *,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    wait: Callable[[], None] = pause,
    draw: Draw | None = None,
) -> StudyResult:
    """Search, or resume searching, then finish; what is done already is recognised. `draw` gets every study of the folder."""
    out = Path(recipe.out)
    progress = progress or quiet()
    _check_first(recipe, out)
    new = not out.exists()
    owner = f"{socket.gethostname()}:{out.resolve()}"
    with speaking(recipe.lang), claimed(out, KIND):
        try:
            _same_as_begun(recipe, out, owner)
            progress = progress.into(out / "events.ndjson")
            problem = open_problem(recipe, out, progress)
            study = open_study(recipe, out, problem.binding, starts=problem.recommended(), owner=owner)
        except InputError:
            if new:
                remove(out)  # a command that is refused leaves nothing half-made
            raise
        write_text(out / named("recipe", recipe, ".yaml"), recipe_text(replace(recipe, space=problem.space.plain())))
        launcher = launcher or launcher_of(recipe.engine, recipe.workers, recipe.device)
        Search(study, problem, recipe, launcher, progress, owner, wait).run()
        check_binding(
            out, problem.binding, {**problem.binding, "bytes": {**problem.binding["bytes"], "models": models_bytes(recipe)}}
        )
        if elsewhere := running_elsewhere(study):
            note = say(
                f"{recipe.arm}의 시도 {elsewhere}개가 다른 곳에서 진행 중입니다. 마지막으로 끝나는 쪽이 최종 비교를 합니다.",
                f"{elsewhere} trials of {recipe.arm} are still running elsewhere; the last to finish compares the best.",
            )
            return StudyResult(recipe.arm, recipe.sampler, problem.metric, states(study), note)
        final = finish(study, problem, recipe, launcher, progress, wait=wait)
        return write_outputs(study, problem, recipe, final, out, draw=draw)


def _check_first(recipe: TuneRecipe, out: Path) -> None:
    """What can be known before texts are prepared: a space that reads and does something, and a storage that answers."""
    if recipe.space is not None:
        refuse_idle(read_space(recipe.space, recipe.task), {"objective": "mlm", "label_mask": "off", **recipe.settings}, recipe)
    if recipe.storage is not None:
        arms(recipe, out, {})


def _same_as_begun(recipe: TuneRecipe, out: Path, owner: str) -> None:
    """Refuse what the folder was not begun with before anything in it changes; looked at in a folder that vanishes."""
    beside = [replace(recipe, sampler=sampler) for sampler in get_args(Sampler)]
    held = [arm for arm in beside if (out / named("recipe", arm, ".yaml")).is_file()]
    if not held:
        return
    if (begun := read_yaml(out / named("recipe", held[0], ".yaml")).get("study")) != recipe.study:
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
    for arm in held:
        open_study(arm, out, problem.binding, starts=problem.recommended(), owner=owner)


def recipe_text(recipe: TuneRecipe) -> str:
    """The recipe as YAML, nested parts included."""
    return str(yaml.safe_dump(json.loads(json.dumps(to_mapping(recipe))), allow_unicode=True, sort_keys=False))
