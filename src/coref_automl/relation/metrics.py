"""KLUE-RE's metrics with intervals. In: gold labels, predictions, probabilities. Out: numbers from 0 to 100, or Estimates.

Micro-F1 leaves no_relation out; AUPRC averages the 30 areas under the precision-recall curve (trapezoids, from recall 0 at
precision 1, one point for each distinct probability). A label that gold does not hold has no curve and is left out of the
average; KLUE's dev set holds all 30.

Intervals and verdicts resample sentences, not rows: one sentence may carry several rows. A draw's AUPRC averages the labels
that the draw holds. Their values are fractions, as in every Estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.relation_results import LabelScore, Scores
from coref_automl.records import Estimate
from coref_automl.relation.rows import LABELS, NO_RELATION
from coref_automl.statistics.intervals import bootstrap_mean, from_draws
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.statistics.methods import method_verdict as judge
from coref_automl.statistics.resampling import resampled_f1

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
    areas = [area(gold == label, probabilities[:, label]) for label in np.unique(gold)]
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
    size, lines = len(LABELS), []
    confusion = np.bincount(gold * size + probabilities.argmax(1), minlength=size * size).reshape(size, size)
    for label, name in enumerate(LABELS):
        given = confusion[label]
        right, in_gold, predicted = int(given[label]), int(given.sum()), int(confusion[:, label].sum())
        wrong = np.where(np.arange(size) == label, 0, given)
        lines.append(
            LabelScore(
                label=name,
                gold=in_gold,
                predicted=predicted,
                precision=100.0 * right / predicted if predicted else 0.0,
                recall=100.0 * right / in_gold if in_gold else 0.0,
                f1=200.0 * right / (predicted + in_gold) if predicted + in_gold else 0.0,
                auprc=100.0 * area(gold == label, probabilities[:, label]) if in_gold else None,
                confused_with=LABELS[int(wrong.argmax())] if wrong.any() else "",
                given={LABELS[other]: int(given[other]) for other in np.flatnonzero(given)},
            )
        )
    return tuple(lines)


F1_DRAWS = 10_000
AUPRC_DRAWS = 1_000
_BLOCK = 100


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What one or more seeds say of the same rows: gold [n], probabilities [seeds, n, 30], sentence of each row."""

    gold: Ints
    probabilities: NDArray[np.float32]
    sentences: NDArray[np.str_]

    def per_seed(self, metric: str) -> Floats:
        """One value per seed, a fraction."""
        if metric == "auprc":
            return np.array([auprc(self.gold, one) for one in self.probabilities]) / 100
        return np.array([micro_f1(self.gold, one.argmax(1)) for one in self.probabilities]) / 100

    def draws(self, metric: str, seed: int) -> Floats:
        """The metric of resampled sentences, averaged over the seeds."""
        return auprc_by_draw(self, seed=seed) if metric == "auprc" else f1_draws(self, seed=seed)


def estimates(scored: Scored, *, seed: int = 0) -> dict[str, Estimate]:
    """The mean over seeds of each metric, with the interval that other sentences would give."""
    found = {
        metric: from_draws(float(scored.per_seed(metric).mean()), scored.draws(metric, seed), scored.sentences)
        for metric in ("micro_f1", "auprc")
    }
    right = (scored.probabilities.argmax(2) == scored.gold).mean(0)
    accuracy = bootstrap_mean(right, scored.sentences, seed=seed)
    return {**{metric: one.interval.within(0.0, 1.0) for metric, one in found.items()}, "accuracy": accuracy}


def method_verdict(a: Scored, b: Scored, *, metric: str = "micro_f1", seed: int = 0) -> MethodVerdict:
    """Is method a better than b? Their seeds are the same, in the same order.

    Shown only if neither other seeds nor other sentences can explain the difference.
    """
    each = a.per_seed(metric) - b.per_seed(metric)
    over = from_draws(float(each.mean()), a.draws(metric, seed) - b.draws(metric, seed), a.sentences)
    return judge(each, over.interval, over.error, over.held)


def f1_draws(scored: Scored, *, seed: int, draws: int = F1_DRAWS) -> Floats:
    """Micro-F1 of resampled sentences, averaged over the seeds."""
    predicted = scored.probabilities.argmax(2).T
    relation = scored.gold != NO_RELATION
    right = (predicted == scored.gold[:, None]) & relation[:, None]
    drawn = resampled_f1(right, predicted != NO_RELATION, relation, scored.sentences, seed=seed, draws=draws)
    return np.asarray(drawn.mean(1))


def auprc_by_draw(scored: Scored, *, seed: int, draws: int = AUPRC_DRAWS) -> Floats:
    """AUPRC of resampled sentences, averaged over the seeds."""
    _, sentence_of = np.unique(scored.sentences, return_inverse=True)
    count, rng, blocks = int(sentence_of.max()) + 1, np.random.default_rng(seed), []
    for start in range(0, draws, _BLOCK):
        block = min(_BLOCK, draws - start)
        drawn = rng.integers(0, count, size=(block, count)) + np.arange(block)[:, None] * count
        counts = np.bincount(drawn.ravel(), minlength=block * count).reshape(block, count)
        weights = counts[:, sentence_of].astype(np.float64)  # how often each row is drawn, one line per draw
        areas = [
            areas_by_draw(scored.gold == label, probabilities[:, label], weights)
            for probabilities in scored.probabilities
            for label in np.unique(scored.gold)
        ]
        blocks.append(np.nanmean(np.stack(areas), axis=0))
    return np.concatenate(blocks)
