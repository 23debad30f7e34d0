"""Many checkpoints at once: corrected comparisons, and the set that cannot be told from the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coref_automl.statistics.families import compare_documents, methods_not_told_from_best, not_told_from_best
from coref_automl.statistics.resampling import Part

Array = np.ndarray


def columns(rng: np.random.Generator, gains: list[float], documents: int = 80) -> Part:
    clusters = np.repeat(np.arange(documents), 3)
    common = rng.normal(size=(len(clusters), 1))
    values = common + 0.5 * rng.normal(size=(len(clusters), len(gains))) + np.array(gains)
    return Part(values, clusters)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_a_family_only_raises_p_and_intervals_agree_with_it(seed: int, many: int) -> None:
    rng = np.random.default_rng(seed)
    part = columns(rng, [0.0, *rng.normal(0, 0.15, size=many)])
    found = compare_documents([part], [None, *[0] * many])
    assert found[0] is None
    alone = [compare_documents([part], [None] * n + [0] + [None] * (many + 1 - n))[n] for n in range(1, many + 1)]
    for verdict, single in zip(found[1:], alone, strict=True):
        assert verdict is not None
        assert single is not None
        assert verdict.adjusted >= verdict.p == pytest.approx(single.p)
        assert single.p == single.adjusted
        interval = verdict.difference
        assert (verdict.adjusted < 0.05) == (interval.low > 0 or interval.high < 0)
        assert verdict.level >= 0.95 - 1e-9


def test_copies_of_a_column_cost_little_where_bonferroni_would_cost_all() -> None:
    rng = np.random.default_rng(4)
    part = columns(rng, [0.0, 0.14])
    values = np.asarray(part.values)
    ninety = Part(np.column_stack([values[:, :1], *[values[:, 1:]] * 90]), part.clusters)
    single, many = compare_documents([part], [None, 0])[1], compare_documents([ninety], [None, *[0] * 90])[1]
    assert single is not None
    assert many is not None
    assert single.p < 0.02
    assert many.adjusted < 1.6 * single.p + 0.002


def test_too_few_documents_are_not_judged() -> None:
    rng = np.random.default_rng(5)
    (verdict,) = compare_documents([columns(rng, [0.0, 3.0], documents=6)], [None, 0])[1:]
    assert verdict is not None
    assert (verdict.judged, verdict.p, verdict.difference.low <= 0) == (False, 1.0, True)


def test_equal_columns_are_rarely_told_apart() -> None:
    rng, false = np.random.default_rng(6), 0
    for _ in range(200):
        found = compare_documents([columns(rng, [0.0] * 5, documents=25)], [None, 0, 0, 0, 0])
        false += any(one is not None and one.adjusted < 0.05 for one in found)
    assert false <= 17  # 10 are expected at most


def test_the_best_stays_and_the_worse_leave() -> None:
    part = columns(np.random.default_rng(7), [0.50, 0.52, 0.0, 0.45])
    found, means = not_told_from_best([part]), np.asarray(part.values).mean(axis=0)
    assert found.members[0] == int(means.argmax())
    assert {0, 1} <= set(found.members)
    assert 2 not in found.members
    assert found.p[2] < 0.01


def test_columns_alike_all_stay() -> None:
    part = columns(np.random.default_rng(8), [0.0])
    same = Part(np.repeat(np.asarray(part.values), 3, axis=1), part.clusters)
    assert not_told_from_best([same]).members == (0, 1, 2)


def test_the_set_holds_the_best_in_nineteen_studies_of_twenty() -> None:
    rng, missed = np.random.default_rng(9), 0
    for _ in range(200):
        missed += 0 not in not_told_from_best([columns(rng, [0.05, 0.0, 0.0, 0.0], documents=30)]).members
    assert missed <= 17


def test_methods_leave_by_their_verdicts() -> None:
    leads = np.array([[0.0, 1.0, 5.0], [-1.0, 0.0, 4.0], [-5.0, -4.0, 0.0]])
    ps = np.array([[1.0, 0.3, 0.001], [0.3, 1.0, 0.02], [0.001, 0.02, 1.0]])
    found = methods_not_told_from_best(leads, ps)
    assert found.members == (0, 1)
    assert found.p == pytest.approx((1.0, 0.3, 0.001))
