"""The end of a study. In: its trials. Out: a winner chosen by fresh seeds, judged by other fresh seeds on `confirm`, in words.

The winner is judged against the best of what comes before it: a drawn setting against the best of the portfolio, a portfolio
entry against the best of the recommended settings. A win of the portfolio is not a win of the search. Pairs of runs are added
until the difference is shown, until a gain that matters is excluded, or until the budget is spent (`statistics/planning.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coref_automl.engine.job import Job
from coref_automl.engine.launch import Launcher
from coref_automl.errors import TuningError
from coref_automl.progress import Progress
from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL
from coref_automl.statistics.planning import SequentialVerdict, judged, looks_of
from coref_automl.tuning.choosing import Contender, Trainer, candidates, ceiling_of, choose
from coref_automl.tuning.problem import Follower, Problem
from coref_automl.tuning.recipe import REPORTS, TuneRecipe

_FRESH_END = 5
"""Judging seeds begin so far behind the study's own: four choose."""
_ALONE = 8
"""Pairs that the comparison with `train`'s default has at most."""
_SETTINGS, _BACK = 6, 2
"""How many settings of a winner are put back, each with so many seeds; as many tell what a winner scores that has no opponent."""


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
    `judging`. `unmet` is a guard that no drawn setting met.
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
    knobs: tuple[SettingEffect, ...] = ()
    unmet: str | None = None
    notes: tuple[str, ...] = ()

    def candidate(self, number: int | None) -> Contender | None:
        return next((one for one in self.raced if one.number == number), None)

    @property
    def won(self) -> Contender:
        found = self.candidate(self.winner)
        assert found is not None
        return found


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
    """Choose with fresh seeds, then judge with others.

    `looked` are the candidates of a search that stopped early: what they say of the drawn settings stands.
    """
    train = Trainer(problem, launcher, progress, wait, [])
    found = candidates(study, problem, recipe)
    raced = list(looked) or choose(found, problem, recipe, train)
    most = ceiling_of(study, raced, problem)
    allowed, unmet = _guarded(raced, problem, recipe)
    if most is not None and 100 * most < recipe.worth:
        allowed = [one for one in allowed if one.origin != "drawn"] or allowed
    winner = allowed[0]
    reference = next((one for one in raced if one.tier < winner.tier), None)
    default = next((one for one in found if one.origin == "default"), None)
    if default is not None and default.number not in [one.number for one in raced]:
        raced = [*raced, default]
    final = Final(
        tuple(raced), winner.number, reference.number if reference else None, default.number if default else None,
        ceiling=most, stopped_early=bool(looked), unmet=unmet,
    )  # fmt: skip
    final = _judged(final, _Pairs(problem, recipe, train))
    if recipe.ablate and reference and final.comparison and final.comparison.verdict.decision == "better":
        final = replace(final, knobs=_ablated(winner, reference, final.comparison.seeds[:_BACK], problem, train))
    return replace(final, notes=tuple(dict.fromkeys(train.notes)))


def _guarded(raced: Sequence[Contender], problem: Problem, recipe: TuneRecipe) -> tuple[list[Contender], str | None]:
    """The candidates that meet the guards on `select`, and the guard that no drawn one met. What was not drawn is not guarded."""
    reference = next((one for one in raced if one.origin != "drawn"), None)
    if reference is None or not recipe.guards:
        return list(raced), None
    kept, missed = [], None
    for one in raced:
        shared = [seed for seed in one.seeds if seed in reference.seeds]
        differences = problem.guarded(one.jobs(problem, shared), reference.jobs(problem, shared), "select") if shared else {}
        broken = next((guard for guard in recipe.guards if _breaks(guard, differences)), None)
        if broken is None or one.origin != "drawn":
            kept.append(one)
        else:
            missed = broken
    return kept, missed if all(one.origin != "drawn" for one in kept) else None


def _breaks(guard: str, differences: dict[str, Estimate]) -> bool:
    name, _, least = (part.strip() for part in guard.partition(">="))
    return name in differences and 100 * differences[name].value < float(least)


@dataclass(slots=True)
class _Pairs:
    """Runs of candidates with judging seeds; `completed` are the seeds of those that ended well, by candidate."""

    problem: Problem
    recipe: TuneRecipe
    train: Trainer
    completed: dict[int, list[int]] = field(default_factory=dict)

    def add(self, sides: Sequence[Contender], seeds: Iterable[int], *, beside: Contender | None) -> None:
        """Train these seeds of the candidates that are judged, and of one `beside` them for its first few seeds."""
        few = self.recipe.seed + _FRESH_END + _ALONE
        wanted = [(one.number, seed, one) for seed in seeds for one in sides]
        wanted += [(beside.number, seed, beside) for seed in seeds if seed < few] if beside else []
        jobs = {(number, seed): one.jobs(self.problem, [seed], confirm=True)[0] for number, seed, one in wanted}
        failed = self.train([*jobs.values()], "verdict")
        for (number, seed), job in jobs.items():
            self.completed.setdefault(number, []).extend([] if job.key in failed else [seed])

    def jobs(self, one: Contender) -> list[Job]:
        return one.jobs(self.problem, self.completed[one.number], confirm=True)

    def compared(self, ours: Contender, theirs: Contender, level: float, *, last: bool) -> Judgement | None:
        """The verdict over the seeds that both have; None where they have none in common."""
        shared = [seed for seed in self.completed[ours.number] if seed in self.completed[theirs.number]]
        if not shared:
            return None
        first, second = (one.jobs(self.problem, shared, confirm=True) for one in (ours, theirs))
        found = self.problem.paired(first, second, "confirm")
        verdict = judged(
            found.per_seed, found.error, level,
            worth=self.recipe.worth / 100, last=last, items=found.items, documents=found.documents,
        )  # fmt: skip
        return Judgement(theirs.number, tuple(shared), verdict, self.problem.guarded(first, second, "confirm"))


def _judged(final: Final, pairs: _Pairs) -> Final:
    """The verdict, pairs added look by look; `train`'s default is judged beside, by the first of them."""
    winner, reference, default = final.won, final.candidate(final.reference), final.candidate(final.default)
    beside = default if default and default.number not in (winner.number, final.reference) else None
    comparison = _sequential(winner, reference, beside, pairs)
    seeds = pairs.completed[winner.number]
    if not seeds:
        raise TuningError(f"The winner, trial {winner.number}, could not be trained with new seeds: {pairs.train.notes[-1]}")
    return replace(
        final,
        comparison=comparison,
        over_default=pairs.compared(winner, beside, 1 - LEVEL, last=True) if beside else None,
        judging=tuple(seeds),
        confirmed=tuple(pairs.problem.confirmed(pairs.jobs(winner))),
        share=_share(winner, reference, pairs) if reference else None,
    )


def _sequential(winner: Contender, reference: Contender | None, beside: Contender | None, pairs: _Pairs) -> Judgement | None:
    """Pairs are added until a look decides; a winner without an opponent is only described, by a few seeds."""
    start, looks = pairs.recipe.seed + _FRESH_END, looks_of(pairs.recipe.seeds)
    if reference is None:
        pairs.add([winner], range(start, start + min(pairs.recipe.seeds, _BACK)), beside=beside)
        return None
    tried, found = 0, None
    for look in looks:
        pairs.add([winner, reference], range(start + tried, start + look.pairs), beside=beside)
        tried, found = look.pairs, pairs.compared(winner, reference, look.level, last=look is looks[-1])
        if found is None or found.verdict.decision != "open":
            break
    return found


def _share(winner: Contender, reference: Contender, pairs: _Pairs) -> float | None:
    """Where the winner's curve crosses the reference's end, on `select`, between the quarters of the budget; None: nowhere."""
    ours, theirs = (_curve(one, pairs) for one in (winner, reference))
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


def _curve(one: Contender, pairs: _Pairs) -> dict[int, float]:
    """The mean score on `select` at each quarter of the budget."""
    found: dict[int, list[float]] = {}
    for job in pairs.jobs(one):
        for report in pairs.problem.reports(job, Follower(job.run / "events.ndjson").rows()):
            if not report.averaged:
                found.setdefault(report.step, []).append(report.value)
    return {step: float(np.mean(values)) for step, values in found.items()}


def _ablated(
    winner: Contender, reference: Contender, seeds: Sequence[int], problem: Problem, train: Trainer
) -> tuple[SettingEffect, ...]:
    """The winner with one setting back at a time, where both sides have it; the largest loss first."""
    names = [name for name, value in winner.params.items() if name in reference.params and reference.params[name] != value]
    changed = {name: {**winner.params, name: reference.params[name]} for name in names[:_SETTINGS]}
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
