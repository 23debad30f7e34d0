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

from coref_automl.config import choose
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS, PRIMARY, WORD, strict_has_room
from coref_automl.evaluation.targets import CHECKPOINT, slug
from coref_automl.models.build import NEW
from coref_automl.records import Evaluation, Half, Task, grouped
from coref_automl.say import say
from coref_automl.statistics.methods import reciprocal
from coref_automl.statistics.resampling import Part

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
    """One evaluation in a group. `ranks[rule]` is aligned with the group's items; NOT_RUN if the item or rule was not run.
    `start` marks a checkpoint that others in the group were trained from, and the only one of its run."""

    name: str
    evaluation: Evaluation
    folder: Path
    ranks: dict[str, Ints]
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
    """Hits of entries on the items that all of them ran: one part per task, one column per entry, weights applied."""

    parts: list[Part]
    items: int
    documents: int
    dropped: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Items per document in ascending order; for a composite, those of its first task."""
        return np.sort(np.unique(self.parts[0].clusters, return_counts=True)[1])

    def differences(self, numbers: Sequence[int], references: Sequence[int]) -> list[Part]:
        """The columns with these numbers minus the columns of their references."""
        values = [np.asarray(part.values) for part in self.parts]
        return [Part(v[:, numbers] - v[:, references], part.clusters) for v, part in zip(values, self.parts, strict=True)]


@dataclass(frozen=True, slots=True)
class Group:
    """Evaluations on one set of items by one version of the scorer: only these may be compared. `left_out`: other dtypes."""

    evalset: str
    fingerprint: str
    scorer: str
    items: Items
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()

    @property
    def verdict_half(self) -> Half | None:
        """The documents that judge checkpoints against their base: `confirm`, or all (None) if no checkpoint was chosen.

        Nothing was chosen if every checkpoint is the planned end of its run. The correction covers all of them, so each
        verdict holds whichever one is looked at.
        """
        records = [entry.evaluation.provenance for entry in self.entries if entry.trained]
        unselected = bool(records) and all(provenance is not None and provenance.planned_end for provenance in records)
        return None if unselected else "confirm"

    @property
    def tokenizers(self) -> int:
        return len({entry.evaluation.fingerprints.get("tokenizer", "") for entry in self.entries})

    def was_run(self, metric: str, entry: Entry) -> bool:
        """Did an evaluation run every part of the metric?"""
        parts = [METRICS[name] for name, _ in METRICS[metric].parts or ((metric, 1.0),)]
        tasks = [(self.items.facts["task"] == part.task, part.rule) for part in parts]
        return all(rows.any() and bool((entry.ranks[rule][rows] != NOT_RUN).any()) for rows, rule in tasks)

    def reachable(self, task: Task) -> float:
        """The share of a task's answers that strict can reach (one vocabulary entry each), the lowest of all entries."""
        of_task = [entry.ranks["strict"][self.items.facts["task"] == task] for entry in self.entries]
        ranks = (of_entry[of_entry != NOT_RUN] for of_entry in of_task)
        return min((float((run > 0).mean()) for run in ranks if len(run)), default=1.0)

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
        """Hits of entries (default: all) on a metric, on one half of the documents or all, on the items of a mask. With `ranks`,
        reciprocal ranks, whose mean is MRR. Items that only some entries ran are dropped and counted."""
        chosen = self.entries if entries is None else entries
        by_task: dict[str, tuple[NDArray[np.float64], NDArray[Any]]] = {}
        dropped = 0
        for name, weight in METRICS[metric].parts or ((metric, 1.0),):
            part, rows = METRICS[name], np.asarray(self.items.facts["task"] == METRICS[name].task)
            rows = rows & (True if half is None else self.items.halves == half) & (True if mask is None else mask)
            ranked = np.stack([entry.ranks[part.rule][rows] for entry in chosen], axis=1)
            by_all, by_none = (ranked != NOT_RUN).all(axis=1), (ranked == NOT_RUN).all(axis=1)
            dropped += int((~by_all & ~by_none).sum())
            values = weight * (reciprocal(ranked[by_all]) if ranks else ((ranked > 0) & (ranked <= part.at))[by_all])
            weighted = by_task.get(str(part.task))
            by_task[str(part.task)] = (values + weighted[0] if weighted else values, self.items.facts["cluster"][rows][by_all])
        parts = [Part(values, clusters) for values, clusters in by_task.values()]
        counts = [len(values) for values, _ in by_task.values()]
        documents = sum(len(np.unique(clusters)) for _, clusters in by_task.values())
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


def choose_metric(group: Group, metric: str | None) -> tuple[str, list[str]]:
    """Return the metric to judge by, and notes on the choice. That is the requested metric, else strict Real@1, or `word` if
    tokenizers differ or strict can reach few answers."""
    common, several = group.metrics(), group.tokenizers > 1
    usable = [name for name in common if not several or (METRICS[name].rule == "word" and not METRICS[name].parts)]
    if metric is not None and choose(metric, METRICS, "metric").name not in usable:
        if several and metric in common:
            raise ComparisonError(
                f"These checkpoints have different tokenizers, so {metric} cannot compare them; "
                f"use --metric {usable[0] if usable else 'real_word'}."
            )
        raise ComparisonError(f"{metric} was not run on {group.evalset}. Run there: {', '.join(usable) or 'nothing comparable'}.")
    if not usable:
        models = shlex.join(dict.fromkeys(entry.evaluation.path for entry in group.entries))
        folder = next((path for entry in group.entries if (path := entry.evaluation.evalset_path)), "")
        models += f" --eval-set {shlex.quote(folder)}" if folder else ""
        raise ComparisonError(
            f"No metric was run by all of these; tokenizers may differ; run: coref-automl evaluate {models} --words sample"
        )
    if metric is not None or not several:
        reachable = group.reachable("real")
        chosen = metric or usual_metric(usable, reachable)
        return chosen, [_no_room_note(reachable, chosen)] if not strict_has_room(reachable) and PRIMARY in usable else []
    label = METRICS[usable[0]].label
    return usable[0], [say(f"토크나이저가 서로 달라 {label}만 비교합니다.", f"Tokenizers differ, so only {label} is compared.")]


def has_room(group: Group, metric: str) -> bool:
    """Can a metric show a difference? Strict cannot if it can reach few of the task's answers."""
    rule, task = METRICS[metric].rule, METRICS[metric].task
    return rule != "strict" or task is None or strict_has_room(group.reachable(task))


def usual_metric(metrics: Sequence[str], reachable: float) -> str:
    """Strict Real@1; `word` if strict can reach few of the answers; the first metric if Real was not run."""
    if PRIMARY in metrics:
        return PRIMARY if strict_has_room(reachable) or WORD not in metrics else WORD
    return metrics[0]


def _no_room_note(reachable: float, judged: str) -> str:
    label, share = METRICS[WORD].label, f"{100 * reachable:.1f}%"
    few = say(
        f"Real의 정답 가운데 어휘 한 항목인 것은 {share}뿐이라, 완전 일치로는 향상도 저하도 드러나지 않습니다.",
        f"Only {share} of Real's answers are one vocabulary entry, so strict shows neither a gain nor its absence there.",
    )
    if METRICS[judged].rule == "word":
        return say(f"{few} {label}로 판정합니다.", f"{few} {label} is judged.")
    return say(f"{few} word로 채점하세요: evaluate --words all.", f"{few} Score by word: evaluate --words all.")
