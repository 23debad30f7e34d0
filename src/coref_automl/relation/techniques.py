"""Losses and optional training techniques. In: logits, gold labels, a model. Out: a loss, rows to repeat.

`pushed` is one adversarial step (FGM) on the word embeddings. Hard negatives are the no_relation rows that the model took most
surely for a relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from coref_automl.relation.rows import NO_RELATION

IMPOSSIBLE = -1e3
"""A logit, or a mask's bias, from which down a label cannot be answered."""


@dataclass(frozen=True, slots=True, eq=False)
class LossSettings:
    """`smoothing` gives that share of the target to all possible labels alike. `gamma` is that of the focal loss, 0 without it;
    `weights`, one for each label, those of the class-balanced loss."""

    smoothing: float = 0.0
    gamma: float = 0.0
    weights: Any | None = None


def label_loss(logits: Any, gold: Any, settings: LossSettings) -> Any:
    """The mean cross-entropy over rows. Labels that a mask has made impossible get nothing of what is smoothed.

    Focal: a row counts (1 - p)^gamma of it, p the probability of its gold label. Class-balanced: rare labels count more.
    """
    log_p = functional.log_softmax(logits, -1)
    right = log_p.gather(1, gold[:, None])[:, 0]
    each = -right
    if settings.smoothing:
        possible = logits.detach() > IMPOSSIBLE
        spread = torch.where(possible, log_p, 0.0).sum(-1) / possible.sum(-1)
        each = (1 - settings.smoothing) * each - settings.smoothing * spread
    if settings.gamma:
        each = (1 - right.exp()) ** settings.gamma * each
    return (each if settings.weights is None else settings.weights[gold] * each).mean()


def effective_number_weights(gold: NDArray[np.int64], labels: int, beta: float) -> NDArray[np.float32]:
    """(1 - beta) / (1 - beta^n) for a label with n rows: repeats of a label bring less and less that is new.

    The mean over rows is 1, so that the rate means what it means without weights; a label without rows is given one.
    """
    counts = np.maximum(np.bincount(gold, minlength=labels), 1)
    weights = (1 - beta) / (1 - beta**counts)
    return np.asarray(weights / weights[gold].mean(), np.float32)


def r_drop(first: Any, second: Any) -> Any:
    """How far two passes of the same rows under different dropout are apart: the mean of both Kullback-Leibler divergences."""
    p, q = functional.log_softmax(first, -1), functional.log_softmax(second, -1)
    forth = functional.kl_div(q, p, log_target=True, reduction="batchmean")
    back = functional.kl_div(p, q, log_target=True, reduction="batchmean")
    return (forth + back) / 2


def masked(logits: Any, bias: Any, gold: Any | None = None) -> Any:
    """Logits with the label mask of each row's type pair. In training the gold label stays possible."""
    if gold is None:
        return logits + bias
    own = torch.zeros_like(bias).scatter_(1, gold[:, None], 1.0).bool()
    return logits + torch.where(own & (bias <= IMPOSSIBLE), torch.zeros_like(bias), bias)


@contextmanager
def pushed(table: Any, epsilon: float) -> Iterator[None]:
    """The word embeddings `epsilon` up the gradient that a backward pass left on them; a second pass adds to all gradients."""
    before = table.detach().clone()
    with torch.no_grad():
        table.add_(table.grad * (epsilon / (table.grad.norm() + 1e-12)))
    try:
        yield
    finally:
        with torch.no_grad():
            table.copy_(before)


def margins(logits: Any) -> Any:
    """The margin of the best relation over no_relation, per row; large where the model sees a relation."""
    return logits[:, NO_RELATION + 1 :].amax(1) - logits[:, NO_RELATION]


def hard_negatives(gold: NDArray[np.int64], margin: NDArray[np.floating], share: float) -> NDArray[np.int64]:
    """The `share` of no_relation rows with the largest margin, in row order; rows not seen yet (NaN) are never chosen."""
    negatives = np.flatnonzero((gold == NO_RELATION) & ~np.isnan(margin))
    count = int(share * len(negatives))
    hardest = negatives[np.argsort(-margin[negatives], kind="stable")[:count]]
    return np.sort(hardest).astype(np.int64)
