"""Evaluations side by side. In: the ranks of each on the items of a set. Out: hits on a metric, and the metric to judge by."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import ComparisonError
from coref_automl.base.records import Evaluation, Half, grouped
from coref_automl.evaluation.metrics import METRICS, leading, metric_named
from coref_automl.evaluation.targets import CHECKPOINT, slug
from coref_automl.models.build import NEW
from coref_automl.statistics.methods import reciprocal
from coref_automl.statistics.resampling import Part, joined

Ints = NDArray[np.int32]
ItemMask = NDArray[np.bool_] | None
"""One flag per item of a group; None for all items."""
_STEP = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a group, one row each; `index` maps an id to its row."""

    index: dict[str, int]
    facts: dict[str, NDArray[Any]]
    halves: NDArray[Any]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One evaluation in a group. `ranks` is aligned with the group's items: 0 for an item that the model
    does not count or was not scored on. `start` marks a checkpoint that others in the group were trained
    from, and the only one of its run."""

    name: str
    evaluation: Evaluation
    folder: Path
    ranks: Ints
    start: bool = False

    @property
    def weights(self) -> str:
        """The fingerprint of the model's weights; empty if not recorded."""
        return self.evaluation.fingerprints.get("weights", "")

    def same_model_as(self, other: Entry) -> bool:
        return self.is_of(other.evaluation.checkpoint, other.weights)

    def is_of(self, model: str, weights: str) -> bool:
        """Is this an evaluation of that model? Decided by its bytes, or by its name if an older record has none."""
        if self.weights and weights:
            return self.weights == weights
        return model_label(self.evaluation.checkpoint) == model_label(model)

    @property
    def step(self) -> int | None:
        if self.evaluation.provenance:
            return self.evaluation.provenance.step
        match = _STEP.search(Path(self.evaluation.checkpoint).name)
        return int(match.group(1)) if match else None

    @property
    def trained(self) -> bool:
        """Is it a checkpoint of a run? Every other model is a base model: shown, never recommended."""
        if self.start:
            return False
        return bool(self.step) if self.evaluation.provenance else self.step is not None

    @property
    def scratch(self) -> bool:
        """Was it trained from scratch (new:SHAPE), and so has no base?"""
        return bool(self.evaluation.provenance and self.evaluation.provenance.base.startswith(NEW))

    @property
    def tokens(self) -> int:
        """Training tokens, or steps if none were recorded: for ordering checkpoints only (`recorded_tokens` is for printing)."""
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
    """Hits of entries on the items that all of them count: one part per task, or one for tasks that share documents; one column
    per entry, weights applied."""

    parts: list[Part]
    items: int
    documents: int
    dropped: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Items per document in ascending order, those of all parts."""
        clusters = np.concatenate([part.clusters for part in self.parts])
        return np.sort(np.unique(clusters, return_counts=True)[1])

    def differences(self, numbers: Sequence[int], references: Sequence[int]) -> list[Part]:
        """The columns with these numbers minus the columns of their references."""
        values = [np.asarray(part.values) for part in self.parts]
        return [Part(v[:, numbers] - v[:, references], part.clusters) for v, part in zip(values, self.parts, strict=True)]


@dataclass(frozen=True, slots=True)
class Group:
    """Evaluations on one set of items by one version of the scorer and under one tokenizer: only these may
    be compared. `left_out`: other dtypes. `others`: the same items under other tokenizers, whose models are
    compared with these two at a time (comparison/vocabularies)."""

    evalset: str
    fingerprint: str
    scorer: str
    items: Items
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    others: tuple[Group, ...] = ()

    @property
    def verdict_half(self) -> Half | None:
        """The documents that judge checkpoints against their base: `confirm`, or all (None) if no checkpoint was chosen.

        Nothing was chosen if every checkpoint is the planned end of its run. The correction covers all of them, so each
        verdict holds whichever one is looked at.
        """
        records = [entry.evaluation.provenance for entry in self.entries if entry.trained]
        unselected = bool(records) and all(provenance is not None and provenance.planned_end for provenance in records)
        return None if unselected else "confirm"

    def is_beside(self, other: Group) -> bool:
        """Is it on the same items by the same scorer, under another tokenizer?"""
        same = (self.fingerprint, self.scorer) == (other.fingerprint, other.scorer)
        return same and self.tokenizer != other.tokenizer

    @property
    def tokenizer(self) -> str:
        """The fingerprint of the tokenizer that all entries have."""
        return self.entries[0].evaluation.fingerprints.get("tokenizer", "")

    def was_run(self, metric: str, entry: Entry) -> bool:
        """Does an evaluation count items of every part of the metric?"""
        parts = METRICS[metric].parts or ((metric, 1.0),)
        tasks = {METRICS[name].task for name, _ in parts}
        return all((entry.ranks[self.items.facts["task"] == task] > 0).any() for task in tasks)

    def metrics(self) -> list[str]:
        """The metrics that every entry ran."""
        return [name for name in METRICS if all(self.was_run(name, entry) for entry in self.entries)]

    def columns(
        self,
        metric: str,
        *,
        half: Half | None = None,
        entries: Sequence[Entry] | None = None,
        mask: ItemMask = None,
        ranks: bool = False,
    ) -> Columns:
        """Hits of entries (default: all) on a metric, on one half of the documents or all, on the items of a
        mask. With `ranks`, reciprocal ranks, whose mean is MRR. Items that only some entries count are dropped."""
        chosen = self.entries if entries is None else entries
        by_task: dict[str, tuple[NDArray[np.float64], NDArray[Any]]] = {}
        dropped = 0
        for name, weight in METRICS[metric].parts or ((metric, 1.0),):
            part, rows = METRICS[name], np.asarray(self.items.facts["task"] == METRICS[name].task)
            rows = rows & (True if half is None else self.items.halves == half) & (True if mask is None else mask)
            ranked = np.stack([entry.ranks[rows] for entry in chosen], axis=1)
            by_all = (ranked > 0).all(axis=1)
            dropped += int(((ranked > 0).any(axis=1) & ~by_all).sum())
            hits = reciprocal(ranked[by_all]) if ranks else ranked[by_all] <= part.at
            values = weight * hits.astype(np.float64)
            weighted = by_task.get(str(part.task))
            by_task[str(part.task)] = (values + weighted[0] if weighted else values, self.items.facts["cluster"][rows][by_all])
        counts = [len(values) for values, _ in by_task.values()]
        parts = [Part(values, clusters) for values, clusters in by_task.values()]
        parts = joined(parts) if all(counts) else parts
        documents = len(np.unique(np.concatenate([clusters for _, clusters in by_task.values()])))
        return Columns(parts, sum(counts) if all(counts) else 0, documents, dropped)  # a composite needs every part


def verdict_half(methods: Iterable[Sequence[Entry]]) -> Half | None:
    """The documents that judge methods by their last checkpoints, one sequence per method: `confirm`, or None for all. All are
    used if every run ends as planned, or if records do not say so and all runs of a method end at the same epoch."""
    return None if all(map(_unselected, methods)) else "confirm"


def _unselected(ends: Sequence[Entry]) -> bool:
    records = [entry.evaluation.provenance for entry in ends]
    planned = [provenance.planned_end if provenance else False for provenance in records]
    if False in planned:
        return False
    return None not in planned or len({round(provenance.epoch, 3) for provenance in records if provenance}) == 1


def runs_of(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Trained checkpoints by run (and window length, if a run was scored at several), in training order."""
    lengths = Counter(run for run, _ in {(entry.run, entry.evaluation.seq_len) for entry in entries})
    ordered = sorted((entry for entry in entries if entry.trained), key=lambda entry: entry.tokens)
    runs = grouped(ordered, lambda entry: f"{entry.run} @{entry.evaluation.seq_len}" if lengths[entry.run] > 1 else entry.run)
    return dict(sorted(runs.items()))


def model_label(path: str) -> str:
    """The label of a model wherever its folder lies: run/checkpoint, or the name of the model."""
    folder = PurePath(path)
    if CHECKPOINT.fullmatch(folder.name):
        return f"{folder.parent.name}/{folder.name}"
    return slug(re.split(r"/|--", path.rstrip("/"))[-1])


def choose_metric(group: Group, metric: str | None) -> str:
    """The metric to judge by: the requested one, else the first of METRICS that all evaluations have."""
    usable = group.metrics()
    if not usable:
        models = shlex.join(dict.fromkeys(entry.evaluation.path for entry in group.entries))
        folder = next((path for entry in group.entries if (path := entry.evaluation.evalset_path)), "")
        models += f" --eval-set {shlex.quote(folder)}" if folder else ""
        raise ComparisonError(
            "These share no metric: no item is counted by all of them. Score them on a set whose answers are "
            f"entries of their vocabulary: coref-automl evaluate {models}"
        )
    if metric is None:
        return leading(usable)
    chosen = metric_named(metric).name
    if chosen not in usable:
        raise ComparisonError(f"{METRICS[chosen].label} was not run on {group.evalset}. Run there: {', '.join(usable)}.")
    return chosen
