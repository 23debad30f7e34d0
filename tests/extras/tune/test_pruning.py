"""Promotion: the better half goes on, by reciprocal ranks within an objective and by the score across them."""

from __future__ import annotations

from coref_automl.extras.tune.problem import Rung, reason_to_prune

OF_ITS_OBJECTIVE = "not in the better half of its objective at 1/4 of the budget"


def test_the_better_half_of_an_objective_goes_on() -> None:
    others = [Rung(0, "entity", 0.5, 0.6), Rung(1, "entity", 0.4, 0.5)]
    assert reason_to_prune(Rung(2, "entity", 0.55, 0.7), others, 1) is None
    assert reason_to_prune(Rung(2, "entity", 0.45, 0.4), others, 1) == OF_ITS_OBJECTIVE


def test_within_an_objective_reciprocal_ranks_decide_and_not_the_score() -> None:
    others = [Rung(0, "entity", 0.50, 0.60), Rung(1, "entity", 0.49, 0.59)]
    assert reason_to_prune(Rung(2, "entity", 0.45, 0.61), others, 1) is not None  # across all it is behind by the score
    assert reason_to_prune(Rung(2, "entity", 0.51, 0.55), others, 1) == OF_ITS_OBJECTIVE


def test_across_objectives_the_score_decides_and_the_best_of_an_objective_stays() -> None:
    others = [Rung(0, "entity", 0.6, 0.6), Rung(1, "entity", 0.6, 0.6), Rung(2, "mlm", 0.5, 0.9), Rung(3, "mlm", 0.3, 0.2)]
    assert reason_to_prune(Rung(4, "mlm", 0.55, 0.95), others, 1) is None  # the best of its objective
    assert reason_to_prune(Rung(4, "mlm", 0.45, 0.95), others, 2) == "not in the better half of all trials at 2/4 of the budget"
    assert reason_to_prune(Rung(4, "link", 0.1, 0.1), others, 1) is None  # the first of its objective


def test_nothing_is_cut_between_the_rungs() -> None:
    others = [Rung(0, "entity", 0.6, 0.6), Rung(1, "entity", 0.6, 0.6)]
    assert reason_to_prune(Rung(2, "entity", 0.1, 0.1), others, 3) is None
    assert reason_to_prune(Rung(2, "entity", 0.1, 0.1), others, 4) is None


def test_without_reciprocal_ranks_the_score_decides() -> None:
    others = [Rung(0, "", 0.6), Rung(1, "", 0.5)]
    assert reason_to_prune(Rung(2, "", 0.7), others, 1) is None
    assert reason_to_prune(Rung(2, "", 0.55), others, 1) is not None
