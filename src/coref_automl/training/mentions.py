"""Losses between mentions. In: hidden states, which mentions are hidden. Out: summed losses, and how many mentions were found.

A hidden mention is known by its context alone. It must be found among the visible mentions of its document: those of its chain
are right, those of the other chains are wrong.

    copy   its first and last token, each through a projection, score the first and last tokens of the candidates
    link   its vector and theirs, projected into one space, are compared by their cosine over a temperature

Either way the loss is minus the log of the share of the softmax that falls on its chain: a negative that is hard to tell from it
weighs by itself. The projections are parameters of the objective, not of the model: they are saved with the optimizer's state.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from coref_automl.training.masking import IGNORED, MentionLoss, RowLike, later_mentions

UNUSED, SEEN, ASKED = 0, 1, 2
"""Roles of a mention: part of nothing, a candidate, hidden with something to find."""

_NEVER = -1e9


def table_of(row: RowLike, labels: NDArray[np.int64]) -> NDArray[np.int32]:
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
    return np.stack([first, end - 1, chain, np.where(asked, ASKED, np.where(seen, SEEN, UNUSED))], 1).astype(np.int32)


def asks_something(row: RowLike) -> bool:
    """Does a document of this row have two chains, one of them with a second mention?"""
    mentions = np.asarray(row.mentions)
    labels = np.full(len(row.tokens), IGNORED, np.int64)
    for start, end, _ in later_mentions(mentions):
        labels[start:end] = 0
    return bool((table_of(row, labels)[:, 3] == ASKED).any())


class MentionLosses(nn.Module):  # type: ignore[misc]
    """The projections of the losses that `weights` names. They begin as the identity, so that nothing is drawn for them."""

    def __init__(self, width: int, weights: dict[MentionLoss, float], temperature: float = 1.0) -> None:
        super().__init__()
        self.weights = weights
        self.temperature = temperature
        names = [name for loss in weights for name in _PROJECTIONS[loss]]
        self.projections = nn.ModuleDict({name: _identity(width) for name in names})

    def forward(self, hidden: Tensor, segments: Tensor, mentions: Tensor) -> Tensor:
        """(losses, 2): the loss summed over the asked mentions, and for how many of them the best candidate is of their chain.

        `mentions` (rows, room, 4) holds what `table_of` gives, filled up with zeros.
        """
        first, last, chain, role = mentions.long().unbind(-1)
        row = torch.arange(len(hidden), device=hidden.device)[:, None] * hidden.shape[1]
        document = segments.reshape(-1)[row + first]
        candidates = (document[:, :, None] == document[:, None, :]) & (role == SEEN)[:, None, :]
        own = candidates & (chain[:, :, None] == chain[:, None, :])
        with torch.autocast(hidden.device.type, enabled=False):  # a temperature of 0.07 makes much of a rounding
            flat = hidden.reshape(-1, hidden.shape[-1])
            ends = [flat.index_select(0, (row + at).reshape(-1)).reshape(*at.shape, -1).float() for at in (first, last)]
            scores = [self._copy(*ends) if name == "copy" else self._link(*ends) for name in self.weights]
            return torch.stack([_missed(score, candidates, own, role == ASKED) for score in scores])

    def _copy(self, first: Tensor, last: Tensor) -> Tensor:
        start, end = self.projections["copy_start"](first), self.projections["copy_end"](last)
        return (start @ first.transpose(1, 2) + end @ last.transpose(1, 2)) / first.shape[-1] ** 0.5

    def _link(self, first: Tensor, last: Tensor) -> Tensor:
        vectors = functional.normalize(self.projections["link"](first + last), dim=-1)
        return vectors @ vectors.transpose(1, 2) / self.temperature


_PROJECTIONS: dict[MentionLoss, tuple[str, ...]] = {"copy": ("copy_start", "copy_end"), "link": ("link",)}


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
