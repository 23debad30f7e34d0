"""Training curves, smoothed and shrunk. In: values of checkpoints and their covariance. Out: posterior means, plans. Pure.

The best of many checkpoints is also the luckiest (winner's curse). Neighbours and other seeds tell how much of its lead is real.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coref_automl.statistics.crossed import Verdict, crossed
from coref_automl.statistics.resampling import Floats, Part, gather

_SPREADS = (0.0, 0.001, 0.004, 0.016, 0.064, 0.256)
"""Standard deviations of methods, and of runs of one method: from none to a quarter of all items."""
_RESIDUALS = (0.0005, 0.004, 0.032)
"""Standard deviations of what a checkpoint shares with neither its neighbours nor other seeds: 0.05 to 3 points."""
_QUARTER = 0.25


def covariance(parts: Sequence[Part]) -> Floats:
    """The covariance of the columns' means over documents, from the jackknife."""
    moves = [gather(part).jackknife() for part in parts]
    return np.asarray(sum(move.T @ move for move in moves))


def posterior_means(
    values: ArrayLike, errors: Floats, *, methods: Sequence[object], runs: Sequence[object], training: ArrayLike
) -> Floats:
    """The posterior mean of each checkpoint, given its neighbours and the other seeds.

    The prior: the curve of a method is smooth in the logarithm of `training` (tokens), and so is the deviation of a run from its
    method; half the variance of each is a constant level, half the shape. Their standard deviations are averaged over, weighted
    by the likelihood of the values, given `errors` (their covariance over documents). Few documents or similar curves shrink all
    values towards one mean; strong data keep theirs.
    """
    observed, amount = np.asarray(values, np.float64), np.asarray(training, np.float64)
    count = len(observed)
    if errors.shape != (count, count) or not len(methods) == len(runs) == len(amount) == count or not count:
        raise ValueError(f"{count} values need as many methods, runs and amounts of training, and a covariance of that size.")
    if not np.isfinite(observed).all() or not np.isfinite(errors).all():
        raise ValueError("A value or an error is missing; leave that checkpoint out, or evaluate it again.")
    time = np.log(np.maximum(amount, 1.0))
    kernel = 0.5 + 0.5 * np.exp(-((time[:, None] - time[None, :]) ** 2) / 2)
    of_method, of_run = kernel * _same(methods), kernel * _same(runs)
    spreads = product(_SPREADS if len(set(runs)) > 1 else (0.0,), _SPREADS, _RESIDUALS)
    priors = [method**2 * of_method + run**2 * of_run + residual**2 * np.eye(count) for method, run, residual in spreads]
    return _averaged(observed, errors, [(prior, prior, 1.0) for prior in priors])


def method_means(values: ArrayLike, errors: Floats, *, methods: Sequence[object]) -> dict[object, float]:
    """The posterior mean of each method, from one value per run (such as its gain over the base) and their covariance.

    The best of several methods is also the luckiest, and its mean over seeds is too high. Methods vary around a common mean, runs
    around their method; both standard deviations are averaged over as in `posterior_means`. Odds that methods are equal are even.
    """
    observed, of_method = np.asarray(values, np.float64), _same(methods)
    count = len(observed)
    if errors.shape != (count, count) or len(methods) != count or not count:
        raise ValueError(f"{count} values need as many methods, and a covariance of that size.")
    priors = [
        (method**2 * of_method + run**2 * np.eye(count), method**2 * of_method, 1.0 if method else len(_SPREADS) - 1.0)
        for method, run in product(_SPREADS, _SPREADS)
    ]
    return dict(zip(methods, map(float, _averaged(observed, errors, priors)), strict=True))


def accepted_loss(margin: float, gain: float | None) -> float:
    """The loss to accept for shorter training: the margin, or a quarter of the gain shown over the base if that is less.

    `gain` is None if none is shown.
    """
    return min(margin, _QUARTER * gain) if gain is not None and gain > 0 else margin


def change_of_runs(later: Sequence[Floats], earlier: Sequence[Floats], clusters: Sequence[ArrayLike]) -> Verdict:
    """Compare the same runs at two points of their curves: one matrix per part of the metric (a row per run, a column per item).

    "Train longer" is advised only if the last change is shown and positive: never for a single run, and for flat curves in at
    most 2.5% of studies.
    """
    changes = [after - before for after, before in zip(later, earlier, strict=True)]
    return crossed(changes, [np.zeros_like(change[:1]) for change in changes], clusters, against_model=True)


def _averaged(observed: Floats, errors: Floats, priors: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """Average posterior means over priors, weighted by the likelihood of the values under each.

    A prior is its covariance, the part of it whose posterior mean is wanted, and its odds. The means are then shifted so that
    their average is that of the values, in which nothing was selected. Without that the most likely level under correlated errors
    can be below every value, since low shares have small errors and weigh more than their neighbours.
    """
    posteriors = [_posterior(observed, prior, errors, wanted) for prior, wanted, _ in priors]
    weights = np.array([weight for weight, _ in posteriors])
    likelihoods = np.array([odds for *_, odds in priors]) * np.exp(weights - weights.max())
    means = np.asarray(likelihoods @ np.array([mean for _, mean in posteriors]) / likelihoods.sum())
    return np.asarray(means + (observed.mean() - means.mean()))


def _same(labels: Sequence[object]) -> NDArray[np.float64]:
    known = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    numbers = np.array([known[label] for label in labels])
    return np.asarray(numbers[:, None] == numbers[None, :], np.float64)


def _posterior(observed: Floats, prior: Floats, errors: Floats, wanted: Floats) -> tuple[float, Floats]:
    """The log likelihood under a prior (the common mean integrated out), and the posterior means of the `wanted` part of it."""
    count = len(observed)
    lower = np.linalg.cholesky(prior + errors + 1e-14 * np.eye(count))
    scaled = np.linalg.solve(lower, np.column_stack([observed, np.ones(count)]))
    ones = float(scaled[:, 1] @ scaled[:, 1])
    centre = float(scaled[:, 1] @ scaled[:, 0]) / ones
    left = scaled[:, 0] - centre * scaled[:, 1]
    weight = -float(np.log(np.diag(lower)).sum()) - 0.5 * math.log(ones) - 0.5 * float(left @ left)
    return weight, np.asarray(centre + wanted @ np.linalg.solve(lower.T, left))
