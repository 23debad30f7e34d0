"""Cutting a document: every part fits, no token is lost, and a cut falls at a sentence end where there is one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.corpus.encode import cuts, sentence_ends
from tests.corpus.conftest import korean_text


def words_of(text: str) -> tuple[np.ndarray, np.ndarray]:
    starts, ends, at = [], [], 0
    for word in text.split():
        starts.append(text.index(word, at))
        at = starts[-1] + len(word)
        ends.append(at)
    return np.array(starts, np.int32), np.array(ends, np.int32)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(2, 25))
def test_parts_fit_and_lose_nothing(sentences: list[int], capacity: int) -> None:
    text = " ".join(" ".join(["가나"] * length) + "다." for length in sentences)
    starts, ends = words_of(text)
    edges = cuts(starts, ends, sentence_ends(text, None), capacity)
    assert edges[0] == 0
    assert edges[-1] == len(starts)
    assert all(0 < high - low <= capacity for low, high in pairwise(edges))
    sentence_starts = {0, *np.searchsorted(starts, sentence_ends(text, None)).tolist()}
    for low, high in pairwise(edges):
        inside = [at for at in sentence_starts if low < at <= high]
        assert high == len(starts) or not inside or high == max(inside)


def test_a_short_document_is_one_part() -> None:
    starts, ends = words_of("한 문장이다.")
    assert cuts(starts, ends, sentence_ends("한 문장이다.", None), 10) == [0, 2]


def test_a_sentence_longer_than_a_part_is_cut_between_words() -> None:
    starts = np.array([0, 2, 5, 7, 9, 12], np.int32)
    ends = np.array([2, 4, 7, 9, 11, 14], np.int32)  # words: 0-1, 2-4, 5
    assert cuts(starts, ends, np.array([], np.int32), 4) == [0, 2, 6]


def test_a_word_longer_than_a_part_is_cut_anywhere() -> None:
    edges = np.arange(10, dtype=np.int32)
    assert cuts(edges, edges + 1, np.array([], np.int32), 4) == [0, 4, 8, 10]


def test_numbers_and_abbreviations_end_no_sentence() -> None:
    text = "1. 서론이다. U.S. 정부는 3.14를 썼다. 끝"
    assert [text[:end][-4:] for end in sentence_ends(text, None)] == ["론이다.", " 썼다."]


def test_line_breaks_end_sentences() -> None:
    text = korean_text(1, 4)
    assert text.index("\n") + 1 in sentence_ends(text, None)
