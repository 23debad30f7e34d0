"""Choosing with fresh seeds. In: the trials of a search. Out: candidates with their scores on `select`, and a ceiling.

The run that nominated a trial does not count: it was the luckiest of many. Candidates are retrained with fresh seeds, in two
rounds; the settings that everybody has (defaults, recommended, portfolio) are retrained with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coref_automl.base.errors import TuningError
from coref_automl.base.job import Job, Launcher
from coref_automl.base.progress import Progress
from coref_automl.base.records import Record
from coref_automl.base.schedule import Attempt, run_steps
from coref_automl.extras.tune.problem import ORIGINS, SAMPLED, Origin, Problem, events_of
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.search import completed, origin_of
from coref_automl.extras.tune.storage import counts
from coref_automl.statistics.planning import PRIOR_DEGREES, ceiling

EARLY_TRIALS = 20
"""Sampled trials after which a search is checked once: can it still gain anything that matters?"""
_EARLY_FINALISTS = 3
_FRESH = 2
"""Fresh seeds of a round; there are two."""
_RUN_SPREAD = 0.0022
"""Standard deviation of a run's score in the archived studies: what moves a run as a whole, and its luck with the items."""
_RUNG_SPREAD = 0.0035
"""Standard deviation between a score at the very beginning of a budget and at its end, beyond that of the run."""


@dataclass(frozen=True, slots=True)
class TrialCandidate(Record):
    """A trial that may be retrained: its score in the search (`nominated`), and those of its fresh `seeds` on `select`. `params`
    are its settings and, as `average`, how many last checkpoints are averaged (0: none)."""

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
    def is_sampled(self) -> bool:
        return self.origin == SAMPLED

    @property
    def tier(self) -> int:
        return ORIGINS.index(self.origin)

    def jobs(self, problem: Problem, seeds: Iterable[int], *, confirm: bool = False) -> list[Job]:
        return [problem.job(self.params, seed, confirm=confirm) for seed in seeds]


@dataclass(slots=True)
class JobRunner:
    """Runs jobs and names failures in `notes`. Weights are deleted, but for the last checkpoint of jobs in `keep_last`."""

    problem: Problem
    launcher: Launcher
    progress: Progress
    wait: Callable[[], None]
    notes: list[str] = field(default_factory=list)
    keep_last: set[str] = field(default_factory=set)

    def run(self, jobs: Sequence[Job], stage: str) -> set[str]:
        """Run jobs, a killed one twice at most. Returns the keys of those that failed."""
        failed: set[str] = set()
        distinct_jobs = list({job.key: job for job in jobs}.values())
        with self.progress.stage(stage, len(distinct_jobs), "runs") as bar:

            def is_final(end: Attempt[Job]) -> bool:
                if end.outcome is None and end.number < 2:
                    return False
                if end.done:
                    self.problem.drop_weights(end.job, keep_last=end.job.key in self.keep_last)
                else:
                    self.notes.append(f"A run of the {stage} is left out: {end.reason} (log: {end.job.log})")
                    failed.add(end.job.key)
                bar.advance()
                return True

            run_steps(distinct_jobs, self.launcher, lambda job: job, is_final, wait=self.wait)
        return failed


def completed_candidates(study: Any, problem: Problem, recipe: TuneRecipe) -> list[TrialCandidate]:
    """Return the completed trials, best first, one per recipe: of several that trained the same, the start or else the best."""
    trials: dict[str, Any] = {}
    for trial in completed(study):
        key = problem.job(trial.params, recipe.seed).key
        if key not in trials or ORIGINS.index(origin_of(trial)) < ORIGINS.index(origin_of(trials[key])):
            trials[key] = trial
    candidates = []
    for trial in trials.values():
        params = {**trial.params, "average": problem.averaged if trial.user_attrs.get("averaged") else 0}
        name = str(trial.user_attrs.get("name", ""))
        candidates.append(TrialCandidate(trial.number, origin_of(trial), name, params, float(trial.value)))
    if candidates:
        return candidates
    reasons = [trial.user_attrs["reason"] for trial in study.get_trials() if counts(trial) and "reason" in trial.user_attrs]
    why = f" (the last says: {str(reasons[-1]).rstrip('.')})" if reasons else ""
    raise TuningError(
        f"No trial of the study {recipe.study!r} completed{why}; raise --trials to try more, or correct the recipe and give it "
        "another --out."
    )


def rank(candidates: Sequence[TrialCandidate], recipe: TuneRecipe, runner: JobRunner) -> list[TrialCandidate]:
    """Retrain the best candidates in two rounds of fresh seeds, and return them best first; one whose seed fails is out."""
    if len(candidates) == 1:
        return list(candidates)  # nothing to rank
    first, second = selection_seeds(recipe)
    sampled = [candidate for candidate in candidates if candidate.is_sampled][: recipe.finalists]
    ranked = _retrain([*sampled, *_references(candidates)], first, runner)
    better = [candidate for candidate in ranked if candidate.is_sampled][: max(1, recipe.finalists // 2)]
    return _retrain([*better, *_references(ranked)], second, runner)


def rank_early(candidates: Sequence[TrialCandidate], recipe: TuneRecipe, runner: JobRunner) -> list[TrialCandidate]:
    """Rank the best three sampled candidates after one round, and the best of the others after two."""
    first, second = selection_seeds(recipe)
    sampled = [candidate for candidate in candidates if candidate.is_sampled][:_EARLY_FINALISTS]
    ranked = _retrain([*sampled, *_references(candidates)], first, runner)
    reference = [candidate for candidate in ranked if not candidate.is_sampled][:1]
    others = [candidate for candidate in ranked if candidate not in reference]
    retrained = _retrain(reference, second, runner) if reference else []
    return sorted([*retrained, *others], key=_order)


def selection_seeds(recipe: TuneRecipe) -> tuple[range, range]:
    middle = recipe.seed + 1 + _FRESH
    return range(recipe.seed + 1, middle), range(middle, middle + _FRESH)


def _references(candidates: Sequence[TrialCandidate]) -> list[TrialCandidate]:
    """Return the opponents of a winner: the best candidate that was not sampled, and the best of the tiers before that one."""
    references: list[TrialCandidate] = []
    for candidate in sorted((candidate for candidate in candidates if not candidate.is_sampled), key=_order):
        if not references or candidate.tier < references[-1].tier:
            references.append(candidate)
    return references[:2]


def _order(candidate: TrialCandidate) -> tuple[float, int]:
    return -candidate.mean, candidate.number


def _retrain(candidates: Sequence[TrialCandidate], seeds: Iterable[int], runner: JobRunner) -> list[TrialCandidate]:
    """Add the scores of these seeds to the candidates, and return those without a failed run, best first."""
    problem = runner.problem
    jobs = {candidate.number: candidate.jobs(problem, seeds) for candidate in candidates}
    failed = runner.run([job for group in jobs.values() for job in group], "finalists")
    scored = []
    for candidate in candidates:
        if any(job.key in failed for job in jobs[candidate.number]):
            continue
        curves = [problem.reports(job, events_of(job).rows()) for job in jobs[candidate.number]]
        averaged = bool(candidate.params.get("average"))
        scores = [[report.value for report in curve if report.averaged == averaged][-1] for curve in curves]
        scored.append(replace(candidate, seeds=(*candidate.seeds, *seeds), select=(*candidate.select, *scores)))
    if not scored:
        raise TuningError(f"No finalist could be trained with its fresh seeds: {runner.notes[-1]}")
    return sorted(scored, key=_order)


def gain_ceiling(study: Any, finalists: Sequence[TrialCandidate], problem: Problem) -> float | None:
    """Bound what any sampled setting gains over the best that was not sampled, at 95% confidence (a share, not points).

    Finalists enter with their fresh seeds; other trials with their one run against the reference's: its score or, if it was cut,
    its last report against the same quarter of the budget. None if nothing was sampled, or no reference was retrained.
    """
    reference = next((finalist for finalist in finalists if not finalist.is_sampled and finalist.select), None)
    trials = {trial.number: trial for trial in study.get_trials(deepcopy=False) if counts(trial) and trial.intermediate_values}
    sampled = [trial for trial in trials.values() if origin_of(trial) == SAMPLED]
    if reference is None or not sampled or reference.number not in trials:
        return None
    run_variance = _run_variance(finalists)
    retrained = {finalist.number: finalist for finalist in finalists if finalist.select}
    document_variance = _document_variance(retrained, reference, problem)
    scores = {**trials[reference.number].intermediate_values, REPORTS: reference.nominated}
    quarters, of_reference = np.array(sorted(scores.items())).T  # long steps pass over some quarters
    gains, errors = [], []
    for trial in sampled:
        if (finalist := retrained.get(trial.number)) is not None:
            gains.append(finalist.mean - reference.mean)
            errors.append(run_variance / len(finalist.select) + document_variance)
            continue
        is_whole, last = trial.state.name == "COMPLETE", max(trial.intermediate_values)
        step = REPORTS if is_whole else last  # relation extraction may be complete before its budget is spent
        gains.append((trial.value if is_whole else trial.intermediate_values[last]) - np.interp(step, quarters, of_reference))
        errors.append(run_variance + document_variance + (_RUNG_SPREAD * (1 - step / REPORTS)) ** 2)
    reference_error = float(np.sqrt(run_variance / len(reference.select) + document_variance))
    return ceiling(gains, np.sqrt(errors), reference_error)


def _run_variance(finalists: Sequence[TrialCandidate]) -> float:
    """The variance of one run's score: that of the archived studies, pooled with what these fresh seeds show."""
    groups = [finalist.select for finalist in finalists if len(finalist.select) > 1]
    degrees = sum(len(group) - 1 for group in groups)
    within = sum(float(np.var(group, ddof=1)) * (len(group) - 1) for group in groups)
    return (PRIOR_DEGREES * _RUN_SPREAD**2 + within) / (PRIOR_DEGREES + degrees)


def _document_variance(retrained: Mapping[int, TrialCandidate], reference: TrialCandidate, problem: Problem) -> float:
    """The variance of one setting's score over documents: half that of a difference, the median over candidates."""
    errors = []
    for candidate in retrained.values():
        shared = [seed for seed in candidate.seeds if seed in reference.seeds]
        if candidate.number != reference.number and shared:
            errors.append(problem.paired(candidate.jobs(problem, shared), reference.jobs(problem, shared), "select").error)
    return float(np.median(errors)) ** 2 / 2 if errors else 0.0
