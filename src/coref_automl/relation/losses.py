"""Losses. In: logits and gold labels. Out: one number to go down. Which one a run takes is named in `LOSSES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional


@dataclass(frozen=True, slots=True, eq=False)
class LossSettings:
    """`smoothing` gives that share of the target to all labels alike; `gamma` is for focal, `weights` (a label) for balanced."""

    smoothing: float = 0.0
    gamma: float = 2.0
    weights: Any | None = None


PLAIN = LossSettings()


def cross_entropy(logits: Any, gold: Any, settings: LossSettings = PLAIN) -> Any:
    """The mean over rows."""
    return functional.cross_entropy(logits, gold, label_smoothing=settings.smoothing)


def focal(logits: Any, gold: Any, settings: LossSettings = PLAIN) -> Any:
    """A row counts (1 - p)^gamma of its cross-entropy, p the probability of its gold label: what is easy is left alone."""
    each = functional.cross_entropy(logits, gold, label_smoothing=settings.smoothing, reduction="none")
    right = functional.log_softmax(logits, -1).gather(1, gold[:, None])[:, 0].exp()
    return ((1 - right) ** settings.gamma * each).mean()


def class_balanced(logits: Any, gold: Any, settings: LossSettings = PLAIN) -> Any:
    """The mean over rows, each weighted by its label: rare labels count more."""
    return functional.cross_entropy(logits, gold, weight=settings.weights, label_smoothing=settings.smoothing)


LOSSES: dict[str, Callable[[Any, Any, LossSettings], Any]] = {
    "cross-entropy": cross_entropy,
    "focal": focal,
    "class-balanced": class_balanced,
}


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
    return logits + torch.where(own & (bias <= -1e3), torch.zeros_like(bias), bias)
