"""A whole study. In: a TuneRecipe. Out: StudyResult, and in its folder best-recipe.yaml, best-model/, study.html, trials.csv."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from coref_automl.config import from_mapping, read_yaml, to_mapping, to_yaml
from coref_automl.errors import FolderError, RecipeError
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.statistics import MethodVerdict
from coref_automl.store import claim_folder, read_json, remove, write_json, write_text
from coref_automl.tuning.finish import Final, Finalist, finish, pause
from coref_automl.tuning.launch import Launcher, launcher_of
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.storage import arms, counts, open_study
from coref_automl.tuning.study import Search, only_one, running_elsewhere

KIND = "study"
BEST_RECIPE, BEST_MODEL, PAGE, TABLE = "best-recipe.yaml", "best-model", "study.html", "trials.csv"


@dataclass(frozen=True, slots=True)
class StudyResult(Record):
    """What a study leaves behind. `final` is None where other machines still run trials of it."""

    study: str
    sampler: str
    metric: str
    trials: dict[str, int]
    sentence: str
    final: Final | None = None
    best_recipe: str | None = None
    weights: str | None = None
    page: str | None = None
    rival: str | None = None

    def lines(self) -> list[str]:
        shown = ", ".join(f"{count} {state}" for state, count in self.trials.items() if count)
        lines = [f"{self.study} ({self.sampler}): {shown}", self.sentence]
        lines += [self.rival] if self.rival else []
        named = (("recipe ", self.best_recipe), ("weights", self.weights), ("report ", self.page))
        return lines + [f"{name} {path}" for name, path in named if path]


def read_tune_recipe(path: Path | None, given: Mapping[str, Any]) -> TuneRecipe:
    """A recipe from a YAML file, from options, or from both; an option that was given wins."""
    values = read_yaml(path) if path else {}
    values |= {key: str(value) if isinstance(value, Path) else value for key, value in given.items() if value not in (None, [])}
    if given.get("datasets"):
        values.pop("texts", None)
    for name, example in (("models", "--model bundled:ko-mini"), ("out", "--out studies/first")):
        if name not in values:
            raise RecipeError(f"A study needs {name.rstrip('s')}; pass {example}.")
    return from_mapping(TuneRecipe, values, str(path or "tune"))


def settled(recipe: TuneRecipe, progress: Progress) -> TuneRecipe:
    """The recipe with its space, for a person to look at and edit; what it takes to know it is made in a folder that vanishes."""
    with tempfile.TemporaryDirectory() as folder:
        problem = open_problem(recipe, Path(folder), progress)
    return replace(recipe, space=problem.space.plain())


def open_problem(recipe: TuneRecipe, out: Path, progress: Progress) -> Problem:
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
) -> StudyResult:
    """Search, or go on searching, then finish: everything that is done already is recognised."""
    out = Path(recipe.out)
    claim_folder(out, KIND)
    with only_one(out) as owner:
        progress = (progress or quiet()).into(out / "events.ndjson")
        problem = open_problem(recipe, out, progress)
        study = open_study(recipe, out, problem.binding, starts=problem.recommended(), owner=owner)
        write_text(out / "recipe.yaml", recipe_text(replace(recipe, space=problem.space.plain())))
        launcher = launcher or launcher_of(recipe.engine, recipe.workers, recipe.device)
        Search(study, problem, recipe, launcher, progress, owner, wait).run()
        if elsewhere := running_elsewhere(study):
            told = f"{elsewhere} trials of {recipe.arm} still run elsewhere; whoever ends last compares the best."
            return StudyResult(recipe.arm, recipe.sampler, problem.metric, states(study), told)
        final = finish(study, problem, recipe, launcher, progress, wait=wait)
        return _write(study, problem, recipe, final, out)


def recipe_text(recipe: TuneRecipe) -> str:
    """The recipe as YAML, nested parts included."""
    return str(yaml.safe_dump(json.loads(json.dumps(to_mapping(recipe))), allow_unicode=True, sort_keys=False))


def states(study: Any) -> dict[str, int]:
    """How many trials ended how, in words."""
    words = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "running": "RUNNING"}
    ended = [trial.state.name for trial in study.get_trials(deepcopy=False) if counts(trial)]
    return {word: ended.count(name) for word, name in words.items()}


def _write(study: Any, problem: Problem, recipe: TuneRecipe, final: Final, out: Path) -> StudyResult:
    from coref_automl.tuning.page import write_page
    from coref_automl.tuning.table import write_table

    _keep_winner(problem, recipe, final.winner, out)
    write_json(out / "finals" / f"{recipe.arm}.json", final.to_json())
    result = StudyResult(
        recipe.arm,
        recipe.sampler,
        problem.metric,
        states(study),
        final.sentence,
        final,
        str(out / BEST_RECIPE),
        str(out / BEST_MODEL),
        str(out / PAGE),
        against_other_arms(problem, recipe, final, out),
    )
    write_json(out / "result.json", result.to_json())
    studies = arms(recipe, out, problem.binding)
    write_table(studies, problem, out / TABLE)
    write_page(result, studies, problem, recipe, read_finals(out), out / PAGE)
    return result


def _keep_winner(problem: Problem, recipe: TuneRecipe, winner: Finalist, out: Path) -> None:
    """The recipe that trains the winner again, and the weights of its best seed on select."""
    write_text(out / BEST_RECIPE, to_yaml(problem.best_recipe(winner.params, out / "best-run")))
    seed = recipe.seed + winner.select.index(max(winner.select))
    source = problem.weights(problem.job(winner.params, seed, confirm=True))
    aside = out / f".{BEST_MODEL}.part"
    remove(aside)
    shutil.copytree(source, aside, ignore=shutil.ignore_patterns("optimizer*", "scheduler*", "rng_state*", "scaler*"))
    held = out / BEST_MODEL
    if held.exists() and not (held / "config.json").is_file() and any(held.iterdir()):
        raise FolderError(f"{held} holds something that is not a model; move it away and run the same command again.")
    remove(held)
    aside.rename(held)


def read_finals(out: Path) -> dict[str, Final]:
    """The finished arms of a folder: the tuner's, and random search's beside it."""
    return {path.stem: Final.from_json(read_json(path)) for path in sorted((out / "finals").glob("*.json"))}


def against_other_arms(problem: Problem, recipe: TuneRecipe, final: Final, out: Path) -> str | None:
    """Does the tuner win against random search at the same count of trials? Winners paired by seed, on the confirming half."""
    others = {name: other for name, other in read_finals(out).items() if name != recipe.arm}
    lines = []
    for name, other in others.items():
        seeds = range(recipe.seed, recipe.seed + min(len(final.winner.confirm), len(other.winner.confirm)))
        sides = [[problem.job(one.params, seed, confirm=True) for seed in seeds] for one in (final.winner, other.winner)]
        verdict: MethodVerdict = problem.verdict(sides[0], sides[1], recipe.seed)
        told = "shown" if verdict.shown else "not shown: it may be noise"
        lines.append(f"Winner of {recipe.arm} - winner of {name}: {100 * verdict.difference:+.2f} points ({told}).")
    return " ".join(lines) or None
