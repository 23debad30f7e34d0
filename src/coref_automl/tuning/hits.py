"""What a trial got right, item by item, in a few hundred letters. In: item scores. Out: hits that travel through a storage.

A letter an item, items in the order of their ids: ten times the item's share of the metric. With them two trials on two machines
can be compared by the paired test, though neither sees the other's disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.evaluation.metrics import METRICS, hits
from coref_automl.records import ItemScore
from coref_automl.tuning.halves import tasks_of

_LETTERS = "0123456789a"


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a trial: the eighth of its budget, the metric on `select`, and its hits (a text a task; none for `re`)."""

    step: int
    value: float
    hits: tuple[str, ...] = ()


def encode_hits(scores: Iterable[ItemScore], metric: str) -> tuple[str, ...]:
    ordered = sorted(scores, key=lambda score: score.item)
    out = []
    for task in tasks_of(metric):
        values = np.zeros(sum(score.task == task for score in ordered))
        for name, weight in METRICS[metric].parts or ((metric, 1.0),):
            if METRICS[name].task == task:
                values += weight * hits(ordered, name)[1]
        out.append("".join(_LETTERS[round(10 * value)] for value in values))
    return tuple(out)


def decode_hits(texts: Sequence[str]) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.array([_LETTERS.index(letter) for letter in text], np.float64) / 10 for text in texts)
