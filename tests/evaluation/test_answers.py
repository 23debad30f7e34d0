"""Strict and lenient matches over a vocabulary are what a plain loop would find."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.evaluation.answers import MatchTable, matches

WORD = st.text(alphabet="가나다라", min_size=1, max_size=5)


@given(st.lists(st.one_of(st.none(), WORD), min_size=1, max_size=60), WORD, st.randoms())
def test_the_table_agrees_with_a_loop(words: list[str | None], answer: str, random: object) -> None:
    allowed = np.array([random.random() < 0.8 for _ in words])  # type: ignore[attr-defined]
    strict, lenient = MatchTable(words, allowed).of(answer)
    assert sorted(strict) == [at for at, word in enumerate(words) if allowed[at] and word == answer]
    assert sorted(lenient) == [at for at, word in enumerate(words) if allowed[at] and word and matches(word, answer)]


def test_the_lenient_rule() -> None:
    assert matches("대통령", "대통령")
    assert matches("부통령", "부통령실")
    assert matches("서울특별시", "서울")
    assert not matches("서울", "부산")
    assert not matches("이", "이순신")
    assert matches("왕", "왕")


def test_a_match_never_runs_from_one_word_into_the_next() -> None:
    table = MatchTable(["한국", "국가"], np.array([True, True]))
    assert table.of("국국가")[1].tolist() == [1]
    assert table.of("국\n국")[1].tolist() == []
