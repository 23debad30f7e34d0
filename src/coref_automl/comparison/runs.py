"""Outside checks: what one is, and its finished runs. In: a folder of `re train`, `coref train` or `archive`. Out: a TaskRun.

A check is a task that checkpoints are fine-tuned on, to see whether an adaptation carries over to it: one class in its own room
(`relation/check.py`, `coreference/check.py`) and one line of `outside_checks.py`. Claims, reports, archives, experiments and the
studio know of it what `OutsideCheck` declares, and nothing else.

    RUN/{re_results.json, rows.npz}                   RelationResult, and of every row what micro-F1 is made of
    RUN/{coref_results.json, documents.npz}           CoreferenceResult, and of every document what CoNLL is made of
    ARCHIVE/{relation,coreference}/<run>/...          the same two files without local paths

The rooms above write both files through `TaskFiles`; nothing else reads them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from coref_automl.comparison.claims import Claim, Documents, Test
from coref_automl.comparison.judging import Judged
from coref_automl.config import Setting, from_mapping, typed
from coref_automl.decoder import read_stored
from coref_automl.errors import InputError
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.folders import check_name
from coref_automl.guard import read_arrays
from coref_automl.progress import Progress
from coref_automl.records import Estimate, Provenance
from coref_automl.store import atomic_write, write_json

_AGAIN = "run the same command again (nothing is trained twice), or make the archive again"


class _Seed(Protocol):
    @property
    def seed(self) -> int: ...


class TaskResult(Protocol):
    """What comparisons ask of results of all tasks: what they started from, by name and by bytes, under which seeds."""

    @property
    def model(self) -> str: ...
    @property
    def fingerprints(self) -> Mapping[str, str]: ...
    @property
    def seeds(self) -> Sequence[_Seed]: ...


R = TypeVar("R", bound=TaskResult)
F = TypeVar("F")


@dataclass(frozen=True, eq=False)
class RunOf(Generic[R, F]):
    """A run's result and facts (the records of its task), the folder it was read from, and those that repeat it."""

    name: str
    result: R
    facts: F
    folder: Path | None = None
    copies: tuple[Path, ...] = ()

    @property
    def model(self) -> str:
        return self.result.model

    @property
    def weights(self) -> str:
        """The fingerprint of the weights it started from; empty if not recorded."""
        return self.result.fingerprints.get("weights", "")

    @property
    def seeds(self) -> list[int]:
        """The seed of each column of its facts."""
        return [one.seed for one in self.result.seeds]


TaskRun = RunOf[Any, Any]
"""A run of any task."""


@dataclass(frozen=True)
class TaskFiles:
    """The two files of a task's runs; `task` is also the name of their folder in an archive. `record` is the result, with `run`,
    `model`, `fingerprints`, `seeds` and `measures()`; `facts` what is kept of every row or document, so that runs can be compared
    without texts: `count` (its seeds), `arrays()` and `of_arrays()`."""

    task: str
    results: str
    arrays: str
    record: type[Any]
    facts: type[Any]

    def result(self, folder: Path) -> Any:
        return read_stored(folder / self.results, self.record, remedy=_AGAIN)

    def read(self, folder: Path) -> TaskRun:
        check_name(folder)
        result = self.result(folder)
        path = folder / self.arrays
        if not path.is_file():
            raise InputError(f"{folder} has no {self.arrays}: it is not whole, or of an earlier version; {_AGAIN}.")
        try:
            facts = self.facts.of_arrays(read_arrays(path))
        except (InputError, KeyError) as error:
            raise InputError(f"{path} is damaged ({error}); {_AGAIN}.") from error
        if facts.count != len(result.seeds):
            raise InputError(f"{folder} has {len(result.seeds)} seeds, and {self.arrays} has {facts.count}; {_AGAIN}.")
        return TaskRun(folder.name, result, facts, folder)

    def write(self, folder: Path, result: Any, facts: Any) -> None:
        with atomic_write(folder / self.arrays, "wb") as handle:
            np.savez_compressed(handle, **facts.arrays())
        write_json(folder / self.results, result.to_json())

    def archive(self, runs: Sequence[TaskRun], out: Path) -> None:
        """Keep results and facts; no text, entity, chain, name of a document or local path."""
        for run in runs:
            told: dict[str, Any] = {"run": run.name, "model": place_of(run.model)}
            if made := getattr(run.result, "pretraining", None):
                told["pretraining"] = without_folders(made)
            self.write(out / self.task / run.name, replace(run.result, **told), run.facts)


def without_folders(made: Provenance) -> Provenance:
    """How a checkpoint came to be, with names in place of this machine's paths."""
    return replace(made, run=PurePath(made.run).name, base=place_of(made.base), dataset=place_of(made.dataset))


def place_of(path: str) -> str:
    """A path without this machine's folders: of an absolute one the last part, with the run before a checkpoint."""
    found = PurePath(path)
    if not found.is_absolute():
        return path
    return f"runs/{found.parent.name}/{found.name}" if CHECKPOINT.fullmatch(found.name) else found.name


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
    seeds: Annotated[int, Setting("", 1, 1_000)] = 3
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed(self)


S = TypeVar("S", bound=CheckStage)


@dataclass(frozen=True, slots=True)
class TaskData:
    """What a task is fine-tuned on and scored by: files and settings in the words of its recipe, their sizes and their bytes."""

    files: dict[str, str | None]
    sizes: dict[str, int]
    fingerprints: dict[str, str]
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
    next_command: str
    """What to do with a finished run, {}."""
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

    def recipe_for(self, stage: S, data: TaskData, where: str, **decided: Any) -> Any:
        """The recipe of one run: what is usual, what the section says over that, its data, and what is decided for it."""
        values = {**self.usual, **stage.settings, **data.files, **data.settings, "seeds": stage.seeds, **decided}
        return from_mapping(self.recipe, values, where)

    def rows(self, run: RunOf[R, F]) -> int | None:  # noqa: ARG002
        """How many rows it was trained on, where that tells its claims apart."""
        return None

    def variants(self, stage: S, data: TaskData) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ARG002
        """The runs from one start: what their names begin with, and the settings in which they differ."""
        yield "", {}
