"""What is learned from a stretch of a document. In: a model, tokens, gold mentions. Out: a loss.

Three parts: every stretch of tokens is a mention or not; a mention's last token is cut behind it; and the antecedents of a
mention that are in its chain have all the probability together (marginal log-likelihood), or having none has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from coref_automl.coreference.layout import Laid, Window
from coref_automl.coreference.model import CoreferenceModel
from coref_automl.coreference.pairs import quotations, surfaces

_LURES = 0.0
"""Stretches above this score that are no mentions stand among the candidates, as they will when the model finds its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Tokens `low:high` of a document, read in windows that do not overlap."""

    laid: Laid
    low: int
    high: int

    def windows(self, room: int) -> list[Window]:
        return [Window(a, min(self.high, a + room), a, min(self.high, a + room)) for a in range(self.low, self.high, room)]


def segment_losses(model: CoreferenceModel, parts: Sequence[Segment], quotes: dict[str, Any]) -> Any:
    """The mean loss of some segments; all their windows go through the encoder at once."""
    asked = [(part.laid, window) for part in parts for window in part.windows(model.room)]
    states = model.states_of(asked)
    total, done = 0.0, 0
    for part in parts:
        count = len(part.windows(model.room))
        total = total + _segment_loss(model, part, torch.cat(states[done : done + count]), quotes)
        done += count
    return total / len(parts)


def quotes_of(documents: Sequence[Laid]) -> dict[str, Any]:
    return {laid.document.id: quotations(laid.document.text) for laid in documents}


def _segment_loss(model: CoreferenceModel, part: Segment, states: Any, quotes: dict[str, Any]) -> Any:
    laid, head, device = part.laid, model.head, states.device
    inside = np.flatnonzero((laid.first >= part.low) & (laid.last < part.high))
    known = inside[laid.reachable[inside]] if len(inside) else inside
    first, last = laid.first[known] - part.low, laid.last[known] - part.low
    read = head.read(states, torch.from_numpy(laid.letters[part.low : part.high]).to(device))
    scores = head.stretches(read)
    wanted = torch.zeros_like(scores)
    wanted[torch.from_numpy(first), torch.from_numpy(last - first)] = 1.0
    scale = max(1, len(known))
    loss = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / scale
    if len(known):
        ends = torch.from_numpy(last).to(device)
        logits = head.trims(read[ends], torch.from_numpy(laid.sizes[laid.last[known]]).to(device))
        loss = loss + functional.cross_entropy(logits, torch.from_numpy(laid.trim[known]).to(device))
    if len(inside) > 1:
        loss = loss + _link_loss(model, part, read, scores.detach(), wanted, inside, quotes)
    return loss


def _link_loss(
    model: CoreferenceModel, part: Segment, read: Any, scores: Any, wanted: Any, inside: Any, quotes: dict[str, Any]
) -> Any:
    laid, device = part.laid, read.device
    lured = torch.nonzero((scores > _LURES) & (wanted == 0)).cpu().numpy()[: len(inside)]
    first = np.concatenate([laid.first[inside] - part.low, lured[:, 0]])
    last = np.concatenate([laid.last[inside] - part.low, lured[:, 0] + lured[:, 1]])
    entity = np.concatenate([laid.entity[inside], np.full(len(lured), -1)])
    spans = [laid.document.mentions[index].span for index in inside.tolist()]
    spans += [laid.span(part.low + a, part.low + a + w, 0) for a, w in lured.tolist()]
    order = np.array(sorted(range(len(spans)), key=lambda index: (spans[index][0], -spans[index][1])))
    first, last, entity = first[order], last[order], entity[order]
    own = surfaces(laid.document.text, [spans[index] for index in order], first, quotes[laid.document.id])
    shown = model.head.mentions(read[torch.from_numpy(first).to(device)], read[torch.from_numpy(last).to(device)])
    features = torch.from_numpy(own.of(slice(0, len(order)), slice(0, len(order)))).to(device)
    logits = model.head.antecedents(shown, shown, features)
    earlier = torch.ones_like(logits, dtype=torch.bool).tril(-1)
    logits = torch.cat([torch.zeros_like(logits[:, :1]), logits.masked_fill(~earlier, -1e4)], dim=1)
    same = (entity[:, None] == entity[None, :]) & (entity[:, None] >= 0) & np.tri(len(order), k=-1, dtype=bool)
    gold = torch.from_numpy(np.concatenate([~same.any(1, keepdims=True), same], axis=1)).to(device)
    asked = torch.from_numpy(entity >= 0).to(device)
    right = torch.logsumexp(logits.masked_fill(~gold, -1e4), 1) - torch.logsumexp(logits, 1)
    return -(right * asked).sum() / asked.sum()
