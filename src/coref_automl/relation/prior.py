"""The label prior, corrected. In: probabilities of new rows, what train says. Out: probabilities under the prior of these rows.

Train and the rows to label may hold the labels in other shares (KLUE-RE: no_relation 29% and 60%). The shares of the new rows are
estimated from the model's own answers to them, by expectation maximisation (Saerens, Latinne and Decaestecker, 2002); no label
of theirs is looked at. The model is calibrated first, by one temperature on the slice of train that chose the epoch: an
over-confident model has already decided, and the estimate would only repeat its mistakes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coref_automl.relation.labels import LABELS

Floats = NDArray[np.float64]
LEAST_ROWS = 200
"""Fewer rows say too little about 30 shares: their answers are left as they are."""

_STEPS = 1_000
_CLOSE = 1e-6


def shares(gold: NDArray[np.int64]) -> Floats:
    """How often each label occurs; a label that never does counts as half a row, so that none is impossible."""
    counts = np.maximum(np.bincount(gold, minlength=len(LABELS)), 0.5)
    return np.asarray(counts / counts.sum())


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


def corrected(probabilities: NDArray[np.floating], heat: float, source: Floats) -> tuple[NDArray[np.float32], Floats]:
    """(probabilities under the prior of these rows, that prior). `source` are the label shares of train."""
    calibrated = _normal(np.log(np.maximum(probabilities.astype(np.float64), 1e-30)) / heat)
    target = source.copy()
    for _ in range(_STEPS):
        weighted = calibrated * (target / source)
        weighted /= weighted.sum(1, keepdims=True)
        before, target = target, weighted.mean(0)
        if np.abs(target - before).max() < _CLOSE:
            break
    return weighted.astype(np.float32), target


def _normal(logs: Floats) -> Floats:
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
