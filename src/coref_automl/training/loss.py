"""The losses of a training step. In: hidden states, labels, mentions. Out: a model whose call gives its loss, and its parts.

Masked-token loss: the head runs at the asked positions alone; on a vocabulary of 130,000 the other logits would be most of the
memory. Losses between mentions: a hidden mention, known by its context alone, must be found among the visible mentions of its
document; those of its chain are right, those of the other chains are wrong.

    copy   its first and last token, each through a projection, score the first and last tokens of the candidates
    link   its vector and theirs, projected into one space, are compared by their cosine over a temperature

Either is minus the log of the softmax mass on its chain. The projections are parameters of the objective, not of the model, and
are saved with the optimizer's state.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from coref_automl.config import choose
from coref_automl.models.execution import compiling_pays, packed_masks
from coref_automl.models.heads import encode, predict
from coref_automl.training.masking import IGNORED, MentionLoss, RowLike, later_mentions

HEAD = "mention_losses"
"""The name under which a model in training holds the projections of its objective."""

_DROPOUT_SETTINGS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "embedding_dropout", "mlp_dropout", "dropout",
    "pooler_dropout",
)  # fmt: skip


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
    compiled = compiled and compiling_pays(model)
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
        here = count_targets(labels, mentions)
        items = here if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=sums.device).reshape(-1)
        items = items.clamp(min=1)
        loss = sums[0] / items[0]
        for number, weight in enumerate(weights):
            loss = loss + weight * sums[1 + 2 * number] / items[1]
        return {"loss": loss, "sums": torch.cat([sums.detach(), here])}

    model.forward = MethodType(forward, model)


def count_targets(labels: Tensor, mentions: Tensor | None) -> Tensor:
    """How many tokens a batch asks for, and how many mentions where a loss is between them."""
    tokens = labels.ne(IGNORED).sum()[None]
    return tokens if mentions is None else torch.cat([tokens, mentions[..., 3].eq(TARGET).sum()[None]])


def named_losses(sums: Tensor, mention_losses: Sequence[str]) -> dict[str, float]:
    """What the `sums` of one or more batches amount to, by name: means over the asked tokens and over the asked mentions."""
    total, *parts, tokens, asked = sums.tolist()
    found = {"mlm_loss": total / max(1, tokens), "asked_mentions": int(asked)}
    for name, missed, met in zip(mention_losses, parts[::2], parts[1::2], strict=True):
        found |= {f"{name}_loss": missed / max(1, asked), f"{name}_accuracy": met / max(1, asked)}
    return found


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


UNUSED, CANDIDATE, TARGET = 0, 1, 2
"""Roles of a mention: part of nothing, a candidate, hidden with something to find."""

_NEVER = -1e9


def mention_table(row: RowLike, labels: NDArray[np.int64]) -> NDArray[np.int32]:
    """(first token, last token, chain, role) of every mention of a masked row.

    A candidate has no hidden token. A mention is asked for if all of its tokens are hidden and its document shows a mention of
    its chain and one of another: without the first nothing is right, without the second nothing is wrong.
    """
    first, end, chain = np.asarray(row.mentions).T
    before = np.concatenate([[0], np.cumsum(labels != IGNORED)])
    hidden = before[end] - before[first]
    seen = hidden == 0
    document = np.asarray(row.segments)[first]
    _, own = np.unique(document.astype(np.int64) << 32 | chain, return_inverse=True)
    mates = np.bincount(own, seen)[own]
    shown = np.bincount(document, seen)[document]
    asked = (hidden == end - first) & (mates > 0) & (shown > mates)
    return np.stack([first, end - 1, chain, np.where(asked, TARGET, np.where(seen, CANDIDATE, UNUSED))], 1).astype(np.int32)


def has_mention_target(row: RowLike) -> bool:
    """Does a document of this row have two chains, one of them with a second mention?"""
    mentions = np.asarray(row.mentions)
    labels = np.full(len(row.tokens), IGNORED, np.int64)
    for start, end, _ in later_mentions(mentions):
        labels[start:end] = 0
    return bool((mention_table(row, labels)[:, 3] == TARGET).any())


_PROJECTIONS = {"copy": ("copy_start", "copy_end"), "link": ("link",)}
"""What a loss between mentions learns."""


class MentionLosses(nn.Module):  # type: ignore[misc]
    """The projections of the losses that `weights` names. They begin as the identity, so that nothing is drawn for them."""

    def __init__(self, width: int, weights: dict[MentionLoss, float], temperature: float = 1.0) -> None:
        super().__init__()
        self.weights = weights
        self.temperature = temperature
        names = [name for loss in weights for name in choose(loss, _PROJECTIONS, "mention loss")]
        self.projections = nn.ModuleDict({name: _identity(width) for name in names})

    def forward(self, hidden: Tensor, segments: Tensor, mentions: Tensor) -> Tensor:
        """(losses, 2): the loss summed over the asked mentions, and for how many of them the best candidate is of their chain.

        `mentions` (rows, room, 4) holds what `mention_table` gives, filled up with zeros.
        """
        first, last, chain, role = mentions.long().unbind(-1)
        row = torch.arange(len(hidden), device=hidden.device)[:, None] * hidden.shape[1]
        document = segments.reshape(-1)[row + first]
        candidates = (document[:, :, None] == document[:, None, :]) & (role == CANDIDATE)[:, None, :]
        own = candidates & (chain[:, :, None] == chain[:, None, :])
        with torch.autocast(hidden.device.type, enabled=False):  # a temperature of 0.07 makes much of a rounding
            flat = hidden.reshape(-1, hidden.shape[-1])
            ends = [flat.index_select(0, (row + at).reshape(-1)).reshape(*at.shape, -1).float() for at in (first, last)]
            scores = [self._copy(*ends) if name == "copy" else self._link(*ends) for name in self.weights]
            return torch.stack([_missed(score, candidates, own, role == TARGET) for score in scores])

    def _copy(self, first: Tensor, last: Tensor) -> Tensor:
        start, end = self.projections["copy_start"](first), self.projections["copy_end"](last)
        return (start @ first.transpose(1, 2) + end @ last.transpose(1, 2)) / first.shape[-1] ** 0.5

    def _link(self, first: Tensor, last: Tensor) -> Tensor:
        vectors = functional.normalize(self.projections["link"](first + last), dim=-1)
        return vectors @ vectors.transpose(1, 2) / self.temperature


def _identity(width: int) -> nn.Linear:
    made = nn.utils.skip_init(nn.Linear, width, width)
    nn.init.eye_(made.weight)
    nn.init.zeros_(made.bias)
    return made


def _missed(scores: Tensor, candidates: Tensor, own: Tensor, asked: Tensor) -> Tensor:
    shown = scores.masked_fill(~candidates, _NEVER)
    missed = shown.logsumexp(-1) - scores.masked_fill(~own, _NEVER).logsumexp(-1)
    met = own.gather(-1, shown.argmax(-1, keepdim=True)).squeeze(-1) & asked
    return torch.stack([torch.where(asked, missed, 0.0).sum(), met.sum().float()])
