"""Curves of training, smoothed and shrunk. In: values of checkpoints and their covariance. Out: posterior means, plans. Pure.

The highest of many checkpoints is the luckiest as well as the best. A checkpoint's neighbours and the other seeds of its method
say how much of its lead to believe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coref_automl.statistics.crossed import CrossedVerdict, composite_crossed
from coref_automl.statistics.resampling import Floats, Part, gather

_SPREADS = (0.0, 0.001, 0.004, 0.016, 0.064, 0.256)
"""How far methods, and runs of one method, may differ: from not at all to a quarter of all items."""
_OWN = (0.0005, 0.004, 0.032)
"""What a checkpoint may have that neither its neighbours nor the other seeds share: a twentieth of a point to three points."""
_QUARTER = 0.25


def covariance(parts: Sequence[Part]) -> Floats:
    """The covariance of the columns' means over documents: each document is left out once (the jackknife)."""
    moves = [gather(part).left_out() for part in parts]
    return np.asarray(sum(move.T @ move for move in moves))


def posterior_means(
    values: ArrayLike, errors: Floats, *, methods: Sequence[object], runs: Sequence[object], training: ArrayLike
) -> Floats:
    """What to believe of each checkpoint once its neighbours and the other seeds are heard.

    The values of a method rise and fall smoothly in the logarithm of `training` (tokens), and so do the departures of a run from
    its method; half of either is a level, half the shape. How large both are is not chosen: every set of spreads counts by how
    likely it makes the values, given the `errors` (their covariance over documents). Where documents are few or curves alike,
    all is drawn towards one mean; where the data speak, they stand.
    """
    seen, amount = np.asarray(values, np.float64), np.asarray(training, np.float64)
    count = len(seen)
    if errors.shape != (count, count) or not len(methods) == len(runs) == len(amount) == count or not count:
        raise ValueError(f"{count} values need as many methods, runs and amounts of training, and a covariance of that size.")
    if not np.isfinite(seen).all() or not np.isfinite(errors).all():
        raise ValueError("A value or an error is missing; leave that checkpoint out, or evaluate it again.")
    place = np.log(np.maximum(amount, 1.0))
    near = 0.5 + 0.5 * np.exp(-((place[:, None] - place[None, :]) ** 2) / 2)
    together, alone = near * _same(methods), near * _same(runs)
    spreads = product(_SPREADS if len(set(runs)) > 1 else (0.0,), _SPREADS, _OWN)
    priors = [method**2 * together + run**2 * alone + own**2 * np.eye(count) for method, run, own in spreads]
    return _averaged(seen, errors, [(prior, prior, 1.0) for prior in priors])


def method_means(values: ArrayLike, errors: Floats, *, methods: Sequence[object]) -> dict[object, float]:
    """What to believe of each method: one value per run (its gain over the base, say) and their covariance over documents.

    The best of several methods is the luckiest as well, and its mean over seeds is too high. Methods differ by a spread of their
    own from a common mean, runs of a method by another; both are averaged over as in `posterior_means`. That methods do not
    differ at all is given even odds beforehand.
    """
    seen, together = np.asarray(values, np.float64), _same(methods)
    if errors.shape != (len(seen), len(seen)) or len(methods) != len(seen) or not len(seen):
        raise ValueError(f"{len(seen)} values need as many methods, and a covariance of that size.")
    priors = [
        (method**2 * together + run**2 * np.eye(len(seen)), method**2 * together, 1.0 if method else len(_SPREADS) - 1.0)
        for method, run in product(_SPREADS, _SPREADS)
    ]
    return dict(zip(methods, map(float, _averaged(seen, errors, priors)), strict=True))


def accepted_loss(margin: float, gain: float | None) -> float:
    """The loss to accept for shorter training: the margin, or a quarter of the shown gain over the base where that is less.

    `gain` is None where none is shown: then training has nothing to lose, and the margin stands.
    """
    return min(margin, _QUARTER * gain) if gain is not None and gain > 0 else margin


def change_of_runs(now: Sequence[Floats], before: Sequence[Floats], clusters: Sequence[ArrayLike]) -> CrossedVerdict:
    """The same runs at two points of their curve: one matrix per part of the metric (one row per run, one column per item).

    "Train longer" is said only where the last step is shown and above 0: it never is for one run, and for flat curves in at most
    2.5% of studies.
    """
    change = [after - earlier for after, earlier in zip(now, before, strict=True)]
    return composite_crossed(change, [np.zeros_like(one[:1]) for one in change], clusters, against_model=True)


def _averaged(seen: Floats, errors: Floats, priors: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """Posterior means over priors (each with the part that is asked for and its odds), by how likely each makes the values.

    They are moved together so that their average is that of the values: nothing was chosen in it, so it needs no shrinking. The
    level that is most likely under correlated errors can lie below every value: a share that is low has a small error, and counts
    for more than its neighbours.
    """
    found = [_given(seen, prior, errors, asked) for prior, asked, _ in priors]
    weights = np.array([weight for weight, _ in found])
    likely = np.array([odds for *_, odds in priors]) * np.exp(weights - weights.max())
    means = np.asarray(likely @ np.array([mean for _, mean in found]) / likely.sum())
    return np.asarray(means + (seen.mean() - means.mean()))


def _same(labels: Sequence[object]) -> NDArray[np.float64]:
    known = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    numbers = np.array([known[label] for label in labels])
    return np.asarray(numbers[:, None] == numbers[None, :], np.float64)


def _given(seen: Floats, prior: Floats, errors: Floats, asked: Floats) -> tuple[float, Floats]:
    """How likely the values are under this prior (logarithm, the common mean integrated out), and the posterior means of the
    part of it that is `asked` for."""
    count = len(seen)
    lower = np.linalg.cholesky(prior + errors + 1e-14 * np.eye(count))
    scaled = np.linalg.solve(lower, np.column_stack([seen, np.ones(count)]))
    ones = float(scaled[:, 1] @ scaled[:, 1])
    centre = float(scaled[:, 1] @ scaled[:, 0]) / ones
    left = scaled[:, 0] - centre * scaled[:, 1]
    weight = -float(np.log(np.diag(lower)).sum()) - 0.5 * math.log(ones) - 0.5 * float(left @ left)
    return weight, np.asarray(centre + asked @ np.linalg.solve(lower.T, left))
