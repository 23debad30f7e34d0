"""Evaluations side by side. In: ranks as arrays over the items of a set. Out: hits for a metric; what each is compared with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS, Metric
from coref_automl.evaluation.results import CHECKPOINT, slug
from coref_automl.models.build import NEW
from coref_automl.records import Evaluation, Half, Provenance
from coref_automl.statistics.resampling import Part

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
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

    def was_run(self, metric: str, entry: Entry) -> bool:
        """Did an evaluation run every part of the metric?"""
        tasks = [(self._of(part), part.rule) for part in _plain(metric)]
        return all(rows.any() and bool((entry.ranks[rule][rows] != NOT_RUN).any()) for rows, rule in tasks)

    def metrics(self) -> list[str]:
        return [name for name in METRICS if all(self.was_run(name, entry) for entry in self.entries)]

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


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by a key, in the order in which keys first occur."""
    out: dict[K, list[T]] = {}
    for item in items:
        out.setdefault(key(item), []).append(item)
    return out


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


def bases_of(entries: Sequence[Entry], made: Provenance) -> list[Entry]:
    """The evaluations of a checkpoint's base model.

    If the record has no bytes and two names differ in the owner alone (klue/bert, other/bert), the exact name decides.
    A checkpoint with the same base bytes is not a base, even if its own bytes still equal them (its run has learned nothing).
    """
    found = [one for one in entries if one.is_of(made.base, made.base_bytes) and not _began_from(one, made.base_bytes)]
    return [one for one in found if one.evaluation.checkpoint == slug(made.base)] or found


def find_reference(entries: Sequence[Entry], reference: str | None) -> int:
    """The entry of that name or path; default the base model in the most common window length, or the first entry."""
    if reference is None:
        base = next((entry for entry in entries if not entry.trained), None)
        return _as_long_as_most(entries, base) if base is not None else 0
    wanted = Path(reference)
    for number, entry in enumerate(entries):
        place = Path(entry.evaluation.path)
        if reference in (entry.name, entry.evaluation.checkpoint, entry.evaluation.path):
            return number
        if wanted.exists() and place.exists() and wanted.resolve() == place.resolve():
            return number
    raise ComparisonError(
        f"No evaluation of the reference {reference!r} here. {nearest(reference, [entry.name for entry in entries])}"
    )


def _as_long_as_most(entries: Sequence[Entry], base: Entry) -> int:
    """The base in the window length that most of its checkpoints have; the first of equals."""
    begun: Counter[int] = Counter()
    for entry in entries:
        if (made := entry.evaluation.provenance) is not None and base in bases_of(entries, made):
            begun[entry.evaluation.seq_len] += 1
    same = [number for number, one in enumerate(entries) if not one.trained and one.same_model_as(base)]
    return max(same, key=lambda number: begun[entries[number].evaluation.seq_len])


def own_base(entries: Sequence[Entry], entry: Entry, base: Entry | None) -> Entry | None:
    """A checkpoint's base, evaluated in windows of the same length; that of the study where it is one of several.

    A checkpoint without a training record is assumed to have the study's base.
    """
    made = entry.evaluation.provenance
    if made is None:
        return base
    length = entry.evaluation.seq_len
    found = [one for one in bases_of(entries, made) if one is not entry and one.evaluation.seq_len == length]
    return base if base in found else next(iter(found), None)


def references(entries: Sequence[Entry], first: Entry) -> list[Entry | None]:
    """The default reference of each entry: its base, or None if that was not evaluated.

    Any other model is compared with the reference that is the same model in other windows, else with `first`, unless it is a
    reference itself. If no base was evaluated, `first` is the reference of all but those that began from it: windows differ.
    """
    base = None if first.trained else first
    out = [own_base(entries, one, base) if one.trained or one.evaluation.provenance else None for one in entries]
    used = list({id(one): one for one in out if one is not None}.values())
    if not used:
        began = [made is not None and first in bases_of(entries, made) for made in (one.evaluation.provenance for one in entries)]
        return [None if own else first for own in began]
    other = first if first in used else used[0]
    for number, entry in enumerate(entries):
        if not entry.trained and entry.evaluation.provenance is None and entry not in used:
            out[number] = next((one for one in used if one.same_model_as(entry)), other)
    return out


def _began_from(entry: Entry, weights: str) -> bool:
    made = entry.evaluation.provenance
    return bool(weights and made and made.base_bytes == weights)
