"""The forward pass of a training step. In: a masked language model. Out: the same model, whose call gives the loss where asked.

The head never sees the other positions: on a vocabulary of 130,000 their logits would be most of the memory.
"""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from coref_automl.models.attention import packed_masks
from coref_automl.models.heads import encode, predict
from coref_automl.training.masking import IGNORED

_DROPOUT_SETTINGS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
    "dropout",
    "pooler_dropout",
)


def loss_at(model: Any, input_ids: Tensor, mask: Any, positions: Tensor, labels: Tensor) -> Tensor:
    """The summed cross-entropy at the asked positions (flat over the batch)."""
    hidden = encode(model, input_ids, mask)
    asked = hidden.reshape(-1, hidden.shape[-1])[positions]
    logits = predict(model, asked)
    return functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")


def prepare_model(model: Any, *, cross_document: bool = False, compiled: bool = False) -> None:
    """Make `model(**batch)` give {"loss": ...} for the batches of `training.collation`.

    The method is replaced on the instance, so that what wraps a model in training (DDP, FSDP, autocast) wraps this, and what
    saves it still sees the model it knows.
    """
    step = torch.compile(loss_at, dynamic=False) if compiled else loss_at

    def forward(
        self: Any, input_ids: Tensor, segments: Tensor, positions: Tensor, labels: Tensor, num_items_in_batch: Any = None
    ) -> dict[str, Tensor]:
        mask = (segments > 0).long() if cross_document else packed_masks(self, segments)
        total = step(self, input_ids, mask, positions, labels)
        items = labels.ne(IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        return {"loss": total / torch.as_tensor(items, device=total.device).clamp(min=1)}

    model.forward = MethodType(forward, model)


def with_dropout(model: Any, share: float) -> Any:
    """The same weights in a model whose dropout is `share` everywhere.

    Built anew from the changed config: families leave a dropout of 0 out of their modules, where no later setting reaches it.
    """
    config = copy.deepcopy(model.config)
    for name in _DROPOUT_SETTINGS:
        if isinstance(getattr(config, name, None), int | float):
            setattr(config, name, share)
    bare = {"add_pooling_layer": False} if getattr(model, "pooler", model) is None else {}
    with torch.random.fork_rng(devices=[]):
        changed = type(model)(config, **bare)
    changed.load_state_dict(model.state_dict())
    return changed.to(device=model.device, dtype=model.dtype)
