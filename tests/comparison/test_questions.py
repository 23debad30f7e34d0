"""Narrow intervals: what is said of a difference that is not shown, given the shown gain and the margin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coref_automl.base.records import Estimate
from coref_automl.comparison.claims import BASE, Caveat, Claim
from coref_automl.comparison.questions import leading_question, with_equivalence

MARGIN = 0.02
CLAIM = Claim("method", "entity", "mlm", "real1", "all", 100, (3, 3), Estimate(0, -0.005, 0.004, 300), "crossed", "not shown")


def interval(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 300)


@pytest.mark.parametrize(
    ("high", "gain", "excluded"),
    [(0.006, 0.012, True), (0.014, 0.012, False), (0.014, None, True), (0.021, None, False), (0.021, 0.05, False)],
)
def test_a_gain_is_excluded_below_the_shown_one_and_the_margin(high: float, gain: float | None, excluded: bool) -> None:
    claim = with_equivalence(replace(CLAIM, b=BASE, difference=interval(-0.009, high)), metric="real1", margin=MARGIN, gain=gain)
    assert claim.verdict == ("no gain" if excluded else "not shown")


@pytest.mark.parametrize(
    ("low", "high", "gain", "near"),
    [
        (-0.005, 0.004, 0.012, 0.006),
        (-0.007, 0.001, 0.012, None),
        (-0.018, 0.018, 0.05, MARGIN),
        (-0.024, 0.001, 0.05, None),
        (-0.001, 0.001, None, None),
    ],
)
def test_methods_are_equivalent_within_half_the_shown_gain(
    low: float, high: float, gain: float | None, near: float | None
) -> None:
    claim = with_equivalence(replace(CLAIM, difference=interval(low, high)), metric="real1", margin=MARGIN, gain=gain)
    assert (claim.verdict, claim.within) == (("equivalent", near) if near is not None else ("not shown", None))


@pytest.mark.parametrize("changes", [{"question": "far"}, {"outcome": "real5"}, {"verdict": "not judged"}])
def test_nothing_else_is_called_equivalent(changes: dict[str, str]) -> None:
    claim = replace(CLAIM, **changes)  # type: ignore[arg-type]
    assert with_equivalence(claim, metric="real1", margin=MARGIN, gain=0.05) is claim


@pytest.mark.parametrize("caveat", ["checkpoint", "before correction"])
@pytest.mark.parametrize("b", [BASE, "mlm"])
def test_claims_about_checkpoints_and_those_lost_to_correction_stay(caveat: Caveat, b: str) -> None:
    claim = replace(CLAIM, b=b, against=(caveat,))
    assert with_equivalence(claim, metric="real1", margin=MARGIN, gain=0.05) is claim


def test_a_judged_claim_about_the_method_to_use_leads_and_the_weakest_source_answers_for_all() -> None:
    other, unjudged = replace(CLAIM, a="combined"), replace(CLAIM, b=BASE, verdict="not judged")
    question = leading_question([other, unjudged, CLAIM], ["entity"], mlm="mlm", metric="real1")
    assert (question.lead, question.others, question.tested) == (CLAIM, (other, unjudged), True)
    assert not leading_question([other], ["entity"], mlm="mlm", metric="real1").tested
    sources = [
        replace(CLAIM, question="sources", part=part, difference=interval(low, 0.1)) for part, low in (("a", 0.02), ("b", -0.02))
    ]
    assert leading_question(sources, ["entity"], mlm="mlm", metric="real1").lead.part == "b"
