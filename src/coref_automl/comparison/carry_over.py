"""Whether an adaptation carries over. In: methods and the runs of an outside check. Out: Claims.

The unit of a claim is the pretraining seed: a start (the checkpoint that fine-tuning began from) counts with the mean over its
fine-tuning seeds, so that variance in pretraining counts. If a method has a single start, its fine-tuning seeds are compared, and
the claim is about that checkpoint.

    Starts of a method    {pretraining seed: {fine-tuning seed: (run of the task, column of its facts)}}
    entity 512            {0: {0: (re-entity-s0, 0), 1: (re-entity-s0, 1)}, 1: {0: (re-entity-s1, 0), 1: (re-entity-s1, 1)}}
    its base              {0: {0: (re-base, 0), 1: (re-base, 1)}}      one Start: a base has no pretraining seeds
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from coref_automl.base.records import Estimate
from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import BASE, Claim, QuestionId
from coref_automl.comparison.judging import UncorrectedClaim, corrected_claims
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.runs import Start, Starts, TaskRun
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.targets import CHECKPOINT

_UNKNOWN = Estimate(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class FineTuned:
    """An arm and its starts, by pretraining seed. The arm's runs end at the checkpoints that fine-tuning began from."""

    arm: Arm
    starts: Starts[Any, Any]

    @property
    def several(self) -> bool:
        return len(self.starts) > 1

    @property
    def name(self) -> str:
        return self.arm.name if self.several else self.arm.ends[0].name

    def comparable_with(self, other: FineTuned) -> bool:
        """Do they differ in method alone?"""
        ours, theirs = ((side.several, side.arm.origin, side.arm.trained_at) for side in (self, other))
        return ours == theirs and self.arm.equally_trained_as(other.arm)


def judge_check(question: QuestionId, arms: Sequence[Arm], runs: Sequence[TaskRun], seed: int) -> list[Claim]:
    """Every method against its base, and later methods against earlier ones; corrected within each group of comparable runs."""
    return [
        claim
        for comparable in CHECKS[question].comparable(runs)
        for claim in corrected_claims(_judge_runs(question, arms, comparable, seed), "bh")
    ]


def _judge_runs(question: QuestionId, arms: Sequence[Arm], runs: Sequence[TaskRun], seed: int) -> list[UncorrectedClaim]:
    methods = fine_tuned(arms, runs)
    bases = [(method, start_of(run for run in runs if _is_base(run, method.arm))) for method in methods]
    later_and_earlier = [(b, a) for a, b in combinations(methods, 2) if b.comparable_with(a)]
    claims = [
        *(judge_starts(question, (a.name, BASE), a.starts, {0: base}, seed) for a, base in bases if base),
        *(judge_starts(question, (a.name, b.name), a.starts, b.starts, seed) for a, b in later_and_earlier),
    ]
    return [claim for claim in claims if claim is not None]


def judge_starts(
    question: QuestionId, names: tuple[str, str], ours: Starts[Any, Any], theirs: Starts[Any, Any], seed: int
) -> UncorrectedClaim | None:
    """One claim of a check, before correction; None if the sides share nothing to be compared by."""
    check = CHECKS[question]
    empty = Claim(
        question=question, a=names[0], b=names[1], outcome=check.outcome, documents=check.documents, test=check.test,
        count=0, seeds=(0, 0), difference=_UNKNOWN, verdict="not judged", against=() if len(ours) > 1 else ("checkpoint",),
    )  # fmt: skip
    return check.judge(empty, ours, theirs, seed)


def start_of(runs: Iterable[TaskRun]) -> Start[Any, Any]:
    """The start that runs from one checkpoint are; a seed that several of them have counts once."""
    start: dict[int, tuple[TaskRun, int]] = {}
    for run in runs:
        for column, seed in enumerate(run.seeds):
            start.setdefault(seed, (run, column))
    return start


def fine_tuned(arms: Sequence[Arm], runs: Sequence[TaskRun]) -> list[FineTuned]:
    """The arms with runs, each of their seeds at its latest checkpoint that has one. An arm scored at several window lengths
    counts once, preferably at its training length: windows do not affect fine-tuning."""
    by_runs: dict[frozenset[str], FineTuned] = {}
    for arm in sorted(arms, key=lambda arm: arm.length != arm.trained_at):
        until = {seed: _until_start(entries, runs) for seed, entries in arm.runs.items()}
        until = {seed: entries for seed, entries in until.items() if entries}
        starts = {seed: start_of(_runs_from(entries[-1], runs)) for seed, entries in until.items()}
        if starts:
            names = frozenset(run.name for start in starts.values() for run, _ in start.values())
            by_runs.setdefault(names, FineTuned(replace(arm, runs=until), starts))
    return list(by_runs.values())


def _runs_from(entry: Entry, runs: Iterable[TaskRun]) -> list[TaskRun]:
    """The runs of the task that started from this checkpoint."""
    return [run for run in runs if entry.is_of(run.model, run.weights)]


def _until_start(entries: Sequence[Entry], runs: Sequence[TaskRun]) -> list[Entry]:
    """A run's checkpoints up to the latest one that fine-tuning started from; empty if there is none."""
    counts = (count for count in range(len(entries), 0, -1) if _runs_from(entries[count - 1], runs))
    return list(entries[: next(counts, 0)])


def _is_base(run: TaskRun, arm: Arm) -> bool:
    """Did a run start from the arm's base? Decided by bytes if both are known."""
    provenance = arm.provenance
    if provenance and provenance.base_bytes and run.weights:
        return provenance.base_bytes == run.weights
    return model_label(run.model) == arm.base


def not_compared(question: QuestionId, entries: Sequence[Entry], runs: Sequence[TaskRun]) -> tuple[list[str], list[str]]:
    """Runs that take part in no claim: those whose start was not evaluated here, and those of other data or settings."""
    from_checkpoints = [run for run in runs if CHECKPOINT.search(model_label(run.model))]
    unknown = [run.name for run in from_checkpoints if not any(_runs_from(entry, [run]) for entry in entries)]
    compared = {run.name for comparable in CHECKS[question].comparable(runs) for run in comparable}
    return unknown, [run.name for run in runs if run.name not in compared]
