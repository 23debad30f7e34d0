"""Outside checks: what one is, and which there are.

A check is a task that checkpoints are fine-tuned on, to see whether an adaptation carries over to it: one
class in the `check.py` of an extra, whose entry in `extras/table.py` says so. Claims (`carry_over`), reports,
archives, experiments and the studio know of it only what `OutsideCheck` declares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from coref_automl.base import handed
from coref_automl.base.config import Setting, from_mapping, typed
from coref_automl.base.progress import Progress
from coref_automl.base.records import Estimate
from coref_automl.comparison.claims import Claim, Documents, QuestionId, Test
from coref_automl.comparison.judging import UncorrectedClaim
from coref_automl.comparison.runs import FactsT, ResultT, RunOf, Starts, TaskFiles

CHOSEN = "chosen"
CHARACTERS_PER_TOKEN = 2  # of Korean text


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


StageT = TypeVar("StageT", bound=CheckStage)


class OutsideCheck(ABC, Generic[ResultT, FactsT, StageT]):
    """One task. Its key in CHECKS is that of its question, of its section of a recipe, of its steps and of their folder. Class
    attributes without a default are required; a subclass that lacks one is refused when it is defined."""

    title: tuple[str, str]  # its name in a sentence; Korean and English, as all pairs here
    metric: tuple[str, str]
    short_metric: str  # beside a number
    outcome: str  # the name of the metric in claims
    documents: Documents
    test: Test
    files: TaskFiles
    folder_kind: str  # the kind of a run's folder
    recipe: type[Any]  # of one run
    stage: type[StageT]
    next_command: str  # for a finished run, whose folder replaces {}
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
    def comparable(self, runs: Sequence[RunOf[ResultT, FactsT]]) -> list[list[RunOf[ResultT, FactsT]]]:
        """Group the runs that may be compared."""

    @abstractmethod
    def judge(
        self, claim: Claim, ours: Starts[ResultT, FactsT], theirs: Starts[ResultT, FactsT], seed: int
    ) -> UncorrectedClaim | None:
        """Fill in the claim, uncorrected; None if the sides share nothing to be compared by."""

    @abstractmethod
    def estimate(self, result: ResultT) -> Estimate | None:
        """The metric of one run."""

    @abstractmethod
    def open(self, stage: StageT, out: Path) -> TaskData:
        """Open the data that a section names; what must be written for it goes under the experiment's folder."""

    @abstractmethod
    def train(self, recipe: Any, progress: Progress) -> ResultT:
        """Fine-tune, and score."""

    @abstractmethod
    def tokens(self, recipe: Any, sizes: Mapping[str, int], forward: float) -> float:
        """Estimate how many tokens a run trains on; a token that is only read counts as `forward`."""

    def recipe_for(self, stage: StageT, data: TaskData, where: str, **decided: Any) -> Any:
        """The recipe of one run: the defaults, then the section's settings, its data, and what is decided for this run."""
        values = {**self.defaults, **stage.settings, **data.files, **data.settings, "seeds": stage.seeds, **decided}
        return from_mapping(self.recipe, values, where)

    def rows(self, run: RunOf[ResultT, FactsT]) -> int | None:  # noqa: ARG002
        """The number of training rows, if that tells the check's claims apart."""
        return None

    def variants(self, stage: StageT, data: TaskData) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ARG002
        """The runs from one start: a prefix of the name, and the settings in which they differ."""
        yield "", {}


class _Registry(Mapping[QuestionId, OutsideCheck[Any, Any, Any]]):
    """The checks that were handed down, in the order of questions, imported when one is first asked for."""

    @cached_property
    def loaded(self) -> dict[QuestionId, OutsideCheck[Any, Any, Any]]:
        return {name: load() for name, load in handed.CHECKS.items()}

    def __getitem__(self, name: QuestionId) -> OutsideCheck[Any, Any, Any]:
        return self.loaded[name]

    def __iter__(self) -> Iterator[QuestionId]:
        return iter(self.loaded)

    def __len__(self) -> int:
        return len(self.loaded)


CHECKS = _Registry()
