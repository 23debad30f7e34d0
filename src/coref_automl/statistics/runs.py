"""What the runs of a study say together. In: run means by method, scores, fingerprints. Out: variances, copies, diverged runs.

Three seeds know the variance of their method badly, eighteen runs of six methods know it well: it is pooled, except for a method
whose own runs vary more than the others' (`seed_variances`). A copy of a run is no further seed (`copies`), and a run that lies
far outside its method is named (`diverged`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.statistics.closed_forms import NORMAL, f_as_normal, t_quantile
from coref_automl.statistics.resampling import Floats

_OWN = {1: 0.4, 2: 0.3}
_OWN_OF_MORE = 0.2
"""One-sided levels of the test that keeps a method's own variance, by its degrees of freedom. Set by simulation."""
_CLEAR = 0.05
"""Over the number of methods: the level at which a noisy method leaves the pool of the others."""
_NO_SPREAD = 1e-24
_BY_CHANCE, _AT_MOST = 0.05, 6.0
_DISTANCE = 0.954
"""The median distance of two normal numbers, in standard deviations."""
MOST_DEVIATIONS, FEWEST_RUNS = 4.0, 4
"""A run this many standard deviations off has diverged, in studies of at least so many runs."""


@dataclass(frozen=True, slots=True)
class SeedVariances:
    """The variance of a single run of each method, and its degrees of freedom; the last axis are the methods.

    `own` are methods whose runs vary more than those of the others, so that their own variance counts.
    """

    variances: Floats
    degrees: Floats
    own: Floats


def seed_variances(means: Sequence[ArrayLike]) -> SeedVariances:
    """Pool the variance over seeds: `means` has the run means of each method, at least two a method (last axis)."""
    runs = [np.asarray(each, np.float64) for each in means]
    if min((each.shape[-1] for each in runs), default=0) < 2:
        raise ValueError("The variance over seeds needs two runs of every method; leave methods of one run out.")
    own = np.stack([each.var(axis=-1, ddof=1) for each in runs], axis=-1)
    degrees = np.array([each.shape[-1] - 1 for each in runs], np.float64)
    if len(runs) == 1:
        return SeedVariances(own, np.broadcast_to(degrees, own.shape), np.ones(own.shape, bool))
    sums, left = own * degrees, degrees.sum() - degrees
    others = np.maximum(_NO_SPREAD, (sums.sum(axis=-1, keepdims=True) - sums) / left)
    above = f_as_normal(own / others, degrees, left)
    keeps = above > np.array([_quantile(_OWN.get(int(each), _OWN_OF_MORE)) for each in degrees])
    pooling = above <= _quantile(_CLEAR / len(runs))
    shared = (pooling * degrees).sum(axis=-1, keepdims=True)
    pooled = (pooling * sums).sum(axis=-1, keepdims=True) / np.maximum(1.0, shared)
    none = shared == 0
    keeps = keeps | none
    return SeedVariances(np.where(keeps, own, pooled), np.where(keeps, degrees, shared), keeps)


def _quantile(tail: float) -> float:
    return NORMAL.inv_cdf(1 - tail)


def diverged(means: Sequence[ArrayLike], *, floor: float = 0.0) -> list[tuple[int, int]]:
    """Runs more than four pooled standard deviations off (six if few runs tell how much), as (method, run).

    None in studies of fewer than four runs.

    A run is compared with the median of its method, in standard deviations of all runs but this one. Of two runs, the one
    further from the study's median is named. `floor` is the least standard deviation of a run's mean that is known otherwise,
    as that of items that flip from run to run: few runs may lie close together by chance.
    """
    runs = [np.asarray(each, np.float64) for each in means]
    count = sum(map(len, runs))
    if count < FEWEST_RUNS:
        return []
    centre, found = float(np.median(np.concatenate(runs))), []
    for method, values in enumerate(runs):
        for run, value in enumerate(values):
            limit = max(MOST_DEVIATIONS * floor, _limit(_without(runs, method, run), count))
            other = values[1 - run] if len(values) == 2 else float(np.median(values))
            distance = abs(value - other) / (np.sqrt(2) if len(values) == 2 else 1.0)
            further = len(values) != 2 or abs(value - centre) > abs(other - centre)
            if 0 < limit < distance and further:
                found.append((method, run))
    return found


def _without(runs: Sequence[Floats], method: int, run: int) -> list[Floats]:
    """All runs but one; of a pair, the other says nothing about the spread either."""
    left = [np.delete(each, run) if number == method else each for number, each in enumerate(runs)]
    return [each for each in left if len(each) > 1]


def _limit(runs: Sequence[Floats], count: int) -> float:
    """Four pooled standard deviations; up to six where one of `count` equal runs exceeds four in more than 5% of studies.

    The standard deviation within methods is at most twice what the median distance of two runs gives.
    """
    if not runs:
        return 0.0
    degrees = sum(len(each) - 1 for each in runs)
    plain = float(np.sqrt(sum(float(((each - each.mean()) ** 2).sum()) for each in runs) / degrees))
    distances = [np.abs(each[:, None] - each)[np.triu_indices(len(each), 1)] for each in runs]
    median = float(np.median(np.concatenate(distances))) / _DISTANCE
    by_chance = min(_AT_MOST, t_quantile(1 - _BY_CHANCE / (2 * count), degrees))
    return max(MOST_DEVIATIONS, by_chance) * min(plain, 2 * median)


def copies(columns: ArrayLike, fingerprints: Sequence[str | None]) -> list[list[int]]:
    """Groups of runs that are one run: the same weights, or bit-equal scores. In: a row of scores per run, its fingerprint.

    Rows that are the same number throughout prove nothing: two runs may hit all items, or none.
    """
    rows = np.ascontiguousarray(columns)
    if len(rows) != len(fingerprints):
        raise ValueError(f"{len(rows)} runs and {len(fingerprints)} fingerprints: there must be one of each run.")
    group = list(range(len(rows)))
    for keys in (list(fingerprints), [row.tobytes() if len(row) and (row != row[0]).any() else None for row in rows]):
        first: dict[str | bytes, int] = {}
        for run, key in enumerate(keys):
            if key:
                known, own = group[first.setdefault(key, run)], group[run]
                group = [known if each == own else each for each in group]
    members = [[run for run, each in enumerate(group) if each == number] for number in dict.fromkeys(group)]
    return [each for each in members if len(each) > 1]


def distinct(runs: int, groups: Sequence[Sequence[int]]) -> list[int]:
    """The runs that count: the first of each group of `copies`, and all others."""
    repeated = {run for group in groups for run in group[1:]}
    return [run for run in range(runs) if run not in repeated]
