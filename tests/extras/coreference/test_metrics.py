"""The reference scorers' published test cases, in our own form: a letter is a mention, a word a chain."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from coref_automl.extras.coreference.metrics import METRICS, as_chains, conll, max_assignment, score_document, sum_scores

KEY = "a bc def"
F, HALF = 5 / 9, 17 / 42
CASES = {
    # name: (key, response, {metric: (recall, precision)})
    "A1": (KEY, "a bc def", {"muc": (1, 1), "b_cubed": (1, 1), "ceaf_e": (1, 1), "lea": (1, 1)}),
    "A2": (KEY, "a de", {"muc": (1 / 3, 1), "b_cubed": (7 / 18, 1), "ceaf_e": (0.6, 0.9), "lea": ((1 + 3 * 1 / 3) / 6, 1)}),
    "A3": (KEY, "a bcx defy z", {"muc": (1, 3 / 5), "b_cubed": (1, 55 / 108), "ceaf_e": (0.88571, 0.66429),
                                 "lea": (1, (1 + 3 * (1 / 3) + 4 * (3 / 6)) / 9)}),
    "A4": (KEY, "a bcx dy z", {"muc": (1 / 3, 1 / 3), "b_cubed": (F, HALF), "ceaf_e": (0.73333, 0.55),
                               "lea": ((1 + 2 + 3 * 0) / 6, (1 + 3 * (1 / 3) + 2 * 0) / 7)}),
    "A5": (KEY, "a bcxB dy z", {"muc": (1 / 3, 1 / 4), "b_cubed": (F, 5 / 16), "ceaf_e": (0.68889, 0.51667),
                                "lea": ((1 + 2 + 3 * 0) / 6, (1 + 4 * (1 / 6) + 2 * 0) / 8)}),
    "A6": (KEY, "a bcx dy Bz", {"muc": (1 / 3, 1 / 4), "b_cubed": (F, 17 / 48), "ceaf_e": (0.73333, 0.55),
                                "lea": ((1 + 2 + 3 * 0) / 6, (1 + 3 / 3 + 2 * 0 + 2 * 0) / 8)}),
    "A7": (KEY, "a bcxb dy z", {"muc": (1 / 3, 1 / 3), "b_cubed": (F, HALF), "ceaf_e": (0.73333, 0.55),
                                "lea": ((1 + 2 + 3 * 0) / 6, (1 + 3 * (1 / 3) + 2 * 0) / 7)}),
    "A8": (KEY, "a bcx dy bz", {"muc": (1 / 3, 1 / 3), "b_cubed": (F, HALF), "ceaf_e": (0.73333, 0.55),
                                "lea": ((1 + 2 + 3 * 0) / 6, (1 + 3 * (1 / 3) + 2 * 0) / 7)}),
    "A9": (KEY, "a bcx dy bbbbbbbbbbz", {"muc": (1 / 3, 1 / 3), "b_cubed": (F, HALF), "ceaf_e": (0.73333, 0.55),
                                         "lea": ((1 + 2 + 3 * 0) / 6, (1 + 3 * (1 / 3) + 2 * 0) / 7)}),
    "A10": (KEY, "a b c d e f", {"muc": (0, 0), "b_cubed": (3 / 6, 1), "lea": (1 / 6, 1 / 6)}),
    "A11": (KEY, "abcdef", {"muc": (1, 3 / 5), "b_cubed": (1, 7 / 18), "lea": (5 / 6, 4 / 15)}),
    "A12": (KEY, "a x y c d e z", {"muc": (0, 0), "b_cubed": (13 / 36, 4 / 7), "lea": (1 / 6, 1 / 7)}),
    "A13": (KEY, "axycdez", {"muc": (1 / 3, 1 / 6), "b_cubed": (17 / 36, 6 / 49), "lea": (1 / 6, 1 / 21)}),
    "B1": ("ab cde", "bcx de", {"lea": ((2 * 0 + 3 * (1 / 3)) / 5, (3 * 0 + 2 * 1) / 5)}),
    "C1": ("ab cde fg", "bcx de fg", {"lea": ((2 * 0 + 3 * (1 / 3) + 2) / 7, (3 * 0 + 2 + 2) / 7)}),
    "D1": ("12345 67 89ABC", "12345 6789ABC", {"muc": (1, 9 / 10), "b_cubed": (1, 16 / 21),
                                               "lea": (1, (5 + 7 * (11 / 21)) / 12)}),
    "E1": ("12345 67 89ABC", "1234589ABC 67", {"muc": (1, 9 / 10), "b_cubed": (1, 7 / 12),
                                               "lea": (1, (10 * (20 / 45) + 2) / 12)}),
    "F1": ("ABCD", "AB CD", {"muc": (2 / 3, 1), "lea": (4 * (2 / 6) / 4, 1)}),
    "G1": ("AB CD", "ABCD", {"muc": (1, 2 / 3), "lea": (1, 4 * (2 / 6) / 4)}),
    "H1": ("ABCD", "ABCD", {"muc": (1, 1), "lea": (1, 1)}),
    "I1": ("ABCD", "AB CD", {"muc": (2 / 3, 1), "lea": (4 * (2 / 6) / 4, 1)}),
    "J1": ("ABC", "AC", {"muc": (1 / 2, 1), "lea": (1 / 3, 1)}),
    "K1": ("BCDEGHJ", "ABC DEF GHI", {"muc": (3 / 6, 3 / 6), "lea": (7 * (3 / 21) / 7, 3 * (1 / 3) * 3 / 9)}),
    "L1": ("ABC DEFG", "AB CD FGH", {"muc": (2 / 5, 2 / 4), "lea": ((3 * (1 / 3) + 4 * (1 / 6)) / 7, (2 + 3 * (1 / 3)) / 7)}),
    "M1": ("abcdef", "abcdef", {"muc": (1, 1), "b_cubed": (1, 1), "ceaf_e": (1, 1), "lea": (1, 1)}),
    "M2": ("abcdef", "a b c d e f", {"muc": (0, 0), "lea": (0, 0)}),
    "M3": ("abcdef", "ab cde f", {"lea": (6 * (4 / 15) / 6, (2 + 3 + 0) / 6)}),
    "M4": ("abcdef", "abcxyz", {"lea": (6 * (3 / 15) / 6, 6 * (3 / 15) / 6)}),
    "M5": ("abcdef", "a b c x y z", {"muc": (0, 0), "lea": (0, 0)}),
    "M6": ("abcdef", "ab cxy z", {"lea": (6 * (1 / 15) / 6, 2 / 6)}),
    "N1": ("a b c d e f", "a b c d e f", {"muc": (0, 0), "b_cubed": (1, 1), "ceaf_e": (1, 1), "lea": (1, 1)}),
    "N2": ("a b c d e f", "abcdef", {"muc": (0, 0), "lea": (0, 0)}),
    "N3": ("a b c d e f", "ab cde f", {"lea": (1 / 6, 1 / 6)}),
    "N4": ("a b c d e f", "a b c x y z", {"muc": (0, 0), "lea": (3 / 6, 3 / 6)}),
    "N5": ("a b c d e f", "abcxyz", {"lea": (0, 0)}),
    "N6": ("a b c d e f", "ab cxy z", {"lea": (0, 0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_reference_cases_come_out_as_published(name: str) -> None:
    key, response, expected = CASES[name]
    scores = score_document(key.split(), response.split())
    for metric, (recall, precision) in expected.items():
        assert scores[metric].recall == pytest.approx(recall, abs=1e-5), metric
        assert scores[metric].precision == pytest.approx(precision, abs=1e-5), metric


def test_conll_is_the_mean_of_three_f1s() -> None:
    scores = score_document(KEY.split(), ["a", "de"])
    assert conll(scores) == pytest.approx((0.5 + 14 / 25 + 0.72) / 3)


def test_mentions_are_scored_whatever_their_chains() -> None:
    ratio = score_document(KEY.split(), ["abx"])["mention"]
    assert (ratio.recall, ratio.precision) == pytest.approx((2 / 6, 2 / 3))


def test_without_singletons_chains_of_one_are_not_there() -> None:
    apart = score_document(KEY.split(), ["a", "bc", "def", "z"], singletons=False)
    assert all(apart[name].f1 == 1 for name in METRICS)
    assert score_document(KEY.split(), ["a", "bc", "def", "z"])["b_cubed"].f1 < 1


def test_documents_add_up_as_one_long_document() -> None:
    parts = [score_document(["ab", "c"], ["abc"]), score_document(["de", "fg"], ["de", "f"])]
    whole = score_document(["ab", "c", "de", "fg"], ["abc", "de", "f"])
    assert {name: ratio.f1 for name, ratio in sum_scores(parts).items()} == pytest.approx({n: r.f1 for n, r in whole.items()})


def test_nothing_predicted_and_nothing_annotated_score_nought() -> None:
    for gold, predicted in ((["ab"], []), ([], ["ab"]), ([], [])):
        assert all(ratio.f1 == 0 for ratio in score_document(gold, predicted).values())


def test_a_mention_that_two_chains_claim_stays_in_the_first() -> None:
    assert as_chains(["abc", "cd", "c"]) == [frozenset("abc"), frozenset("d")]


@pytest.mark.parametrize("seed", range(20))
def test_the_assignment_is_the_best_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.random(rng.integers(1, 9, 2)) * (rng.random() < 0.5 or 1)
    table[rng.random(table.shape) < 0.5] = 0
    rows, columns = linear_sum_assignment(table, maximize=True)
    assert max_assignment(table) == pytest.approx(table[rows, columns].sum())


def test_small_assignments_agree_with_trying_all() -> None:
    table = np.array([[0.5, 0.4, 0.0], [0.5, 0.1, 0.2]])
    assert max_assignment(table) == pytest.approx(max(table[0, i] + table[1, j] for i, j in itertools.permutations(range(3), 2)))
