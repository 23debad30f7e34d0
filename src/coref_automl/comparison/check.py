"""What an outside check is: a task that checkpoints are fine-tuned on, to see whether an adaptation carries over to it.

A check is one class in its own room (`relation/check.py`, `coreference/check.py`) and one line of `outside_checks.py`. Claims,
reports, archives, experiments and the studio know of it what is declared here, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from coref_automl.comparison.claims import Claim, Documents, Test
from coref_automl.comparison.judging import Judged
from coref_automl.comparison.runs import F, R, RunOf, TaskFiles
from coref_automl.config import Setting, typed
from coref_automl.progress import Progress
from coref_automl.records import Estimate

Start = Mapping[int, tuple[RunOf[R, F], int]]
"""Of every fine-tuning seed from one checkpoint, its run and the column of the run's facts."""
Starts = Mapping[int, Start[R, F]]
"""By pretraining seed; a base or a single checkpoint is one start."""
CHOSEN = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStage:
    """A check's section of an experiment's recipe.

    `start: every` is from the last checkpoint of every run and from the base, `chosen` from the recommended model. `seeds` are
    those of fine-tuning from one checkpoint. `settings` are the same for all, in the words of the check's own command.
    """

    start: Literal["every", "chosen"] = "every"
    seeds: Annotated[int, Setting("", 1)] = 3
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed(self)


S = TypeVar("S", bound=CheckStage)


@dataclass(frozen=True, slots=True)
class TaskData:
    """What a task is fine-tuned on and scored by: files and settings in the words of its recipe, their sizes and their bytes."""

    files: dict[str, str | None]
    sizes: dict[str, int]
    prints: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)


class OutsideCheck(ABC, Generic[R, F, S]):
    """One task. Its name in CHECKS is that of its question, of its section of a recipe, of its steps and of their folder."""

    name: tuple[str, str]
    """In a sentence; Korean and English, as all pairs here."""
    metric: tuple[str, str]
    number: str
    """The metric in short, beside a number."""
    outcome: str
    """What claims call the metric."""
    documents: Documents
    test: Test
    files: TaskFiles
    folder: str
    """The kind of a run's folder."""
    recipe: type[Any]
    """The recipe of one run."""
    stage: type[S]
    decided: tuple[str, ...] = ()
    """Settings of the task's recipe that fields of the section stand for."""
    usual: ClassVar[Mapping[str, Any]] = {}
    """What a study sets of the task's recipe unless its section says otherwise."""
    adapted: ClassVar[Mapping[str, Any]] = {}
    """What `adapt` sets of the section unless told otherwise."""
    with_base = False
    """With `start: chosen`, is the base fine-tuned beside the recommended model?"""
    weights = ""
    """What a study without weights removes of a finished run: a pattern of folders."""

    @abstractmethod
    def comparable(self, runs: Sequence[RunOf[R, F]]) -> list[list[RunOf[R, F]]]:
        """Groups of runs that may be compared."""

    @abstractmethod
    def judge(self, claim: Claim, ours: Starts[R, F], theirs: Starts[R, F], seed: int) -> Judged | None:
        """The claim filled in, before it is corrected; None if the sides share nothing to be compared by."""

    @abstractmethod
    def estimate(self, result: R) -> Estimate | None:
        """The metric of one run."""

    @abstractmethod
    def open(self, stage: S, out: Path) -> TaskData:
        """The data that a section names; what must be written for it lies under the experiment's folder."""

    @abstractmethod
    def train(self, recipe: Any, progress: Progress) -> R:
        """Fine-tune, and score."""

    @abstractmethod
    def tokens(self, recipe: Any, sizes: Mapping[str, int], forward: float) -> float:
        """About how many tokens a run trains on; those that it only reads count `forward`."""

    @abstractmethod
    def next_command(self, folder: str) -> str:
        """What to do with a finished run."""

    def rows(self, run: RunOf[R, F]) -> int | None:  # noqa: ARG002
        """How many rows it was trained on, where that tells its claims apart."""
        return None

    def variants(self, stage: S, data: TaskData) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ARG002
        """The runs from one start: what their names begin with, and the settings in which they differ."""
        yield "", {}
