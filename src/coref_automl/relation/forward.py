"""Forward passes. In: a relation model and one side of the data on its device. Out: logits of a batch, or all probabilities."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coref_automl.models.precision import products, rounded, software_rounding
from coref_automl.progress import Progress, quiet
from coref_automl.relation.batches import Chosen, RowTensors, scoring_order
from coref_automl.relation.losses import masked
from coref_automl.relation.model import RelationModel


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side of the data on the device: tokens, gold labels, and each row's label mask (None when it is off)."""

    tensors: RowTensors
    gold: NDArray[np.int64]
    bias: Any | None = None


def probabilities(
    model: RelationModel, side: Side, precision: str, *, tokens: int | None = None, progress: Progress | None = None
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


def logits_of(model: RelationModel, side: Side, chosen: Chosen, precision: str, copies: int = 1) -> Any:
    batch = side.tensors.batch(chosen, copies)
    with autocast(side.tensors.device, precision):
        return model(batch.ids, batch.mask, batch.starts)


def autocast(device: str, precision: str) -> AbstractContextManager[None]:
    """bfloat16 where it pays (CUDA) unless told otherwise; weights and the loss stay in float32."""
    wanted = precision == "bfloat16" or (precision == "auto" and device.startswith("cuda"))
    return rounded(device, torch.bfloat16 if wanted else None)


def matmuls(precision: str) -> AbstractContextManager[None]:
    """tf32: a GPU's matrix units round inputs to ten bits. Without casts, the bundled encoder's step has 30% fewer operations."""
    return {"tf32": products(tf32=True), "bfloat16": software_rounding()}.get(precision, nullcontext())
