"""What a tokenizer makes of a span: facts that hold for four kinds of vocabularies, and the characters behind unknown tokens."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.extras.tokenizer.segments import TOO_LONG, AnnotatedText, facts_of, unknown_characters
from coref_automl.models.spans import locate, span_facts
from coref_automl.models.vocabulary import tokenize
from tests.models.test_vocabulary import KINDS, built, each_kind, texts


@st.composite
def with_spans(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    text = draw(texts.filter(str.strip))
    letters = [index for index, letter in enumerate(text) if not letter.isspace()]
    edges = st.tuples(st.sampled_from(letters), st.sampled_from(letters)).map(sorted)
    return text, [(low, high + 1) for low, high in draw(st.lists(edges, max_size=5))]


@each_kind
@given(text_with_spans=with_spans())
def test_a_span_lies_in_the_tokens_that_hold_its_characters(
    kind: str, text_with_spans: tuple[str, list[tuple[int, int]]]
) -> None:
    text, spans = text_with_spans
    pieces = tokenize(built(kind), text)
    placed = locate(pieces, spans)
    for number, (start, end) in enumerate(spans):
        first, last = placed.first[number], placed.last[number]
        covered = range(pieces.starts[first], pieces.ends[last])
        assert start in covered
        assert end - 1 in covered
        assert placed.before[number] == start - covered.start
        assert placed.over[number] == covered.stop - end
        assert placed.count[number] == last - first + 1


@each_kind
@given(text_with_spans=with_spans())
def test_facts_agree_with_the_characters_that_tokens_cover(kind: str, text_with_spans: tuple[str, list[tuple[int, int]]]) -> None:
    text, spans = text_with_spans
    tokenizer = built(kind)
    pieces = tokenize(tokenizer, text)
    facts = span_facts(text, pieces, spans, tokenizer.unk_token_id)
    edges = {*pieces.starts.tolist()}, {*pieces.ends.tolist()}
    for number, (start, end) in enumerate(spans):
        covered = list(zip(pieces.ids, pieces.starts, pieces.ends, strict=True))
        inside = [entry for entry, low, high in covered if low < high and low < end and high > start]
        touching = [entry for entry, low, high in covered if low <= end and high >= start]  # with those that cover no character
        straddled = any(low < edge < high for low, high in zip(pieces.starts, pieces.ends, strict=True) for edge in (start, end))
        assert facts.on_edges[number] == (not straddled and start in edges[0] and end in edges[1])
        assert facts.pieces[number] >= len(inside)
        assert (tokenizer.unk_token_id in inside) <= facts.unknown[number] <= (tokenizer.unk_token_id in touching)
        assert not (facts.glued[number] and facts.on_edges[number])
        assert not facts.whole[number] or (facts.pieces[number] == 1 and facts.on_edges[number])
        if facts.glued[number]:
            assert "가" <= text[end] <= "힣"


@each_kind
@given(text=texts)
def test_the_characters_of_unknown_tokens_are_in_the_text_and_every_one_of_them_alone_is_unknown(kind: str, text: str) -> None:
    tokenizer = built(kind)
    pieces = tokenize(tokenizer, text)
    causes = unknown_characters(tokenizer, text, pieces)
    assert bool(causes) == (tokenizer.unk_token_id in pieces.ids)
    composed = unicodedata.normalize("NFC", text)
    assert all(character in composed for character in causes if character != TOO_LONG)


def test_one_unknown_character_is_named_though_its_whole_word_is_lost() -> None:
    tokenizer = built("wordpiece")
    text = "서울뷁은 (부산)"
    assert unknown_characters(tokenizer, text, tokenize(tokenizer, text)) == {"뷁": 1}


def test_decomposed_hangul_is_named_as_composed() -> None:
    tokenizer = built("wordpiece")
    text = unicodedata.normalize("NFD", "뷁")
    assert set(unknown_characters(tokenizer, text, tokenize(tokenizer, text))) == {"뷁"}


def test_a_particle_in_one_token_with_its_noun_is_glued() -> None:
    tokenizer = built("wordpiece")
    text = "서울은 부산의"  # 서울은 is one entry; 부산, ##의 are two
    facts = span_facts(text, tokenize(tokenizer, text), [(0, 2), (4, 6)], tokenizer.unk_token_id)
    assert facts.glued.tolist() == [True, False]
    assert facts.on_edges.tolist() == [False, True]
    assert facts.whole.tolist() == [False, True]


def test_blanks_at_the_edges_of_a_span_are_no_part_of_it() -> None:
    text = "큰 부산 도시"
    tokenizer = built("wordpiece")
    facts = span_facts(text, tokenize(tokenizer, text), [(1, 5)], tokenizer.unk_token_id)
    assert facts.whole.tolist() == [True]


@each_kind
def test_facts_of_a_tokenizer_add_up(kind: str) -> None:
    tokenizer = built(kind)
    rows = [
        AnnotatedText("서울은 한국의 수도이다.", ((0, 2), (4, 6))),
        AnnotatedText("부산 (강)", ((0, 2),)),
    ]
    facts = facts_of("it", tokenizer, rows)
    assert facts.tokens == sum(len(tokenize(tokenizer, row.text)) for row in rows)
    assert facts.words == 5
    assert facts.characters == sum(len(row.text) for row in rows)
    assert facts.tokens_per_word == pytest.approx(facts.tokens / 5)
    assert facts.entities is not None
    assert facts.entities.entities == 3
    assert facts.held["2048"] > facts.held["512"] > 0


def test_only_bytes_break_a_character() -> None:
    row = [AnnotatedText("뷁은 서울", ((0, 1), (3, 5)))]
    shares = {kind: facts_of(kind, built(kind), row).entities for kind in KINDS}
    broken = {kind: facts.broken for kind, facts in shares.items() if facts is not None}
    assert broken == {"wordpiece": 0.0, "prefixed pairs": 0.0, "byte pairs": 0.5, "unigram": 0.0}
