"""Candidates become rows, and summed log-probabilities a rank; nothing is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coref_automl.evaluation.answers import Candidates, masked_rows, read_candidates, sample, wanted_ids
from tests.evaluation.tiny import item, items

MASK, UNKNOWN = 4, 1
PIECES = {"한국": [10], "서울": [20, 21], "부산": [30, 31], "가나다라마": [40, 41, 42, 43, 44], "뷁": [UNKNOWN]}


def candidates(*groups: tuple[str, ...]) -> Candidates:
    return read_candidates(replace(item("1", "도서관"), candidates=groups), PIECES.__getitem__, UNKNOWN)


def test_one_row_for_each_number_of_pieces() -> None:
    rows = masked_rows(candidates(("한국",), ("서울",), ("부산",)), MASK)
    assert [row.gap_ids for row in rows] == [(MASK,), (MASK, MASK)]
    assert rows[1].targets == (((20, 1), (30, 2)), ((21, 1), (31, 2)))


def test_a_long_word_is_scored_by_its_first_four_pieces() -> None:
    words = candidates(("가나다라마",), ("한국",))
    assert words.words[0] == (40, 41, 42, 43)
    assert max(len(row.gap_ids) for row in masked_rows(words, MASK)) == 4


def test_the_score_is_a_mean_so_that_length_does_not_decide() -> None:
    words = candidates(("한국",), ("서울",))
    assert words.rank(np.array([-2.0, -3.0])) == 2
    assert words.rank(np.array([-1.0, -3.0])) == 1


def test_ties_go_against_the_answer() -> None:
    assert candidates(("한국",), ("서울",), ("부산",)).rank(np.array([-1.0, -2.0, -4.0])) == 2


def test_a_word_with_an_unknown_piece_comes_last() -> None:
    assert candidates(("뷁",), ("한국",)).rank(np.array([0.0, -9.0])) == 2
    assert candidates(("한국",), ("뷁",)).rank(np.array([-9.0, 0.0])) == 1


def test_a_group_counts_by_its_best_surface() -> None:
    assert candidates(("한국", "서울"), ("부산",)).rank(np.array([-9.0, -1.0, -2.0])) == 1


def test_the_sample_is_fixed_and_of_its_size() -> None:
    assert sample(items(), 4) == sample(items()[::-1], 4)
    assert len(sample(items(), 4)) == 4
    assert wanted_ids(items(), "none") == frozenset()
    assert wanted_ids(items(), "gold") == frozenset()
    assert wanted_ids([replace(case, task="gold") for case in items()], "gold") == {case.id for case in items()}
    assert wanted_ids(items(), "all") == {case.id for case in items()}
    assert wanted_ids([replace(case, candidates=case.candidates[:1]) for case in items()], "all") == frozenset()
