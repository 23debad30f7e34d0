"""Mentions and chains: what is joined, what is left out, and what always holds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.korean import KINDS, PRONOUN, Tagger, Tags
from coref_automl.corpus.chains import NounMention, chains, mentions


def tags(*rows: tuple[int, int, str]) -> Tags:
    spans = np.array([row[:2] for row in rows], np.int32).reshape(-1, 2)
    return Tags(spans, np.array([KINDS.index(row[2]) for row in rows], np.uint8), np.array([], np.int32))


def test_nouns_written_together_are_one_mention_and_a_name_makes_it_a_name() -> None:
    text = "서울시청 직원"
    nouns = mentions(text, tags((0, 2, "NNP"), (2, 4, "NNG"), (5, 7, "NNG")))
    assert nouns == [NounMention(0, 4, "서울시청", "NNP"), NounMention(5, 7, "직원", "NNG")]


def test_a_single_syllable_joins_a_compound_but_is_no_mention_alone() -> None:
    assert mentions("강 한강물", tags((0, 1, "NNG"), (2, 4, "NNP"), (4, 5, "NNG"))) == [NounMention(2, 5, "한강물", "NNP")]


def test_only_hangul_makes_a_mention() -> None:
    assert mentions("AB 漢字 ㄱㄴ", tags((0, 2, "NNP"), (3, 5, "NNG"), (6, 8, "NNG"))) == []


def test_a_pronoun_between_two_nouns_keeps_them_apart() -> None:
    assert [m.form for m in mentions("서울그부산", tags((0, 2, "NNP"), (2, 3, "NP"), (3, 5, "NNP")))] == ["서울", "부산"]


def test_only_names_leaves_common_nouns_out() -> None:
    nouns = mentions("서울시청 직원", tags((0, 2, "NNP"), (2, 4, "NNG"), (5, 7, "NNG")), only_names=True)
    assert [m.form for m in nouns] == ["서울시청"]


def test_a_noun_inside_another_is_not_a_second_mention() -> None:
    assert [m.form for m in mentions("대한민국", tags((0, 4, "NNP"), (2, 4, "NNG")))] == ["대한민국"]


def mention(start: int, form: str) -> NounMention:
    return NounMention(3 * start, 3 * start + len(form), form, "NNG")


def test_a_form_that_occurs_once_is_no_chain() -> None:
    assert chains([mention(0, "서울"), mention(1, "부산")]) == []


def test_a_frequent_form_keeps_its_first_and_last_mention() -> None:
    found = chains([mention(start, "서울") for start in range(30)], cap=4)
    assert [[m.start // 3 for m in chain] for chain in found] == [[0, 10, 19, 29]]


def test_a_cap_below_two_is_refused() -> None:
    with pytest.raises(ValueError, match="two or more"):
        chains([mention(start, "서울") for start in range(3)], cap=1)


@given(st.lists(st.sampled_from(["서울", "부산", "한강", "시청"]), max_size=60), st.sampled_from([None, 2, 3, 8]))
def test_chains_keep_order_share_a_form_and_stay_under_the_cap(forms: list[str], cap: int | None) -> None:
    all_mentions = [mention(start, form) for start, form in enumerate(forms)]
    found = chains(all_mentions, cap=cap)
    assert {chain[0].form for chain in found} == {form for form in forms if forms.count(form) >= 2}
    assert [chain[0].start for chain in found] == sorted(chain[0].start for chain in found)
    for chain in found:
        assert len({m.form for m in chain}) == 1
        assert [m.start for m in chain] == sorted({m.start for m in chain})
        assert len(chain) == (forms.count(chain[0].form) if cap is None else min(cap, forms.count(chain[0].form)))
        assert chain[0].start == 3 * forms.index(chain[0].form)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(KINDS)), max_size=20),
    st.text(st.sampled_from("가나다라 ab"), min_size=160, max_size=160),
)
def test_mentions_never_overlap_and_equal_their_span(steps: list[tuple[int, int, str]], text: str) -> None:
    rows, at = [], 0
    for gap, length, kind in steps:
        rows.append((at + gap, at + gap + length, kind))
        at += gap + length
    nouns = mentions(text, tags(*rows))
    for before, after in pairwise(nouns):
        assert before.end < after.start
    for m in nouns:
        assert text[m.start : m.end] == m.form
        assert len(m.form) >= 2


def test_kiwi_finds_the_chain_of_a_real_sentence() -> None:
    text = "세종대왕은 한글을 만들었다. 그는 한글을 널리 폈다. 백성은 한글로 글을 썼다."
    (found,) = Tagger().tag([text])
    (chain,) = [chain for chain in chains(mentions(text, found)) if chain[0].form == "한글"]
    assert [text[m.start : m.end] for m in chain] == ["한글"] * 3
    assert [text[start:end] for start, end in found.spans[found.kinds == PRONOUN]] == ["그"]
