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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coref_automl.errors import TuningError
from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL
from coref_automl.statistics.planning import SequentialVerdict, looks_of
from coref_automl.tuning.choosing import Contender, Trainer, candidates, ceiling_of, choose, choosing_seeds
from coref_automl.tuning.problem import Problem, events_of
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.score import MetricGuard, guard_of, outside_guards

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
    `judging`. `unmet`: no drawn setting met all guards, and these the best one broke; where there are any, those that all broke.
    `refused` is one that the winner itself broke in the end, or that could not be measured.
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
        return next((contender for contender in self.raced if contender.number == number), None)

    @property
    def won(self) -> Contender:
        winner = self.candidate(self.winner)
        assert winner is not None
        return winner

    @property
    def kept(self) -> Contender:
        """What the study leaves behind: the winner, or its reference where it was refused."""
        return (self.candidate(self.reference) if self.refused else None) or self.won


def finish(study: Any, problem: Problem, recipe: TuneRecipe, train: Trainer, looked: Sequence[Contender] = ()) -> Final:
    """Choose with fresh seeds, then judge with others. `looked` are the candidates of a search that stopped early."""
    completed = candidates(study, problem, recipe)
    raced = list(looked) or choose(completed, problem, recipe, train)
    ceiling, broken = ceiling_of(study, raced, problem), _broken_guards(raced, problem, recipe)
    winner = _winner(raced, broken, ceiling, recipe)
    reference = next((contender for contender in raced if contender.tier < winner.tier), None)
    default = next((contender for contender in completed if contender.origin == "default"), None)
    if default is not None and default.number not in [contender.number for contender in raced]:
        raced = [*raced, default]
    beside = default if default and default.number not in [side.number for side in (winner, reference) if side] else None
    rounds = JudgingRounds(winner=winner, reference=reference, beside=beside, problem=problem, recipe=recipe, train=train)
    comparison = rounds.judge_in_pairs()
    rounds.drop_unread_weights()
    seeds = rounds.completed[winner.number]
    if not seeds:
        raise TuningError(f"The winner, trial {winner.number}, could not be trained with new seeds: {train.notes[-1]}")
    refused, effects = None, tuple[SettingEffect, ...]()
    if reference and comparison:
        comparison, refused = _asked_at_the_end(comparison, winner, reference, problem, recipe, train)
        if recipe.ablate and comparison.verdict.decision == "better" and refused is None:
            effects = _ablated(winner, reference, comparison.seeds[:_FEW_SEEDS], problem, train)
    return Final(
        raced=tuple(raced), winner=winner.number, reference=reference.number if reference else None,
        default=default.number if default else None, comparison=comparison,
        over_default=rounds.judgement(winner, beside, 1 - LEVEL, last=True) if beside else None, judging=tuple(seeds),
        confirmed=tuple(problem.confirmed(winner.jobs(problem, seeds, confirm=True))), ceiling=ceiling,
        stopped_early=bool(looked), share=_share(rounds.curve(winner), rounds.curve(reference)) if reference else None,
        effects=effects, unmet=_unmet(raced, broken), refused=refused, notes=tuple(dict.fromkeys(train.notes)),
    )  # fmt: skip


def _broken_guards(raced: Sequence[Contender], problem: Problem, recipe: TuneRecipe) -> dict[int, list[str]]:
    """The guards that drawn candidates break on `select`, by candidate; what was not drawn is not guarded."""
    reference = next((contender for contender in raced if contender.origin != "drawn"), None)
    broken = {}
    for drawn in (contender for contender in raced if recipe.guards and contender.origin == "drawn"):
        shared = [seed for seed in drawn.seeds if reference and seed in reference.seeds]
        if reference and shared:
            differences = problem.guarded(drawn.jobs(problem, shared), reference.jobs(problem, shared), "select")
            measured = [text for text in recipe.guards if guard_of(text).metric in differences]
            broken[drawn.number] = [text for text in measured if not _meets(guard_of(text), differences)]
    return broken


def _winner(raced: Sequence[Contender], broken: Mapping[int, list[str]], ceiling: float | None, recipe: TuneRecipe) -> Contender:
    """The best candidate that breaks no guard; a drawn one only where the search can have gained what matters."""
    allowed = [contender for contender in raced if not broken.get(contender.number)]
    if ceiling is not None and 100 * ceiling < recipe.worth:
        allowed = [contender for contender in allowed if contender.origin != "drawn"] or allowed
    return allowed[0]


def _unmet(raced: Sequence[Contender], broken: Mapping[int, list[str]]) -> str | None:
    drawn = [broken.get(contender.number, []) for contender in raced if contender.origin == "drawn"]
    if not drawn or not all(drawn):
        return None
    broken_by_all = [text for text in drawn[0] if all(text in texts for texts in drawn)]
    return ", ".join(broken_by_all or drawn[0])


def _asked_at_the_end(
    comparison: Judgement, winner: Contender, reference: Contender, problem: Problem, recipe: TuneRecipe, train: Trainer
) -> tuple[Judgement, str | None]:
    """The comparison with the guards of fine-tuned tasks, and the guard that the winner breaks or that was not measured."""
    ours, theirs = (side.jobs(problem, comparison.seeds, confirm=True) for side in (winner, reference))
    measured = {**comparison.guards, **problem.checked(ours, theirs, train)}
    refused = next((text for text in recipe.guards if not _meets(guard_of(text), measured)), None)
    return replace(comparison, guards=measured), refused


def _meets(guard: MetricGuard, differences: dict[str, Estimate]) -> bool:
    return guard.metric in differences and differences[guard.metric].value >= guard.least


@dataclass(slots=True, kw_only=True)
class JudgingRounds:
    """Rounds of runs with judging seeds; `completed` are the seeds of those that ended well, by candidate.

    Without a `reference` nothing comes before the winner: it is described, not judged. With one whose runs all fail there is no
    verdict either; in both cases no guard is asked and nothing is ablated. `beside` is `train`'s default, unless it is one of the
    two or did not complete.
    """

    winner: Contender
    reference: Contender | None
    beside: Contender | None
    problem: Problem
    recipe: TuneRecipe
    train: Trainer
    completed: dict[int, list[int]] = field(default_factory=dict)

    @property
    def _sides(self) -> list[Contender]:
        return [self.winner, *([self.reference] if self.reference else [])]

    def judge_in_pairs(self) -> Judgement | None:
        """Train winner and reference, pairs added until a look decides; `beside` is trained with the first of their seeds."""
        start = choosing_seeds(self.recipe)[-1].stop  # what nominated or chose does not judge
        if self.reference is None:
            self._train(range(start, start + min(self.recipe.seeds, _FEW_SEEDS)), start)
            return None
        looks, tried, judgement = looks_of(self.recipe.seeds), 0, None
        for look in looks:
            self._train(range(start + tried, start + look.pairs), start)
            tried = look.pairs
            judgement = self.judgement(self.winner, self.reference, look.level, last=look is looks[-1])
            if judgement is None or judgement.verdict.decision != "open":
                break
        return judgement

    def _train(self, seeds: range, start: int) -> None:
        wanted = [(side, seed) for seed in seeds for side in self._sides]
        if not self.completed or outside_guards(self.recipe):
            self.train.kept |= {side.jobs(self.problem, [seed], confirm=True)[0].key for side, seed in wanted}
        wanted += [(self.beside, seed) for seed in seeds if self.beside and seed < start + _DEFAULT_PAIRS]
        jobs = {(side.number, seed): side.jobs(self.problem, [seed], confirm=True)[0] for side, seed in wanted}
        failed = self.train(list(jobs.values()), "verdict")
        for (number, seed), job in jobs.items():
            self.completed.setdefault(number, []).extend([] if job.key in failed else [seed])

    def drop_unread_weights(self) -> None:
        """Of the first pair one side becomes the study's own model; guards of fine-tuned tasks start from every pair."""
        paired = self._shared(self.winner, self.reference or self.winner)
        for side in self._sides if not outside_guards(self.recipe) else ():
            unread = [seed for seed in self.completed[side.number] if paired and seed > paired[0]]
            for job in side.jobs(self.problem, unread, confirm=True):
                self.problem.drop_weights(job)

    def _shared(self, ours: Contender, theirs: Contender) -> list[int]:
        return [seed for seed in self.completed[ours.number] if seed in self.completed[theirs.number]]

    def judgement(self, ours: Contender, theirs: Contender, level: float, *, last: bool) -> Judgement | None:
        """The verdict over the seeds that both have; None where they have none in common."""
        shared = self._shared(ours, theirs)
        if not shared:
            return None
        first, second = (side.jobs(self.problem, shared, confirm=True) for side in (ours, theirs))
        verdict = self.problem.paired(first, second, "confirm").judged(level, min_effect=self.recipe.worth / 100, last=last)
        return Judgement(theirs.number, tuple(shared), verdict, self.problem.guarded(first, second, "confirm"))

    def curve(self, side: Contender) -> dict[int, float]:
        """The mean score on `select` at each quarter of the budget."""
        values: dict[int, list[float]] = {}
        for job in side.jobs(self.problem, self.completed[side.number], confirm=True):
            for report in self.problem.reports(job, events_of(job).rows()):
                if not report.averaged:
                    values.setdefault(report.step, []).append(report.value)
        return {quarter: float(np.mean(scores)) for quarter, scores in values.items()}


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
    effects = []
    for name, group in jobs.items():
        if not any(job.key in failed for job in group):
            paired = problem.paired(winner.jobs(problem, seeds, confirm=True), group, "confirm")
            loss = float(np.mean(paired.per_seed))
            effects.append(SettingEffect(name, winner.params[name], reference.params[name], loss, paired.error))
    return tuple(sorted(effects, key=lambda effect: -effect.loss))
