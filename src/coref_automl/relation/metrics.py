"""KLUE-RE's metrics, by KLUE's own definitions. In: gold labels, predictions, probabilities. Out: numbers from 0 to 100.

Micro-F1 leaves no_relation out; AUPRC averages the 30 areas under the precision-recall curve (trapezoids, from recall 0 at
precision 1, one point for each distinct probability). A label that gold does not hold has no curve and is left out of the
average; KLUE's dev set holds all 30.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coref_automl.records import Record
from coref_automl.relation.labels import LABELS, NO_RELATION

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scores(Record):
    micro_f1: float
    auprc: float
    accuracy: float
    n: int


@dataclass(frozen=True, slots=True)
class LabelScore(Record):
    """One line of the per-label table. `given` counts the labels given to its rows: a line of the confusion matrix.

    `confused_with` is the wrong one among them that is given most often.
    """

    label: str
    gold: int
    predicted: int
    precision: float
    recall: float
    f1: float
    auprc: float | None
    confused_with: str
    given: dict[str, int] = field(default_factory=dict)


def score(gold: Ints, probabilities: NDArray[np.floating]) -> Scores:
    """All three numbers; the prediction is the most probable label."""
    predicted = probabilities.argmax(1)
    return Scores(micro_f1(gold, predicted), auprc(gold, probabilities), 100.0 * float((predicted == gold).mean()), len(gold))


def micro_f1(gold: Ints, predicted: Ints) -> float:
    """2 TP / (predicted relations + gold relations); 0 when there are neither."""
    right = int(((predicted == gold) & (gold != NO_RELATION)).sum())
    given = int((predicted != NO_RELATION).sum()) + int((gold != NO_RELATION).sum())
    return 200.0 * right / given if given else 0.0


def auprc(gold: Ints, probabilities: NDArray[np.floating]) -> float:
    """The mean area over the labels that gold holds."""
    areas = [area(gold == label, probabilities[:, label]) for label in range(len(LABELS)) if (gold == label).any()]
    return 100.0 * float(np.mean(areas))


def area(positive: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """The area under one precision-recall curve."""
    return float(areas_by_draw(positive, scores, np.ones((1, len(scores))))[0])


def areas_by_draw(positive: NDArray[np.bool_], scores: NDArray[np.floating], weights: Floats) -> Floats:
    """The same for many weightings of the rows (draws of a bootstrap), a row of `weights` each; NaN where no positive has any."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last_of_ties = np.append(ordered[1:] != ordered[:-1], True)
    sorted_weights = weights[:, order]
    hits = np.cumsum(sorted_weights * positive[order], axis=1)[:, last_of_ties]
    seen = np.cumsum(sorted_weights, axis=1)[:, last_of_ties]
    total = hits[:, -1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(seen > 0, hits / seen, 1.0)
        recall = hits / total
        before = np.concatenate([np.ones((len(weights), 1)), precision[:, :-1]], axis=1)
        steps = np.diff(recall, axis=1, prepend=0.0)
        return np.where(total[:, 0] > 0, (steps * (precision + before) / 2).sum(axis=1), np.nan)


def label_table(gold: Ints, probabilities: NDArray[np.floating]) -> tuple[LabelScore, ...]:
    """A line a label, in KLUE's order."""
    predicted = probabilities.argmax(1)
    confusion = confusion_matrix(gold, predicted)
    lines = []
    for label, name in enumerate(LABELS):
        right, in_gold, given = int(confusion[label, label]), int(confusion[label].sum()), int(confusion[:, label].sum())
        wrong = confusion[label].copy()
        wrong[label] = 0
        lines.append(
            LabelScore(
                label=name,
                gold=in_gold,
                predicted=given,
                precision=100.0 * right / given if given else 0.0,
                recall=100.0 * right / in_gold if in_gold else 0.0,
                f1=200.0 * right / (given + in_gold) if given + in_gold else 0.0,
                auprc=100.0 * area(gold == label, probabilities[:, label]) if in_gold else None,
                confused_with=LABELS[int(wrong.argmax())] if wrong.any() else "",
                given={LABELS[other]: int(confusion[label, other]) for other in np.flatnonzero(confusion[label])},
            )
        )
    return tuple(lines)


def confusion_matrix(gold: Ints, predicted: Ints) -> Ints:
    """Counts, gold down and predicted across."""
    size = len(LABELS)
    return np.bincount(gold * size + predicted, minlength=size * size).reshape(size, size)
