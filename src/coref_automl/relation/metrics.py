"""KLUE-RE's metrics with intervals. In: gold labels, predictions, probabilities. Out: numbers from 0 to 100, or Estimates.

Micro-F1 leaves no_relation out; AUPRC averages the 30 areas under the precision-recall curve (trapezoids, from recall 0 at
precision 1, one point for each distinct probability). A label that gold does not hold has no curve and is left out of the
average; KLUE's dev set holds all 30.

Intervals and verdicts resample sentences, not rows: one sentence may carry several rows. A draw's AUPRC averages the labels
that the draw holds. Their values are fractions, as in every Estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coref_automl.records import Estimate, Record
from coref_automl.relation.labels import LABELS, NO_RELATION
from coref_automl.statistics.intervals import bootstrap_mean, from_draws
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.statistics.methods import method_verdict as judge
from coref_automl.statistics.resampling import resampled_f1

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
    """One line per label, in KLUE's order."""
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


F1_DRAWS = 10_000
AUPRC_DRAWS = 1_000
_BLOCK = 100


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What one or more seeds say of the same rows: gold [n], probabilities [seeds, n, 30], sentence of each row."""

    gold: Ints
    probabilities: NDArray[np.float32]
    sentences: NDArray[np.str_]


def estimates(scored: Scored, *, seed: int = 0, auprc_draws: int = AUPRC_DRAWS) -> dict[str, Estimate]:
    """The mean over seeds of each metric, with the interval that other sentences would give."""
    predicted = scored.probabilities.argmax(2)
    right = (predicted == scored.gold).mean(0)
    f1 = float(np.mean([micro_f1(scored.gold, one) for one in predicted])) / 100
    area = float(np.mean([auprc(scored.gold, one) for one in scored.probabilities])) / 100
    return {
        "micro_f1": _share(f1, f1_draws(scored, seed=seed), scored.sentences),
        "auprc": _share(area, auprc_by_draw(scored, seed=seed, draws=auprc_draws), scored.sentences),
        "accuracy": bootstrap_mean(right, scored.sentences, seed=seed),
    }


def f1_draws(scored: Scored, *, seed: int, draws: int = F1_DRAWS) -> Floats:
    """Micro-F1 of resampled sentences, averaged over the seeds."""
    predicted = scored.probabilities.argmax(2).T
    relation = np.repeat((scored.gold != NO_RELATION)[:, None], predicted.shape[1], axis=1)
    right = (predicted == scored.gold[:, None]) & relation
    drawn = resampled_f1(right, predicted != NO_RELATION, relation, scored.sentences, seed=seed, draws=draws)
    return np.asarray(drawn.mean(1))


def auprc_by_draw(scored: Scored, *, seed: int, draws: int = AUPRC_DRAWS) -> Floats:
    """AUPRC of resampled sentences, averaged over the seeds."""
    blocks = []
    for weights in _row_weights(scored.sentences, seed=seed, draws=draws):
        areas = [
            areas_by_draw(scored.gold == label, probabilities[:, label], weights)
            for probabilities in scored.probabilities
            for label in range(len(LABELS))
            if (scored.gold == label).any()
        ]
        blocks.append(np.nanmean(np.stack(areas), axis=0))
    return np.concatenate(blocks)


def method_verdict(a: Scored, b: Scored, *, metric: str = "micro_f1", seed: int = 0) -> MethodVerdict:
    """Is method a better than b? Their seeds are the same, in the same order.

    Shown only if neither other seeds nor other sentences can explain the difference.
    """
    draws = _draws(a, metric, seed) - _draws(b, metric, seed)
    over = from_draws(_value(a, metric) - _value(b, metric), draws, a.sentences)
    return judge(_per_seed(a, metric) - _per_seed(b, metric), over.interval, over.error, over.held)


def _per_seed(scored: Scored, metric: str) -> Floats:
    if metric == "auprc":
        return np.array([auprc(scored.gold, one) for one in scored.probabilities]) / 100
    return np.array([micro_f1(scored.gold, one.argmax(1)) for one in scored.probabilities]) / 100


def _value(scored: Scored, metric: str) -> float:
    return float(_per_seed(scored, metric).mean())


def _draws(scored: Scored, metric: str, seed: int) -> Floats:
    return auprc_by_draw(scored, seed=seed) if metric == "auprc" else f1_draws(scored, seed=seed)


def _share(value: float, draws: Floats, sentences: NDArray[np.str_]) -> Estimate:
    return from_draws(value, draws, sentences).interval.within(0.0, 1.0)


def _row_weights(sentences: Sequence[str] | NDArray[np.str_], *, seed: int, draws: int) -> Iterator[Floats]:
    """How often each row is drawn when its sentence is, one row per draw, in blocks."""
    _, sentence_of = np.unique(np.asarray(sentences), return_inverse=True)
    count = int(sentence_of.max()) + 1
    rng = np.random.default_rng(seed)
    for start in range(0, draws, _BLOCK):
        block = min(_BLOCK, draws - start)
        drawn = rng.integers(0, count, size=(block, count)) + np.arange(block)[:, None] * count
        counts = np.bincount(drawn.ravel(), minlength=block * count).reshape(block, count)
        yield counts[:, sentence_of].astype(np.float64)
