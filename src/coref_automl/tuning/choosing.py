"""Choosing with fresh seeds. In: the trials of a search. Out: candidates with their scores on `select`, and a ceiling.

The run that nominated a trial does not count: it was the luckiest of many. Candidates are trained with fresh seeds, in two
rounds; the settings that everybody has (defaults, recommended, portfolio) run beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coref_automl.engine.job import Job, Launcher
from coref_automl.engine.schedule import Attempt, run_steps
from coref_automl.errors import TuningError
from coref_automl.progress import Progress
from coref_automl.records import Record
from coref_automl.statistics.planning import PRIOR_DEGREES, ceiling
from coref_automl.tuning.problem import ORIGINS, Origin, Problem, events_of
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.search import distinct, origin_of
from coref_automl.tuning.storage import counts

FIRST = 20
"""Drawn trials after which a search is looked at: is there anything to win?"""
_LOOKED_AT = 3
_FRESH = 2
"""Fresh seeds of a round; there are two."""
_RUN_SPREAD = 0.0022
"""The spread of one run's score in the archived studies: what moves a run as a whole, and its luck with the items."""
_RUNG_SPREAD = 0.0035
"""How far the score early in a budget misleads about its end, at its very beginning."""


@dataclass(frozen=True, slots=True)
class Contender(Record):
    """A trial that was trained again. `select` are the scores of its fresh seeds, in the order of `seeds`.

    `params` are its settings and, as `average`, how many last checkpoints are averaged (0: none).
    """

    number: int
    origin: Origin
    name: str
    params: dict[str, Any]
    nominated: float
    seeds: tuple[int, ...] = ()
    select: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        return float(np.mean(self.select)) if self.select else self.nominated

    @property
    def tier(self) -> int:
        return ORIGINS.index(self.origin)

    def jobs(self, problem: Problem, seeds: Iterable[int], *, confirm: bool = False) -> list[Job]:
        return [problem.job(self.params, seed, confirm=confirm) for seed in seeds]


@dataclass(slots=True)
class Trainer:
    """Runs jobs in the launcher's slots; what fails is named in `notes`. A job that is done gives its weights back, but for the
    last of those whose keys are `kept`."""

    problem: Problem
    launcher: Launcher
    progress: Progress
    wait: Callable[[], None]
    notes: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

    def __call__(self, jobs: Sequence[Job], stage: str) -> set[str]:
        """Run jobs; a killed one is tried once more. Gives the keys of those that failed."""
        failed: set[str] = set()
        distinct_jobs = list({job.key: job for job in jobs}.values())
        with self.progress.stage(stage, len(distinct_jobs), "runs") as bar:

            def ended(end: Attempt[Job]) -> bool:
                if end.outcome is None and end.number < 2:
                    return False
                if end.done:
                    self.problem.drop_weights(end.job, keep_last=end.job.key in self.kept)
                else:
                    self.notes.append(f"A run of the {stage} is left out: {end.reason} (log: {end.job.log})")
                    failed.add(end.job.key)
                bar.advance()
                return True

            run_steps(distinct_jobs, self.launcher, lambda job: job, ended, wait=self.wait)
        return failed


def candidates(study: Any, problem: Problem, recipe: TuneRecipe) -> list[Contender]:
    """The completed trials, one per recipe, best first."""
    found = []
    for trial in distinct(study, problem, recipe.seed):
        params = {**trial.params, "average": problem.averaged if trial.user_attrs.get("averaged") else 0}
        name = str(trial.user_attrs.get("name", ""))
        found.append(Contender(trial.number, origin_of(trial), name, params, float(trial.value)))
    if found:
        return found
    reasons = [trial.user_attrs["reason"] for trial in study.get_trials() if counts(trial) and "reason" in trial.user_attrs]
    why = f" (the last says: {str(reasons[-1]).rstrip('.')})" if reasons else ""
    raise TuningError(
        f"No trial of the study {recipe.study!r} completed{why}; raise --trials to try more, or correct the recipe and give it "
        "another --out."
    )


def choose(found: Sequence[Contender], problem: Problem, recipe: TuneRecipe, train: Trainer) -> list[Contender]:
    """Two rounds of fresh seeds; those that took part, best first. What fails with a seed is out; one alone is chosen already."""
    if len(found) == 1:
        return list(found)
    first, second = choosing_seeds(recipe)
    drawn = [one for one in found if one.origin == "drawn"][: recipe.finalists]
    raced = _scored([*drawn, *_references(found)], first, problem, train)
    better = [one for one in raced if one.origin == "drawn"][: max(1, recipe.finalists // 2)]
    return _scored([*better, *_references(raced)], second, problem, train)


def looked_at(found: Sequence[Contender], problem: Problem, train: Trainer, recipe: TuneRecipe) -> list[Contender]:
    """A first look at a search: the best three drawn, and the best of the others, with fresh seeds."""
    first, second = choosing_seeds(recipe)
    drawn = [one for one in found if one.origin == "drawn"][:_LOOKED_AT]
    raced = _scored([*drawn, *_references(found)], first, problem, train)
    rest = [one for one in raced if one.origin != "drawn"][:1]
    again = _scored(rest, second, problem, train)
    return sorted([*again, *(one for one in raced if one not in rest)], key=_order)


def choosing_seeds(recipe: TuneRecipe) -> tuple[range, range]:
    middle = recipe.seed + 1 + _FRESH
    return range(recipe.seed + 1, middle), range(middle, middle + _FRESH)


def _references(found: Sequence[Contender]) -> list[Contender]:
    """The best of all that was not drawn, and the best of what comes before that: a winner's opponents."""
    kept: list[Contender] = []
    for one in sorted((one for one in found if one.origin != "drawn"), key=_order):
        if not kept or one.tier < kept[-1].tier:
            kept.append(one)
    return kept[:2]


def _order(one: Contender) -> tuple[float, int]:
    return -one.mean, one.number


def _scored(entered: Sequence[Contender], seeds: Iterable[int], problem: Problem, train: Trainer) -> list[Contender]:
    jobs = {one.number: one.jobs(problem, seeds) for one in entered}
    failed = train([job for group in jobs.values() for job in group], "finalists")
    kept = []
    for one in entered:
        if any(job.key in failed for job in jobs[one.number]):
            continue
        curves = [problem.reports(job, events_of(job).rows()) for job in jobs[one.number]]
        averaged = bool(one.params.get("average"))
        ends = [[report.value for report in curve if report.averaged == averaged][-1] for curve in curves]
        kept.append(replace(one, seeds=(*one.seeds, *seeds), select=(*one.select, *ends)))
    if not kept:
        raise TuningError(f"No finalist could be trained with its fresh seeds: {train.notes[-1]}")
    return sorted(kept, key=_order)


def ceiling_of(study: Any, raced: Sequence[Contender], problem: Problem) -> float | None:
    """With 95% confidence no drawn setting gains more than this over the best that was not drawn (a share, not points).

    A setting that was trained again stands with its fresh seeds; any other with its one run, against the reference at the same
    quarter of the budget. None where nothing was drawn, or no reference was trained again.
    """
    reference = next((one for one in raced if one.origin != "drawn" and one.select), None)
    trials = {trial.number: trial for trial in study.get_trials(deepcopy=False) if counts(trial) and trial.intermediate_values}
    drawn = [trial for trial in trials.values() if origin_of(trial) == "drawn"]
    if reference is None or not drawn or reference.number not in trials:
        return None
    groups = [one.select for one in raced if len(one.select) > 1]
    degrees = sum(len(group) - 1 for group in groups)
    own = sum(float(np.var(group, ddof=1)) * (len(group) - 1) for group in groups)
    run = (PRIOR_DEGREES * _RUN_SPREAD**2 + own) / (PRIOR_DEGREES + degrees)
    again = {one.number: one for one in raced if one.select}
    documents = _document_error(again, reference, problem)
    gains, errors = [], []
    for trial in drawn:
        if (one := again.get(trial.number)) is not None:
            gains.append(one.mean - reference.mean)
            errors.append(run / len(one.select) + documents)
            continue
        step = max(trial.intermediate_values)
        gains.append(trial.intermediate_values[step] - trials[reference.number].intermediate_values[step])
        errors.append(run + documents + (_RUNG_SPREAD * (1 - step / REPORTS)) ** 2)
    return ceiling(gains, np.sqrt(errors), float(np.sqrt(run / len(reference.select) + documents)))


def _document_error(again: dict[int, Contender], reference: Contender, problem: Problem) -> float:
    """What of the variance of one setting comes from its documents: half of that of a difference, the median over candidates."""
    errors = []
    for one in again.values():
        shared = [seed for seed in one.seeds if seed in reference.seeds]
        if one is not reference and one.number != reference.number and shared:
            errors.append(problem.paired(one.jobs(problem, shared), reference.jobs(problem, shared), "select").error)
    return float(np.median(errors)) ** 2 / 2 if errors else 0.0
