"""What has a closed form: checked against scipy, by hand, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coref_automl.statistics.closed_forms import holm, inverted_p, t_cdf, t_quantile, wilson


@pytest.mark.parametrize(("hits", "n"), [(0, 30), (1, 7), (15, 30), (642, 1000), (30, 30)])
def test_wilson_agrees_with_scipy(hits: int, n: int) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(method="wilson")
    ours = wilson(hits, n)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert ours.value == hits / n


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 501])
def test_student_agrees_with_scipy(degrees: int) -> None:
    assert t_cdf(1.7, degrees) == pytest.approx(stats.t.cdf(1.7, degrees), abs=1e-12)
    assert t_cdf(-0.4, degrees) == pytest.approx(stats.t.cdf(-0.4, degrees), abs=1e-12)
    assert t_quantile(0.975, degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)


def test_holm_by_hand_and_in_the_order_given() -> None:
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9]).tolist() == [0.9]
    assert holm([]).tolist() == []


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_and_keeps_their_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert np.all(adjusted >= np.array(ps))
    assert np.all(adjusted <= 1)
    assert np.all(np.diff(adjusted[np.argsort(ps, kind="stable")]) >= 0)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 30, 200])
def test_p_from_intervals_of_students_distribution_is_its_own(degrees: int) -> None:
    for t in (0.0, 0.3, 1.9, 2.1, 4.0, 9.0):
        p = inverted_p(t, lambda level: t_quantile((1 + level) / 2, degrees))
        assert p == pytest.approx(2 * stats.t.sf(t, degrees), rel=1e-5, abs=1.1e-10)
        assert t_quantile(1 - 0.05 / 30, degrees) == pytest.approx(stats.t.isf(0.05 / 30, degrees), rel=1e-8)
