"""Outside checks: does an adaptation carry over to a task that checkpoints are fine-tuned on? In: methods and runs of the
task. Out: Claims.

The unit is the pretraining seed: a start (the checkpoint that fine-tuning began from) counts with the mean over its fine-tuning
seeds, so that variance in pretraining counts. If a method has a single start, its fine-tuning seeds are compared, and the claim
is about that checkpoint.

    Starts of a method    {pretraining seed: {fine-tuning seed: (run of the task, column of its facts)}}
    entity 512            {0: {0: (re-entity-s0, 0), 1: (re-entity-s0, 1)}, 1: {0: (re-entity-s1, 0), 1: (re-entity-s1, 1)}}
    its base              {0: {0: (re-base, 0), 1: (re-base, 1)}}      one Start: a base has no pretraining seeds
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import combinations
from typing import Any

from coref_automl.comparison.arms import Arm, equally_trained
from coref_automl.comparison.claims import BASE, Claim, QuestionId
from coref_automl.comparison.judging import Judged, corrected_claims
from coref_automl.comparison.runs import OutsideCheck, Start, Starts, TaskRun
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.records import Estimate

_ROOMS = ("relation", "coreference")
"""In the order of questions; each room has a CHECK in its `check.py`. Rooms lie above this one, so they are found by name."""
CHECKS: dict[QuestionId, OutsideCheck[Any, Any, Any]] = {
    name: import_module(f"coref_automl.{name}.check").CHECK for name in _ROOMS
}
_NOTHING = Estimate(0.0, 0.0, 0.0, 0)


def start_of(runs: Iterable[TaskRun]) -> Start[Any, Any]:
    """Runs from one checkpoint; a seed that several have counts once."""
    found: dict[int, tuple[TaskRun, int]] = {}
    for run in runs:
        for column, seed in enumerate(run.seeds):
            found.setdefault(seed, (run, column))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class FineTuned:
    """An arm and what was fine-tuned from it, by pretraining seed. The arm's runs end at the checkpoints that it began from."""

    arm: Arm
    starts: Starts[Any, Any]

    @property
    def several(self) -> bool:
        return len(self.starts) > 1

    @property
    def name(self) -> str:
        return self.arm.name if self.several else self.arm.ends[0].name

    def comparable(self, other: FineTuned) -> bool:
        """Do they differ in method alone?"""
        ours, theirs = ((one.several, one.arm.origin, one.arm.trained_at) for one in (self, other))
        return ours == theirs and equally_trained(self.arm, other.arm)


def judge_check(question: QuestionId, arms: Sequence[Arm], runs: Sequence[TaskRun], seed: int) -> list[Claim]:
    """Every method against its base, and later methods against earlier ones; corrected within each group of comparable runs."""
    out = []
    for comparable in CHECKS[question].comparable(runs):
        out += corrected_claims(_judge_runs(question, arms, comparable, seed), "bh")
    return out


def _judge_runs(question: QuestionId, arms: Sequence[Arm], runs: Sequence[TaskRun], seed: int) -> Iterator[Judged | None]:
    methods = fine_tuned(arms, runs)
    for one in methods:
        base = start_of(run for run in runs if _is_base(run, one.arm))
        if base:
            yield judge_starts(question, (one.name, BASE), one.starts, {0: base}, seed)
    for other, one in combinations(methods, 2):
        if one.comparable(other):
            yield judge_starts(question, (one.name, other.name), one.starts, other.starts, seed)


def judge_starts(
    question: QuestionId, names: tuple[str, str], ours: Starts[Any, Any], theirs: Starts[Any, Any], seed: int
) -> Judged | None:
    """One claim of a check, before it is corrected."""
    check = CHECKS[question]
    about = (question, *names, check.outcome, check.documents)
    blank = Claim(*about, 0, (0, 0), _NOTHING, check.test, "not judged", against=() if len(ours) > 1 else ("checkpoint",))
    return check.judge(blank, ours, theirs, seed)


def fine_tuned(arms: Sequence[Arm], runs: Sequence[TaskRun]) -> list[FineTuned]:
    """The arms with runs, each of their seeds at its latest checkpoint that has one.

    An arm scored at several window lengths counts once, preferably at its training length: windows do not affect fine-tuning.
    """
    found: dict[frozenset[str], FineTuned] = {}  # by the names of its runs of the task
    for arm in sorted(arms, key=lambda arm: arm.length != arm.trained_at):
        until = {seed: _until_start(entries, runs) for seed, entries in arm.runs.items()}
        until = {seed: entries for seed, entries in until.items() if entries}
        starts = {seed: start_of(_from(runs, entries[-1])) for seed, entries in until.items()}
        if starts:
            names = frozenset(run.name for start in starts.values() for run, _ in start.values())
            found.setdefault(names, FineTuned(replace(arm, runs=until), starts))
    return list(found.values())


def _from(runs: Iterable[TaskRun], entry: Entry) -> list[TaskRun]:
    """The runs of the task that started from this checkpoint."""
    return [run for run in runs if entry.is_of(run.model, run.weights)]


def _until_start(entries: Sequence[Entry], runs: Sequence[TaskRun]) -> list[Entry]:
    """A run's checkpoints up to the latest one that fine-tuning started from; empty if there is none."""
    counts = (count for count in range(len(entries), 0, -1) if _from(runs, entries[count - 1]))
    return list(entries[: next(counts, 0)])


def _is_base(run: TaskRun, arm: Arm) -> bool:
    """Did a run start from the arm's base? Decided by bytes if both are known."""
    made = arm.made
    if made and made.base_bytes and run.weights:
        return made.base_bytes == run.weights
    return model_label(run.model) == arm.base


def not_compared(question: QuestionId, entries: Sequence[Entry], runs: Sequence[TaskRun]) -> tuple[list[str], list[str]]:
    """Runs that take part in no claim: those whose start was not evaluated here, and those of other data or settings."""
    from_checkpoints = [run for run in runs if CHECKPOINT.search(model_label(run.model))]
    unknown = [run.name for run in from_checkpoints if not any(_from([run], entry) for entry in entries)]
    compared = {run.name for some in CHECKS[question].comparable(runs) for run in some}
    return unknown, [run.name for run in runs if run.name not in compared]
