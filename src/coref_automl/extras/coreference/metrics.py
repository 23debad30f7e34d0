"""The metrics of coreference, with intervals by document. In: chains of mentions, gold and predicted. Out: sums, F1s, Estimates.

Each metric is four sums (what recall and precision are ratios of), so that documents add up and can be resampled.
docs/coreference.md defines each with a worked example; tests compare them with the reference scorers' cases. Intervals resample
documents with all their sums: long documents weigh more. Few documents underestimate the variance of new ones: the percentiles
are widened (Hesterberg) with Student's quantile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Estimate, Record
from coref_automl.extras.coreference.results import CONLL
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, t_quantile
from coref_automl.statistics.methods import f1_of_sums
from coref_automl.statistics.resampling import Floats, Part, gather, resampled_means


def max_assignment(gains: Floats) -> float:
    """Sum the gains of the best one-to-one assignment (the Hungarian method, by shortest augmenting paths)."""
    gains = gains if gains.shape[0] <= gains.shape[1] else gains.T
    rows, columns = gains.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns + 1)
    row_of = np.full(columns + 1, -1)  # the last, virtual column holds the row to assign
    for row in range(rows):
        row_of[columns], column = row, columns
        distance, previous = np.full(columns, np.inf), np.full(columns, columns)
        done = np.zeros(columns + 1, bool)
        while row_of[column] >= 0:
            done[column], current = True, row_of[column]
            slack = -gains[current] - row_price[current] - column_price[:-1]
            nearer = ~done[:-1] & (slack < distance)
            distance[nearer], previous[nearer] = slack[nearer], column
            column = int(np.where(done[:-1], np.inf, distance).argmin())
            step = distance[column]
            row_price[row_of[done]] += step
            column_price[done] -= step
            distance -= step
        while column != columns:  # flip the path: each column on it takes the previous row
            row_of[column], column = row_of[previous[column]], previous[column]
    matched = np.flatnonzero(row_of[:-1] >= 0)
    return float(gains[row_of[matched], matched].sum())


Chain = frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class Ratio(Record):
    """Recall (`hit` / `gold`) and precision (`right` / `given`) as the sums they are ratios of; documents add up."""

    hit: float
    gold: float
    right: float
    given: float

    @property
    def recall(self) -> float:
        return self.hit / self.gold if self.gold else 0.0

    @property
    def precision(self) -> float:
        return self.right / self.given if self.given else 0.0

    @property
    def f1(self) -> float:
        total = self.recall + self.precision
        return 2 * self.recall * self.precision / total if total else 0.0

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(self.hit + other.hit, self.gold + other.gold, self.right + other.right, self.given + other.given)


def as_chains(chains: Iterable[Iterable[Hashable]], *, singletons: bool = True) -> list[Chain]:
    """Make chains disjoint: of two that claim a mention, the first keeps it."""
    seen: set[Hashable] = set()
    disjoint = []
    for chain in chains:
        mentions = frozenset(chain) - seen
        seen |= mentions
        if len(mentions) > (0 if singletons else 1):
            disjoint.append(mentions)
    return disjoint


def muc(gold: Sequence[Chain], predicted: Sequence[Chain]) -> Ratio:
    """Links: a chain of n mentions has n - 1, and keeps n minus the number of pieces the other side cuts it into."""
    return Ratio(*_links(gold, predicted), *_links(predicted, gold))


def b_cubed(gold: Sequence[Chain], predicted: Sequence[Chain]) -> Ratio:
    """For each mention, the fraction of its chain that is also in the other side's chain of it."""
    overlap = _overlaps(gold, predicted).astype(np.float64) ** 2
    sizes, given = _sizes(gold), _sizes(predicted)
    hit = float((overlap.sum(1) / np.maximum(sizes, 1)).sum())
    right = float((overlap.sum(0) / np.maximum(given, 1)).sum())
    return Ratio(hit, float(sizes.sum()), right, float(given.sum()))


def ceaf_e(gold: Sequence[Chain], predicted: Sequence[Chain]) -> Ratio:
    """Total similarity, 2 |both| / (|a| + |b|), of the best one-to-one assignment of chains; every chain counts once."""
    overlap = _overlaps(gold, predicted)
    similarity = 2 * overlap / np.maximum(_sizes(gold)[:, None] + _sizes(predicted)[None, :], 1)
    total = sum(max_assignment(similarity[np.ix_(rows, columns)]) for rows, columns in _components(overlap))
    return Ratio(total, float(len(gold)), total, float(len(predicted)))


def lea(gold: Sequence[Chain], predicted: Sequence[Chain]) -> Ratio:
    """Chains weighted by size, each resolved by the fraction of its links the other side has. A singleton is its own link."""
    return Ratio(*_resolved(gold, predicted), *_resolved(predicted, gold))


def mention(gold: Sequence[Chain], predicted: Sequence[Chain]) -> Ratio:
    mentions, given = (frozenset[Hashable]().union(*chains) for chains in (gold, predicted))
    both = float(len(mentions & given))
    return Ratio(both, float(len(mentions)), both, float(len(given)))


Metric = Callable[[Sequence[Chain], Sequence[Chain]], Ratio]
METRICS: dict[str, Metric] = {"muc": muc, "b_cubed": b_cubed, "ceaf_e": ceaf_e, "lea": lea, "mention": mention}


def score_document(
    gold: Iterable[Iterable[Hashable]], predicted: Iterable[Iterable[Hashable]], *, singletons: bool = True
) -> dict[str, Ratio]:
    a, b = as_chains(gold, singletons=singletons), as_chains(predicted, singletons=singletons)
    return {name: metric(a, b) for name, metric in METRICS.items()}


def sum_scores(documents: Iterable[dict[str, Ratio]]) -> dict[str, Ratio]:
    """Add the sums of documents: long documents weigh more, as in the reference scorers."""
    total = dict.fromkeys(METRICS, Ratio(0, 0, 0, 0))
    for scores in documents:
        total = {name: total[name] + scores[name] for name in METRICS}
    return total


def conll(scores: dict[str, Ratio]) -> float:
    return sum(scores[name].f1 for name in CONLL) / len(CONLL)


def _sizes(chains: Sequence[Chain]) -> Floats:
    return np.array([len(chain) for chain in chains], np.float64)


def _overlaps(a: Sequence[Chain], b: Sequence[Chain]) -> NDArray[np.int64]:
    """Count the mentions that each chain of a shares with each of b."""
    owner, table = _owners(b), np.zeros((len(a), len(b)), np.int64)
    for row, chain in enumerate(a):
        for mention in chain & owner.keys():
            table[row, owner[mention]] += 1
    return table


def _owners(chains: Sequence[Chain]) -> dict[Hashable, int]:
    return {mention: number for number, chain in enumerate(chains) for mention in chain}


def _links(a: Sequence[Chain], b: Sequence[Chain]) -> tuple[float, float]:
    owner = _owners(b)
    kept = total = 0
    for chain in a:
        pieces = len({owner[mention] for mention in chain & owner.keys()}) + len(chain - owner.keys())
        kept, total = kept + len(chain) - pieces, total + len(chain) - 1
    return float(kept), float(total)


def _resolved(a: Sequence[Chain], b: Sequence[Chain]) -> tuple[float, float]:
    owner = _owners(b)
    resolved = 0.0
    for chain in a:
        counts = Counter(owner[mention] for mention in chain & owner.keys())
        if len(chain) == 1:
            resolved += any(len(b[number]) == 1 for number in counts)
            continue
        links = sum(count * (count - 1) for count in counts.values())
        resolved += len(chain) * links / (len(chain) * (len(chain) - 1))
    return resolved, float(sum(len(chain) for chain in a))


def _components(overlap: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Connected components of chains that share mentions; each is assigned on its own."""
    unvisited = set(np.flatnonzero(overlap.any(1)).tolist())
    components = []
    while unvisited:
        rows, columns = {unvisited.pop()}, set[int]()
        while True:
            reached = set(np.flatnonzero(overlap[sorted(rows)].any(0)).tolist())
            if reached == columns:
                break
            columns = reached
            rows |= set(np.flatnonzero(overlap[:, sorted(columns)].any(1)).tolist())
        unvisited -= rows
        components.append((np.array(sorted(rows)), np.array(sorted(columns))))
    return components


DRAWS = 10_000
Scored = Sequence[dict[str, Ratio]]
"""One entry per document: its sums under every metric."""


def estimates(seeds: Sequence[Scored], *, draw: int = 0) -> dict[str, Estimate]:
    """Estimate F1 of every metric and CoNLL, the mean over seeds, with a 95% interval over documents."""
    return _weighted(seeds, np.full(len(seeds), 1 / len(seeds)), (0.0, 1.0), draw)


def difference(seeds: Sequence[Scored], other: Scored, *, draw: int = 0) -> dict[str, Estimate]:
    """Estimate the mean over seeds minus another answer to the same documents, resampled together."""
    weights = np.array([*[1 / len(seeds)] * len(seeds), -1.0])
    return _weighted([*seeds, other], weights, (-1.0, 1.0), draw)


def _weighted(answers: Sequence[Scored], weights: Floats, widest: tuple[float, float], draw: int) -> dict[str, Estimate]:
    """Estimate a weighted sum of answers' F1s; `widest` is the interval of a single document, which says nothing of others."""
    count, table = len(answers[0]), _table(answers)
    values = {name: float(value @ weights) for name, value in _f1s(table.mean(1)).items()}
    if count == 1:
        return {name: Estimate(value, *widest, 1) for name, value in values.items()}
    columns = table.transpose(1, 0, 2, 3).reshape(count, -1)
    draws = resampled_means([gather(Part(columns, np.arange(count)))], seed=draw, draws=DRAWS)
    resampled = _f1s(draws.reshape(len(draws) * len(answers), len(METRICS), 4))
    tail = NORMAL.cdf(-math.sqrt(count / (count - 1)) * t_quantile((1 + LEVEL) / 2, count - 1))
    intervals = {}
    for name, value in values.items():
        low, high = np.quantile(resampled[name].reshape(len(draws), len(answers)) @ weights, [tail, 1 - tail])
        intervals[name] = Estimate(value, float(low), float(high), count)
    return intervals


def _table(seeds: Sequence[Scored]) -> Floats:
    return np.array(
        [[[(r.hit, r.gold, r.right, r.given) for r in (scores[name] for name in METRICS)] for scores in seed] for seed in seeds]
    )


def _f1s(sums: Floats) -> dict[str, Floats]:
    """Compute F1 of each metric and CoNLL from sums or means [..., metric, 4]."""
    f1 = f1_of_sums(sums)
    by_metric = {name: f1[..., column] for column, name in enumerate(METRICS)}
    return {"conll": np.mean([by_metric[name] for name in CONLL], axis=0), **by_metric}
