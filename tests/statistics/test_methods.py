"""Is a method better? Checked by hand, against scipy, and by how often equal methods are told apart."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coref_automl.base.records import Estimate
from coref_automl.statistics.intervals import concentration, difference_intervals, standard_error
from coref_automl.statistics.methods import MethodVerdict, method_verdict
from coref_automl.statistics.resampling import Part


def verdicts(pairs: list[np.ndarray], clusters: np.ndarray) -> list[MethodVerdict]:
    """One per matrix of differences: a row per pair of runs, a column per item."""
    parts = [Part(np.stack([pair.mean(axis=0) for pair in pairs], axis=1), clusters)]
    errors, share = standard_error(parts), concentration(parts)
    return [
        method_verdict(pair.mean(axis=1), documents, float(error), share)
        for pair, documents, error in zip(pairs, difference_intervals(parts, seed=0), errors, strict=True)
    ]


def test_a_method_is_shown_only_if_seeds_and_documents_both_show_it() -> None:
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(200), rng.integers(1, 7, size=200))
    n = len(clusters)
    base = [(rng.random(n) < 0.4).astype(float) for _ in range(3)]
    steady = [(rng.random(n) < 0.6).astype(float) for _ in range(3)]
    moody = [(rng.random(n) < share).astype(float) for share in (0.35, 0.75, 0.42)]
    assert verdicts([np.subtract(steady, base)], clusters)[0].shown
    (verdict,) = verdicts([np.subtract(moody, base)], clusters)
    assert verdict.over_documents.low > 0
    assert verdict.over_seeds is not None
    assert verdict.over_seeds.low < 0
    assert not verdict.shown
    differences = [float(np.mean(m - b)) for m, b in zip(moody, base, strict=True)]
    assert verdict.p_seeds == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert verdict.over_both is not None
    intervals = (verdict.over_seeds, verdict.over_documents, verdict.over_both)
    assert verdict.interval.low == min(interval.low for interval in intervals)
    assert verdict.interval.high == max(item.high for item in intervals)
    assert verdict.detectable is not None
    assert verdict.detectable > verdict.difference
    (single,) = verdicts([np.subtract(steady[:1], base[:1])], clusters)
    assert single.over_seeds is None
    assert not single.shown
    assert single.interval == single.over_documents


def test_the_p_of_three_intervals_is_under_a_twentieth_where_all_of_them_exclude_nought() -> None:
    rng, agree = np.random.default_rng(8), 0
    clusters = np.repeat(np.arange(60), 3)
    for _ in range(200):
        shift = rng.normal(0.08, 0.08)
        pairs = [rng.normal(shift + rng.normal(0, 0.05), 0.6, len(clusters)) for _ in range(3)]
        (verdict,) = verdicts([np.stack(pairs)], clusters)
        assert verdict.p_seeds is not None
        assert verdict.p >= verdict.p_seeds
        agree += (verdict.p < 0.05) == verdict.shown
        for level in (0.90, 0.95, 0.99):
            result = verdict.interval_at(level)
            agree += (verdict.p < 1 - level) == (result.low > 0 or result.high < 0)
    assert agree == 800
    assert verdicts([np.ones((1, len(clusters)))], clusters)[0].p == 1


def test_pairs_of_runs_that_differ_by_exactly_as_much_show_nothing() -> None:
    """One run given twice under two seeds has no spread: its interval over seeds would be a point, however lucky the run."""
    clusters = np.repeat(np.arange(200), 2)
    lucky = (np.random.default_rng(0).random(len(clusters)) < 0.9).astype(float)
    (verdict,) = verdicts([np.stack([2 * lucky - 1] * 3)], clusters)
    assert verdict.over_documents.low > 0
    assert verdict.over_seeds is None
    assert verdict.p_seeds is None
    assert not verdict.shown


def test_what_could_be_shown_is_said_from_three_pairs_of_runs_on() -> None:
    documents = Estimate(0.01, -0.01, 0.03, 400)
    per_seed = np.array([0.010, 0.012, 0.008])
    wide, narrow = method_verdict(per_seed, documents, 0.02), method_verdict(per_seed, documents, 0.0001)
    assert wide.detectable == pytest.approx((1.9719 + 0.8434) * (0.02**2 + 0.002**2 / 3) ** 0.5, rel=1e-3)
    assert narrow.detectable == pytest.approx((4.3027 + 1.0607) * 0.002 / 3**0.5, rel=1e-2)
    assert method_verdict(per_seed[:2], documents, 0.02).detectable is None
    assert method_verdict(per_seed[:1], documents, 0.02).detectable is None


def test_the_interval_over_both_adds_the_variances() -> None:
    """Welch's two samples are the worked case: variances of two means, each with its own degrees of freedom."""
    rng = np.random.default_rng(0)
    runs, documents = rng.normal(0.02, 0.01, 5), rng.normal(0.0, 0.03, 12)
    error = float(documents.std(ddof=1)) / 12**0.5
    verdict = method_verdict(runs, Estimate(0.02, 0.0, 0.04, 12), error, 1 / 12)
    degrees = int(stats.ttest_ind(runs, documents, equal_var=False).df)
    total = (runs.var(ddof=1) / 5 + error**2) ** 0.5
    assert verdict.over_both is not None
    assert verdict.over_both.high - verdict.over_both.low == pytest.approx(2 * stats.t.ppf(0.975, degrees) * total, rel=1e-6)


def test_seeds_and_documents_may_explain_together_what_neither_does_alone() -> None:
    per_seed = np.array([0.0075, 0.0100, 0.0125, 0.0090, 0.0110]) * 2.2
    per_seed = per_seed.mean() + (per_seed - per_seed.mean()) * 3.2
    documents = Estimate(float(per_seed.mean()), 0.0005, 0.0435, 900)
    verdict = method_verdict(per_seed, documents, 0.011)
    assert verdict.over_seeds is not None
    assert verdict.over_seeds.low > 0
    assert verdict.over_documents.low > 0
    assert verdict.over_both is not None
    assert verdict.over_both.low < 0
    assert not verdict.shown
    assert verdict.interval.low < 0


@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_methods_are_rarely_told_apart_where_seeds_and_documents_vary_alike(seeds: int) -> None:
    """Both intervals alone would let through 8% of equal methods with five seeds."""
    rng = np.random.default_rng(seeds)
    clusters = np.repeat(np.arange(150), 2)
    pairs = []
    for _ in range(400):
        documents = np.repeat(rng.normal(0, 1, 150), 2)
        shift = rng.normal(0, (seeds / 150) ** 0.5, (seeds, 1))
        pairs.append(documents + shift + rng.normal(0, 0.5, (seeds, 300)))
    assert np.mean([verdict.shown for verdict in verdicts(pairs, clusters)]) < 0.065


def test_a_table_of_pairs_by_further_seeds_is_judged_over_both() -> None:
    """Worked by hand: rows differ by 2 in their means, columns by 1, and nothing is left over."""
    table = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]) / 100
    wide = Estimate(0.03, 0.02, 0.04, 100)
    verdict = method_verdict(table, wide, 0.0)
    rows, columns = np.sqrt(2) / np.sqrt(2), 1 / np.sqrt(3)
    degrees = int((rows**2 + columns**2) ** 2 / (rows**4 / 1 + columns**4 / 2))
    together = np.sqrt(rows**2 + columns**2)
    reaches = [stats.t.ppf(0.975, k) * error for error, k in ((rows, 1), (columns, 2), (together, degrees))]
    assert verdict.over_seeds is not None
    assert 100 * verdict.over_seeds.high == pytest.approx(3 + max(reaches))
    assert verdict.p_seeds == pytest.approx(2 * stats.t.sf(min(3 / rows, 3 / together), 1))
    assert method_verdict(table[:, :1], wide, 0.0).over_seeds is None  # one further seed for all: its luck is in every pair
    assert method_verdict(np.repeat(table.mean(axis=1)[:, None], 3, axis=1), wide, 0.0).over_seeds is not None


@pytest.mark.parametrize(("pairs", "further"), [(3, 2), (8, 2), (8, 4)])
def test_equal_methods_are_rarely_told_apart_where_pairs_share_further_seeds(pairs: int, further: int) -> None:
    """Read as one number per pair, the same tables show a difference in 15 to 40 of a hundred."""
    rng, sets = np.random.default_rng(1), 600
    no_documents = Estimate(0.0, 0.0, 0.0, 100)
    shown = naive = 0
    for _ in range(sets):
        table = rng.normal(0, 1.26, (1, further)) + rng.normal(0, 1.58, (pairs, further))
        result = [method_verdict(item, no_documents, 0.0).p_seeds for item in (table, table.mean(axis=1))]
        shown, naive = shown + (result[0] < 0.05), naive + (result[1] < 0.05)  # type: ignore[operator]
    assert shown / sets < 0.07
    assert naive / sets > 0.1


def test_equal_methods_are_rarely_told_apart_on_few_documents_of_very_unequal_size() -> None:
    """Counting titles as if they were alike shows a difference in 6.5% of equal methods that five seeds agree on."""
    rng = np.random.default_rng(0)
    sizes = np.rint(10 * np.exp(1.4 * stats.norm.ppf((np.arange(38) + 0.5) / 38))).clip(1).astype(int)
    clusters = np.repeat(np.arange(38), sizes)
    pairs = []
    for _ in range(1500):
        shared = rng.normal(size=38)[clusters] + rng.normal(size=len(clusters))
        pairs.append(shared + rng.normal(0, 0.3, size=(5, len(clusters))))
    assert np.mean([verdict.shown for verdict in verdicts(pairs, clusters)]) <= 0.055
