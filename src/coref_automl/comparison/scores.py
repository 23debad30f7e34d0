"""Evaluations side by side. In: ranks as arrays over the items of a set. Out: hits for a metric, on a half or among some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS, Metric
from coref_automl.evaluation.results import CHECKPOINT, slug
from coref_automl.models.build import NEW
from coref_automl.records import Evaluation, Half
from coref_automl.statistics.resampling import Part

Ints = NDArray[np.int32]
EQUAL = 0.05
"""Two amounts of training are equal when their tokens differ by at most this share of the larger."""
_STEP = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a group, a row each; `index` finds the row of an id."""

    index: dict[str, int]
    facts: dict[str, NDArray[Any]]
    halves: NDArray[Any]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One evaluation. `ranks[rule]` is aligned with the group's items; NOT_RUN where the item or the rule was not run.

    `start` marks a checkpoint that others of the group began from and that stands alone of its run: their base model.
    """

    name: str
    evaluation: Evaluation
    folder: Path
    ranks: dict[str, Ints]
    out_of_reach: NDArray[np.bool_]
    start: bool = False

    @property
    def weights(self) -> str:
        """The name of its weights' bytes; empty where a record does not say."""
        return self.evaluation.fingerprints.get("weights", "")

    def same_model_as(self, other: Entry) -> bool:
        return self.is_of(other.evaluation.checkpoint, other.weights)

    def is_of(self, model: str, weights: str) -> bool:
        """Is this an evaluation of that model? Its bytes say; its name does where an older record kept no bytes."""
        if self.weights and weights:
            return self.weights == weights
        return same_model(self.evaluation.checkpoint) == same_model(model)

    @property
    def step(self) -> int | None:
        if self.evaluation.provenance:
            return self.evaluation.provenance.step
        found = _STEP.search(Path(self.evaluation.checkpoint).name)
        return int(found.group(1)) if found else None

    @property
    def trained(self) -> bool:
        """A checkpoint of a run; what is not is a base model: shown, never recommended."""
        if self.start:
            return False
        return bool(self.step) if self.evaluation.provenance else self.step is not None

    @property
    def scratch(self) -> bool:
        """It began as a new model (new:SHAPE, with the words of another or not): there is none behind it."""
        return bool(self.evaluation.provenance and self.evaluation.provenance.base.startswith(NEW))

    @property
    def tokens(self) -> int:
        """Training behind it; steps where the run left no record of its tokens."""
        return self.evaluation.provenance.tokens if self.evaluation.provenance else self.step or 0

    @property
    def run(self) -> str:
        if self.evaluation.provenance:
            return Path(self.evaluation.provenance.run).name
        return Path(self.evaluation.checkpoint).parent.name if self.trained else self.evaluation.checkpoint


@dataclass(frozen=True, slots=True)
class Columns:
    """Hits of some entries on the items that all of them have: a part a task, a column an entry, weights in the values."""

    parts: list[Part]
    items: int
    documents: int
    dropped: int

    def differences(self, reference: int) -> list[Part]:
        """The same with one column taken from all."""
        return [Part(np.asarray(p.values) - np.asarray(p.values)[:, [reference]], p.clusters) for p in self.parts]

    def only(self, numbers: Sequence[int]) -> Columns:
        parts = [Part(np.take(np.asarray(part.values), numbers, axis=1), part.clusters) for part in self.parts]
        return replace(self, parts=parts)


@dataclass(frozen=True, slots=True)
class Group:
    """Evaluations of one set of items by one version of the scorer: these, and only these, may be compared."""

    evalset: str
    fingerprint: str
    scorer: str
    items: Items
    entries: tuple[Entry, ...]

    @property
    def judging(self) -> Half | None:
        """The documents that verdicts over the base come from: `confirm`, or all (None) where no checkpoint here was chosen.

        Nothing was chosen where every checkpoint is the planned end of its run. Holm covers all of them, so a verdict holds for
        whichever of them is looked at afterwards.
        """
        made = [entry.evaluation.provenance for entry in self.entries if entry.trained]
        return None if made and all(one is not None and one.planned_end for one in made) else "confirm"

    @property
    def tokenizers(self) -> int:
        return len({entry.evaluation.fingerprints.get("tokenizer", "") for entry in self.entries})

    def has(self, metric: str) -> bool:
        """Was it run, part for part, by every entry?"""
        for part in _plain(metric):
            rows = self._of(part)
            if not rows.any() or any(entry.ranks[part.rule][rows].max() == NOT_RUN for entry in self.entries):
                return False
        return True

    def metrics(self) -> list[str]:
        return [name for name in METRICS if self.has(name)]

    def columns(
        self,
        metric: str,
        *,
        half: Half | None = None,
        entries: Sequence[Entry] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> Columns:
        """Hits for a metric, on one half of the items or all, or only `among` some rows."""
        chosen = self.entries if entries is None else entries
        by_task: dict[str, tuple[NDArray[np.float64], NDArray[Any]]] = {}
        dropped = 0
        for name, weight in METRICS[metric].parts or ((metric, 1.0),):
            part = METRICS[name]
            rows = self._of(part) & (True if half is None else self.items.halves == half) & (True if among is None else among)
            ranks = np.stack([entry.ranks[part.rule][rows] for entry in chosen], axis=1)
            whole, empty = (ranks != NOT_RUN).all(axis=1), (ranks == NOT_RUN).all(axis=1)
            dropped += int((~whole & ~empty).sum())
            values = weight * ((ranks > 0) & (ranks <= part.at))[whole]
            before = by_task.get(str(part.task))
            by_task[str(part.task)] = (values + before[0] if before else values, self.items.facts["cluster"][rows][whole])
        parts = [Part(values, clusters) for values, clusters in by_task.values()]
        items = sum(len(values) for values, _ in by_task.values())
        documents = sum(len(np.unique(clusters)) for _, clusters in by_task.values())
        return Columns(parts, items, documents, dropped)

    def _of(self, part: Metric) -> NDArray[np.bool_]:
        return np.asarray(self.items.facts["task"] == part.task)


def as_much_training(one: int, other: int) -> bool:
    """Is that many tokens equal training, as near as checkpoints allow?"""
    return abs(one - other) <= EQUAL * max(one, other)


def same_model(path: str) -> str:
    """A label for the model of a path, wherever its folder stood and as whatever it was evaluated: run/checkpoint, or its own."""
    found = PurePath(path)
    if CHECKPOINT.fullmatch(found.name):
        return f"{found.parent.name}/{found.name}"
    return slug(re.split(r"/|--", path.rstrip("/"))[-1])


def _plain(metric: str) -> list[Metric]:
    return [METRICS[name] for name, _ in METRICS[metric].parts or ((metric, 1.0),)]
