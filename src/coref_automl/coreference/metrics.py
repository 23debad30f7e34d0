"""The metrics of coreference, with intervals by document. In: chains of mentions, gold and predicted. Out: sums, F1s, Estimates.

Each metric is four sums (what recall and precision are ratios of), so that documents add up and can be resampled.
docs/coreference.md defines each with a worked example; the reference scorers' test cases hold them. Intervals draw documents, and
with them all their sums: long documents weigh more. Few documents vary less among themselves than new ones would: the percentiles
are widened (Hesterberg) with Student's quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.coreference.results import CONLL
from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, t_quantile
from coref_automl.statistics.methods import f1_of_sums
from coref_automl.statistics.resampling import Part, gather, resampled_means

Floats = NDArray[np.float64]


def best_total(gains: Floats) -> float:
    """The sum over the best pairing of rows with columns (the Hungarian method, by shortest augmenting paths)."""
    gains = gains if gains.shape[0] <= gains.shape[1] else gains.T
    rows, columns = gains.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns + 1)
    row_of = np.full(columns + 1, -1)  # the last column is a virtual one, which holds the row to be placed
    for row in range(rows):
        row_of[columns], column = row, columns
        reach, before = np.full(columns, np.inf), np.full(columns, columns)
        done = np.zeros(columns + 1, bool)
        while row_of[column] >= 0:
            done[column], current = True, row_of[column]
            slack = -gains[current] - row_price[current] - column_price[:-1]
            nearer = ~done[:-1] & (slack < reach)
            reach[nearer], before[nearer] = slack[nearer], column
            column = int(np.where(done[:-1], np.inf, reach).argmin())
            step = reach[column]
            row_price[row_of[done]] += step
            column_price[done] -= step
            reach -= step
        while column != columns:  # turn the path around: each column on it takes the row before
            row_of[column], column = row_of[before[column]], before[column]
    matched = np.flatnonzero(row_of[:-1] >= 0)
    return float(gains[row_of[matched], matched].sum())


Chain = frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class Ratio(Record):
    """Recall and precision as the sums they are ratios of; two documents add up."""

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
    """Chains in which every mention occurs once: where two chains claim it, the first one keeps it."""
    seen: set[Hashable] = set()
    found = []
    for chain in chains:
        own = frozenset(chain) - seen
        seen |= own
        if len(own) > (0 if singletons else 1):
            found.append(own)
    return found


def muc(gold: Sequence[Chain], given: Sequence[Chain]) -> Ratio:
    """Links: a chain of n mentions has n - 1; those kept are n less the pieces the other side cuts it into."""
    hit, total = _links(gold, given)
    right, offered = _links(given, gold)
    return Ratio(hit, total, right, offered)


def b_cubed(gold: Sequence[Chain], given: Sequence[Chain]) -> Ratio:
    """Mention by mention: the share of its chain that the other side's chain of it holds."""
    overlap = _overlaps(gold, given).astype(np.float64) ** 2
    sizes, offered = _sizes(gold), _sizes(given)
    hit = float((overlap.sum(1) / np.maximum(sizes, 1)).sum())
    right = float((overlap.sum(0) / np.maximum(offered, 1)).sum())
    return Ratio(hit, float(sizes.sum()), right, float(offered.sum()))


def ceaf_e(gold: Sequence[Chain], given: Sequence[Chain]) -> Ratio:
    """Chains paired one to one so that their similarity, 2 |both| / (|a| + |b|), adds up highest; a chain counts once."""
    overlap = _overlaps(gold, given)
    similarity = 2 * overlap / np.maximum(_sizes(gold)[:, None] + _sizes(given)[None, :], 1)
    total = sum(best_total(similarity[np.ix_(rows, columns)]) for rows, columns in _components(overlap))
    return Ratio(total, float(len(gold)), total, float(len(given)))


def lea(gold: Sequence[Chain], given: Sequence[Chain]) -> Ratio:
    """Chains by their size, each resolved by the share of its links the other side has. A singleton is its own one link."""
    hit, total = _resolved(gold, given)
    right, offered = _resolved(given, gold)
    return Ratio(hit, total, right, offered)


def mention(gold: Sequence[Chain], given: Sequence[Chain]) -> Ratio:
    wanted = {one for chain in gold for one in chain}
    offered = {one for chain in given for one in chain}
    both = float(len(wanted & offered))
    return Ratio(both, float(len(wanted)), both, float(len(offered)))


METRICS: dict[str, Callable[[Sequence[Chain], Sequence[Chain]], Ratio]] = {
    "muc": muc,
    "b_cubed": b_cubed,
    "ceaf_e": ceaf_e,
    "lea": lea,
    "mention": mention,
}


def score_document(
    gold: Iterable[Iterable[Hashable]], given: Iterable[Iterable[Hashable]], *, singletons: bool = True
) -> dict[str, Ratio]:
    a, b = as_chains(gold, singletons=singletons), as_chains(given, singletons=singletons)
    return {name: metric(a, b) for name, metric in METRICS.items()}


def added(documents: Iterable[dict[str, Ratio]]) -> dict[str, Ratio]:
    """The sums over documents: long documents weigh more, as in the reference scorers."""
    total = dict.fromkeys(METRICS, Ratio(0, 0, 0, 0))
    for scores in documents:
        total = {name: total[name] + scores[name] for name in METRICS}
    return total


def conll(scores: dict[str, Ratio]) -> float:
    return sum(scores[name].f1 for name in CONLL) / len(CONLL)


def _sizes(chains: Sequence[Chain]) -> Floats:
    return np.array([len(chain) for chain in chains], np.float64)


def _overlaps(a: Sequence[Chain], b: Sequence[Chain]) -> NDArray[np.int64]:
    """How many mentions each chain of a shares with each of b."""
    owner = {one: column for column, chain in enumerate(b) for one in chain}
    table = np.zeros((len(a), len(b)), np.int64)
    for row, chain in enumerate(a):
        for one in chain:
            if (column := owner.get(one)) is not None:
                table[row, column] += 1
    return table


def _links(a: Sequence[Chain], b: Sequence[Chain]) -> tuple[float, float]:
    owner = {one: number for number, chain in enumerate(b) for one in chain}
    kept = total = 0
    for chain in a:
        pieces = len({owner[one] for one in chain if one in owner}) + sum(one not in owner for one in chain)
        kept, total = kept + len(chain) - pieces, total + len(chain) - 1
    return float(kept), float(total)


def _resolved(a: Sequence[Chain], b: Sequence[Chain]) -> tuple[float, float]:
    owner = {one: number for number, chain in enumerate(b) for one in chain}
    resolved = 0.0
    for chain in a:
        if len(chain) == 1:
            (one,) = chain
            resolved += one in owner and len(b[owner[one]]) == 1
            continue
        counts: dict[int, int] = {}
        for one in chain:
            if one in owner:
                counts[owner[one]] = counts.get(owner[one], 0) + 1
        links = sum(count * (count - 1) for count in counts.values())
        resolved += len(chain) * links / (len(chain) * (len(chain) - 1))
    return resolved, float(sum(len(chain) for chain in a))


def _components(overlap: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Chains that share mentions, directly or through others: assignments in one do not touch another."""
    left = set(np.flatnonzero(overlap.any(1)).tolist())
    found = []
    while left:
        rows, columns = {left.pop()}, set[int]()
        while True:
            wider = set(np.flatnonzero(overlap[sorted(rows)].any(0)).tolist())
            if wider == columns:
                break
            columns = wider
            rows |= set(np.flatnonzero(overlap[:, sorted(columns)].any(1)).tolist())
        left -= rows
        found.append((np.array(sorted(rows)), np.array(sorted(columns))))
    return found


DRAWS = 10_000
Scored = Sequence[dict[str, Ratio]]
"""One entry a document: its sums under every metric."""


def estimates(seeds: Sequence[Scored], *, draw: int = 0) -> dict[str, Estimate]:
    """F1 of every metric and of CoNLL, the mean over seeds, with its 95% interval over documents."""
    return _weighted(seeds, np.full(len(seeds), 1 / len(seeds)), (0.0, 1.0), draw)


def difference(seeds: Sequence[Scored], other: Scored, *, draw: int = 0) -> dict[str, Estimate]:
    """How far the mean over seeds lies above another answer to the same documents, drawn together."""
    weights = np.array([*[1 / len(seeds)] * len(seeds), -1.0])
    return _weighted([*seeds, other], weights, (-1.0, 1.0), draw)


def _weighted(answers: Sequence[Scored], weights: Floats, widest: tuple[float, float], draw: int) -> dict[str, Estimate]:
    """A weighted sum of answers' F1s; `widest` is the interval of one document, which says nothing about the next."""
    count, table = len(answers[0]), _table(answers)
    values = {name: float(value @ weights) for name, value in _f1s(table.mean(1)).items()}
    if count == 1:
        return {name: Estimate(value, *widest, 1) for name, value in values.items()}
    columns = table.transpose(1, 0, 2, 3).reshape(count, -1)
    drawn = resampled_means([gather(Part(columns, np.arange(count)))], seed=draw, draws=DRAWS)
    moved = _f1s(drawn.reshape(len(drawn) * len(answers), len(METRICS), 4))
    tail = NORMAL.cdf(-math.sqrt(count / (count - 1)) * t_quantile((1 + LEVEL) / 2, count - 1))
    found = {}
    for name, value in values.items():
        low, high = np.quantile(moved[name].reshape(len(drawn), len(answers)) @ weights, [tail, 1 - tail])
        found[name] = Estimate(value, float(low), float(high), count)
    return found


def _table(seeds: Sequence[Scored]) -> Floats:
    return np.array(
        [[[(r.hit, r.gold, r.right, r.given) for r in (scores[name] for name in METRICS)] for scores in seed] for seed in seeds]
    )


def _f1s(sums: Floats) -> dict[str, Floats]:
    """F1 of each metric and CoNLL from sums or means [..., metric, 4]."""
    f1 = f1_of_sums(sums)
    found = {name: f1[..., place] for place, name in enumerate(METRICS)}
    return {"conll": np.mean([found[name] for name in CONLL], axis=0), **found}
