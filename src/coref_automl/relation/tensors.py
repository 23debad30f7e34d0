"""Rows as tensors on a device. In: marked rows. Out: batches of like length, logits, probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.models.precision import autocast, products, software_rounding
from coref_automl.progress import Progress, quiet
from coref_automl.relation.markers import MarkedRow, Marker
from coref_automl.relation.model import RelationModel
from coref_automl.relation.rows import LabelMask, RelationRow, gold_indices
from coref_automl.relation.techniques import masked

_POOL = 40
"""Batches' worth of shuffled rows that are sorted by length together: little padding, and still a random order."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Row numbers on the device, and how wide their batch is."""

    rows: Any
    width: int


@dataclass(frozen=True, slots=True)
class Batch:
    ids: Any
    mask: Any
    starts: Any


class RowTensors:
    """Marked rows on a device. `fixed` pads every row to one length, as the usual way does; only the benchmark asks for it."""

    def __init__(self, rows: Sequence[MarkedRow], pad: int, device: str, *, fixed: int | None = None) -> None:
        self.lengths = np.array([len(row.ids) for row in rows], np.int64)
        self._fixed = fixed
        self._pad = pad
        offsets = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self._flat = torch.from_numpy(np.concatenate([row.ids for row in rows]).astype(np.int64)).to(device)
        self._offsets = torch.from_numpy(offsets).to(device)
        self._sizes = torch.from_numpy(self.lengths).to(device)
        self._starts = torch.tensor([[row.subject_at, row.object_at] for row in rows], dtype=torch.int64, device=device)
        self.device = device

    def __len__(self) -> int:
        return len(self.lengths)

    def place(self, order: Sequence[NDArray[np.int64]]) -> list[Chosen]:
        """All batches of an order, on the device at once: a copy for every batch would hold up what launches the kernels."""
        widths = [self._fixed or self._width(int(self.lengths[chosen].max())) for chosen in order]
        parts = torch.from_numpy(np.concatenate(order)).to(self.device).split([len(chosen) for chosen in order])
        return [Chosen(rows, width) for rows, width in zip(parts, widths, strict=True)]

    def batch(self, chosen: Chosen, copies: int = 1) -> Batch:
        """The tokens of the chosen rows, all of them `copies` times."""
        index = chosen.rows.repeat(copies) if copies > 1 else chosen.rows
        columns = torch.arange(chosen.width, device=self.device)
        mask = columns < self._sizes[index, None]
        places = torch.where(mask, self._offsets[index, None] + columns, 0)
        ids = torch.where(mask, self._flat[places], self._pad)
        return Batch(ids, mask.long(), self._starts[index])

    def _width(self, longest: int) -> int:
        """On a GPU, multiples of eight: its matrix units work in such tiles."""
        return min(-(-longest // 8) * 8, int(self.lengths.max())) if self.device.startswith("cuda") else longest


def training_order(
    lengths: NDArray[np.int64], chosen: NDArray[np.int64], size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Batches of row numbers: every chosen row once, in a random order, neighbours of like length."""
    shuffled = rng.permutation(chosen)
    batches = []
    for low in range(0, len(shuffled), size * _POOL):
        pool = shuffled[low : low + size * _POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[at : at + size] for at in range(0, len(pool), size)]
    return [batches[number] for number in rng.permutation(len(batches))]


def scoring_order(lengths: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Batches for a forward pass: sorted by length, about `tokens` tokens each."""
    order = np.argsort(lengths, kind="stable")
    batches, low = [], 0
    while low < len(order):
        high = low + 1
        while high < len(order) and (high - low + 1) * lengths[order[high]] <= tokens:
            high += 1
        batches.append(order[low:high])
        low = high
    return batches


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """One side of the data on the device: tokens, gold labels, and each row's label mask (None when it is off)."""

    tensors: RowTensors
    gold: NDArray[np.int64]
    bias: Any | None = None

    @classmethod
    def of(
        cls, rows: Sequence[RelationRow], marked: Sequence[MarkedRow], marker: Marker, mask: LabelMask | None, device: str
    ) -> LabelledRows:
        tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
        return cls(tensors, gold_indices(rows), torch.from_numpy(mask.for_rows(rows)).to(device) if mask else None)


def probabilities(
    model: RelationModel, side: LabelledRows, precision: str, *, tokens: int | None = None, progress: Progress | None = None
) -> NDArray[np.float32]:
    """The distribution over labels for every row, in row order."""
    device = side.tensors.device
    tokens = tokens or (65_536 if device.startswith("cuda") else 4_096)
    model.eval()
    found = torch.empty((len(side.tensors), model.head[-1].out_features), device=device)
    rows = (progress or quiet()).stage("scoring", len(side.tensors), "rows")
    with torch.inference_mode(), matmuls(precision), rows as stage:
        for chosen in side.tensors.place(scoring_order(side.tensors.lengths, tokens)):
            logits = logits_of(model, side, chosen, precision)
            found[chosen.rows] = torch.softmax(logits if side.bias is None else masked(logits, side.bias[chosen.rows]), -1)
            stage.advance(len(chosen.rows))
    return found.cpu().numpy().astype(np.float32)  # type: ignore[no-any-return]


def logits_of(model: RelationModel, side: LabelledRows, chosen: Chosen, precision: str, copies: int = 1) -> Any:
    batch = side.tensors.batch(chosen, copies)
    with autocast(side.tensors.device, precision):
        return model(batch.ids, batch.mask, batch.starts)


def matmuls(precision: str) -> AbstractContextManager[None]:
    if precision == "float32":
        return products(tf32=False)
    return software_rounding() if precision == "bfloat16" else nullcontext()
