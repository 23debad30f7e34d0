"""Label smoothing, hard negatives, and steps as CUDA graphs. In: logits, gold labels, a step. Out: a loss, rows to repeat.

Hard negatives are the no_relation rows with the highest margin of a relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from coref_automl.extras.relation.model import BatchRows
from coref_automl.extras.relation.rows import IMPOSSIBLE, NO_RELATION, Ints
from deberta_kernels.fused_deberta import installed


def label_loss(logits: Any, gold: Any, smoothing: float = 0.0) -> Any:
    """The mean cross-entropy over rows.

    `smoothing` is spread uniformly over the labels that a mask has left possible.
    """
    log_p = functional.log_softmax(logits, -1)
    row_loss = -log_p.gather(1, gold[:, None])[:, 0]
    if smoothing:
        possible = logits.detach() > IMPOSSIBLE
        uniform = torch.where(possible, log_p, 0.0).sum(-1) / possible.sum(-1)
        row_loss = (1 - smoothing) * row_loss - smoothing * uniform
    return row_loss.mean()


def margins(logits: Any) -> Any:
    """The margin of the best relation over no_relation, per row; large where the model predicts a relation."""
    return logits[:, NO_RELATION + 1 :].amax(1) - logits[:, NO_RELATION]


def hard_negatives(gold: Ints, margin: NDArray[np.floating], share: float) -> Ints:
    """Select the `share` of no_relation rows with the largest margin, in row order; rows not seen yet (NaN) are excluded."""
    negatives = np.flatnonzero((gold == NO_RELATION) & ~np.isnan(margin))
    count = int(share * len(negatives))
    hardest = negatives[np.argsort(-margin[negatives], kind="stable")[:count]]
    return np.sort(hardest).astype(np.int64)


Step = Callable[[BatchRows], tuple[Any, Any]]
"""Forward and backward of one batch; returns detached loss and logits."""
CAPTURABLE = frozenset({"bert", "electra", "modernbert", "roberta", "xlm-roberta"})
"""Families whose step has no host-device sync, so that CUDA graphs can capture it; DeBERTa-v2 only with fused attention."""


def can_capture(model: Any, device: str) -> bool:
    family = model.config.model_type
    return device.startswith("cuda") and (family in CAPTURABLE or (family == "deberta-v2" and installed(model.encoder)))


class CudaGraphStep:
    """A step as CUDA graphs, one per batch width: the thousand short kernels of a small encoder's step take one launch. The few
    batches with fewer rows run eagerly. Gradients must stay in place: zero them between steps, do not set them to None.

    Loss and logits are overwritten by the next call.
    """

    def __init__(self, step: Step, weights: Sequence[Any], rows: int) -> None:
        self._step = step
        self._weights = weights
        self._rows = torch.zeros(rows, dtype=torch.int64, device=weights[0].device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[int, tuple[Any, Any, Any]] = {}

    def __call__(self, batch: BatchRows) -> tuple[Any, Any]:
        if len(batch.rows) != len(self._rows):
            return self._step(batch)
        self._rows.copy_(batch.rows)
        if batch.width not in self._graphs:
            self._graphs[batch.width] = self._capture(batch.width)
        graph, loss, logits = self._graphs[batch.width]
        graph.replay()
        return loss, logits

    def _capture(self, width: int) -> tuple[Any, Any, Any]:
        """Warm up on a side stream, where libraries initialize and gradients get their memory, then capture. The random state
        is restored, so that a resumed run draws the dropout of an uninterrupted one."""
        batch, device = BatchRows(self._rows, width), self._rows.device
        with torch.random.fork_rng(devices=[device]):
            side = torch.cuda.Stream(device)
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                self._step(batch)
            torch.cuda.current_stream(device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                loss, logits = self._step(batch)
            torch._foreach_zero_([weight.grad for weight in self._weights if weight.grad is not None])
        return graph, loss, logits
