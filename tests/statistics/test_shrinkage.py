"""Which checkpoint to use: the posterior mean against the highest, and how many documents settle a choice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.statistics.crossed import CrossedVerdict
from coref_automl.statistics.intervals import standard_error
from coref_automl.statistics.resampling import Part
from coref_automl.statistics.shrinkage import (
    accepted_loss,
    change_of_runs,
    covariance,
    method_means,
    posterior_means,
)

STEPS = np.arange(1, 7) * 1_000_000
DOCUMENTS = np.arange(300)


def one_run(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    count = len(values)
    return posterior_means(values, errors, methods=["entity"] * count, runs=["entity-s0"] * count, training=STEPS[:count])


def test_the_covariance_has_the_standard_errors_on_its_diagonal() -> None:
    rng = np.random.default_rng(0)
    parts = [
        Part(rng.normal(size=(200, 4)), np.repeat(np.arange(50), 4)),
        Part(rng.normal(size=(60, 4)), np.repeat(np.arange(6), 10)),
    ]
    assert np.sqrt(np.diag(covariance(parts))).tolist() == pytest.approx(standard_error(parts).tolist())


def test_values_that_are_surely_known_stay_and_unsure_ones_are_drawn_together() -> None:
    values = np.array([0.40, 0.42, 0.44, 0.45, 0.455, 0.457])
    assert one_run(values, np.eye(6) * 1e-10).tolist() == pytest.approx(values.tolist(), abs=1e-4)
    unsure = one_run(values, np.eye(6) * 0.05**2)
    assert np.ptp(unsure) < 0.5 * np.ptp(values)


def test_a_lone_spike_is_believed_less_than_a_plateau() -> None:
    values = np.array([0.430, 0.462, 0.440, 0.450, 0.455, 0.458])
    result = one_run(values, np.eye(6) * 0.008**2)
    assert values.argmax() == 1
    assert result.argmax() >= 4


def test_other_seeds_of_the_method_are_heard() -> None:
    """One seed's lucky checkpoint does not win where the method's other runs say that training goes on."""
    rising = np.array([0.440, 0.445, 0.450, 0.455, 0.458, 0.460])
    lucky = rising.copy()
    lucky[1] = 0.4605
    values = np.concatenate([lucky, rising, rising])
    runs = np.repeat(["s0", "s1", "s2"], 6)
    result = posterior_means(
        values, np.eye(18) * 0.005**2, methods=["entity"] * 18, runs=runs.tolist(), training=np.tile(STEPS, 3)
    )
    assert result.argmax() % 6 == 5


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(0, 1000), st.sampled_from([0.0, 1e-9, 0.01]))
def test_posterior_means_are_numbers_whatever_the_errors_and_lie_among_the_values(count: int, seed: int, error: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random(count).round(3)
    result = posterior_means(
        values, np.eye(count) * error**2, methods=["m"] * count, runs=["r"] * count, training=np.sort(rng.integers(0, 9, count))
    )
    assert np.isfinite(result).all()
    assert result.min() >= values.min() - 0.1 * np.ptp(values) - 1e-6
    assert result.max() <= values.max() + 0.1 * np.ptp(values) + 1e-6


def test_checkpoints_that_are_all_alike_are_believed_to_be() -> None:
    result = one_run(np.full(6, 0.4), np.zeros((6, 6)))
    assert result.tolist() == pytest.approx([0.4] * 6)


def test_what_is_missing_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="evaluate it again"):
        one_run(np.array([0.4, np.nan]), np.eye(2))
    with pytest.raises(ValueError, match="need as many"):
        one_run(np.array([0.4, 0.5]), np.eye(3))


def test_the_accepted_loss_is_the_margin_or_a_quarter_of_the_shown_gain() -> None:
    assert accepted_loss(0.02, 0.2) == 0.02
    assert accepted_loss(0.02, 0.024) == pytest.approx(0.006)
    assert accepted_loss(0.02, None) == 0.02
    assert accepted_loss(0.02, -0.01) == 0.02


@pytest.mark.parametrize(("spread", "allowed"), [(0.004, 0.001), (0.016, 0.003)])
def test_the_gain_of_the_best_of_six_equal_methods_is_not_overstated(spread: float, allowed: float) -> None:
    """Its mean over two seeds is: by 0.4 and 1.4 points."""
    rng, raw, believed = np.random.default_rng(5), [], []
    methods = np.repeat(np.arange(6), 2)
    for _ in range(150):
        values = 0.02 + rng.normal(0, spread, 12)
        errors = np.eye(12) * 0.001**2
        means = values.reshape(6, 2).mean(axis=1)
        raw.append(means.max() - 0.02)
        believed.append(method_means(values, errors, methods=methods.tolist())[int(means.argmax())] - 0.02)
    assert np.mean(raw) > 3 * allowed
    assert abs(np.mean(believed)) < allowed


def test_methods_that_differ_clearly_keep_their_gains() -> None:
    values = np.repeat([0.01, 0.05, 0.09], 4) + 0.001 * np.random.default_rng(6).normal(size=12)
    result = method_means(values, np.eye(12) * 0.001**2, methods=np.repeat(["mlm", "entity", "copy"], 4).tolist())
    assert [result[name] for name in ("mlm", "entity", "copy")] == pytest.approx([0.01, 0.05, 0.09], abs=0.002)
    with pytest.raises(ValueError, match="need as many"):
        method_means([0.1, 0.2], np.eye(2), methods=["mlm"])


def test_the_average_of_shares_is_not_shrunk_though_low_ones_have_small_errors() -> None:
    """Errors of documents that all models share: the likeliest level under them lies below every value."""
    values = np.array([0.30, 0.32, 0.50, 0.52])
    error = 0.3 * values
    errors = np.outer(error, error) * (0.95 + 0.05 * np.eye(4))
    result = posterior_means(values, errors, methods=list("aabb"), runs=list("abcd"), training=[1, 1, 1, 1])
    assert result.mean() == pytest.approx(values.mean())
    assert values.min() <= result.min() <= result.max() <= values.max()
    gains = method_means(values, errors, methods=list("aabb"))
    assert values.min() <= gains["a"] < gains["b"] <= values.max()


def curve(rng: np.random.Generator, points: int, seeds: int, rise: float) -> list[list[np.ndarray]]:
    """Checkpoints of the same runs: what a run is good at stays, a tenth of the items flips from point to point."""
    lasting = 0.3 * rng.normal(size=(seeds, 300)) + 0.02 * rng.normal(size=(seeds, 1))
    return [[lasting + rise * point + 0.1 * rng.normal(size=(seeds, 300))] for point in range(points)]


def last_step(points: list[list[np.ndarray]]) -> CrossedVerdict:
    return change_of_runs(points[-1], points[-2], [DOCUMENTS])


@pytest.mark.parametrize(
    ("points", "seeds"),
    [
        pytest.param(points, seeds, marks=() if (points, seeds) in {(4, 1), (2, 3), (10, 2)} else pytest.mark.journey)
        for points in (2, 4, 10)
        for seeds in (1, 2, 3, 8)
    ],
)
def test_flat_curves_are_rarely_told_to_go_on(points: int, seeds: int) -> None:
    rng, longer = np.random.default_rng(points + seeds), 0
    for _ in range(150):
        result = last_step(curve(rng, points, seeds, 0.0))
        longer += result.shown and result.difference > 0
        assert seeds > 1 or not result.shown
    assert longer / 150 <= 0.05


def test_a_curve_that_rises_to_its_end_is_told_to_go_on_and_a_flat_one_is_not() -> None:
    rng = np.random.default_rng(4)
    rising, flat = (last_step(curve(rng, 4, 3, rise)) for rise in (0.06, 0.0))
    assert rising.shown
    assert rising.difference > 0
    assert not flat.shown
