"""Intervals by document. In: each document's sums of every metric, from one or more seeds. Out: Estimates of F1.

Documents are drawn, and with them all their sums: a metric is a ratio of sums, and long documents weigh more. Few documents vary
less among themselves than new ones would: the percentiles are widened (Hesterberg) with Student's quantile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coref_automl.coreference.metrics import CONLL, METRICS, Ratio
from coref_automl.records import Estimate
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, t_quantile
from coref_automl.statistics.resampling import Part, gather, resampled_means

DRAWS = 10_000
Floats = NDArray[np.float64]
Scored = Sequence[dict[str, Ratio]]
"""One entry a document: its sums under every metric."""


def estimates(seeds: Sequence[Scored], *, draw: int = 0) -> dict[str, Estimate]:
    """F1 of every metric and of CoNLL, the mean over seeds, with its 95% interval over documents."""
    count, table = len(seeds[0]), _table(seeds)
    values = _f1s(table.mean(1))
    if count == 1:  # one document says nothing about the next
        return {name: Estimate(float(values[name].mean()), 0.0, 1.0, 1) for name in values}
    columns = table.transpose(1, 0, 2, 3).reshape(count, -1)
    drawn = resampled_means([gather(Part(columns, np.arange(count)))], seed=draw, draws=DRAWS)
    moved = _f1s(drawn.reshape(len(drawn) * len(seeds), len(METRICS), 4))
    tail = NORMAL.cdf(-math.sqrt(count / (count - 1)) * t_quantile((1 + LEVEL) / 2, count - 1))
    found = {}
    for name, value in values.items():
        low, high = np.quantile(moved[name].reshape(len(drawn), len(seeds)).mean(1), [tail, 1 - tail])
        found[name] = Estimate(float(value.mean()), float(low), float(high), count)
    return found


def _table(seeds: Sequence[Scored]) -> Floats:
    """Sums as numbers: seed, document, metric, (hit, gold, right, given)."""
    return np.array(
        [[[(r.hit, r.gold, r.right, r.given) for r in (scores[name] for name in METRICS)] for scores in seed] for seed in seeds]
    )


def _f1s(sums: Floats) -> dict[str, Floats]:
    """F1 of each metric and CoNLL from sums or means [..., metric, 4]."""
    recall = np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] > 0)
    precision = np.divide(sums[..., 2], sums[..., 3], out=np.zeros(sums.shape[:-1]), where=sums[..., 3] > 0)
    both = recall + precision
    f1 = np.divide(2 * recall * precision, both, out=np.zeros_like(both), where=both > 0)
    found = {name: f1[..., place] for place, name in enumerate(METRICS)}
    return {"conll": np.mean([found[name] for name in CONLL], axis=0), **found}
