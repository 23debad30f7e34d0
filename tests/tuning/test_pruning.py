"""The paired test between trials: what it sees, and what it leaves alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coref_automl.records import ItemScore
from coref_automl.tuning.halves import decode_hits, encode_hits
from coref_automl.tuning.problem import Report
from coref_automl.tuning.pruning import ALPHA, best_at, paired_p, reason_to_cut

CLUSTERS = (np.array([f"d{number // 2}" for number in range(80)]),)


def score(item: str, task: Any = "real", *, strict: int = 0, lenient: int = 0) -> ItemScore:
    return ItemScore(item, task, "c", "s", "답", "NNG", 1, strict, lenient, (), 1)


def test_hits_come_back_from_their_letters_in_the_order_of_the_items() -> None:
    scores = [score("b", strict=1), score("a", strict=3), score("c", strict=0)]
    assert encode_hits(scores, "real1_strict") == ("0a0",)
    assert [values.tolist() for values in decode_hits(("0a0",))] == [[0.0, 1.0, 0.0]]


def test_the_hits_of_a_composite_carry_its_weights() -> None:
    scores = [score("a", lenient=1), score("b", lenient=4), score("c", "lambada", lenient=1), score("d", "lambada")]
    assert encode_hits(scores, "score") == ("73", "30")


def trial(number: int, value: float, hits: str, step: int = 2, **attributes: Any) -> Any:
    return SimpleNamespace(
        number=number,
        intermediate_values={step: value},
        user_attrs={f"hits-{step}": [hits], **attributes},
        should_prune=lambda: False,
    )


def line(share: float, shift: int = 0) -> str:
    hits = np.roll(np.arange(80) < round(80 * share), shift)
    return "".join("a" if hit else "0" for hit in hits)


def test_the_best_at_the_same_point_is_the_opponent() -> None:
    others = [trial(0, 0.9, line(0.9), step=3), trial(1, 0.5, line(0.5)), trial(2, 0.7, line(0.7)), trial(3, 0.8, line(0.8))]
    best = best_at(2, others, without=3)
    assert best is not None
    assert best.number == 2
    assert best_at(5, others, without=3) is None


@pytest.mark.parametrize(("share", "cut"), [(0.2, True), (0.68, False), (0.9, False)])
def test_a_trial_is_cut_only_when_the_test_shows_it_worse(share: float, cut: bool) -> None:
    best = trial(0, 0.7, line(0.7))
    mine = trial(1, share, line(share))
    reason = reason_to_cut(mine, Report(2, share, (line(share),)), [best, mine], CLUSTERS, prune=True, seed=0)
    assert (reason is not None) == cut
    if reason:
        assert "worse than trial 0 at 2/8 of the budget: 50.0 points" in reason


def test_a_difference_within_few_documents_is_not_enough() -> None:
    few = (np.array(["one"] * 40 + ["two"] * 40),)
    p, behind = paired_p((line(0.2),), (line(0.9),), few, seed=0)
    assert behind == pytest.approx(0.7)
    assert p > ALPHA


def test_nothing_is_cut_at_the_end_nor_where_pruning_is_off() -> None:
    best, mine = trial(0, 0.9, line(0.9)), trial(1, 0.1, line(0.1))
    assert reason_to_cut(mine, Report(2, 0.1, (line(0.1),)), [best, mine], CLUSTERS, prune=False, seed=0) is None
    last = [trial(0, 0.9, line(0.9), step=8), trial(1, 0.1, line(0.1), step=8)]
    assert reason_to_cut(last[1], Report(8, 0.1, (line(0.1),)), last, CLUSTERS, prune=True, seed=0) is None
