"""Finished runs of outside checks. In: a folder of `re train`, `coref train` or `archive`. Out: a TaskRun.

    RUN/{re_results.json, rows.npz}                   RelationResult, and what micro-F1 is made of, row by row
    RUN/{coref_results.json, documents.npz}           CoreferenceResult, and what CoNLL is made of, document by document
    ARCHIVE/{relation,coreference}/<run>/...          the same two files without local paths

The rooms of the checks write both files through `TaskFiles`; nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import InputError
from coref_automl.base.folders import check_name
from coref_automl.base.guard import read_arrays
from coref_automl.base.records import Provenance
from coref_automl.base.store import atomic_write, write_json
from coref_automl.evaluation.targets import CHECKPOINT

_AGAIN = "run the same command again (nothing is trained twice), or make the archive again"


class _Seed(Protocol):
    @property
    def seed(self) -> int: ...


class TaskResult(Protocol):
    """What comparisons need of any task's results: the model they started from, by name and by bytes, and their seeds."""

    @property
    def model(self) -> str: ...
    @property
    def fingerprints(self) -> Mapping[str, str]: ...
    @property
    def seeds(self) -> Sequence[_Seed]: ...


ResultT = TypeVar("ResultT", bound=TaskResult)
FactsT = TypeVar("FactsT")


@dataclass(frozen=True, eq=False)
class RunOf(Generic[ResultT, FactsT]):
    """A run's result and facts (the records of its task), the folder it was read from, and the folders of its copies."""

    name: str
    result: ResultT
    facts: FactsT
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
        return [result.seed for result in self.result.seeds]


TaskRun = RunOf[Any, Any]
"""A run of any task."""
Start = Mapping[int, tuple[RunOf[ResultT, FactsT], int]]
"""The runs fine-tuned from one checkpoint: for every fine-tuning seed its run, and the column of that run's facts."""
Starts = Mapping[int, Start[ResultT, FactsT]]
"""The starts of a method by pretraining seed; a base or a single checkpoint is one start."""


@dataclass(frozen=True)
class TaskFiles:
    """The two files of a task's runs; `task` is also the name of their folder in an archive.

    `record` is the type of the result, with `run`, `model`, `fingerprints`, `seeds` and `measures()`; `facts` that of what is
    kept per row or document to compare runs without texts, with `count` (its seeds), `arrays()` and `of_arrays()`.
    """

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
        """Write results and facts without any text, entity, chain, document name or local path."""
        for run in runs:
            changes: dict[str, Any] = {"run": run.name, "model": without_folder(run.model)}
            if provenance := getattr(run.result, "pretraining", None):
                changes["pretraining"] = without_folders(provenance)
            self.write(out / self.task / run.name, replace(run.result, **changes), run.facts)


def without_folders(provenance: Provenance) -> Provenance:
    """A training record with names in place of this machine's paths."""
    base, dataset = without_folder(provenance.base), without_folder(provenance.dataset)
    return replace(provenance, run=PurePath(provenance.run).name, base=base, dataset=dataset)


def without_folder(path: str) -> str:
    """A path without this machine's folders: the last part of an absolute one, with the run in front of a checkpoint."""
    name = PurePath(path)
    if not name.is_absolute():
        return path
    return f"runs/{name.parent.name}/{name.name}" if CHECKPOINT.fullmatch(name.name) else name.name
