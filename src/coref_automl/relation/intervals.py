"""Intervals and verdicts for relation extraction. In: gold, and each seed's predictions on the same rows. Out: Estimates.

Sentences are resampled, not rows: one sentence may carry several rows. A draw's AUPRC averages the labels that the draw holds.
Values are fractions, as in every Estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.records import Estimate
from coref_automl.relation.labels import LABELS, NO_RELATION
from coref_automl.relation.metrics import Floats, Ints, areas_by_draw, auprc, micro_f1
from coref_automl.statistics.intervals import bootstrap_mean
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.statistics.methods import method_verdict as judge
from coref_automl.statistics.resampling import resampled_f1

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
    n = len(scored.gold)
    predicted = scored.probabilities.argmax(2)
    right = (predicted == scored.gold).mean(0)
    f1 = float(np.mean([micro_f1(scored.gold, one) for one in predicted])) / 100
    area = float(np.mean([auprc(scored.gold, one) for one in scored.probabilities])) / 100
    return {
        "micro_f1": _estimate(f1, f1_draws(scored, seed=seed), n),
        "auprc": _estimate(area, auprc_by_draw(scored, seed=seed, draws=auprc_draws), n),
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
    over_sentences = _estimate(_value(a, metric) - _value(b, metric), draws, len(a.gold))
    return judge(_per_seed(a, metric) - _per_seed(b, metric), over_sentences, float(draws.std(ddof=1)))


def _per_seed(scored: Scored, metric: str) -> Floats:
    if metric == "auprc":
        return np.array([auprc(scored.gold, one) for one in scored.probabilities]) / 100
    return np.array([micro_f1(scored.gold, one.argmax(1)) for one in scored.probabilities]) / 100


def _value(scored: Scored, metric: str) -> float:
    return float(_per_seed(scored, metric).mean())


def _draws(scored: Scored, metric: str, seed: int) -> Floats:
    return auprc_by_draw(scored, seed=seed) if metric == "auprc" else f1_draws(scored, seed=seed)


def _estimate(value: float, draws: Floats, n: int) -> Estimate:
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(value, float(low), float(high), n)


def _row_weights(sentences: Sequence[str] | NDArray[np.str_], *, seed: int, draws: int) -> Iterator[Floats]:
    """How often each row is drawn when its sentence is, a row a draw, in blocks."""
    _, sentence_of = np.unique(np.asarray(sentences), return_inverse=True)
    count = int(sentence_of.max()) + 1
    rng = np.random.default_rng(seed)
    for start in range(0, draws, _BLOCK):
        block = min(_BLOCK, draws - start)
        drawn = rng.integers(0, count, size=(block, count)) + np.arange(block)[:, None] * count
        counts = np.bincount(drawn.ravel(), minlength=block * count).reshape(block, count)
        yield counts[:, sentence_of].astype(np.float64)
