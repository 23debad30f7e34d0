"""Losses. In: logits and gold labels. Out: one number to go down. Each part is off at weight 0."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def cross_entropy(logits: Any, gold: Any, *, smoothing: float = 0.0) -> Any:
    """The mean over rows; `smoothing` gives that share of the target to all labels alike."""
    return functional.cross_entropy(logits, gold, label_smoothing=smoothing)


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
