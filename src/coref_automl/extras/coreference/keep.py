"""Which spans are mentions, seen from how they link. In: the chains of all spans above a low threshold. Out: a score per span.

Whether something is mentioned again is known only when everything is linked: a doubtful span with a sure antecedent is a mention,
and one that nothing refers to is none where only what recurs is marked. The weights are a logistic regression on dev documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coref_automl.extras.coreference.documents import Span
from coref_automl.extras.coreference.tokens import Ints

Floats = NDArray[np.float64]
LINKED_FROM = -4.0
"""Logit from which spans are linked before any is left out."""
_CUT = 0.35
"""Probability from which a span is kept: below one half, because a chain needs both its ends."""
_RIDGE = 1e-4


def link_features(
    spans: Sequence[Span],
    chains: Sequence[Sequence[int]],
    probabilities: Sequence[NDArray[np.float32]],
    logits: NDArray[np.float32],
    recurrence: Ints,
    width: Ints,
) -> Floats:
    """Features [spans, 16]; `recurrence` and `width` (tokens less one) are of the spans."""
    count = len(spans)
    own, incoming, size, others = (np.zeros(count) for _ in range(4))
    first = np.zeros(count, bool)
    for index, row in enumerate(probabilities):
        own[index], low = 1 - row[0], index - len(row) + 1
        incoming[low:index] = np.maximum(incoming[low:index], row[1:])
    for members in map(list, chains):
        total = logits[members].sum()
        size[members], first[members[0]] = len(members), True
        others[members] = (total - logits[members]) / (len(members) - 1) if len(members) > 1 else LINKED_FROM
    ends = np.array([end for _, end in spans], np.int64)
    inner, outer = np.zeros(count, bool), np.zeros(count, bool)
    inner[1:] = np.maximum.accumulate(ends)[:-1] >= ends[1:]  # spans are in order, outer before inner, and none cross
    outer[:-1] = ends[1:] <= ends[:-1]
    best = np.maximum(own, incoming)
    columns = (
        *(logits, np.maximum(logits, 0), own, incoming, best, best * logits, np.log1p(size), size == 2, first, first * best),
        *(others, recurrence == 0, recurrence == 1, inner, outer, np.log1p(width)),
    )
    return np.stack([column.astype(np.float64) for column in columns], 1)


def scores(features: Floats, weights: Sequence[float]) -> Floats:
    """A span is kept from 0 on; the first weight is the constant."""
    return np.asarray(features @ np.array(weights[1:]) + weights[0])


def fit(features: Floats, correct: NDArray[np.bool_]) -> tuple[float, ...]:
    """Fit the weights of `scores`."""
    import torch

    mean, spread = features.mean(0), features.std(0) + 1e-6
    inputs, targets = torch.from_numpy((features - mean) / spread), torch.from_numpy(correct.astype(np.float64))
    weights = torch.zeros(features.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        logits = inputs @ weights[1:] + weights[0]
        value = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets) + _RIDGE * weights[1:].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    fitted = weights.detach().numpy()
    plain = fitted[1:] / spread
    constant = fitted[0] - plain @ mean - math.log(_CUT / (1 - _CUT))
    return tuple(round(float(value), 5) for value in (constant, *plain))
