"""The label prior, corrected. In: probabilities of new rows, what train says. Out: probabilities under the prior of these rows.

Train and the rows to label may hold relations in other shares (KLUE-RE: no_relation 29% and 60%). The share of no_relation among
the new rows is estimated from the model's own answers to them, by expectation maximisation (Saerens, Latinne and Decaestecker,
2002); no label of theirs is looked at. It is one number, and the relations keep their proportions: in our one trial, estimating
all 30 shares did worse at every temperature. The model is calibrated first, by one temperature on the slice of train that chose
the epoch; the estimate hangs on it. The trial, with every setting tried, is in docs/relation-extraction.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coref_automl.relation.labels import NO_RELATION

Floats = NDArray[np.float64]
LEAST_ROWS = 200
"""Fewer rows say too little about a share: their answers are left as they are."""

_STEPS = 1_000
_CLOSE = 1e-6


def share(gold: NDArray[np.int64]) -> float:
    """How much of the rows is no_relation; never none or all, as if one more row of each kind were there."""
    return float((np.count_nonzero(gold == NO_RELATION) + 1) / (len(gold) + 2))


def temperature(probabilities: NDArray[np.floating], gold: NDArray[np.int64]) -> float:
    """What the logits should be divided by for the gold labels to be most probable; above 1 for an over-confident model."""
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-30))

    def loss(power: float) -> float:
        scaled = _normal(logs / 2.0**power)
        return float(-np.log(np.maximum(scaled[np.arange(len(gold)), gold], 1e-30)).mean())

    low, high = -2.0, 3.0
    golden = (5**0.5 - 1) / 2
    while high - low > 1e-4:  # the loss has one valley in 1 / temperature: golden section finds it
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return float(2.0 ** ((low + high) / 2))


def corrected(probabilities: NDArray[np.floating], heat: float, source: float) -> tuple[NDArray[np.float32], float]:
    """(probabilities under the prior of these rows, their share of no_relation). `source` is that share in train."""
    calibrated = _normal(np.log(np.maximum(probabilities.astype(np.float64), 1e-30)) / heat)
    none = calibrated[:, NO_RELATION]
    target = source
    for _ in range(_STEPS):
        here, there = none * target / source, (1 - none) * (1 - target) / (1 - source)
        before, target = target, float((here / (here + there)).mean())
        if abs(target - before) < _CLOSE:
            break
    ratio = np.full(calibrated.shape[1], (1 - target) / (1 - source))
    ratio[NO_RELATION] = target / source
    weighted = calibrated * ratio
    return (weighted / weighted.sum(1, keepdims=True)).astype(np.float32), target


def _normal(logs: Floats) -> Floats:
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
