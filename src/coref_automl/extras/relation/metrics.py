"""KLUE-RE's metrics with intervals. In: gold labels, predictions, probabilities. Out: numbers from 0 to 100, or Estimates.

Micro-F1 excludes no_relation; AUPRC averages the 30 areas under the precision-recall curve (trapezoids, from recall 0 at
precision 1, one point for each distinct probability). A label without gold rows has no curve and is left out of the average;
KLUE's dev set has all 30.

Intervals and verdicts resample sentences, not rows: one sentence may have several rows. A draw's AUPRC averages the labels that
occur in the draw. Their values are fractions, as in every Estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Estimate
from coref_automl.extras.relation.results import LabelScore, RowFacts, Scores
from coref_automl.extras.relation.rows import LABELS, NO_RELATION, Ints
from coref_automl.statistics.intervals import bootstrap_mean, from_draws
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.statistics.methods import method_verdict as judge
from coref_automl.statistics.resampling import Floats


def score(gold: Ints, probabilities: NDArray[np.floating]) -> Scores:
    """Compute all three scores; the prediction is the most probable label."""
    predicted = probabilities.argmax(1)
    return Scores(micro_f1(gold, predicted), auprc(gold, probabilities), 100.0 * float((predicted == gold).mean()), len(gold))


def micro_f1(gold: Ints, predicted: Ints) -> float:
    """2 TP / (predicted relations + gold relations); 0 if there are neither."""
    true_positives = int(((predicted == gold) & (gold != NO_RELATION)).sum())
    total = int((predicted != NO_RELATION).sum()) + int((gold != NO_RELATION).sum())
    return 200.0 * true_positives / total if total else 0.0


def auprc(gold: Ints, probabilities: NDArray[np.floating]) -> float:
    """Average the areas of the labels with gold rows."""
    areas = [area(gold == label, probabilities[:, label]) for label in np.unique(gold)]
    return 100.0 * float(np.mean(areas))


def area(positive: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    return float(areas_by_draw(positive, scores, np.ones((1, len(scores))))[0])


def areas_by_draw(positive: NDArray[np.bool_], scores: NDArray[np.floating], weights: Floats) -> Floats:
    """Compute the area for many weightings of the rows (bootstrap draws), one row of `weights` each; NaN without a positive."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last_of_ties = np.append(ordered[1:] != ordered[:-1], True)
    sorted_weights = weights[:, order]
    hits = np.cumsum(sorted_weights * positive[order], axis=1)[:, last_of_ties]
    retrieved = np.cumsum(sorted_weights, axis=1)[:, last_of_ties]
    total = hits[:, -1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(retrieved > 0, hits / retrieved, 1.0)
        recall = hits / total
        previous = np.concatenate([np.ones((len(weights), 1)), precision[:, :-1]], axis=1)
        steps = np.diff(recall, axis=1, prepend=0.0)
        return np.where(total[:, 0] > 0, (steps * (precision + previous) / 2).sum(axis=1), np.nan)


def label_table(gold: Ints, probabilities: NDArray[np.floating]) -> tuple[LabelScore, ...]:
    size, table = len(LABELS), []
    confusion = np.bincount(gold * size + probabilities.argmax(1), minlength=size * size).reshape(size, size)
    for label, name in enumerate(LABELS):
        predictions = confusion[label]
        right, in_gold, predicted = int(predictions[label]), int(predictions.sum()), int(confusion[:, label].sum())
        wrong = np.where(np.arange(size) == label, 0, predictions)
        table.append(
            LabelScore(
                label=name,
                gold=in_gold,
                predicted=predicted,
                precision=100.0 * right / predicted if predicted else 0.0,
                recall=100.0 * right / in_gold if in_gold else 0.0,
                f1=200.0 * right / (predicted + in_gold) if predicted + in_gold else 0.0,
                auprc=100.0 * area(gold == label, probabilities[:, label]) if in_gold else None,
                confused_with=LABELS[int(wrong.argmax())] if wrong.any() else "",
                given={LABELS[other]: int(predictions[other]) for other in np.flatnonzero(predictions)},
            )
        )
    return tuple(table)


AUPRC_DRAWS = 1_000
_BLOCK = 100


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Rows scored by one or more seeds: gold [n], probabilities [seeds, n, 30], sentence of each row."""

    gold: Ints
    probabilities: NDArray[np.float32]
    sentences: NDArray[np.str_]

    @property
    def facts(self) -> RowFacts:
        return RowFacts.answered(self.gold, self.probabilities.argmax(2).T, self.sentences)

    def per_seed(self, metric: str) -> Floats:
        """One value per seed, a fraction."""
        if metric == "auprc":
            return np.array([auprc(self.gold, of_seed) for of_seed in self.probabilities]) / 100
        return self.facts.f1()

    def draws(self, metric: str, seed: int) -> Floats:
        return auprc_by_draw(self, seed=seed) if metric == "auprc" else self.facts.draws(seed)


def estimates(scored: Scored, *, seed: int = 0) -> dict[str, Estimate]:
    """Estimate each metric's mean over seeds, with an interval over sentences."""
    intervals = {}
    for metric in ("micro_f1", "auprc"):
        bootstrap = from_draws(float(scored.per_seed(metric).mean()), scored.draws(metric, seed), scored.sentences)
        intervals[metric] = bootstrap.interval.within(0.0, 1.0)
    correct = (scored.probabilities.argmax(2) == scored.gold).mean(0)
    return {**intervals, "accuracy": bootstrap_mean(correct, scored.sentences, seed=seed)}


def method_verdict(a: Scored, b: Scored, *, metric: str = "micro_f1", seed: int = 0) -> MethodVerdict:
    """Judge method a against b; their seeds are the same, in the same order."""
    return _verdict(a.per_seed(metric) - b.per_seed(metric), a.draws(metric, seed) - b.draws(metric, seed), a.sentences)


@dataclass(frozen=True, slots=True, eq=False)
class SeedPairs:
    """Two sides on the same rows under the same fine-tuning seeds, one column each."""

    a: RowFacts
    b: RowFacts
    seeds: tuple[int, ...]

    def of(self, seeds: Sequence[int]) -> SeedPairs:
        columns = [self.seeds.index(seed) for seed in seeds]
        return SeedPairs(self.a.of(columns), self.b.of(columns), tuple(seeds))

    def differences(self) -> Floats:
        return self.a.f1() - self.b.f1()


def over_pairs(pairs: Sequence[SeedPairs], *, seed: int) -> tuple[int, MethodVerdict]:
    """Judge the first sides against the second, over pairs, fine-tuning seeds and sentences: (number of pairs, verdict).

    Fine-tuning seeds that all pairs share are crossed with the pairs. Pairs that all have one seed count as one: its luck is in
    each of them. A draw resamples the same sentences for all pairs.
    """
    crossed = len({number for pair in pairs for number in pair.seeds}) < sum(len(pair.seeds) for pair in pairs)
    if crossed and (common := [number for number in pairs[0].seeds if all(number in pair.seeds for pair in pairs)]):
        pairs = [pair.of(common) for pair in pairs]
        differences = np.stack([pair.differences() for pair in pairs])
    else:
        differences = np.array([pair.differences().mean() for pair in pairs])
        differences = differences[:, None] if crossed else differences  # no seed is in every pair: count them as one
    sentences = min((rows.sentences for pair in pairs for rows in (pair.a, pair.b)), key=lambda numbers: len(np.unique(numbers)))
    draws = np.mean([pair.a.draws(seed, sentences) - pair.b.draws(seed, sentences) for pair in pairs], axis=0)
    return 1 if differences.shape[1:] == (1,) else len(pairs), _verdict(differences, draws, sentences)


def _verdict(differences: Floats, draws: Floats, sentences: NDArray[Any]) -> MethodVerdict:
    """Judge a difference as shown only if neither other seeds nor other sentences can explain it."""
    over_sentences = from_draws(float(differences.mean()), draws, sentences)
    return judge(differences, over_sentences.interval, over_sentences.error, over_sentences.concentration)


def auprc_by_draw(scored: Scored, *, seed: int, draws: int = AUPRC_DRAWS) -> Floats:
    """Compute AUPRC of resampled sentences, averaged over the seeds."""
    _, sentence_of = np.unique(scored.sentences, return_inverse=True)
    count, rng, blocks = int(sentence_of.max()) + 1, np.random.default_rng(seed), []
    for start in range(0, draws, _BLOCK):
        block = min(_BLOCK, draws - start)
        sampled = rng.integers(0, count, size=(block, count)) + np.arange(block)[:, None] * count
        counts = np.bincount(sampled.ravel(), minlength=block * count).reshape(block, count)
        weights = counts[:, sentence_of].astype(np.float64)  # how often each row is sampled, one line per draw
        areas = [
            areas_by_draw(scored.gold == label, probabilities[:, label], weights)
            for probabilities in scored.probabilities
            for label in np.unique(scored.gold)
        ]
        blocks.append(np.nanmean(np.stack(areas), axis=0))
    return np.concatenate(blocks)
