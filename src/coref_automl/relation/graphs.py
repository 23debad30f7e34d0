"""Steps, recorded. In: what one batch does to the gradients. Out: the same step, launched as a whole.

A step of a small encoder is a thousand short kernels, and the time goes into launching them one by one. A CUDA graph launches all
of them with one call. It holds for one width and one number of rows: each width is recorded when it first comes, and the few
batches with fewer rows run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from coref_automl.models.fused_deberta import installed
from coref_automl.relation.model import Chosen

Step = Callable[[Chosen], tuple[Any, Any]]
"""Adds a batch's gradients to those of the weights; its loss and its logits come back, detached."""

FAMILIES = frozenset({"bert", "electra", "modernbert", "roberta", "xlm-roberta"})
"""Those that never wait for the GPU in a step, which a recording does not allow; DeBERTa-v2 does not with fused attention."""


def recordable(model: Any, device: str) -> bool:
    if not device.startswith("cuda"):
        return False
    return model.config.model_type in FAMILIES or (model.config.model_type == "deberta-v2" and installed(model.encoder))


class Recorded:
    """A step as graphs, one per width. Gradients must stay where they are: set them to zero between steps, not to None.

    Loss and logits are those of the last call; the next one overwrites them.
    """

    def __init__(self, step: Step, weights: Sequence[Any], rows: int) -> None:
        self._step = step
        self._weights = weights
        self._rows = torch.zeros(rows, dtype=torch.int64, device=weights[0].device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[int, tuple[Any, Any, Any]] = {}

    def __call__(self, chosen: Chosen) -> tuple[Any, Any]:
        if len(chosen.rows) != len(self._rows):
            return self._step(chosen)
        self._rows.copy_(chosen.rows)
        if chosen.width not in self._graphs:
            self._graphs[chosen.width] = self._record(chosen.width)
        graph, loss, logits = self._graphs[chosen.width]
        graph.replay()
        return loss, logits

    def _record(self, width: int) -> tuple[Any, Any, Any]:
        """One pass beside the others first: libraries set themselves up in it, and gradients find their place. No draw of
        dropout is used up, so that a resumed run draws what an uninterrupted one does."""
        chosen, device = Chosen(self._rows, width), self._rows.device
        with torch.random.fork_rng(devices=[device]):
            beside = torch.cuda.Stream(device)
            beside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(beside):
                self._step(chosen)
            torch.cuda.current_stream(device).wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                loss, logits = self._step(chosen)
            torch._foreach_zero_([weight.grad for weight in self._weights if weight.grad is not None])
        return graph, loss, logits
