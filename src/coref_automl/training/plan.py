"""Which rows a step sees. In: a packed dataset, a seed and a batch size. Out: the order of rows, and the tokens up to a step.

The order of an epoch depends on (seed, epoch) alone. The effective batch is what a step sees whatever the micro-batch and however
many processes share it, so halving the micro-batch or adding a GPU changes no step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.dataset import PackedDataset

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
        """Real tokens seen when so many steps are done."""
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
