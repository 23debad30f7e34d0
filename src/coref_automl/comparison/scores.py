"""Evaluations side by side. In: ranks as arrays over the items of a set. Out: hits for a metric, on a half or a subset."""

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
"""Training counts as equal if tokens differ by at most this share of the larger count."""
_STEP = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a group, one row per item; `index` maps an id to its row."""

    index: dict[str, int]
    facts: dict[str, NDArray[Any]]
    halves: NDArray[Any]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One evaluation. `ranks[rule]` is aligned with the group's items; NOT_RUN if the item or rule was not run.

    `start` marks a checkpoint that is the base of others in the group and the only one of its run.
    """

    name: str
    evaluation: Evaluation
    folder: Path
    ranks: dict[str, Ints]
    out_of_reach: NDArray[np.bool_]
    start: bool = False

    @property
    def weights(self) -> str:
        """The fingerprint of its weights; empty if not recorded."""
        return self.evaluation.fingerprints.get("weights", "")

    def same_model_as(self, other: Entry) -> bool:
        return self.is_of(other.evaluation.checkpoint, other.weights)

    def is_of(self, model: str, weights: str) -> bool:
        """Is this an evaluation of that model? Decided by bytes, or by name for older records without bytes."""
        if self.weights and weights:
            return self.weights == weights
        return model_label(self.evaluation.checkpoint) == model_label(model)

    @property
    def step(self) -> int | None:
        if self.evaluation.provenance:
            return self.evaluation.provenance.step
        found = _STEP.search(Path(self.evaluation.checkpoint).name)
        return int(found.group(1)) if found else None

    @property
    def trained(self) -> bool:
        """Is it a checkpoint of a run? All others are base models: shown, never recommended."""
        if self.start:
            return False
        return bool(self.step) if self.evaluation.provenance else self.step is not None

    @property
    def scratch(self) -> bool:
        """Was it trained from scratch (new:SHAPE)? Then it has no base."""
        return bool(self.evaluation.provenance and self.evaluation.provenance.base.startswith(NEW))

    @property
    def tokens(self) -> int:
        """Training tokens, to order checkpoints by; steps if the run recorded no tokens. To print: `recorded_tokens`."""
        recorded = self.recorded_tokens
        return recorded if recorded is not None else self.step or 0

    @property
    def recorded_tokens(self) -> int | None:
        return self.evaluation.provenance.tokens if self.evaluation.provenance else None

    @property
    def run(self) -> str:
        if self.evaluation.provenance:
            return Path(self.evaluation.provenance.run).name
        return Path(self.evaluation.checkpoint).parent.name if self.trained else self.evaluation.checkpoint


@dataclass(frozen=True, slots=True)
class Columns:
    """Hits of entries on their common items: one part per task, one column per entry, weights applied."""

    parts: list[Part]
    items: int
    documents: int
    dropped: int

    def differences(self, numbers: Sequence[int], references: Sequence[int]) -> list[Part]:
        """Columns minus those of their references."""
        values = [np.asarray(part.values) for part in self.parts]
        return [Part(v[:, numbers] - v[:, references], part.clusters) for v, part in zip(values, self.parts, strict=True)]

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
        """The documents that judge against the base: `confirm`, or all (None) if no checkpoint was chosen.

        Nothing was chosen if every checkpoint is the planned end of its run. The correction covers all of them, so each
        verdict holds whichever one is looked at.
        """
        made = [entry.evaluation.provenance for entry in self.entries if entry.trained]
        return None if made and all(one is not None and one.planned_end for one in made) else "confirm"

    @property
    def tokenizers(self) -> int:
        return len({entry.evaluation.fingerprints.get("tokenizer", "") for entry in self.entries})

    def has(self, metric: str) -> bool:
        """Was every part of the metric run by every entry?"""
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
        """Hits for a metric, on one half of the items or all, optionally only `among` some rows."""
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

    def rows(
        self, metric: str, *, half: Half | None, entries: Sequence[Entry], among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]:
        """The items behind `columns` of a metric that is not a composite: those that every entry has."""
        part = METRICS[metric]
        rows = self._of(part) & (True if half is None else self.items.halves == half) & (True if among is None else among)
        return np.asarray(rows & np.all([entry.ranks[part.rule] != NOT_RUN for entry in entries], axis=0))

    def _of(self, part: Metric) -> NDArray[np.bool_]:
        return np.asarray(self.items.facts["task"] == part.task)


def runs_of(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Trained checkpoints by run (and window length, if a run was scored at several), in training order."""
    lengths: dict[str, set[int]] = {}
    for entry in entries:
        lengths.setdefault(entry.run, set()).add(entry.evaluation.seq_len)
    out: dict[str, list[Entry]] = {}
    for entry in sorted((e for e in entries if e.trained), key=lambda e: e.tokens):
        several = len(lengths[entry.run]) > 1
        out.setdefault(f"{entry.run} @{entry.evaluation.seq_len}" if several else entry.run, []).append(entry)
    return dict(sorted(out.items()))


def is_equal_training(one: int, other: int) -> bool:
    """Do two token counts count as equal training?"""
    return abs(one - other) <= EQUAL * max(one, other)


def model_label(path: str) -> str:
    """The label of a model, independent of where its folder was: run/checkpoint, or its name."""
    found = PurePath(path)
    if CHECKPOINT.fullmatch(found.name):
        return f"{found.parent.name}/{found.name}"
    return slug(re.split(r"/|--", path.rstrip("/"))[-1])


def _plain(metric: str) -> list[Metric]:
    return [METRICS[name] for name, _ in METRICS[metric].parts or ((metric, 1.0),)]
