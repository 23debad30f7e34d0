"""Which rows a step sees, and as which tensors. In: a packed dataset, a seed, a batch size. Out: ids, positions, labels.

The order of an epoch depends on the recipe and the epoch alone. A step sees the effective batch, whatever the micro-batch and the
number of processes, so halving the micro-batch or adding a GPU changes no step.

The model's head runs at the target positions alone, so a batch lists them, flat over its rows. The list is padded to the expected
count, in units of 1/32 of the batch's tokens: almost every batch then has the same shapes, as a compiled step needs. So is the
list of documents, which packed attention takes instead of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from coref_automl.base.machine import end_with_parent
from coref_automl.corpus.dataset import PackedDataset, portions
from coref_automl.models.packed import layout
from coref_automl.training.loss import mention_table
from coref_automl.training.masking import IGNORED, OBJECTIVES, Masking, mask_row, mention_rates, row_rng

PAD_ROW = -1
"""Index of a padding row in the last micro-batch of an epoch; it has no labels."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """`lengths` are the rows' unpadded tokens; `batch` is the effective batch in rows. `weights` are each row's mean number of
    visits per epoch (None: one); the first `sorted_rows` of the run are sorted by `contexts`, short to long."""

    lengths: NDArray[np.int64]
    batch: int
    seed: int
    weights: NDArray[np.float64] | None = None
    contexts: NDArray[np.float64] | None = None
    sorted_rows: int = 0

    @classmethod
    def of(cls, dataset: PackedDataset, *, batch: int, seed: int, mix: Mapping[str, float] | None = None) -> BatchPlan:
        return cls(dataset.lengths(), batch, seed, dataset.row_weights(mix) if mix else None)

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch)

    @property
    def tokens_per_epoch(self) -> int:
        """Unpadded tokens of an epoch; a mean if there are weights."""
        return round(float((self.lengths * (1 if self.weights is None else self.weights)).sum()))

    @property
    def most_visits(self) -> int:
        return 1 if self.weights is None else math.ceil(self.weights.max())

    def order(self, epoch: int) -> NDArray[np.int64]:
        return visits(self, epoch) if self.weights is None else visits(self, epoch) % self.rows

    def tokens_after(self, steps: int) -> int:
        epoch, within = divmod(steps, self.steps_per_epoch)
        rest = int(self.lengths[self.order(epoch)[: within * self.batch]].sum()) if within else 0
        return _tokens_before(self, epoch) + rest


@lru_cache(maxsize=2)
def visits(plan: BatchPlan, epoch: int) -> NDArray[np.int64]:
    """Shuffle the rows of an epoch; eight bytes per row, however large the dataset.

    With weights, as many rows are taken by systematic sampling: each comes as often as its weight, rounded up or down. The k-th
    repetition of a row is the index row + k x rows.
    """
    rng = np.random.default_rng([plan.seed, epoch])
    order = rng.permutation(plan.rows)
    if plan.weights is not None:
        edges = np.minimum(np.ceil(np.cumsum(plan.weights[order]) - rng.random()), plan.rows).astype(np.int64)
        edges[-1] = plan.rows  # the sum of the weights, but for rounding
        times = np.diff(edges, prepend=0)
        repetition = np.arange(plan.rows) - np.repeat(np.cumsum(times) - times, times)
        order = rng.permutation(np.repeat(order, times) + plan.rows * repetition)
    if epoch == 0 and plan.contexts is not None:
        head = order[: plan.sorted_rows]
        order[: plan.sorted_rows] = head[np.argsort(plan.contexts[head % plan.rows], kind="stable")]
    return order


@lru_cache(maxsize=2)
def _tokens_before(plan: BatchPlan, epoch: int) -> int:
    if plan.weights is None:
        return epoch * plan.tokens_per_epoch
    return sum(int(plan.lengths[plan.order(number)].sum()) for number in range(epoch))


@dataclass(frozen=True, slots=True, eq=False)
class EpochSampler:
    """Indices of the current epoch: row + visit x rows, where visits count on over the epochs.

    The epoch comes from the step count when iteration begins, not from `set_epoch`, which restarts at 0 after a resumption. It is
    part of the index, so that worker processes mask exactly as a single process would.
    """

    plan: BatchPlan
    group: int
    step: Callable[[], int]

    def __len__(self) -> int:
        return -(-self.plan.rows // self.group) * self.group

    def __iter__(self) -> Iterator[int]:
        epoch = self.step() // self.plan.steps_per_epoch
        yield from (int(row) + epoch * self.plan.most_visits * self.plan.rows for row in visits(self.plan, epoch))
        yield from [PAD_ROW] * (len(self) - self.plan.rows)


def micro_batch(batch: int, most: int, processes: int = 1) -> int:
    """Return the largest micro-batch of at most `most` rows that divides a process's share of the batch."""
    share = batch // processes
    return max(size for size in range(1, max(1, min(most, share)) + 1) if share % size == 0)


_UNITS = 32
"""Numbers of targets and of mentions are rounded up: to 1/32 of a batch's tokens, and to a multiple of 32."""
_NO_MENTIONS = np.zeros((0, 4), np.int32)


class MaskedRow(NamedTuple):
    """Ids, document numbers and labels of one row; its `mention_table` if the objective has a mention loss."""

    ids: Any
    segments: Any
    labels: Any
    mentions: NDArray[np.int32] = _NO_MENTIONS


class MaskedRows(Dataset):  # type: ignore[misc]
    """Rows of a packed dataset, masked on access. An index is row + visit x rows, or PAD_ROW.

    Falling masking rates need the `plan` of the run and its number of `steps`.
    """

    def __init__(
        self, dataset: PackedDataset, masking: Masking, seed: int, plan: BatchPlan | None = None, steps: int = 1
    ) -> None:
        self._plan, self._steps = plan, steps
        self._sorted: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, np.int64))  # an epoch, and the argsort of its visits
        self._dataset: PackedDataset | None = dataset
        self._folder = dataset.folder.absolute()  # for workers, wherever they start
        self._seq_len = dataset.seq_len
        self._masking = masking
        self._seed = seed
        self._rows = len(dataset)
        self._with_mentions = bool(OBJECTIVES[masking.objective].losses)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> MaskedRow:
        dataset = self._opened()
        if index == PAD_ROW:
            row = dataset.row(0)
            return MaskedRow(np.asarray(row.tokens), row.segments, np.full(dataset.seq_len, IGNORED))
        visit, number = divmod(index, self._rows)
        row = dataset.row(number)
        masking = self._masking.at(self._progress(index)) if self._masking.falling else self._masking
        ids, labels = mask_row(row, masking, row_rng(self._seed, visit, number))
        return MaskedRow(ids, row.segments, labels, mention_table(row, labels) if self._with_mentions else _NO_MENTIONS)

    def _progress(self, index: int) -> float:
        """Return the fraction of the run's steps before the one that sees this row."""
        if self._plan is None:
            return 0.0
        epoch, visit = divmod(index, self._plan.most_visits * self._rows)
        order = visits(self._plan, epoch)
        if self._sorted[0] != epoch:
            self._sorted = epoch, np.argsort(order)
        position = int(self._sorted[1][np.searchsorted(order, visit, sorter=self._sorted[1])])
        return (epoch * self._plan.steps_per_epoch + position // self._plan.batch) / self._steps

    def _opened(self) -> PackedDataset:
        if self._dataset is None:  # in a worker process
            end_with_parent()
            self._dataset = PackedDataset.open(Path(self._folder)).cut_to(self._seq_len)
        return self._dataset

    def __getstate__(self) -> dict[str, Any]:
        # pickling a memory map would copy its content; a worker opens the files itself
        return {**self.__dict__, "_dataset": None}


@dataclass(frozen=True, slots=True)
class Collator:
    """Builds a batch from rows. It has capacity for `share` of its tokens as targets (more if there are more), and for `mentions`
    mentions per row, which is 0 without a mention loss. Rows have `documents` documents and `real` unpadded tokens on average,
    and these deviate by `deviation`: the layout of a batch has room for what nearly every batch has."""

    share: float
    mentions: int = 0
    documents: float = 1.0
    real: float = math.inf
    deviation: float = 0.0

    @classmethod
    def of(cls, dataset: PackedDataset, masking: Masking) -> Collator:
        """Take the capacity for the expected targets of this masking, and for the mentions of any row of the dataset."""
        most = 0
        if OBJECTIVES[masking.objective].losses:
            per_row = np.zeros(len(dataset), np.int32)
            for portion in portions(dataset.mentions):
                np.add.at(per_row, portion[:, 0], 1)
            most = int(per_row.max(initial=0))
        lengths, documents = dataset.lengths(), len(dataset.pieces) / max(1, len(dataset))
        share, mentions = expected_share(dataset, masking), -(-most // _UNITS) * _UNITS
        return cls(share, mentions, documents, float(lengths.mean()), float(lengths.std()))

    def __call__(self, rows: list[MaskedRow]) -> dict[str, torch.Tensor]:
        """Return `input_ids` and `segments` (rows, length), `positions` and `labels` flat over the batch, `starts` and
        `kept` of its `packed.layout`, and for a mention loss `mentions` (rows, capacity, 4)."""
        labels = np.stack([row.labels for row in rows]).reshape(-1)
        targets = np.flatnonzero(labels != IGNORED)
        unit = max(8, labels.size // _UNITS)
        capacity = max(1, math.ceil(max(len(targets), self.share * labels.size) / unit)) * unit
        positions = np.zeros(capacity, np.int64)
        target_labels = np.full(capacity, IGNORED, np.int64)
        positions[: len(targets)] = targets
        target_labels[: len(targets)] = labels[targets]
        segments = np.stack([row.segments for row in rows]).astype(np.int32)
        starts, kept = layout(segments, self._room(segments))
        most_starts = math.ceil(max(len(starts), _UNITS + 1.25 * self.documents * len(rows)) / _UNITS) * _UNITS
        batch = {
            "input_ids": torch.from_numpy(np.stack([row.ids for row in rows]).astype(np.int64)),
            "segments": torch.from_numpy(segments),
            "starts": torch.from_numpy(np.pad(starts, (0, most_starts - len(starts)), mode="edge")),
            "kept": torch.from_numpy(kept),
            "positions": torch.from_numpy(positions),
            "labels": torch.from_numpy(target_labels),
        }
        if self.mentions:
            mentions = np.zeros((len(rows), self.mentions, 4), np.int32)
            for row, padded in zip(rows, mentions, strict=True):
                padded[: len(row.mentions)] = row.mentions
            batch["mentions"] = torch.from_numpy(mentions)
        return batch

    def _room(self, segments: NDArray[np.int32]) -> int:
        """Return how many tokens the layout of these rows has: one of three numbers for all batches of as many rows."""
        rows, unit, real = len(segments), max(8, segments.size // 128), int((segments > 0).sum())
        for deviations in (2, 5):
            expected = rows * self.real + deviations * self.deviation * math.sqrt(rows)
            if real <= expected < segments.size:
                return min(segments.size, math.ceil(expected / unit) * unit)
        return segments.size


def expected_share(dataset: PackedDataset, masking: Masking) -> float:
    """Estimate the fraction of a batch's tokens that are targets: slightly above the mean."""
    tokens, mlm = len(dataset) * dataset.seq_len, 0.0
    for portion in portions(dataset.pieces):
        lengths = portion[:, 2].astype(np.float64)
        fill = 0.5 if masking.drawn or masking.falling else lengths / dataset.seq_len
        mlm += float(((masking.min_prob + (masking.max_prob - masking.min_prob) * fill) * lengths).sum()) / tokens
    in_mentions = sum(int((portion[:, 2] - portion[:, 1]).sum()) for portion in portions(dataset.mentions)) / tokens
    entity = masking.background * (1 - in_mentions) + _mean_rate(dataset, masking) * in_mentions
    ratio = OBJECTIVES[masking.objective].share(masking.ratio)
    return 1.02 * (ratio * entity + (1 - ratio) * mlm)


def _mean_rate(dataset: PackedDataset, masking: Masking) -> float:
    """Return the mean masking probability of a later mention, from the first rows."""
    if masking.far_weight == 1:
        return masking.entity_rate
    rates = [mention_rates(dataset.row(number).mentions, masking) for number in range(min(256, len(dataset)))]
    return float(np.concatenate(rates).mean()) if any(map(len, rates)) else masking.entity_rate
