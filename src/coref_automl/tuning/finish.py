"""The end of a study. In: its trials. Out: a winner chosen by fresh seeds and judged by other fresh seeds on `confirm`.

1. The best trials are trained again with fresh seeds, which choose the winner (`choosing.py`); guards keep candidates out.
2. Winner and reference are trained in pairs, each pair with one more seed, until their difference is shown, until a gain that
   matters is excluded, or until the budget is spent (`statistics/planning.py`). The reference is the best of what comes before
   the winner: the portfolio for a drawn setting, the recommended settings for an entry of the portfolio. So a win of the
   portfolio is not a win of the search. `train`'s default is compared beside them.
3. Guards are asked again, those of fine-tuned tasks for the first time: a winner that breaks one is refused for its reference.
4. A winner that is shown to be better is trained with one setting back at a time: which one mattered?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from coref_automl.engine.job import Launcher
from coref_automl.errors import TuningError
from coref_automl.progress import Progress
from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL
from coref_automl.statistics.planning import SequentialVerdict, looks_of
from coref_automl.tuning.choosing import Contender, Trainer, candidates, ceiling_of, choose, choosing_seeds
from coref_automl.tuning.problem import Follower, Problem
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.score import MetricGuard, guard_of

_DEFAULT_PAIRS = 8
"""Pairs that the comparison with `train`'s default has at most."""
_ABLATED_SETTINGS = 6
_FEW_SEEDS = 2
"""Seeds of an ablated setting, and of a winner without a reference, which is only described."""


@dataclass(frozen=True, slots=True)
class Judgement(Record):
    """The winner minus another candidate on `confirm`, over `seeds`; guards are differences of their metrics."""

    against: int
    seeds: tuple[int, ...]
    verdict: SequentialVerdict
    guards: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class SettingEffect(Record):
    """What the winner loses with one setting as the reference has it, over a few pairs."""

    name: str
    value: Any
    back: Any
    loss: float
    error: float


@dataclass(frozen=True, slots=True)
class Final(Record):
    """`raced` are the candidates, best first by fresh seeds; `winner` and `reference` are their numbers, `default` is `train`'s.

    `ceiling`: no drawn setting gains more over the best that was not drawn, at 95% confidence. `share`: the part of the tokens
    at which the winner's runs had the reference's final score on `select`. `confirmed` are the winner's scores with the seeds of
    `judging`. `unmet` is a guard that no drawn setting met, `refused` one that the winner itself broke in the end, or that
    could not be measured.
    """

    raced: tuple[Contender, ...]
    winner: int
    reference: int | None
    default: int | None
    comparison: Judgement | None = None
    over_default: Judgement | None = None
    judging: tuple[int, ...] = ()
    confirmed: tuple[float, ...] = ()
    ceiling: float | None = None
    stopped_early: bool = False
    share: float | None = None
    effects: tuple[SettingEffect, ...] = ()
    unmet: str | None = None
    refused: str | None = None
    notes: tuple[str, ...] = ()

    def candidate(self, number: int | None) -> Contender | None:
        return next((one for one in self.raced if one.number == number), None)

    @property
    def won(self) -> Contender:
        found = self.candidate(self.winner)
        assert found is not None
        return found

    @property
    def kept(self) -> Contender:
        """What the study leaves behind: the winner, or its reference where it was refused."""
        return (self.candidate(self.reference) if self.refused else None) or self.won


def finish(
    study: Any,
    problem: Problem,
    recipe: TuneRecipe,
    launcher: Launcher,
    progress: Progress,
    *,
    wait: Callable[[], None],
    looked: Sequence[Contender] = (),
) -> Final:
    """Choose with fresh seeds, then judge with others. `looked` are the candidates of a search that stopped early."""
    train = Trainer(problem, launcher, progress, wait, [])
    found = candidates(study, problem, recipe)
    raced = list(looked) or choose(found, problem, recipe, train)
    most = ceiling_of(study, raced, problem)
    winner, unmet = _winner(raced, most, problem, recipe)
    reference = next((one for one in raced if one.tier < winner.tier), None)
    default = next((one for one in found if one.origin == "default"), None)
    if default is not None and default.number not in [one.number for one in raced]:
        raced = [*raced, default]
    compared = [one.number for one in (winner, reference) if one]
    beside = default if default and default.number not in compared else None
    runs = _JudgingRuns(_Sides(winner, reference, beside), problem, recipe, train)
    comparison = runs.compared()
    seeds = runs.completed[winner.number]
    if not seeds:
        raise TuningError(f"The winner, trial {winner.number}, could not be trained with new seeds: {train.notes[-1]}")
    refused, effects = None, tuple[SettingEffect, ...]()
    if reference and comparison:
        ours, theirs = (one.jobs(problem, comparison.seeds, confirm=True) for one in (winner, reference))
        measured = {**comparison.guards, **problem.checked(ours, theirs, train)}  # what is missing keeps the winner out too
        comparison = replace(comparison, guards=measured)
        refused = next((text for text in recipe.guards if not _meets(guard_of(text), measured)), None)
        if recipe.ablate and comparison.verdict.decision == "better" and refused is None:
            effects = _ablated(winner, reference, comparison.seeds[:_FEW_SEEDS], problem, train)
    return Final(
        raced=tuple(raced),
        winner=winner.number,
        reference=reference.number if reference else None,
        default=default.number if default else None,
        comparison=comparison,
        over_default=runs.judgement(winner, beside, 1 - LEVEL, last=True) if beside else None,
        judging=tuple(seeds),
        confirmed=tuple(problem.confirmed(winner.jobs(problem, seeds, confirm=True))),
        ceiling=most,
        stopped_early=bool(looked),
        share=_share(runs.curve(winner), runs.curve(reference)) if reference else None,
        effects=effects,
        unmet=unmet,
        refused=refused,
        notes=tuple(dict.fromkeys(train.notes)),
    )


class _Sides(NamedTuple):
    """Who is trained with judging seeds. Without a `reference` nothing comes before the winner: it is described, not judged.
    With one whose runs all fail there is no verdict either; in both cases no guard is asked and nothing is ablated.
    `beside` is `train`'s default, unless it is one of the two or did not complete."""

    winner: Contender
    reference: Contender | None
    beside: Contender | None


def _winner(
    raced: Sequence[Contender], ceiling: float | None, problem: Problem, recipe: TuneRecipe
) -> tuple[Contender, str | None]:
    """The best candidate that meets the guards on `select`, and a guard that no drawn one met.

    A drawn setting wins only where the search can have gained what matters; what was not drawn is not guarded.
    """
    reference = next((one for one in raced if one.origin != "drawn"), None)
    broken: dict[int, str] = {}
    for one in raced if recipe.guards else ():
        shared = [seed for seed in one.seeds if reference and seed in reference.seeds]
        if reference and shared and one.origin == "drawn":
            found = problem.guarded(one.jobs(problem, shared), reference.jobs(problem, shared), "select")
            texts = [text for text in recipe.guards if guard_of(text).metric in found and not _meets(guard_of(text), found)]
            if texts:
                broken[one.number] = texts[0]
    allowed = [one for one in raced if one.number not in broken]
    unmet = None if any(one.origin == "drawn" for one in allowed) else next(reversed(broken.values()), None)
    if ceiling is not None and 100 * ceiling < recipe.worth:
        allowed = [one for one in allowed if one.origin != "drawn"] or allowed
    return allowed[0], unmet


def _meets(guard: MetricGuard, differences: dict[str, Estimate]) -> bool:
    return guard.metric in differences and differences[guard.metric].value >= guard.least


@dataclass(slots=True)
class _JudgingRuns:
    """Runs with judging seeds; `completed` are the seeds of those that ended well, by candidate."""

    sides: _Sides
    problem: Problem
    recipe: TuneRecipe
    train: Trainer
    completed: dict[int, list[int]] = field(default_factory=dict)

    def _train(self, seeds: range, start: int) -> None:
        winner, reference, beside = self.sides
        wanted = [(one, seed) for seed in seeds for one in (winner, reference) if one]
        wanted += [(beside, seed) for seed in seeds if beside and seed < start + _DEFAULT_PAIRS]
        jobs = {(one.number, seed): one.jobs(self.problem, [seed], confirm=True)[0] for one, seed in wanted}
        failed = self.train(list(jobs.values()), "verdict")
        for (number, seed), job in jobs.items():
            self.completed.setdefault(number, []).extend([] if job.key in failed else [seed])

    def judgement(self, ours: Contender, theirs: Contender, level: float, *, last: bool) -> Judgement | None:
        """The verdict over the seeds that both have; None where they have none in common."""
        shared = [seed for seed in self.completed[ours.number] if seed in self.completed[theirs.number]]
        if not shared:
            return None
        first, second = (one.jobs(self.problem, shared, confirm=True) for one in (ours, theirs))
        verdict = self.problem.paired(first, second, "confirm").judged(level, worth=self.recipe.worth / 100, last=last)
        return Judgement(theirs.number, tuple(shared), verdict, self.problem.guarded(first, second, "confirm"))

    def compared(self) -> Judgement | None:
        """Winner against reference, pairs added until a look decides; `beside` is trained with the first of their seeds."""
        start = choosing_seeds(self.recipe)[-1].stop  # what nominated or chose does not judge
        winner, reference, _ = self.sides
        if reference is None:
            self._train(range(start, start + min(self.recipe.seeds, _FEW_SEEDS)), start)
            return None
        looks, tried, found = looks_of(self.recipe.seeds), 0, None
        for look in looks:
            self._train(range(start + tried, start + look.pairs), start)
            tried, found = look.pairs, self.judgement(winner, reference, look.level, last=look is looks[-1])
            if found is None or found.verdict.decision != "open":
                break
        return found

    def curve(self, one: Contender) -> dict[int, float]:
        """The mean score on `select` at each quarter of the budget."""
        found: dict[int, list[float]] = {}
        for job in one.jobs(self.problem, self.completed[one.number], confirm=True):
            for report in self.problem.reports(job, Follower(job.run / "events.ndjson").rows()):
                if not report.averaged:
                    found.setdefault(report.step, []).append(report.value)
        return {step: float(np.mean(values)) for step, values in found.items()}


def _share(ours: dict[int, float], theirs: dict[int, float]) -> float | None:
    """Where our curve crosses the end of theirs, as a part of the budget, linear between its quarters; None: nowhere."""
    if min(len(ours), len(theirs)) < 2:
        return None
    goal = theirs[max(theirs)]
    reached = next((step for step in sorted(ours) if ours[step] >= goal), None)
    if reached is None:
        return None
    before = max((step for step in ours if step < reached), default=None)
    if before is None:
        return reached / REPORTS
    return (before + (reached - before) * (goal - ours[before]) / (ours[reached] - ours[before])) / REPORTS


def _ablated(
    winner: Contender, reference: Contender, seeds: Sequence[int], problem: Problem, train: Trainer
) -> tuple[SettingEffect, ...]:
    """The winner with one setting back at a time, where both sides have it; the largest loss first."""
    names = [name for name, value in winner.params.items() if name in reference.params and reference.params[name] != value]
    changed = {name: {**winner.params, name: reference.params[name]} for name in names[:_ABLATED_SETTINGS]}
    jobs = {
        name: replace(winner, params=params).jobs(problem, seeds, confirm=True)
        for name, params in changed.items()
        if problem.accepts(params)
    }
    failed = train([job for group in jobs.values() for job in group], "ablation")
    found = []
    for name, group in jobs.items():
        if not any(job.key in failed for job in group):
            paired = problem.paired(winner.jobs(problem, seeds, confirm=True), group, "confirm")
            loss = float(np.mean(paired.per_seed))
            found.append(SettingEffect(name, winner.params[name], reference.params[name], loss, paired.error))
    return tuple(sorted(found, key=lambda effect: -effect.loss))
