"""A verdict that may stop early. In: differences of runs paired by seed, the error over documents. Out: what a look says. Pure.

Pairs are judged at up to four looks. Each look has a nominal level, small at first, so that all of them together call one of
two equal settings better in less than 2.5% of studies (`benchmarks/tuning_surrogate.py` counts). The spread of a few pairs is
known badly: it is pooled with that of the archived studies, which counts as much as eight degrees of freedom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import t_quantile
from coref_automl.statistics.resampling import Floats

Decision = Literal["better", "worse", "futile", "open", "not shown"]
PAIRS = 24
"""Pairs of runs at the last look."""
_LOOKS = ((1 / 6, 0.0005), (1 / 3, 0.005), (2 / 3, 0.02), (1.0, 0.035))
"""Share of the pairs, and nominal level. The first look is there to stop what is not worth going on with."""
_FEW, _SINGLE = 12, 0.05
_ONE_SIDED = 0.95
PRIOR_SPREAD, PRIOR_DEGREES = 0.003, 8
"""The spread of pairs in the archived studies, and how many degrees of freedom it is worth."""
_DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class Look(Record):
    """So many pairs are judged at this nominal level, two-sided."""

    pairs: int
    level: float


@dataclass(frozen=True, slots=True)
class SequentialVerdict(Record):
    """`interval` is that of the look, wider than 95% before the last; `most` is the one-sided 95% bound on the gain.

    `decision`: better or worse is shown; futile: a gain worth having is excluded; open: further pairs may tell; not shown: there
    are none left.
    """

    difference: float
    interval: Estimate
    most: float
    pairs: int
    decision: Decision

    @property
    def shown(self) -> bool:
        return self.decision in ("better", "worse")


def looks_of(pairs: int = PAIRS, *, comparisons: int = 1) -> tuple[Look, ...]:
    """Four looks, the last at `pairs`; under twelve pairs there is one. Levels are shared by `comparisons` (Bonferroni)."""
    if pairs < _FEW:
        return (Look(pairs, _SINGLE / comparisons),)
    return tuple(Look(math.ceil(share * pairs), level / comparisons) for share, level in _LOOKS)


def judged(
    per_seed: ArrayLike,
    document_error: float,
    level: float,
    *,
    worth: float,
    last: bool,
    items: int,
    documents: int = 10_000,
    spread: float = PRIOR_SPREAD,
) -> SequentialVerdict:
    """What a look of this nominal level says; after the `last` one nothing is open.

    `document_error` is the standard error over documents of the mean of these very pairs, `documents` how many of equal size
    there would be; `worth` is the smallest gain that matters.
    """
    differences: Floats = np.asarray(per_seed, np.float64)
    k, mean = len(differences), float(differences.mean())
    own = float(differences.var(ddof=1)) if k > 1 else 0.0
    degrees = PRIOR_DEGREES + k - 1
    by_seeds = (PRIOR_DEGREES * spread**2 + (k - 1) * own) / degrees / k
    total = by_seeds + document_error**2
    spent = by_seeds**2 / degrees + document_error**4 / max(1, documents - 1)
    freedom = max(1, min(200, int(total**2 / spent)))
    error = math.sqrt(total)
    half = t_quantile(1 - level / 2, freedom) * error
    most = mean + t_quantile(_ONE_SIDED, freedom) * error
    decision: Decision = "better" if mean > half else "worse" if mean < -half else "futile" if most < worth else "open"
    if decision == "open" and last:
        decision = "not shown"
    return SequentialVerdict(mean, Estimate(mean, mean - half, mean + half, items), most, k, decision)


def ceiling(gains: ArrayLike, errors: ArrayLike, shared: float, *, level: float = _ONE_SIDED) -> float:
    """With this confidence none of several settings gains more: the quantile of the largest of them, less what the luck of the
    luckiest adds to it on average.

    `errors` are the standard errors of the settings themselves, `shared` that of what all are compared with.
    """
    means, own = np.asarray(gains, np.float64), np.asarray(errors, np.float64)
    rng = np.random.default_rng(0)
    largest = (means + own * rng.standard_normal((_DRAWS, len(means)))).max(axis=1)
    luck = float(largest.mean() - means.max())
    return float(np.quantile(largest - shared * rng.standard_normal(_DRAWS), level)) - luck
