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

from coref_automl.models.attention import compiles, packed_masks
from coref_automl.models.heads import encode, predict
from coref_automl.training.masking import IGNORED
from coref_automl.training.mentions import ASKED, MentionLosses

HEAD = "mention_losses"
"""The name under which a model in training holds the projections of its objective."""

_DROPOUT_SETTINGS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "attention_dropout",
    "embedding_dropout",
    "mlp_dropout",
    "dropout",
    "pooler_dropout",
)


def loss_at(
    model: Any,
    input_ids: Tensor,
    mask: Any,
    positions: Tensor,
    labels: Tensor,
    segments: Tensor | None = None,
    mentions: Tensor | None = None,
) -> Tensor:
    """What a batch sums up to: the cross-entropy at the asked positions (flat over the batch); for each loss between mentions
    that loss, and the mentions that were found."""
    hidden = encode(model, input_ids, mask)
    asked = hidden.reshape(-1, hidden.shape[-1])[positions]
    logits = predict(model, asked)
    total = functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")[None]
    return total if mentions is None else torch.cat([total, getattr(model, HEAD)(hidden, segments, mentions).reshape(-1)])


_ROOMS = 64
"""How many sizes of asked positions a run may have: few rows at a time and drawn rates make more than the library's eight."""


def prepare_model(
    model: Any, *, cross_document: bool = False, compiled: bool = False, mention_losses: MentionLosses | None = None
) -> None:
    """Make `model(**batch)` give {"loss": ..., "sums": ...} for the batches of `training.batches`.

    `sums` is what `loss_at` gives, followed by the numbers of asked tokens and asked mentions. The method is replaced on the
    instance, so that what wraps a model in training (DDP, FSDP, autocast) wraps this, and what saves it still sees the model it
    knows; the projections of `mention_losses` become part of the instance for the same reason. `compiled` is
    ignored where it does not pay.
    """
    compiled = compiled and compiles(model)
    if compiled:
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _ROOMS)
    step = torch.compile(loss_at, dynamic=False) if compiled else loss_at
    if mention_losses is not None:
        model.add_module(HEAD, mention_losses.to(model.device))
    weights = tuple(mention_losses.weights.values()) if mention_losses is not None else ()

    def forward(
        self: Any,
        input_ids: Tensor,
        segments: Tensor,
        positions: Tensor,
        labels: Tensor,
        mentions: Tensor | None = None,
        num_items_in_batch: Any = None,
    ) -> dict[str, Tensor]:
        """`num_items_in_batch` are the asked tokens, and mentions, of the whole effective batch."""
        mask = (segments > 0).long() if cross_document else packed_masks(self, segments)
        sums = step(self, input_ids, mask, positions, labels, *(() if mentions is None else (segments, mentions)))
        here = asked_of(labels, mentions)
        items = here if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=sums.device).reshape(-1)
        items = items.clamp(min=1)
        loss = sums[0] / items[0]
        for number, weight in enumerate(weights):
            loss = loss + weight * sums[1 + 2 * number] / items[1]
        return {"loss": loss, "sums": torch.cat([sums.detach(), here])}

    model.forward = MethodType(forward, model)


def asked_of(labels: Tensor, mentions: Tensor | None) -> Tensor:
    """How many tokens a batch asks for, and how many mentions where a loss is between them."""
    tokens = labels.ne(IGNORED).sum()[None]
    return tokens if mentions is None else torch.cat([tokens, mentions[..., 3].eq(ASKED).sum()[None]])


def dropout_of(config: dict[str, Any]) -> dict[str, float]:
    """The dropout settings of a config.json, by name."""
    return {name: config[name] for name in _DROPOUT_SETTINGS if isinstance(config.get(name), int | float)}


def with_dropout(model: Any, share: float) -> Any:
    """The same weights in a model whose dropout is `share` everywhere.

    Built anew from the changed config: families leave a dropout of 0 out of their modules, where no later setting reaches it.
    """
    config = copy.deepcopy(model.config)
    for name in dropout_of(config.to_dict()):
        setattr(config, name, share)
    bare = {"add_pooling_layer": False} if getattr(model, "pooler", model) is None else {}
    with torch.random.fork_rng(devices=[]):
        changed = type(model)(config, **bare)
    changed.load_state_dict(model.state_dict())
    return changed.to(device=model.device, dtype=model.dtype)
