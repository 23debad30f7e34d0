"""What a study asks of a task. In: a TuneRecipe. Out: a Problem: the space, the jobs of trials, their reports, the verdict.

`masked.py` and `relation.py` are the two tasks; the engine (study, finish, page) knows only what is defined here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coref_automl.engine.job import Job
from coref_automl.models.model_files import models_print
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.store import fingerprint
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.space import Space


class Follower:
    """Reads a file that another process appends to. A line that a kill cut in two is passed over, as `watch` does.

    Every row carries how far the run had come: what it says itself, or else what the last step said.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._progress = 0.0

    def rows(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as handle:
                handle.seek(self._at)
                new = handle.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and "event" in row:
                if row["event"] == "step":
                    self._progress = row.get("progress", self._progress)
                row.setdefault("progress", self._progress)
                yield row


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a trial: the eighth of its budget, the metric on `select`, its hits (one text per task; none for `re`)."""

    step: int
    value: float
    hits: tuple[str, ...] = ()


class Problem(Protocol):
    """`fixed` are settings that a dimension's `when` may look at; `binding` names everything that trials depend on."""

    @property
    def task(self) -> str: ...

    @property
    def metric(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def space(self) -> Space: ...

    @property
    def fixed(self) -> dict[str, Any]: ...

    @property
    def binding(self) -> dict[str, Any]: ...

    @property
    def clusters(self) -> tuple[NDArray[np.str_], ...]: ...

    @property
    def confirm_name(self) -> str: ...

    def recommended(self) -> list[dict[str, Any]]:
        """The points to begin with."""

    def job(self, params: Mapping[str, Any], seed: int, *, confirm: bool = False) -> Job:
        """A trial's job; with `confirm` the end is also scored on the half that chooses nothing."""

    def reports(self, job: Job, events: Iterator[dict[str, Any]], /) -> Iterator[Report]:
        """The reports that new events of a job's run amount to."""

    def cost(self, job: Job) -> dict[str, float]:
        """What a job has used: tokens and seconds."""

    def best_recipe(self, params: Mapping[str, Any], out: Path) -> Any:
        """The recipe that trains the winner again."""

    def weights(self, job: Job) -> Path:
        """The folder of a finished job's weights."""

    def drop_weights(self, job: Job) -> None:
        """Give the disk back; the scores stay."""

    def verdict(self, ours: list[Job], theirs: list[Job], seed: int) -> MethodVerdict:
        """Runs of two recipes, paired by seed, on the half that chose nothing."""

    def confirmed(self, jobs: list[Job]) -> list[float]:
        """The metric of finished jobs on the half that chose nothing."""


def models_bytes(recipe: TuneRecipe) -> str:
    """The configs and tokenizers of what trials start from."""
    from coref_automl.models.build import NEW

    named = [*recipe.models, str(recipe.settings.get("tokenizer") or "")]
    return models_print(name for name in named if name and not name.startswith(NEW))


def job_key(task: str, recipe: Mapping[str, Any], prints: Mapping[str, str]) -> str:
    """A short name of what is trained: settings, and the bytes of model and data rather than their paths."""
    paths = ("out", "model", "dataset", "train", "dev", "eval_set", "device")
    return fingerprint(task, {name: value for name, value in recipe.items() if name not in paths}, dict(prints))[:12]
