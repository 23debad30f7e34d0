"""Plans: against the test itself on drawn studies, and what is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coref_automl.statistics.crossed import crossed, spread_of
from coref_automl.statistics.families import judge_columns
from coref_automl.statistics.planning import Components, components_of, detectable_difference, items_needed, plans_for
from coref_automl.statistics.resampling import Part, gather

SPREADS = Components(0.2, 0.1, 0.004)


def studies(rng: np.random.Generator, sets: int, seeds: int, items: int, gain: float) -> tuple[np.ndarray, np.ndarray]:
    """Two methods whose difference on an item has the spread of SPREADS; one item per document."""
    lasting = rng.normal(gain, SPREADS.items, (sets, 1, items)), np.zeros((sets, 1, items))
    sides = [
        item + rng.normal(0, SPREADS.flips, (sets, seeds, items)) + rng.normal(0, SPREADS.seeds, (sets, seeds, 1))
        for item in lasting
    ]
    return sides[0], sides[1]


@pytest.mark.parametrize(("seeds", "items"), [(2, 300), (3, 300), (5, 60)])
def test_the_stated_difference_is_shown_four_times_in_five(seeds: int, items: int) -> None:
    sizes = np.ones(items)
    gain = detectable_difference(sizes, seeds, components=SPREADS)
    assert gain is not None
    a, b = studies(np.random.default_rng(0), 400, seeds, items, gain)
    result = spread_of([a], [b], [sizes])
    shown = float(np.mean(result.test.difference > result.reach()))
    assert shown == pytest.approx(0.8, abs=0.08)


def test_more_seeds_documents_and_fewer_comparisons_show_less() -> None:
    sizes = np.resize([1, 2, 3], 300)
    usual = detectable_difference(sizes, 3)
    assert usual is not None
    others = [
        detectable_difference(sizes, 8),
        detectable_difference(np.resize(sizes, 900), 3),
        detectable_difference(sizes, 3, against_model=True),
    ]
    assert all(other is not None and other < usual for other in others)
    corrected = detectable_difference(sizes, 3, comparisons=6)
    assert corrected is not None
    assert corrected > usual
    assert detectable_difference(sizes, 1) is None
    assert detectable_difference([40], 8) is None


def test_the_spreads_of_a_study_are_found_again() -> None:
    a, b = studies(np.random.default_rng(1), 40, 6, 400, 0.02)
    verdicts = [crossed([x], [y], [np.arange(400)]) for x, y in zip(a, b, strict=True)]
    result = components_of(verdicts)
    assert result is not None
    assert (result.items, result.flips) == (pytest.approx(SPREADS.items, rel=0.05), pytest.approx(SPREADS.flips, rel=0.05))
    assert result.seeds == pytest.approx(SPREADS.seeds, rel=0.5)
    one = crossed([a[0][:1]], [b[0]], [np.arange(400)])
    assert components_of([one]) is None


def test_a_plan_is_the_fewest_items_that_can_show_it() -> None:
    plans = {plan.seeds: plan for plan in plans_for(0.02, items_a_document=1.0, components=SPREADS)}
    assert list(plans) == sorted(plans)
    assert plans[8].items < plans[3].items
    for plan in plans.values():
        result = detectable_difference(np.ones(plan.items), plan.seeds, components=SPREADS)
        fewer = detectable_difference(np.ones(int(0.97 * plan.items)), plan.seeds, components=SPREADS)
        assert result is not None
        assert result <= 0.02
        assert fewer is None or fewer > 0.02
    with pytest.raises(ValueError, match="between 0 and 1"):
        plans_for(2.0)


@pytest.mark.parametrize(("effect", "differing", "family"), [(0.1, 0.2, 1), (0.03, 0.1, 6), (0.09, 0.14, 3)])
def test_items_needed_is_the_least_number_that_satisfies_its_inequality(effect: float, differing: float, family: int) -> None:
    def enough(n: int) -> bool:
        null, true = np.sqrt(n * differing), np.sqrt(n * (differing - effect**2))
        return bool(n * effect >= stats.norm.ppf(1 - 0.025 / family) * null + stats.norm.ppf(0.8) * true)

    n = items_needed(effect, differing, family=family)
    assert enough(n)
    assert not enough(n - 1)
    assert items_needed(effect, differing, family=family, design=1.5) == pytest.approx(1.5 * n, abs=2)
    assert items_needed(effect, differing, family=family, power=0.9) > n


@pytest.mark.parametrize(("effect", "differing"), [(0.12, 0.3), (0.09, 0.14)])
def test_so_many_items_detect_the_effect_four_times_in_five(effect: float, differing: float) -> None:
    rng, n = np.random.default_rng(0), items_needed(effect, differing)
    shares = [(differing - effect) / 2, 1 - differing, (differing + effect) / 2]
    studies = rng.choice([-1.0, 0.0, 1.0], p=shares, size=(24, n, 25))
    ps = [one.p for some in studies for one in judge_columns([gather(Part(some, np.arange(n)))])]
    detected = np.mean(np.array(ps) < 0.05)
    assert 0.75 < detected < 0.86


@pytest.mark.parametrize(("effect", "differing"), [(0.0, 0.2), (0.3, 0.2), (0.1, 1.1)])
def test_an_effect_that_cannot_be_is_refused(effect: float, differing: float) -> None:
    with pytest.raises(ValueError, match="cannot come from"):
        items_needed(effect, differing)
