"""Ranks and F1s over documents: by hand, against a clustered regression and brute force, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.extras.coreference.metrics import CONLL, METRICS, Ratio, conll, sum_scores
from coref_automl.statistics.methods import by_document, f1_of_sums, mean_f1, ratio_verdict, reciprocal
from coref_automl.statistics.resampling import resampled_f1

Array = np.ndarray
NOVELS = 40


@settings(max_examples=100)
@given(st.lists(st.integers(0, 32_000), min_size=1, max_size=40))
def test_a_rank_counts_by_its_reciprocal_and_no_rank_counts_nothing(ranks: list[int]) -> None:
    whole = reciprocal(ranks)
    assert np.isfinite(whole).all()
    assert whole.tolist() == pytest.approx([1 / rank if rank else 0.0 for rank in ranks])


def test_runs_that_were_drawn_before_have_the_f1_of_the_documents_drawn() -> None:
    rng, documents = np.random.default_rng(0), np.arange(60) // 3
    gold = rng.random(60) < 0.6
    answered = rng.random((60, 5)) < 0.7
    right = answered & gold[:, None] & (rng.random((60, 5)) < 0.8)
    result = [
        resampled_f1(right[:, runs], answered[:, runs], gold, documents, seed=4, draws=50) for runs in ([0, 1], [1, 3, 0, 3], [4])
    ]
    samples = np.random.default_rng(4).integers(0, 20, size=(50, 20))
    hits, both = (item.reshape(20, 3, 5).sum(1)[samples].sum(1) for item in (right, answered.astype(int) + gold[:, None]))
    for runs, one in zip(([0, 1], [1, 3, 0, 3], [4]), result, strict=True):
        assert np.allclose(one, (2 * hits / both)[:, runs])
    other = resampled_f1(right, answered, gold, documents[::-1] // 2, seed=4, draws=50)
    assert not np.allclose(other[:, 0], result[0][:, 0])


def sizes_of(rng: np.random.Generator) -> Array:
    """Mentions of forty novels: five of them hold about a third."""
    return np.maximum(40, rng.lognormal(5.6, 0.6, NOVELS)).astype(int)


def run(rng: np.random.Generator, sizes: Array, skill: Array) -> Array:
    """One run's sums [document, metric, 4]: its skill by document, and luck of its own in each."""
    own = np.clip(skill + 0.03 * rng.normal(size=len(sizes)), 0.05, 0.98)
    rates = own[:, None] * np.array([1.0, 0.9, 0.7]) + 0.01 * rng.normal(size=(len(sizes), 3))
    gold = sizes[:, None] * np.array([0.9, 1.0, 0.2])
    answered = gold * np.array([0.98, 1.0, 1.3])
    hit = np.clip(rates, 0, 1) * gold
    return np.stack([hit, gold, np.minimum(hit * np.array([1.0, 0.98, 1.0]), answered), answered], axis=-1)


def method(
    rng: np.random.Generator, sizes: Array, common: Array, runs: int, *, gain: float = 0.0, spread: float = 0.0
) -> list[Array]:
    """Runs of one method: its own taste in documents, and each run's luck in all of them."""
    taste = common + gain + 0.03 * rng.normal(size=len(sizes))
    return [run(rng, sizes, taste + spread * rng.normal()) for _ in range(runs)]


def test_the_weighted_mean_of_the_values_is_the_score_itself() -> None:
    rng = np.random.default_rng(0)
    sizes = sizes_of(rng)
    sums = run(rng, sizes, np.full(NOVELS, 0.7))
    assert np.average(by_document(sums, sizes), weights=sizes) == pytest.approx(float(mean_f1(sums)))
    scored = [{name: Ratio(*row) for name, row in zip(CONLL, document, strict=True)} for document in sums.tolist()]
    blank = {name: Ratio(0, 0, 0, 0) for name in METRICS}
    assert float(mean_f1(sums)) == pytest.approx(conll(sum_scores({**blank, **item} for item in scored)))


def test_a_value_says_how_far_the_score_moves_without_its_document() -> None:
    rng = np.random.default_rng(1)
    sizes = sizes_of(rng)
    sums = run(rng, sizes, 0.7 + 0.1 * rng.normal(size=NOVELS))
    moved = (by_document(sums, sizes) - mean_f1(sums)) * sizes / (sizes.sum() - sizes)
    without = np.array([mean_f1(sums) - mean_f1(np.delete(sums, number, axis=0)) for number in range(NOVELS)])
    assert np.corrcoef(moved, without)[0, 1] > 0.999
    assert moved == pytest.approx(without, abs=0.05 * np.abs(without).max())


def test_the_error_over_documents_is_that_of_resampling_them() -> None:
    rng = np.random.default_rng(2)
    sizes = sizes_of(rng)
    common = 0.7 + 0.1 * rng.normal(size=NOVELS)
    a, b = method(rng, sizes, common, 3), method(rng, sizes, common, 3)
    verdict = ratio_verdict([by_document(item, sizes) for item in a], [by_document(entry, sizes) for entry in b], sizes)
    samples = []
    for _ in range(2_000):
        rows = rng.integers(0, NOVELS, NOVELS)
        samples.append(np.mean([mean_f1(one[rows]) for one in a]) - np.mean([mean_f1(one[rows]) for one in b]))
    assert verdict.difference == pytest.approx(float(np.mean([mean_f1(x) for x in a]) - np.mean([mean_f1(x) for x in b])))
    assert verdict.by_documents == pytest.approx(float(np.std(samples)), rel=0.15)
    assert (verdict.documents, verdict.seeds, verdict.interval.n) == (NOVELS, (3, 3), sizes.sum())


@pytest.mark.parametrize(
    "spread", [pytest.param(0.0, marks=pytest.mark.journey), 0.01, pytest.param(0.03, marks=pytest.mark.journey)]
)
def test_equal_methods_are_seldom_told_apart(spread: float) -> None:
    """Other novels and other seeds each time, no true difference: about one verdict in twenty may be wrong."""
    rng, shown, tries = np.random.default_rng(3), 0, 300
    for _ in range(tries):
        sizes = sizes_of(rng)
        common = 0.7 + 0.1 * rng.normal(size=NOVELS)
        sides = [[by_document(item, sizes) for item in method(rng, sizes, common, 3, spread=spread)] for _ in range(2)]
        shown += ratio_verdict(*sides, sizes).shown
    assert shown / tries < 0.085  # two standard errors above 0.05


def test_a_difference_as_large_as_the_detectable_one_is_mostly_shown() -> None:
    rng, shown, tries = np.random.default_rng(4), 0, 200
    for _ in range(tries):
        sizes = sizes_of(rng)
        common = 0.7 + 0.1 * rng.normal(size=NOVELS)
        a, b = (method(rng, sizes, common, 3, gain=gain) for gain in (0.03, 0.0))
        verdict = ratio_verdict([by_document(item, sizes) for item in a], [by_document(entry, sizes) for entry in b], sizes)
        shown += verdict.shown
    assert verdict.detectable == pytest.approx(0.02, abs=0.01)
    assert shown / tries > 0.7


def test_nothing_asked_or_given_is_no_number_to_divide_by() -> None:
    sums = np.zeros((5, 3, 4))
    assert f1_of_sums(sums).max() == 0
    assert np.isfinite(by_document(sums, np.ones(5))).all()
    sums[..., 1] = 4.0  # gold mentions, and no answer
    assert by_document(sums, np.full(5, 4.0)) == pytest.approx(np.zeros(5))
