"""Which rows a step sees, and as which tensors. In: a packed dataset, a seed, a batch size. Out: ids, positions, labels.

The order of an epoch depends on (seed, epoch) alone. The effective batch is what a step sees whatever the micro-batch and
however many processes share it, so halving the micro-batch or adding a GPU changes no step.

The model's head runs at the asked positions alone, so a batch names them as one flat list. The list is filled up to the
expected count, in units of 1/32 of the batch's tokens: almost every batch then has the same shapes, which is what a compiled
step needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from coref_automl.corpus.dataset import PackedDataset
from coref_automl.training.masking import IGNORED, OBJECTIVES, Masking, mask_row, row_rng

BLANK = -1
"""A place in the last micro-batch of an epoch that no row fills: it is read and asked nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """`lengths` are the rows' real tokens; `batch` is the effective batch in rows."""

    lengths: NDArray[np.int64]
    batch: int
    seed: int

    @classmethod
    def of(cls, dataset: PackedDataset, *, batch: int, seed: int) -> Plan:
        lengths = np.bincount(dataset.pieces[:, 0], weights=dataset.pieces[:, 2], minlength=len(dataset)).astype(np.int64)
        return cls(lengths, batch, seed)

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch)

    @property
    def tokens_per_epoch(self) -> int:
        return int(self.lengths.sum())

    def order(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, epoch]).permutation(self.rows)

    def rows_of_step(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """The epoch of a step (counted from 0) and its rows."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch, self.order(epoch)[within * self.batch : (within + 1) * self.batch]

    def tokens_after(self, steps: int) -> int:
        """Real tokens seen after `steps` steps."""
        epoch, within = divmod(steps, self.steps_per_epoch)
        part = int(self.lengths[self.order(epoch)[: within * self.batch]].sum()) if within else 0
        return epoch * self.tokens_per_epoch + part


@dataclass(frozen=True, slots=True, eq=False)
class EpochSampler:
    """The rows of the epoch that training has come to, each with its epoch: row + epoch x rows.

    The epoch comes from the step count when iteration begins, not from `set_epoch`, which restarts at 0 after a resumption; it
    travels inside the index, so that worker processes mask exactly as one process would.
    """

    plan: Plan
    group: int
    step: Callable[[], int]

    def __len__(self) -> int:
        return -(-self.plan.rows // self.group) * self.group

    def __iter__(self) -> Iterator[int]:
        epoch = self.step() // self.plan.steps_per_epoch
        yield from (self.plan.order(epoch) + epoch * self.plan.rows).tolist()
        yield from [BLANK] * (len(self) - self.plan.rows)


def micro_batch(batch: int, wanted: int, processes: int = 1) -> int:
    """The largest micro-batch up to `wanted` that divides a process's share of the batch."""
    share = batch // processes
    return max(size for size in range(1, max(1, min(wanted, share)) + 1) if share % size == 0)


_SHARE = 32


class MaskedRows(Dataset):  # type: ignore[misc]
    """Rows of a packed dataset, masked when they are asked for. An index is row + epoch x rows, or BLANK."""

    def __init__(self, dataset: PackedDataset, masking: Masking, seed: int) -> None:
        self._dataset: PackedDataset | None = dataset
        self._folder = dataset.folder
        self._seq_len = dataset.seq_len
        self._masking = masking
        self._seed = seed
        self._rows = len(dataset)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> tuple[Any, Any, Any]:
        """Ids, document numbers and labels of one row."""
        dataset = self._opened()
        if index == BLANK:
            row = dataset.row(0)
            return np.asarray(row.tokens), row.segments, np.full(dataset.seq_len, IGNORED)
        epoch, number = divmod(index, self._rows)
        row = dataset.row(number)
        ids, labels = mask_row(row, self._masking, row_rng(self._seed, epoch, number))
        return ids, row.segments, labels

    def _opened(self) -> PackedDataset:
        if self._dataset is None:
            self._dataset = PackedDataset.open(Path(self._folder)).cut_to(self._seq_len)
        return self._dataset

    def __getstate__(self) -> dict[str, Any]:
        # a memory map would be pickled as its whole content; a worker opens the files itself
        return {**self.__dict__, "_dataset": None}


@dataclass(frozen=True, slots=True)
class Collator:
    """Rows to a batch. `share` of the tokens is expected to be asked; there is room for that many even when fewer are."""

    share: float

    def __call__(self, rows: list[tuple[Any, Any, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids` and `segments` (rows, length); `positions` and `labels` as flat lists over the whole batch."""
        labels = np.stack([labels for _, _, labels in rows]).reshape(-1)
        asked = np.flatnonzero(labels != IGNORED)
        unit = max(8, labels.size // _SHARE)
        room = max(1, math.ceil(max(len(asked), self.share * labels.size) / unit)) * unit
        positions = np.zeros(room, np.int64)
        targets = np.full(room, IGNORED, np.int64)
        positions[: len(asked)] = asked
        targets[: len(asked)] = labels[asked]
        return {
            "input_ids": torch.from_numpy(np.stack([ids for ids, _, _ in rows]).astype(np.int64)),
            "segments": torch.from_numpy(np.stack([segments for _, segments, _ in rows]).astype(np.int32)),
            "positions": torch.from_numpy(positions),
            "labels": torch.from_numpy(targets),
        }


def expected_share(dataset: PackedDataset, masking: Masking) -> float:
    """The share of a batch's tokens that is asked, a little more than it is on average."""
    lengths = dataset.pieces[:, 2].astype(np.float64)
    rates = masking.min_prob + (masking.max_prob - masking.min_prob) * (0.5 if masking.drawn else lengths / dataset.seq_len)
    mlm = float((rates * lengths).sum() / dataset.tokens.size)
    inside = float((dataset.mentions[:, 2] - dataset.mentions[:, 1]).sum() / dataset.tokens.size)
    entity = masking.background * (1 - inside) + masking.entity_rate * inside
    rows = OBJECTIVES[masking.objective].entity_rows
    ratio = masking.ratio if rows is None else rows
    return 1.02 * (ratio * entity + (1 - ratio) * mlm)
