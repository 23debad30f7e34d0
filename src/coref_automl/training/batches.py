"""Which rows a step sees, and as which tensors. In: a packed dataset, a seed, a batch size. Out: ids, positions, labels.

The order of an epoch depends on the recipe and the epoch alone. The effective batch is what a step sees whatever the micro-batch
and however many processes share it, so halving the micro-batch or adding a GPU changes no step.

The model's head runs at the asked positions alone, so a batch names them as one flat list. The list is filled up to the
expected count, in units of 1/32 of the batch's tokens: almost every batch then has the same shapes, which is what a compiled
step needs.
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

from coref_automl.corpus.dataset import PackedDataset, portions
from coref_automl.machine import end_with_parent
from coref_automl.training.loss import mention_table
from coref_automl.training.masking import IGNORED, OBJECTIVES, Masking, mask_row, mention_rates, row_rng

PAD_ROW = -1
"""A place in the last micro-batch of an epoch that no row fills: it is read and asked nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """`lengths` are the rows' real tokens; `batch` is the effective batch in rows. `weights` say how often a row comes in an
    epoch on average (None: once); the first `sorted_rows` of the run go from small `contexts` to large ones."""

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
        """With weights, on average."""
        return round(float((self.lengths * (1 if self.weights is None else self.weights)).sum()))

    @property
    def most_visits(self) -> int:
        return 1 if self.weights is None else math.ceil(self.weights.max())

    def order(self, epoch: int) -> NDArray[np.int64]:
        return visits(self, epoch) if self.weights is None else visits(self, epoch) % self.rows

    def tokens_after(self, steps: int) -> int:
        epoch, within = divmod(steps, self.steps_per_epoch)
        part = int(self.lengths[self.order(epoch)[: within * self.batch]].sum()) if within else 0
        return _tokens_before(self, epoch) + part


@lru_cache(maxsize=2)
def visits(plan: BatchPlan, epoch: int) -> NDArray[np.int64]:
    """All rows of the dataset, however large, in one random order: eight bytes a row.

    With weights as many are drawn at even distances along their sum, so that each comes its number of times, rounded up or down;
    one that has come before has the number of rows added for each time.
    """
    rng = np.random.default_rng([plan.seed, epoch])
    order = rng.permutation(plan.rows)
    if plan.weights is not None:
        edges = np.minimum(np.ceil(np.cumsum(plan.weights[order]) - rng.random()), plan.rows).astype(np.int64)
        edges[-1] = plan.rows  # which the weights sum up to, but for rounding
        times = np.diff(edges, prepend=0)
        again = np.arange(plan.rows) - np.repeat(np.cumsum(times) - times, times)
        order = rng.permutation(np.repeat(order, times) + plan.rows * again)
    if epoch == 0 and plan.contexts is not None:
        first = order[: plan.sorted_rows]
        order[: plan.sorted_rows] = first[np.argsort(plan.contexts[first % plan.rows], kind="stable")]
    return order


@lru_cache(maxsize=2)
def _tokens_before(plan: BatchPlan, epoch: int) -> int:
    if plan.weights is None:
        return epoch * plan.tokens_per_epoch
    return sum(int(plan.lengths[plan.order(number)].sum()) for number in range(epoch))


@dataclass(frozen=True, slots=True, eq=False)
class EpochSampler:
    """The rows of the epoch that training has come to, each with its epoch: row + visit x rows, visits counting over epochs.

    The epoch comes from the step count when iteration begins, not from `set_epoch`, which restarts at 0 after a resumption; it
    travels inside the index, so that worker processes mask exactly as one process would.
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


def micro_batch(batch: int, wanted: int, processes: int = 1) -> int:
    """The largest micro-batch up to `wanted` that divides a process's share of the batch."""
    share = batch // processes
    return max(size for size in range(1, max(1, min(wanted, share)) + 1) if share % size == 0)


_SHARE = 32
_NO_MENTIONS = np.zeros((0, 4), np.int32)


class MaskedRow(NamedTuple):
    """Ids, document numbers and labels of one row, and the mentions that a loss between them needs."""

    ids: Any
    segments: Any
    labels: Any
    mentions: NDArray[np.int32] = _NO_MENTIONS


class MaskedRows(Dataset):  # type: ignore[misc]
    """Rows of a packed dataset, masked when they are asked for. An index is row + visit x rows, or PAD_ROW.

    With a `plan` of so many steps (`last`) a row knows how far into the run it comes.
    """

    def __init__(self, dataset: PackedDataset, masking: Masking, seed: int, plan: BatchPlan | None = None, last: int = 1) -> None:
        self._plan, self._last = plan, last
        self._places: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, np.int64))
        self._dataset: PackedDataset | None = dataset
        self._folder = dataset.folder
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
        """The share of the steps before this row's, by the order of its epoch."""
        if self._plan is None:
            return 0.0
        epoch, visit = divmod(index, self._plan.most_visits * self._rows)
        order = visits(self._plan, epoch)
        if self._places[0] != epoch:
            self._places = epoch, np.argsort(order)
        place = int(self._places[1][np.searchsorted(order, visit, sorter=self._places[1])])
        return (epoch * self._plan.steps_per_epoch + place // self._plan.batch) / self._last

    def _opened(self) -> PackedDataset:
        if self._dataset is None:  # in a worker's process
            end_with_parent()
            self._dataset = PackedDataset.open(Path(self._folder)).cut_to(self._seq_len)
        return self._dataset

    def __getstate__(self) -> dict[str, Any]:
        # a memory map would be pickled as its whole content; a worker opens the files itself
        return {**self.__dict__, "_dataset": None}


@dataclass(frozen=True, slots=True)
class Collator:
    """Rows to a batch. `share` of the tokens is expected to be asked; there is room for that many even when fewer are.

    `mentions` is the room for a row's mentions; 0 where no loss is between them.
    """

    share: float
    mentions: int = 0

    @classmethod
    def of(cls, dataset: PackedDataset, masking: Masking) -> Collator:
        """Room for what this masking asks of this dataset, and for the mentions of any of its rows."""
        most = 0
        if OBJECTIVES[masking.objective].losses:
            held = np.zeros(len(dataset), np.int32)
            for part in portions(dataset.mentions):
                np.add.at(held, part[:, 0], 1)
            most = int(held.max(initial=0))
        return cls(expected_share(dataset, masking), -(-most // _SHARE) * _SHARE)

    def __call__(self, rows: list[MaskedRow]) -> dict[str, torch.Tensor]:
        """`input_ids` and `segments` (rows, length); `positions` and `labels` as flat lists over the whole batch; where a loss
        needs them, `mentions` (rows, room, 4)."""
        labels = np.stack([row.labels for row in rows]).reshape(-1)
        asked = np.flatnonzero(labels != IGNORED)
        unit = max(8, labels.size // _SHARE)
        room = max(1, math.ceil(max(len(asked), self.share * labels.size) / unit)) * unit
        positions = np.zeros(room, np.int64)
        targets = np.full(room, IGNORED, np.int64)
        positions[: len(asked)] = asked
        targets[: len(asked)] = labels[asked]
        batch = {
            "input_ids": torch.from_numpy(np.stack([row.ids for row in rows]).astype(np.int64)),
            "segments": torch.from_numpy(np.stack([row.segments for row in rows]).astype(np.int32)),
            "positions": torch.from_numpy(positions),
            "labels": torch.from_numpy(targets),
        }
        if self.mentions:
            mentions = np.zeros((len(rows), self.mentions, 4), np.int32)
            for row, place in zip(rows, mentions, strict=True):
                place[: len(row.mentions)] = row.mentions
            batch["mentions"] = torch.from_numpy(mentions)
        return batch


def expected_share(dataset: PackedDataset, masking: Masking) -> float:
    """The share of a batch's tokens that is asked, a little more than it is on average."""
    places, mlm = len(dataset) * dataset.seq_len, 0.0
    for part in portions(dataset.pieces):
        lengths = part[:, 2].astype(np.float64)
        fill = 0.5 if masking.drawn or masking.falling else lengths / dataset.seq_len
        mlm += float(((masking.min_prob + (masking.max_prob - masking.min_prob) * fill) * lengths).sum()) / places
    inside = sum(int((part[:, 2] - part[:, 1]).sum()) for part in portions(dataset.mentions)) / places
    entity = masking.background * (1 - inside) + _mean_rate(dataset, masking) * inside
    ratio = OBJECTIVES[masking.objective].share(masking.ratio)
    return 1.02 * (ratio * entity + (1 - ratio) * mlm)


def _mean_rate(dataset: PackedDataset, masking: Masking) -> float:
    """The mean probability of a later mention to be hidden, from the first rows."""
    if masking.far_weight == 1:
        return masking.entity_rate
    rates = [mention_rates(dataset.row(number).mentions, masking) for number in range(min(256, len(dataset)))]
    return float(np.concatenate(rates).mean()) if any(map(len, rates)) else masking.entity_rate
