"""What a study leaves behind. In: its end. Out: best-recipe.yaml, best-model/, result.json, trials.csv, and a FinishedStudy."""

from __future__ import annotations

import csv
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coref_automl.comparison.power import Evidence
from coref_automl.config import to_yaml
from coref_automl.records import Record
from coref_automl.say import Say, align, in_words, language
from coref_automl.store import remove, write_json, write_text, written_whole
from coref_automl.tuning.finish import Final
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.space import Space
from coref_automl.tuning.storage import counts
from coref_automl.tuning.words import lines_of

TABLE = "trials.csv"
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
_LEAST = 5
"""Fewer completed trials say nothing about which dimension matters."""
_KOREAN = {"complete": "완료", "pruned": "중단", "failed": "실패", "running": "진행 중"}
_ONLY_FOR_RESUMING = ("optimizer*", "scheduler*", "rng_state*", "scaler*")


@dataclass(frozen=True, slots=True)
class StudyResult(Record):
    """What a study leaves behind. `final` is None where other machines still run trials of it; `told` is what it says."""

    study: str
    metric: str
    trials: dict[str, int]
    told: tuple[str, ...]
    final: Final | None = None
    ability: Evidence | None = None
    best_recipe: str | None = None
    weights: str | None = None
    page: str | None = None
    remembered: str | None = None

    @property
    def sentence(self) -> str:
        return self.told[0]

    def lines(self) -> list[str]:
        say = Say(language())
        ended = [(say(_KOREAN[state], state), count) for state, count in self.trials.items() if count]
        shown = ", ".join(say(f"{state} {count}개", f"{count} {state}") for state, count in ended)
        lines = [f"{self.study}: {shown}", *self.told]
        lines += map(in_words, self.final.notes if self.final else ())
        named = (
            (say("레시피", "recipe"), self.best_recipe),
            (say("가중치", "weights"), self.weights),
            (say("보고서", "report"), self.page),
            (say("포트폴리오에 추가", "added to your portfolio"), self.remembered),
        )
        return lines + align([(name, path) for name, path in named if path])


@dataclass(frozen=True, slots=True)
class TrialRow(Record):
    """One trial. `value` is None unless it completed; `reports` holds the score at each quarter of the budget."""

    number: int
    state: str
    value: float | None
    origin: str
    name: str
    params: dict[str, Any]
    reports: dict[int, float]
    tokens: int | None
    wall: float | None
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class TrialTable(Record):
    """The trials of a study, and how important each dimension was (empty if the trials cannot tell)."""

    trials: tuple[TrialRow, ...]
    importance: dict[str, float] = field(default_factory=dict)

    @property
    def completed(self) -> list[TrialRow]:
        return [trial for trial in self.trials if trial.state == "complete"]


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """All that a page of a study shows."""

    result: StudyResult
    recipe: TuneRecipe
    label: str
    confirm_name: str
    space: Space
    table: TrialTable
    final: Final
    page: Path


Draw = Callable[[FinishedStudy], None]
"""Draws a study's page."""


def states(study: Any) -> dict[str, int]:
    """How many trials ended how."""
    ended = [STATES.get(trial.state.name) for trial in study.get_trials(deepcopy=False) if counts(trial)]
    return {state: ended.count(state) for state in STATES.values()}


def write_outputs(
    study: Any,
    problem: Problem,
    recipe: TuneRecipe,
    final: Final,
    out: Path,
    *,
    power: Evidence | None,
    draw: Draw | None = None,
    remembered: Path | None = None,
) -> StudyResult:
    recipe_path, model_path, page = out / "best-recipe.yaml", out / "best-model", out / "study.html"
    _keep_winner(problem, final, recipe_path, model_path, out)
    told = lines_of(final, recipe, problem.label, problem.confirm_name, Say(language()))
    result = StudyResult(
        recipe.study, problem.metric, states(study), tuple(told), final, power, str(recipe_path), str(model_path),
        str(page) if draw is not None else None, str(remembered) if remembered else None,
    )  # fmt: skip
    write_json(out / "result.json", result.to_json())
    table = table_of(study)
    write_table(table, problem, out / TABLE)
    if draw is not None:
        draw(FinishedStudy(result, recipe, problem.label, problem.confirm_name, problem.space, table, final, page))
    return result


def _keep_winner(problem: Problem, final: Final, recipe_path: Path, model_path: Path, out: Path) -> None:
    """The recipe that trains the winner again, and the weights of its first new seed: no run is picked by its score."""
    write_text(recipe_path, to_yaml(problem.best_recipe(final.won.params, out / "best-run")))
    source = problem.weights(final.won.jobs(problem, final.judging[:1], confirm=True)[0])
    aside = out / f".{model_path.name}.part"
    remove(aside)
    shutil.copytree(source, aside, ignore=shutil.ignore_patterns(*_ONLY_FOR_RESUMING))
    remove(model_path)
    aside.rename(model_path)


def table_of(study: Any) -> TrialTable:
    """The trials that were asked for and have started."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if counts(trial) and trial.state.name in STATES]
    return TrialTable(tuple(map(_row, trials)), _importance(study, trials))


def _row(trial: Any) -> TrialRow:
    known, state = trial.user_attrs, STATES[trial.state.name]
    return TrialRow(
        number=trial.number,
        state=state,
        value=trial.value if state == "complete" else None,
        origin=str(known.get("origin", "drawn")),
        name=str(known.get("name", "")),
        params=dict(trial.params),
        reports=dict(trial.intermediate_values),
        tokens=known.get("tokens"),
        wall=known.get("wall"),
        reason=str(known.get("reason", "")),
        log=str(known.get("log", "")),
    )


def _importance(study: Any, trials: Sequence[Any]) -> dict[str, float]:
    """PED-ANOVA: how much each dimension separates the best quarter from the rest."""
    import optuna

    values = [trial.value for trial in trials if trial.state.name == "COMPLETE"]
    if len(values) < _LEAST or len(set(values)) < 2:
        return {}  # equal values have no best quarter
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of dimensions that few trials drew; the page shows how few there were
            found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError):
        return {}
    return {name: float(share) for name, share in found.items()}


def write_table(table: TrialTable, problem: Problem, path: Path) -> None:
    head = ["trial", "state", problem.metric, "origin", "name", *problem.space.names, "tokens", "wall", "reason", "log"]
    head += [f"at {step}/{REPORTS}" for step in range(1, REPORTS + 1)]
    with written_whole(path) as handle:
        rows = csv.writer(handle, lineterminator="\n")  # None is written as nothing
        rows.writerow(head)
        for trial in table.trials:
            drawn = [trial.params.get(name) for name in problem.space.names]
            reports = [trial.reports.get(step) for step in range(1, REPORTS + 1)]
            known = (trial.tokens, trial.wall, trial.reason, trial.log)
            rows.writerow([trial.number, trial.state, trial.value, trial.origin, trial.name, *drawn, *known, *reports])
