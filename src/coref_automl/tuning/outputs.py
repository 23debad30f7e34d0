"""What a study leaves behind. In: its finalists. Out: best-recipe.yaml, best-model/, result.json, trials.csv, FinishedStudy.

Random search in the same folder has files of its own (best-recipe-random.yaml ...) and overwrites nothing; the table and the
pages show both.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.config import to_yaml
from coref_automl.decoder import read_stored
from coref_automl.errors import FolderError
from coref_automl.records import Record
from coref_automl.say import Say, language
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.store import remove, write_json, write_text
from coref_automl.tabular import align
from coref_automl.tuning.finish import Final, Finalist, against_other_arms, rival_sentence
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.reasons import reason_words
from coref_automl.tuning.recipe import Sampler, TuneRecipe
from coref_automl.tuning.space import Space
from coref_automl.tuning.storage import arms, counts
from coref_automl.tuning.table import Arm, arm_of, write_table

TABLE = "trials.csv"
_STATES = {"complete": "완료", "pruned": "중단", "failed": "실패", "running": "진행 중"}
_ONLY_FOR_RESUMING = ("optimizer*", "scheduler*", "rng_state*", "scaler*")


@dataclass(frozen=True, slots=True)
class StudyResult(Record):
    """What a study leaves behind. `final` is None where other machines still run trials of it."""

    study: str
    sampler: Sampler
    metric: str
    trials: dict[str, int]
    sentence: str
    final: Final | None = None
    best_recipe: str | None = None
    weights: str | None = None
    page: str | None = None
    rival: str | None = None

    def lines(self) -> list[str]:
        say = Say(language())
        counts = [(say(_STATES[state], state), count) for state, count in self.trials.items() if count]
        shown = ", ".join(say(f"{state} {count}개", f"{count} {state}") for state, count in counts)
        lines = [f"{self.study} ({self.sampler}): {shown}", self.sentence]
        lines += [self.rival] if self.rival else []
        lines += [reason_words(note, say) for note in self.final.notes] if self.final else []
        named = (
            (say("레시피", "recipe"), self.best_recipe),
            (say("가중치", "weights"), self.weights),
            (say("보고서", "report"), self.page),
        )
        return lines + align([(name, path) for name, path in named if path])


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """All that a page of a study shows: its result, the arms of its folder beside it, and the winners against each other."""

    result: StudyResult
    recipe: TuneRecipe
    label: str
    confirm_name: str
    space: Space
    arms: tuple[Arm, ...]
    finals: Mapping[str, Final]
    rivals: Mapping[str, MethodVerdict | None]
    page: Path


Draw = Callable[[FinishedStudy], None]
"""Draws a study's page."""


def states(study: Any) -> dict[str, int]:
    """How many trials ended how, in words."""
    words = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL", "running": "RUNNING"}
    ended = [trial.state.name for trial in study.get_trials(deepcopy=False) if counts(trial)]
    return {word: ended.count(name) for word, name in words.items()}


def write_outputs(
    study: Any, problem: Problem, recipe: TuneRecipe, final: Final, out: Path, *, draw: Draw | None = None
) -> StudyResult:
    """Write everything; pages of other arms in the folder are drawn again, so that each shows all."""
    recipe_path, model_path = out / named("best-recipe", recipe, ".yaml"), out / named("best-model", recipe)
    _keep_winner(problem, recipe, final.winner, recipe_path, model_path, out)
    page = str(out / named("study", recipe, ".html")) if draw is not None else None
    result = StudyResult(
        recipe.arm, recipe.sampler, problem.metric, states(study), final.sentence, final, str(recipe_path), str(model_path),
        page,
    )  # fmt: skip
    write_json(out / named("result", recipe, ".json"), result.to_json())
    shown = [arm_of(one) for one in arms(recipe, out, problem.binding)]
    write_table(shown, problem, out / TABLE)
    return _write_results(shown, problem, recipe, out, draw)


def _write_results(shown: Sequence[Arm], problem: Problem, recipe: TuneRecipe, out: Path, draw: Draw | None) -> StudyResult:
    """result.json of every arm, each with its verdict against the others, and their pages."""
    names = {arm.name for arm in shown}
    again = "remove it, and run the study again"
    found = [read_stored(path, StudyResult, remedy=again) for path in sorted(out.glob("result*.json"))]
    finals = {result.study: result.final for result in found if result.study in names and result.final is not None}
    results = {}
    for result in found:
        if result.study not in finals:
            continue
        arm = replace(recipe, sampler=result.sampler)
        rivals = against_other_arms(problem, arm, finals)
        result = results[result.study] = replace(result, rival=rival_sentence(arm.arm, rivals, Say(language())))
        write_json(out / named("result", arm, ".json"), result.to_json())
        if draw is not None:
            page = out / named("study", arm, ".html")
            draw(
                FinishedStudy(result, arm, problem.label, problem.confirm_name, problem.space, tuple(shown), finals, rivals, page)
            )
    return results[recipe.arm]


def _keep_winner(problem: Problem, recipe: TuneRecipe, winner: Finalist, recipe_path: Path, model_path: Path, out: Path) -> None:
    """The recipe that trains the winner again, and the weights of its best choosing seed on select."""
    write_text(recipe_path, to_yaml(problem.best_recipe(winner.params, out / named("best-run", recipe))))
    seed = recipe.seed + winner.select.index(max(winner.select))
    source = problem.weights(problem.job(winner.params, seed, confirm=True))
    aside = out / f".{model_path.name}.part"
    remove(aside)
    shutil.copytree(source, aside, ignore=shutil.ignore_patterns(*_ONLY_FOR_RESUMING))
    if model_path.exists() and not (model_path / "config.json").is_file() and any(model_path.iterdir()):
        raise FolderError(f"{model_path} holds something that is not a model; move it away and run the same command again.")
    remove(model_path)
    aside.rename(model_path)


def named(what: str, recipe: TuneRecipe, ending: str = "") -> str:
    """A file's name: a folder holds one study, and random search beside it."""
    return f"{what}{'' if recipe.sampler == 'tpe' else f'-{recipe.sampler}'}{ending}"
