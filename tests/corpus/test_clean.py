"""Cleaning changes no meaning, does its work once, and gives a reason for every drop."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.corpus.clean import Filters, hangul_share, normalise, reason_to_drop
from tests.corpus.conftest import korean_text

_MIXED = st.text(alphabet=st.sampled_from("가나ᄒᆞᆫ힣각 \t\n\r\u2028\u200b\ufeff\x00\x85abc.。😀👨‍👩‍👧\ud800ᆨ"), max_size=60)


@given(st.text(max_size=80) | _MIXED)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not any(ord(c) < 32 and c != "\n" for c in once)
    once.encode("utf-8")


_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_SPACES = " \t\x1f\u00a0\u3000"


@given(st.lists(st.tuples(st.text("가나다라", min_size=1, max_size=4), st.text(_BREAKS + _SPACES, min_size=1, max_size=3))))
def test_what_stands_between_two_words_keeps_them_apart(pairs: list[tuple[str, str]]) -> None:
    """Form feeds stand between the pages of a text taken from a PDF, and NEL ends the lines of mainframes."""
    text = normalise("".join(word + between for word, between in pairs))
    assert text.split() == [word for word, _ in pairs]
    breaks = [bool(set(between) & set(_BREAKS)) for _, between in pairs[:-1]]
    assert [character == "\n" for character in text if character in " \n"] == breaks


def test_decomposed_text_becomes_the_same_as_composed() -> None:
    text = korean_text(1)
    assert normalise(unicodedata.normalize("NFD", text)) == normalise(text)


def test_old_hangul_and_emoji_stay() -> None:
    assert normalise("나랏〮말ᄊᆞ미 👨‍👩‍👧 中國에 달아") == "나랏〮말ᄊᆞ미 👨‍👩‍👧 中國에 달아"


def test_boilerplate_lines_go_and_the_document_stays() -> None:
    assert normalise("기사 본문이다.\n무단 전재 및 재배포 금지\n같이 보기\n끝이다.") == "기사 본문이다.\n끝이다."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty after cleaning"),
        ("짧다", "under 200 characters"),
        ("english words only " * 20, "under 50% Hangul"),
        ("목록\n" * 150, "most lines repeat"),
        (korean_text(1), None),
        ("1914년 7월 28일, 3,000만 명! " * 15, None),
    ],
)
def test_every_drop_has_its_reason(text: str, reason: str | None) -> None:
    assert reason_to_drop(text, Filters()) == reason


def test_digits_and_marks_are_no_letters_for_the_hangul_share() -> None:
    assert hangul_share("서울 2024!! 😀 〈〉") == 1.0
    assert hangul_share("서울 ab") == 0.5
    assert hangul_share("나랏말ᄊᆞ미") == 1.0
    assert hangul_share("12 34") == 0.0


def test_a_sentence_about_copies_is_no_boilerplate() -> None:
    text = "피고인은 원고의 프로그램을 무단 복제하여 판매한 혐의로 기소되었다."
    assert normalise(text) == text
