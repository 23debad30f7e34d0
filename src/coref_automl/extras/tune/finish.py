"""The end of a study. In: its trials. Out: a winner chosen by fresh seeds and judged by other fresh seeds on `confirm`.

1. Select: the best trials are retrained with fresh seeds, which choose the winner (`choosing.py`), unless it violates a guard.
2. Judge: winner and reference are trained in pairs of one seed, until their difference is shown, a gain that matters is excluded,
   or the seeds are spent (`statistics/planning.py`). The reference is the best of what comes before the winner: the portfolio for
   a sampled setting, the recommended settings for an entry of the portfolio, so that a win of the portfolio is not one of the
   search. `train`'s default is compared as a baseline.
3. Guard: guards are checked again, now including fine-tuned tasks; a winner that violates one is replaced by its reference.
4. Ablate: a winner that is shown to be better is retrained with one setting reverted at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coref_automl.base.errors import TuningError
from coref_automl.base.job import Job
from coref_automl.base.records import Estimate, Record
from coref_automl.extras.tune.choosing import JobRunner, TrialCandidate, completed_candidates, gain_ceiling, rank, selection_seeds
from coref_automl.extras.tune.problem import Problem, events_of
from coref_automl.extras.tune.recipe import REPORTS, TuneRecipe
from coref_automl.extras.tune.score import guard_of, is_met, outside_guards
from coref_automl.statistics.closed_forms import LEVEL
from coref_automl.statistics.planning import SequentialVerdict, looks_of

_BASELINE_PAIRS = 8
"""Pairs that the comparison with `train`'s default has at most."""
_ABLATED_SETTINGS = 6
_FEW_SEEDS = 2
"""Seeds of an ablated setting, and of a winner without a reference, which is only described."""


@dataclass(frozen=True, slots=True)
class Judgement(Record):
    """The winner minus another candidate on `confirm`, over the seeds that both completed; `guards` are of their metrics."""

    against: int
    seeds: tuple[int, ...]
    verdict: SequentialVerdict
    guards: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class SettingEffect(Record):
    """What the winner loses with one setting reverted to the reference's (`back`), a share over a few pairs; `error` is its
    standard error over documents."""

    name: str
    value: Any
    back: Any
    loss: float
    error: float


@dataclass(frozen=True, slots=True)
class Final(Record):
    """How a study ended. Candidates are named by their numbers.

    raced            the finalists, best first by fresh seeds; then `train`'s default, if it is none of them
    winner           the best finalist that violates no guard
    reference        what the winner is judged against; None if nothing comes before the winner
    default          `train`'s default; None if it did not complete
    comparison       the winner minus its reference; None without a reference, or if none of their pairs completed
    over_default     the winner minus `train`'s default, if that is another candidate
    judging          the judging seeds that the winner completed
    confirmed        its scores with these seeds on `confirm`
    ceiling          at 95% confidence no sampled setting gains more over the best that was not sampled (a share, not points)
    stopped_early    did the ceiling stop the search at its early check?
    share            of the token budget, at which the winner's mean curve reached the reference's final score on `select`
    effects          of the settings that were ablated, the largest loss first
    unmet            guards, if all sampled finalists violate some: those that all violate, else those of the best
    refused          a guard that the winner violated in the end, or that could not be measured
    """

    raced: tuple[TrialCandidate, ...]
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

    def candidate(self, number: int | None) -> TrialCandidate | None:
        return next((candidate for candidate in self.raced if candidate.number == number), None)

    @property
    def best(self) -> TrialCandidate:
        """The winner, whatever its guards say."""
        return next(candidate for candidate in self.raced if candidate.number == self.winner)

    @property
    def recommended(self) -> TrialCandidate:
        """The winner, or its reference if a guard refused it: what the study leaves behind."""
        return (self.candidate(self.reference) if self.refused else None) or self.best


@dataclass(frozen=True, slots=True)
class Selection:
    """What fresh seeds chose, and what it is judged against. `violated` are guards that sampled finalists violate, by number."""

    finalists: Sequence[TrialCandidate]
    winner: TrialCandidate
    default: TrialCandidate | None
    ceiling: float | None
    violated: Mapping[int, list[str]]

    @property
    def reference(self) -> TrialCandidate | None:
        return next((candidate for candidate in self.candidates if candidate.tier < self.winner.tier), None)

    @property
    def sides(self) -> list[TrialCandidate]:
        return [self.winner, *([self.reference] if self.reference else [])]

    @property
    def baseline(self) -> TrialCandidate | None:
        """`train`'s default, unless it is a side itself or did not complete."""
        return self.default if self.default and self.default.number not in [side.number for side in self.sides] else None

    @property
    def candidates(self) -> list[TrialCandidate]:
        """The finalists and `train`'s default."""
        numbers = [finalist.number for finalist in self.finalists]
        return [*self.finalists, *([self.default] if self.default and self.default.number not in numbers else [])]

    def unmet_guards(self) -> str | None:
        by_finalist = [self.violated.get(finalist.number, []) for finalist in self.finalists if finalist.is_sampled]
        if not by_finalist or not all(by_finalist):
            return None
        best = by_finalist[0]
        return ", ".join([guard for guard in best if all(guard in guards for guards in by_finalist)] or best)


def finish(study: Any, recipe: TuneRecipe, runner: JobRunner, early: Sequence[TrialCandidate] = ()) -> Final:
    """Select, judge, guard and ablate. `early` holds the ranked candidates of a search that stopped early."""
    selection = _select(study, recipe, runner, early)
    runs = JudgingRuns(selection, recipe, runner)
    final = runs.judge()
    reference, comparison = selection.reference, final.comparison
    if reference and comparison:
        final = runs.guard(final, comparison, reference)
        if recipe.ablate and comparison.verdict.decision == "better" and not final.refused:
            final = replace(final, effects=runs.ablate(reference, comparison.seeds))
    elif recipe.guards and (reference or selection.winner.is_sampled):  # a start that nothing precedes is what guards refer to
        raise _unmeasured_guards(final, runner)
    return replace(final, stopped_early=bool(early), notes=tuple(dict.fromkeys(runner.notes)))


def _unmeasured_guards(final: Final, runner: JobRunner) -> TuningError:
    why = "has nothing to be judged against: none of the settings to begin with completed"
    if final.reference is not None:
        why = f"and its reference, trial {final.reference}, completed no new seed together: {runner.notes[-1]}"
    return TuningError(f"No guard could be measured: the winner, trial {final.winner}, {why}; run the same command again.")


def _select(study: Any, recipe: TuneRecipe, runner: JobRunner, early: Sequence[TrialCandidate]) -> Selection:
    """Choose the best finalist that violates no guard; a sampled one only where the search can have gained what matters."""
    completed = completed_candidates(study, runner.problem, recipe)
    finalists = list(early) or rank(completed, recipe, runner)
    ceiling = gain_ceiling(study, finalists, runner.problem)
    violated = _violated_guards(finalists, runner.problem, recipe)
    allowed = [finalist for finalist in finalists if not violated.get(finalist.number)]
    if ceiling is not None and 100 * ceiling < recipe.worth:
        allowed = [finalist for finalist in allowed if not finalist.is_sampled] or allowed
    default = next((candidate for candidate in completed if candidate.origin == "default"), None)
    # never empty: guards are violated only beside a finalist that was not sampled, which violates none
    return Selection(finalists, allowed[0], default, ceiling, violated)


def _violated_guards(finalists: Sequence[TrialCandidate], problem: Problem, recipe: TuneRecipe) -> dict[int, list[str]]:
    """Return the guards that sampled finalists violate on `select`, against the best finalist that was not sampled."""
    baseline = next((finalist for finalist in finalists if not finalist.is_sampled), None)
    violated = {}
    for finalist in (finalist for finalist in finalists if recipe.guards and finalist.is_sampled):
        shared = [seed for seed in finalist.seeds if baseline and seed in baseline.seeds]
        if baseline and shared:
            differences = problem.guarded(finalist.jobs(problem, shared), baseline.jobs(problem, shared), "select")
            measured = [guard for guard in recipe.guards if guard_of(guard).metric in differences]
            violated[finalist.number] = [guard for guard in measured if not is_met(guard, differences)]
    return violated


@dataclass(slots=True)
class JudgingRuns:
    """Runs with judging seeds: judge first, as guard and ablate read what its runs left. `completed` has seeds by candidate."""

    selection: Selection
    recipe: TuneRecipe
    runner: JobRunner
    completed: dict[int, list[int]] = field(default_factory=dict)

    def judge(self) -> Final:
        """Train the winner and what it is compared with, until it is judged."""
        selection, problem = self.selection, self.runner.problem
        winner, reference, default, baseline = selection.winner, selection.reference, selection.default, selection.baseline
        comparison = self._train_until_judged()  # fills `completed`, which everything below reads
        seeds = self.completed[winner.number]
        if not seeds:
            raise TuningError(f"The winner, trial {winner.number}, could not be trained with new seeds: {self.runner.notes[-1]}")
        return Final(
            raced=tuple(selection.candidates), winner=winner.number, reference=reference.number if reference else None,
            default=default.number if default else None, comparison=comparison, judging=tuple(seeds),
            over_default=self._compare(baseline, 1 - LEVEL, last=True) if baseline else None,
            confirmed=tuple(problem.confirmed(self._jobs(winner, seeds))), ceiling=selection.ceiling,
            share=_share_to_reach(self._curve(reference), self._curve(winner)) if reference else None,
            unmet=selection.unmet_guards(),
        )  # fmt: skip

    def guard(self, final: Final, comparison: Judgement, reference: TrialCandidate) -> Final:
        """Add the guards of fine-tuned tasks to the comparison; refuse a winner that violates one or is not measured by it."""
        ours, theirs = (self._jobs(side, comparison.seeds) for side in (self.selection.winner, reference))
        differences = {**comparison.guards, **self.runner.problem.checked(ours, theirs, self.runner.run)}
        refused = next((guard for guard in self.recipe.guards if not is_met(guard, differences)), None)
        return replace(final, comparison=replace(comparison, guards=differences), refused=refused)

    def ablate(self, reference: TrialCandidate, judged: Sequence[int]) -> tuple[SettingEffect, ...]:
        """Retrain the winner with one of the settings that differ from the reference reverted, with a few of the judged seeds."""
        winner, problem = self.selection.winner, self.runner.problem
        seeds, jobs = judged[:_FEW_SEEDS], dict[str, list[Job]]()
        differing = [name for name, value in winner.params.items() if reference.params.get(name, value) != value]
        reverted = {name: {**winner.params, name: reference.params[name]} for name in differing}
        accepted = [(name, params) for name, params in reverted.items() if problem.accepts(params)]
        for name, params in accepted[:_ABLATED_SETTINGS]:
            jobs[name] = self._jobs(replace(winner, params=params), seeds)
        failed = self.runner.run([job for group in jobs.values() for job in group], "ablation")
        effects = []
        for name, group in jobs.items():
            if not any(job.key in failed for job in group):
                paired = problem.paired(self._jobs(winner, seeds), group, "confirm")
                loss = float(np.mean(paired.per_seed))
                effects.append(SettingEffect(name, winner.params[name], reference.params[name], loss, paired.error))
        return tuple(sorted(effects, key=lambda effect: -effect.loss))

    def _train_until_judged(self) -> Judgement | None:
        """Train winner and reference, adding pairs until a look decides; the baseline is trained with the first seeds."""
        start = selection_seeds(self.recipe)[-1].stop  # what nominated or chose does not judge
        if self.selection.reference is None:
            self._train(range(start, start + min(self.recipe.seeds, _FEW_SEEDS)), start)
            return None
        looks, trained, judgement = looks_of(self.recipe.seeds), 0, None
        for look in looks:
            self._train(range(start + trained, start + look.pairs), start)
            trained = look.pairs
            judgement = self._compare(self.selection.reference, look.level, last=look is looks[-1])
            if judgement is None or judgement.verdict.decision != "open":
                break
        return judgement

    def _train(self, seeds: range, start: int) -> None:
        """Train a look. `best-model/` is made of the first pair that both sides complete, so the first look keeps its last
        checkpoints until that pair is known. Guards of fine-tuned tasks train from every pair: with them, all are kept."""
        selection, every_pair, is_first_look = self.selection, bool(outside_guards(self.recipe)), not self.completed
        runs = [(side, seed) for seed in seeds for side in selection.sides]
        if every_pair or is_first_look:
            self.runner.keep_last |= {job.key for side, seed in runs for job in self._jobs(side, [seed])}
        runs += [(selection.baseline, seed) for seed in seeds if selection.baseline and seed < start + _BASELINE_PAIRS]
        jobs = {(side.number, seed): self._jobs(side, [seed])[0] for side, seed in runs}
        failed = self.runner.run(list(jobs.values()), "verdict")
        for (number, seed), job in jobs.items():
            self.completed.setdefault(number, []).extend([] if job.key in failed else [seed])
        if is_first_look and not every_pair:
            self._drop_all_but_the_first_pair()

    def _drop_all_but_the_first_pair(self) -> None:
        """Remove the weights of the first look that `best-model/` is not made of."""
        first = self._shared_seeds(self.selection.reference or self.selection.winner)[:1]
        for side in self.selection.sides if first else ():
            for job in self._jobs(side, (seed for seed in self.completed[side.number] if seed not in first)):
                self.runner.problem.drop_weights(job)

    def _compare(self, other: TrialCandidate, level: float, *, last: bool) -> Judgement | None:
        """Return the verdict on the winner minus another candidate over their shared seeds; None if they share none."""
        shared = self._shared_seeds(other)
        if not shared:
            return None
        problem, ours, theirs = self.runner.problem, self._jobs(self.selection.winner, shared), self._jobs(other, shared)
        verdict = problem.paired(ours, theirs, "confirm").judged(level, min_effect=self.recipe.worth / 100, last=last)
        return Judgement(other.number, tuple(shared), verdict, problem.guarded(ours, theirs, "confirm"))

    def _curve(self, side: TrialCandidate) -> dict[int, float]:
        """The mean score on `select` at each quarter of the budget."""
        problem, jobs = self.runner.problem, self._jobs(side, self.completed[side.number])
        runs = ((report for report in problem.reports(job, events_of(job).rows()) if not report.averaged) for job in jobs)
        curves = [{report.step: report.value for report in run} for run in runs]  # the last report of a quarter
        quarters = sorted({quarter for curve in curves for quarter in curve})
        return {quarter: float(np.mean([curve[quarter] for curve in curves if quarter in curve])) for quarter in quarters}

    def _shared_seeds(self, other: TrialCandidate) -> list[int]:
        return [seed for seed in self.completed[self.selection.winner.number] if seed in self.completed[other.number]]

    def _jobs(self, side: TrialCandidate, seeds: Iterable[int]) -> list[Job]:
        return side.jobs(self.runner.problem, seeds, confirm=True)


def _share_to_reach(theirs: dict[int, float], ours: dict[int, float]) -> float | None:
    """The share of the budget at which our curve, linear between quarters, crosses the end of theirs; None if it never does."""
    if min(len(ours), len(theirs)) < 2:
        return None
    steps, goal = sorted(ours), theirs[max(theirs)]
    reached = next((place for place, step in enumerate(steps) if ours[step] >= goal), None)
    if reached is None:
        return None
    around = [steps[max(0, reached - 1)], steps[reached]]  # the quarters between which our curve crosses
    return float(np.interp(goal, [ours[step] for step in around], around)) / REPORTS
