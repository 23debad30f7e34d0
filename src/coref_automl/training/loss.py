"""The losses of a training step. In: hidden states, labels, mentions. Out: a model whose call gives its loss, and its parts.

Masked-token loss: the head runs at the target positions alone; with a vocabulary of 130,000 the other logits would take most of
the memory. Mention losses: a hidden mention, represented by its context alone, must be found among the visible mentions of its
document; mentions of its chain are positives, those of other chains are negatives.

    copy   its first and last token, each through a projection, score the first and last tokens of the candidates
    link   its vector and those of the candidates, projected into one space, are compared by cosine over a temperature

Each is the negative log of the softmax mass on its chain. The projections are parameters of the objective, not of the model, and
are saved with the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from coref_automl.base.config import choose
from coref_automl.models.execution import compiling_pays, packed_masks
from coref_automl.models.heads import encode, predict
from coref_automl.models.packed import compile_layers
from coref_automl.training.masking import IGNORED, MentionLoss, RowLike, later_mentions

MODULE = "mention_losses"
"""The submodule of a model in training that holds the projections of its objective."""


def loss_at(
    model: Any,
    input_ids: Tensor,
    mask: Any,
    positions: Tensor,
    labels: Tensor,
    segments: Tensor | None = None,
    mentions: Tensor | None = None,
    score: Callable[..., Tensor] | None = None,
) -> Tensor:
    """Return the sums of a batch: the cross-entropy at the target positions (flat over the batch), then for each mention loss
    the loss and the number of correct mentions. `score` is `token_loss`, perhaps compiled."""
    hidden = encode(model, input_ids, mask)
    total = (score or token_loss)(model, hidden, positions, labels)
    return total if mentions is None else torch.cat([total, getattr(model, MODULE)(hidden, segments, mentions).reshape(-1)])


def token_loss(model: Any, hidden: Tensor, positions: Tensor, labels: Tensor) -> Tensor:
    """Return the summed cross-entropy (1) at the target positions."""
    logits = predict(model, hidden.reshape(-1, hidden.shape[-1])[positions])
    return functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")[None]


_RECOMPILE_LIMIT = 64
"""Distinct numbers of target positions in a run: small micro-batches and sampled masking rates exceed torch's limit of eight."""


def prepare_model(
    model: Any, *, cross_document: bool = False, compiled: bool = False, mention_losses: MentionLosses | None = None
) -> None:
    """Make `model(**batch)` return {"loss": ..., "sums": ...} for the batches of `training.batches`.

    `sums` is the result of `loss_at`, followed by the numbers of target tokens and target mentions. The method is replaced on the
    instance, so that DDP, FSDP and autocast wrap it and `save_pretrained` still sees the model's class; the projections of
    `mention_losses` become a submodule for the same reason. Compiled are each layer and each loss, not the step as a whole, which
    takes longer to build and runs slower; `compiled` is ignored where compiling does not pay.
    """
    compiled = compiled and compiling_pays(model)
    score = torch.compile(token_loss, dynamic=False) if compiled else token_loss
    if compiled:
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _RECOMPILE_LIMIT)
        torch._dynamo.config.suppress_errors = True  # what cannot be built here runs as it is, and torch warns
        compile_layers(model)
    if mention_losses is not None:
        model.add_module(MODULE, mention_losses.to(model.device))
        if compiled:
            mention_losses.compile(dynamic=False)
    weights = tuple(mention_losses.weights.values()) if mention_losses is not None else ()

    def forward(
        self: Any,
        input_ids: Tensor,
        segments: Tensor,
        positions: Tensor,
        labels: Tensor,
        starts: Tensor | None = None,
        kept: Tensor | None = None,
        mentions: Tensor | None = None,
        num_items_in_batch: Any = None,
    ) -> dict[str, Tensor]:
        """`num_items_in_batch`: target tokens, and target mentions, of the whole effective batch."""
        mask = (segments > 0).long() if cross_document else packed_masks(self, segments, starts, kept)
        sums = loss_at(self, input_ids, mask, positions, labels, segments, mentions, score)
        counts = count_targets(labels, mentions)
        items = counts if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=sums.device).reshape(-1)
        items = items.clamp(min=1)
        loss = sums[0] / items[0]
        for number, weight in enumerate(weights):
            loss = loss + weight * sums[1 + 2 * number] / items[1]
        return {"loss": loss, "sums": torch.cat([sums.detach(), counts])}

    model.forward = MethodType(forward, model)


def count_targets(labels: Tensor, mentions: Tensor | None) -> Tensor:
    """Count the target tokens of a batch, and with mention losses its target mentions."""
    tokens = labels.ne(IGNORED).sum()[None]
    return tokens if mentions is None else torch.cat([tokens, mentions[..., 3].eq(TARGET).sum()[None]])


def named_losses(sums: Tensor, mention_losses: Sequence[str]) -> dict[str, float]:
    """Turn the `sums` of one or more batches into means over target tokens and over target mentions, by name."""
    total, *parts, tokens, mentions = sums.tolist()
    means = {"mlm_loss": total / max(1, tokens), "asked_mentions": int(mentions)}
    for name, loss, correct in zip(mention_losses, parts[::2], parts[1::2], strict=True):
        means |= {f"{name}_loss": loss / max(1, mentions), f"{name}_accuracy": correct / max(1, mentions)}
    return means


UNUSED, CANDIDATE, TARGET = 0, 1, 2
"""Roles of a mention: in no loss; visible, to choose from; hidden, to be resolved."""

_MASKED_LOGIT = -1e9


def mention_table(row: RowLike, labels: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return (first token, last token, chain, role) of every mention of a masked row.

    A candidate has no hidden token. A target has only hidden tokens, and its document has candidates both of its chain and of
    another: otherwise the loss has no positive or no negative.
    """
    first, end, chain = np.asarray(row.mentions).T
    masked_before = np.concatenate([[0], np.cumsum(labels != IGNORED)])
    masked = masked_before[end] - masked_before[first]
    visible = masked == 0
    document = np.asarray(row.segments)[first]
    _, chain_of_document = np.unique(document.astype(np.int64) << 32 | chain, return_inverse=True)
    positives = np.bincount(chain_of_document, visible)[chain_of_document]
    candidates = np.bincount(document, visible)[document]
    target = (masked == end - first) & (positives > 0) & (candidates > positives)
    return np.stack([first, end - 1, chain, np.where(target, TARGET, np.where(visible, CANDIDATE, UNUSED))], 1).astype(np.int32)


def has_mention_target(row: RowLike) -> bool:
    """Tell whether a document of this row has two chains, one of them with a second mention."""
    mentions = np.asarray(row.mentions)
    labels = np.full(len(row.tokens), IGNORED, np.int64)
    for start, end, _ in later_mentions(mentions):
        labels[start:end] = 0
    return bool((mention_table(row, labels)[:, 3] == TARGET).any())


_PROJECTIONS = {"copy": ("copy_start", "copy_end"), "link": ("link",)}
"""The linear layers of each mention loss."""


class MentionLosses(nn.Module):  # type: ignore[misc]
    """The projections of the losses in `weights`. They start as the identity, so that no random number is needed for them."""

    def __init__(self, width: int, weights: dict[MentionLoss, float], temperature: float = 1.0) -> None:
        super().__init__()
        self.weights = weights
        self.temperature = temperature
        names = [name for loss in weights for name in choose(loss, _PROJECTIONS, "mention loss")]
        self.projections = nn.ModuleDict({name: _identity(width) for name in names})

    def forward(self, hidden: Tensor, segments: Tensor, mentions: Tensor) -> Tensor:
        """Return (losses, 2): the loss summed over the target mentions, and how many of them score a mention of their chain
        highest.

        `mentions` (rows, capacity, 4) are `mention_table`s padded with zeros.
        """
        first, last, chain, role = mentions.long().unbind(-1)
        row = torch.arange(len(hidden), device=hidden.device)[:, None] * hidden.shape[1]
        document = segments.reshape(-1)[row + first]
        candidates = (document[:, :, None] == document[:, None, :]) & (role == CANDIDATE)[:, None, :]
        positives = candidates & (chain[:, :, None] == chain[:, None, :])
        with torch.autocast(hidden.device.type, enabled=False):  # a temperature of 0.07 amplifies rounding errors
            flat = hidden.reshape(-1, hidden.shape[-1])
            ends = [flat.index_select(0, (row + end).reshape(-1)).reshape(*end.shape, -1).float() for end in (first, last)]
            scores = [self._copy(*ends) if name == "copy" else self._link(*ends) for name in self.weights]
            return torch.stack([_loss_and_correct(score, candidates, positives, role == TARGET) for score in scores])

    def _copy(self, first: Tensor, last: Tensor) -> Tensor:
        start, end = self.projections["copy_start"](first), self.projections["copy_end"](last)
        return (start @ first.transpose(1, 2) + end @ last.transpose(1, 2)) / first.shape[-1] ** 0.5

    def _link(self, first: Tensor, last: Tensor) -> Tensor:
        vectors = functional.normalize(self.projections["link"](first + last), dim=-1)
        return vectors @ vectors.transpose(1, 2) / self.temperature


def _identity(width: int) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, width, width)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _loss_and_correct(scores: Tensor, candidates: Tensor, positives: Tensor, targets: Tensor) -> Tensor:
    logits = scores.masked_fill(~candidates, _MASKED_LOGIT)
    loss = logits.logsumexp(-1) - scores.masked_fill(~positives, _MASKED_LOGIT).logsumexp(-1)
    correct = positives.gather(-1, logits.argmax(-1, keepdim=True)).squeeze(-1) & targets
    return torch.stack([torch.where(targets, loss, 0.0).sum(), correct.sum().float()])
