"""The numbers behind every verdict: checked against scipy, against hand counts, and by simulation on clustered data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from coref_automl.base.records import Estimate
from coref_automl.statistics import resampling
from coref_automl.statistics.closed_forms import holm, wilson
from coref_automl.statistics.intervals import (
    bootstrap_mean,
    composite,
    concentration,
    detectable,
    difference_intervals,
    simultaneous_bounds,
    standard_error,
    step_down_max_t,
)
from coref_automl.statistics.resampling import Part

TITLES = np.array(
    [79, 63, 57, 42, 40, 31, 30, 29, 24, 22, 19, 16, 15, 14, 12, 11, 10, 8, 7, 6, *[5] * 5, *[4] * 4, *[3] * 4, 2, 2, 1, 1, 1]
)
"""Items a title, as unequal as LAMBADA's: 38 titles that say as much as 16 of equal size."""


def sign_flip_p(a: NDArray, b: NDArray, clusters: NDArray, *, seed: int) -> float:
    return float(step_down_max_t([Part(a - b, clusters)], seed=seed).alone[0])


def detectable_difference(a: NDArray, b: NDArray, clusters: NDArray) -> float | None:
    parts = [Part(a - b, clusters)]
    return detectable(float(standard_error(parts)[0]), concentration=concentration(parts))


def clustered(
    rng: np.random.Generator, documents: int, share: float, columns: int = 1, gain: float = 0.0
) -> tuple[NDArray, NDArray]:
    """Hits of `columns` models on one to six items a document; a document's difficulty is shared. The last model gains."""
    clusters = np.repeat(np.arange(documents), rng.integers(1, 7, size=documents))
    centre = stats.logistic.ppf(share)
    difficulty = rng.normal(0, 1, size=documents)[clusters] + rng.normal(0, 1, size=len(clusters))
    own = rng.normal(0, 1, size=(len(clusters), columns))
    own[:, -1] += gain
    return (centre + difficulty[:, None] + own > 0).astype(float), clusters


def test_bootstrap_interval_agrees_with_scipy_when_documents_hold_one_item() -> None:
    rng = np.random.default_rng(3)
    values = (rng.random(400) < 0.3).astype(float)
    expected = stats.bootstrap((values,), np.mean, n_resamples=9_999, method="percentile", rng=np.random.default_rng(0))
    ours = bootstrap_mean(values, np.arange(400), seed=0)
    interval = expected.confidence_interval
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=0.004)
    assert ours.n == 400


def test_clusters_widen_the_interval_and_the_standard_error() -> None:
    values = np.repeat(np.arange(60) % 2, 10).astype(float)
    alone, together = np.arange(600), np.repeat(np.arange(60), 10)
    narrow, wide = (bootstrap_mean(values, clusters, seed=1) for clusters in (alone, together))
    assert (wide.high - wide.low) > 2.5 * (narrow.high - narrow.low)
    errors = [float(standard_error([Part(values, clusters)])[0]) for clusters in (alone, together)]
    assert errors[1] / errors[0] == pytest.approx(np.sqrt(10), rel=0.02)


def test_same_seed_same_numbers_and_names_of_documents_do_not_matter() -> None:
    values, clusters = clustered(np.random.default_rng(5), 80, 0.4)
    named = np.array([f"문서-{c:03d}" for c in clusters])
    first = bootstrap_mean(values[:, 0], clusters, seed=7)
    assert first == bootstrap_mean(values[:, 0], clusters, seed=7) == bootstrap_mean(values[:, 0], named, seed=7)
    assert first != bootstrap_mean(values[:, 0], clusters, seed=8)


def test_draws_do_not_depend_on_the_size_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = clustered(np.random.default_rng(6), 50, 0.5, columns=3)
    part = [Part(values, clusters), Part(values[::2], clusters[::2])]
    before = composite(part, seed=2, draws=500), step_down_max_t(part, seed=2).alone
    monkeypatch.setattr(resampling, "_CELLS", 50 * 7)
    after = composite(part, seed=2, draws=500), step_down_max_t(part, seed=2).alone
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_no_hit_and_only_hits_fall_back_to_wilson_on_documents(value: float) -> None:
    estimate = bootstrap_mean(np.full(300, value), np.repeat(np.arange(30), 10), seed=0)
    assert (estimate.low, estimate.high) == (wilson(30 * value, 30).low, wilson(30 * value, 30).high)
    assert estimate.n == 300


def test_one_document_says_next_to_nothing() -> None:
    one = bootstrap_mean([1, 0, 1, 1], ["a"] * 4, seed=0)
    assert one.value == 0.75
    assert one.high - one.low > 0.7
    difference = difference_intervals([Part([1, 1, 1], ["a"] * 3)], seed=0)[0]
    assert (difference.low, difference.high) == (-1, 1)


def test_values_without_a_cluster_each_are_refused() -> None:
    with pytest.raises(ValueError, match="one cluster per value"):
        bootstrap_mean([1, 0], ["a"], seed=0)


def test_identical_scores_are_equal_and_have_no_detectable_difference() -> None:
    values, clusters = clustered(np.random.default_rng(1), 60, 0.5)
    same = values[:, 0]
    assert sign_flip_p(same, same, clusters, seed=0) == 1.0
    assert difference_intervals([Part(same - same, clusters)], seed=0) == [Estimate(0.0, 0.0, 0.0, len(same))]
    assert detectable_difference(same, same, clusters) is None


def test_sign_flip_agrees_with_all_sign_patterns() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random(30) < 0.7).astype(float), (rng.random(30) < 0.3).astype(float)
    clusters = np.repeat(np.arange(10), 3)
    by_document = np.bincount(clusters, weights=a - b)
    exact = stats.permutation_test((by_document,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip_p(a, b, clusters, seed=0) == pytest.approx(exact, abs=0.015)


def test_composite_adds_the_means_of_its_parts_and_resamples_within_each() -> None:
    rng = np.random.default_rng(2)
    real, documents = clustered(rng, 120, 0.6, columns=2)
    lambada, titles = clustered(rng, 90, 0.3, columns=2)
    parts = [Part(0.7 * real, documents), Part(0.3 * lambada, titles)]
    ours = composite(parts, seed=0)
    assert [e.value for e in ours] == pytest.approx((0.7 * real.mean(0) + 0.3 * lambada.mean(0)).tolist())
    alone = [composite([part], seed=0)[0] for part in parts]
    width = np.hypot(*(e.high - e.low for e in alone))
    assert ours[0].high - ours[0].low == pytest.approx(width, rel=0.06)


def test_draws_that_are_kept_are_the_draws() -> None:
    values, clusters = clustered(np.random.default_rng(1), 40, 0.5, columns=3)
    gathered = resampling.gather(Part(values, clusters))
    first, again = (resampling.resampled_means([gathered], seed=4, draws=500) for _ in range(2))
    rng = np.random.default_rng(4)
    samples = [rng.integers(0, 40, size=40) for _ in range(500)]
    expected = [gathered.sums[rows].sum(axis=0) / gathered.sizes[rows].sum() for rows in samples]
    assert np.array_equal(first, again)
    assert first == pytest.approx(np.array(expected), abs=1e-6)


def test_bounds_of_the_best_shrink_with_documents_and_spare_no_clear_loser() -> None:
    rng = np.random.default_rng(0)
    values, clusters = clustered(rng, 600, 0.5, columns=4)
    values[:, 3] *= rng.random(len(values)) < 0.7
    bounds = simultaneous_bounds([Part(values, clusters)], seed=0)
    assert np.all(bounds.upper >= 0)
    assert bounds.upper[3] > 0.12
    assert np.all((bounds.gaps + bounds.reach / 2).max(axis=0) <= bounds.upper)
    assert np.all(bounds.upper >= values.mean(0).max() - values.mean(0))


def test_bounds_of_identical_columns_are_zero() -> None:
    values, clusters = clustered(np.random.default_rng(0), 50, 0.5)
    assert simultaneous_bounds([Part(np.repeat(values, 3, axis=1), clusters)], seed=0).upper.tolist() == [0, 0, 0]


def test_intervals_cover_on_clustered_data() -> None:
    """Differences of two equal models: their true value is 0 whatever the documents. The long version is in benchmarks/."""
    rng = np.random.default_rng(11)
    runs, covered = 400, 0
    for run in range(runs):
        values, clusters = clustered(rng, 60, 0.4, columns=2)
        interval = difference_intervals([Part(values[:, 0] - values[:, 1], clusters)], seed=run, draws=600)[0]
        covered += interval.low <= 0 <= interval.high
    assert 0.93 - 0.01 <= covered / runs <= 0.97 + 0.01


def titles(rng: np.random.Generator, sets: int, weight: float = 1.0) -> Part:
    """Items of 38 titles of very unequal size, a column a set; what is measured has a true mean of 0."""
    clusters = np.repeat(np.arange(len(TITLES)), TITLES)
    return Part(weight * (rng.normal(size=(len(TITLES), sets))[clusters] + rng.normal(size=(len(clusters), sets))), clusters)


def missed(estimates: list[Estimate]) -> float:
    return float(np.mean([not estimate.low <= 0 <= estimate.high for estimate in estimates]))


def test_intervals_cover_where_few_documents_are_of_very_unequal_size() -> None:
    """Counting titles as if they were alike misses 7%."""
    assert 0.04 <= missed(difference_intervals([titles(np.random.default_rng(0), 3000)], seed=0, draws=2000)) <= 0.058


@pytest.mark.parametrize("weight", [0.1, 0.3])
def test_intervals_of_a_composite_cover_however_much_its_few_documents_weigh(weight: float) -> None:
    rng = np.random.default_rng(1)
    parts = [Part(rng.normal(size=(400, 1500)), np.arange(400)), titles(rng, 1500, weight)]
    assert 0.038 <= missed(difference_intervals(parts, seed=0, draws=2000)) <= 0.062


def test_few_documents_widen_the_interval_of_a_composite_by_their_own_share_alone() -> None:
    rng = np.random.default_rng(2)
    many, few = Part(rng.normal(size=400), np.arange(400)), Part(0.01 * rng.normal(size=5), np.arange(5))
    alone, together = (difference_intervals(parts, seed=0)[0] for parts in ([many], [many, few]))
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=0.03)


def test_documents_of_equal_size_are_counted_and_many_hardly_widen_an_interval() -> None:
    rng = np.random.default_rng(2)
    for documents, sizes, within in ((12, np.full(12, 5), 1e-9), (500, rng.integers(1, 4, size=500), 0.004)):
        clusters = np.repeat(np.arange(documents), sizes)
        values = rng.normal(size=(len(clusters), 40))
        ours = difference_intervals([Part(values, clusters)], seed=3, draws=4000)
        reach = np.sqrt(documents / (documents - 1)) * stats.t.ppf(0.975, documents - 1)
        samples = resampling.resampled_means([resampling.gather(Part(values, clusters))], seed=3, draws=4000)
        low, high = np.quantile(samples, [stats.norm.cdf(-reach), stats.norm.cdf(reach)], axis=0)
        assert np.sum([estimate.high - estimate.low for estimate in ours]) == pytest.approx(np.sum(high - low), rel=within)


def test_the_standard_error_leaves_each_document_out_once_and_suits_unequal_sizes() -> None:
    part = titles(np.random.default_rng(3), 2000)
    values, clusters = np.asarray(part.values), np.asarray(part.clusters)
    without = np.stack([values[clusters != item].mean(axis=0) for item in range(len(TITLES))])
    by_hand = np.sqrt(((without - values.mean(axis=0)) ** 2).sum(axis=0) * (len(TITLES) - 1) / len(TITLES))
    ours = standard_error([part])
    assert ours == pytest.approx(by_hand, rel=1e-9)
    shares = TITLES / TITLES.sum()
    assert np.mean(ours**2) / np.sum(shares**2 * (1 + 1 / TITLES)) == pytest.approx(1.0, abs=0.06)
    alike = np.random.default_rng(4).normal(size=30)
    assert standard_error([Part(alike, np.arange(30))])[0] == pytest.approx(stats.sem(alike), rel=1e-9)


def test_bounds_of_the_best_hold_on_few_documents_of_very_unequal_size() -> None:
    """One clear loser: its bound has the whole chance of being too low to itself. Counting documents leaves it 12%."""
    rng = np.random.default_rng(5)
    sizes = np.array([60, 41, 33, 20, 14, 9, 8, 5, 3, 3, 2, 1])
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    covered = 0
    for run in range(1000):
        values = rng.normal(size=(len(sizes), 2))[clusters] + rng.normal(size=(len(clusters), 2)) + [0.0, 2.0]
        covered += simultaneous_bounds([Part(values, clusters)], seed=run, draws=500).upper[0] >= 2.0
    assert covered / 1000 >= 0.92


def test_false_verdicts_over_a_family_of_ten_stay_under_five_percent() -> None:
    rng = np.random.default_rng(12)
    runs = 150
    false = 0
    for run in range(runs):
        values, clusters = clustered(rng, 50, 0.4, columns=11)
        ps = step_down_max_t([Part(values[:, 1:] - values[:, :1], clusters)], seed=run).alone
        false += holm(ps).min() < 0.05
    assert false / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)


def test_a_detectable_difference_is_detected_four_times_in_five() -> None:
    """A gain that the sets on average call detectable; the rest of their numbers vary from set to set as they do in life."""
    rng = np.random.default_rng(13)
    runs, shift = 400, 0.31
    large, _ = clustered(rng, 60_000, 0.4, columns=2, gain=shift)
    true = float((large[:, 1] - large[:, 0]).mean())
    shown, stated = 0, []
    for run in range(runs):
        values, clusters = clustered(rng, 120, 0.4, columns=2, gain=shift)
        stated.append(detectable_difference(values[:, 1], values[:, 0], clusters))
        shown += sign_flip_p(values[:, 1], values[:, 0], clusters, seed=run) < 0.05
    assert np.mean(stated) == pytest.approx(true, rel=0.03)
    assert abs(shown / runs - 0.80) <= 0.03 + 2 * np.sqrt(0.16 / runs)
