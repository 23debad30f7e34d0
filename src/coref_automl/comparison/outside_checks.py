"""Outside checks: what one is, which there are, and what they show of methods. In: methods and runs of a task. Out: Claims.

A check is a task that checkpoints are fine-tuned on, to see whether an adaptation carries over to it: one class in its own room
(`relation/check.py`, `coreference/check.py`) and its room in `_ROOMS`. Claims, reports, archives, experiments and the studio know
of it only what `OutsideCheck` declares.

The unit of a claim is the pretraining seed: a start (the checkpoint that fine-tuning began from) counts with the mean over its
fine-tuning seeds, so that variance in pretraining counts. If a method has a single start, its fine-tuning seeds are compared, and
the claim is about that checkpoint.

    Starts of a method    {pretraining seed: {fine-tuning seed: (run of the task, column of its facts)}}
    entity 512            {0: {0: (re-entity-s0, 0), 1: (re-entity-s0, 1)}, 1: {0: (re-entity-s1, 0), 1: (re-entity-s1, 1)}}
    its base              {0: {0: (re-base, 0), 1: (re-base, 1)}}      one Start: a base has no pretraining seeds
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import BASE, Claim, Documents, QuestionId, Test
from coref_automl.comparison.judging import UncorrectedClaim, corrected_claims
from coref_automl.comparison.runs import F, R, RunOf, Start, Starts, TaskFiles, TaskRun
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.config import Setting, from_mapping, typed
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.progress import Progress
from coref_automl.records import Estimate

CHOSEN = "chosen"
_UNKNOWN = Estimate(0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStage:
    """A check's section of an experiment's recipe.

    `start: every` is from the last checkpoint of every run and from the base, `chosen` from the recommended model. `seeds` are
    those of fine-tuning from one checkpoint. `settings` are the same for all, in the words of the check's own command.
    """

    start: Literal["every", "chosen"] = "every"
    seeds: Annotated[int, Setting("", 1, 1_000)] = 3
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed(self)


@dataclass(frozen=True, slots=True)
class TaskData:
    """What a task is fine-tuned on and scored by: files and settings in the words of its recipe, their sizes and fingerprints."""

    files: dict[str, str | None]
    sizes: dict[str, int]
    fingerprints: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)


S = TypeVar("S", bound=CheckStage)


class OutsideCheck(ABC, Generic[R, F, S]):
    """One task. Its name in CHECKS is that of its question, of its section of a recipe, of its steps and of their folder. Class
    attributes without a default are required; a subclass that lacks one is refused when it is defined."""

    name: tuple[str, str]  # in a sentence; Korean and English, as all pairs here
    metric: tuple[str, str]
    short_metric: str  # beside a number
    outcome: str  # the name of the metric in claims
    documents: Documents
    test: Test
    files: TaskFiles
    folder_kind: str  # the kind of a run's folder
    recipe: type[Any]  # of one run
    stage: type[S]
    next_command: str  # for a finished run, {}
    set_by_stage: tuple[str, ...] = ()  # settings of the recipe that fields of the section stand for
    defaults: ClassVar[Mapping[str, Any]] = {}  # settings of the recipe in a study, unless its section says otherwise
    adapt_defaults: ClassVar[Mapping[str, Any]] = {}  # fields of the section in `adapt`, unless told otherwise
    with_base = False  # with `start: chosen`, fine-tune the base too
    weight_folders = ""  # a pattern: folders of a finished run that a study without weights removes

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if missing := [name for name in OutsideCheck.__annotations__ if not hasattr(cls, name)]:
            raise TypeError(f"{cls.__name__} lacks {', '.join(missing)}; see the class attributes of OutsideCheck.")

    @abstractmethod
    def comparable(self, runs: Sequence[RunOf[R, F]]) -> list[list[RunOf[R, F]]]:
        """Group the runs that may be compared."""

    @abstractmethod
    def judge(self, claim: Claim, ours: Starts[R, F], theirs: Starts[R, F], seed: int) -> UncorrectedClaim | None:
        """Fill in the claim, uncorrected; None if the sides share nothing to be compared by."""

    @abstractmethod
    def estimate(self, result: R) -> Estimate | None:
        """The metric of one run."""

    @abstractmethod
    def open(self, stage: S, out: Path) -> TaskData:
        """Open the data that a section names; what must be written for it goes under the experiment's folder."""

    @abstractmethod
    def train(self, recipe: Any, progress: Progress) -> R:
        """Fine-tune, and score."""

    @abstractmethod
    def tokens(self, recipe: Any, sizes: Mapping[str, int], forward: float) -> float:
        """Estimate how many tokens a run trains on; a token that is only read counts as `forward`."""

    def recipe_for(self, stage: S, data: TaskData, where: str, **decided: Any) -> Any:
        """The recipe of one run: the defaults, then the section's settings, its data, and what is decided for this run."""
        values = {**self.defaults, **stage.settings, **data.files, **data.settings, "seeds": stage.seeds, **decided}
        return from_mapping(self.recipe, values, where)

    def rows(self, run: RunOf[R, F]) -> int | None:  # noqa: ARG002
        """The number of training rows, if that tells the check's claims apart."""
        return None

    def variants(self, stage: S, data: TaskData) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ARG002
        """The runs from one start: a prefix of the name, and the settings in which they differ."""
        yield "", {}


_ROOMS = ("relation", "coreference")
"""In the order of questions; each room has a CHECK in its `check.py`."""


class _Registry(UserDict[QuestionId, OutsideCheck[Any, Any, Any]]):
    """The checks by name, imported when one is first asked for: their rooms lie above this one and import it."""

    def __init__(self) -> None:
        pass

    @cached_property
    def data(self) -> dict[QuestionId, OutsideCheck[Any, Any, Any]]:  # type: ignore[override]
        return {room: import_module(f"coref_automl.{room}.check").CHECK for room in _ROOMS}


CHECKS = _Registry()


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
    about = (question, *names, check.outcome, check.documents)
    empty = Claim(*about, 0, (0, 0), _UNKNOWN, check.test, "not judged", against=() if len(ours) > 1 else ("checkpoint",))
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
