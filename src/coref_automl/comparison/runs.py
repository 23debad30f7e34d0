"""Finished runs of relation extraction and coreference. In: a folder of `re train`, `coref train` or `archive`. Out: a TaskRun.

    RUN/{re_results.json, rows.npz}                   RelationResult, and of every row what micro-F1 is made of
    RUN/{coref_results.json, documents.npz}           CoreferenceResult, and of every document what CoNLL is made of
    ARCHIVE/{relation,coreference}/<run>/...          the same two files without local paths

The rooms above write both files through `TaskFiles`; nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from coref_automl.decoder import read_stored
from coref_automl.errors import InputError
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.guard import read_arrays
from coref_automl.records import Provenance
from coref_automl.store import check_name, write_json, written_whole

_AGAIN = "run the same command again (nothing is trained twice), or make the archive again"


class _Seed(Protocol):
    @property
    def seed(self) -> int: ...


class TaskResult(Protocol):
    """What results of all tasks have: where it lies, what it started from, what it is scored on."""

    @property
    def run(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def split(self) -> str: ...
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
        with written_whole(folder / self.arrays, "wb") as handle:
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
