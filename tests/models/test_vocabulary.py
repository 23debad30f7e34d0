"""Vocabularies of four kinds give the same promises: pieces cover the text, whole pieces cover a span, nothing is lost."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from coref_automl.base.errors import ModelError
from coref_automl.models import vocabulary
from coref_automl.models.vocabulary import Pieces, entry_words, split_at, tokenize, word_ids, word_starts

TEXTS = [
    "서울은 한국의 수도이다. 서울에서 부산까지 기차로 간다.",
    "한국은 (서울을) 수도로 삼았다. 부산은 한국에서 둘째로 큰 도시이다!",
    "대한민국의 수도 서울특별시에는 사람이 많다, 그리고 강이 흐른다.",
] * 20
SPECIAL = ["[UNK]", "[PAD]", "[MASK]"]


def wordpiece() -> Tokenizer:
    # Trained WordPiece vocabularies differ from process to process, so this one is written out.
    words = ["서울", "한국", "수도", "부산", "은", "서울은", "도시", "사람", "강", "(", ")", ".", "부"]
    inner = ["은", "의", "에서", "을", "산", "이다", "는", "로", "울", "까", "지"]
    entries = [*SPECIAL, *words, *(f"##{piece}" for piece in inner)]
    tokenizer = Tokenizer(models.WordPiece({entry: number for number, entry in enumerate(entries)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def prefixed_pairs() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=160, continuing_subword_prefix="##", special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_pairs() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="[UNK]", special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "wordpiece": wordpiece,
    "prefixed pairs": prefixed_pairs,
    "byte pairs": byte_pairs,
    "unigram": unigram,
}
_BUILT: dict[str, PreTrainedTokenizerFast] = {}


def built(kind: str) -> PreTrainedTokenizerFast:
    if kind not in _BUILT:
        _BUILT[kind] = PreTrainedTokenizerFast(
            tokenizer_object=KINDS[kind](), unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]"
        )
    return _BUILT[kind]


each_kind = pytest.mark.parametrize("kind", KINDS)
texts = st.text(st.sampled_from("서울은한국의수도이다부산까지뷁()., \n\t\u3000aB7漢😀é[MASK]"), max_size=40)


def covered(pieces: Pieces) -> set[int]:
    return {index for start, end in zip(pieces.starts, pieces.ends, strict=True) for index in range(start, end)}


def check_shape(text: str, pieces: Pieces) -> None:
    assert pieces.ids.dtype == pieces.starts.dtype == pieces.ends.dtype == np.int32
    assert (np.diff(pieces.starts) >= 0).all()
    assert (np.diff(pieces.ends) >= 0).all()
    assert (pieces.starts <= pieces.ends).all()
    letters = {index for index, letter in enumerate(text) if not letter.isspace()}
    assert letters <= covered(pieces)
    for start, end in zip(pieces.starts, pieces.ends, strict=True):
        assert start == end or not (text[start].isspace() or text[end - 1].isspace())


@each_kind
@given(text=texts)
def test_pieces_cover_every_letter_and_no_blank(kind: str, text: str) -> None:
    check_shape(text, tokenize(built(kind), text))


@each_kind
@given(data=st.data(), text=texts)
def test_whole_pieces_cover_a_span_and_what_lies_outside_stays(kind: str, data: st.DataObject, text: str) -> None:
    tokenizer = built(kind)
    before = tokenize(tokenizer, text)
    letters = [index for index, letter in enumerate(text) if not letter.isspace()]
    edges = sorted(data.draw(st.lists(st.sampled_from(letters), max_size=6, unique=True))) if letters else []
    spans = [(low, high + 1) for low, high in zip(edges[::2], edges[1::2], strict=False)]
    after = split_at(tokenizer, text, before, spans)
    check_shape(text, after)
    for start, end in spans:
        low, high = after.cover(start, end)
        inside = [index for index in letters if start <= index < end]
        assert low < high
        touched = covered(Pieces(after.ids[low:high], after.starts[low:high], after.ends[low:high]))
        assert set(inside) <= touched <= set(range(start, end))
    cut = [edge for span in spans for edge in span]
    unchanged = [row for row in rows(before) if not any(row[1] < edge < row[2] for edge in cut) and not shares(row, before, cut)]
    assert [row for row in rows(after) if row in set(unchanged)] == unchanged


def rows(pieces: Pieces) -> list[tuple[int, int, int]]:
    return list(zip(pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist(), strict=True))


def shares(row: tuple[int, int, int], pieces: Pieces, cut: list[int]) -> bool:
    """Does this piece hold bytes of a character that a straddling piece also holds?"""
    across = [other for other in rows(pieces) if any(other[1] < edge < other[2] for edge in cut)]
    reach = {index for _, start, end in across for index in range(start, end)}
    for _, start, end in rows(pieces):  # a character's bytes may lie in three pieces and more
        if reach & set(range(start, end)):
            reach |= set(range(start, end))
    return bool(reach & set(range(row[1], row[2])))


@each_kind
def test_pieces_that_straddle_no_edge_come_back_as_they_were(kind: str) -> None:
    text = "서울 은 (한국)"
    pieces = tokenize(built(kind), text)
    assert split_at(built(kind), text, pieces, [(0, 2), (3, 4)]) is pieces
    assert split_at(built(kind), text, pieces, []) is pieces


def entry(tokenizer: PreTrainedTokenizerFast, number: int) -> str:
    return str(tokenizer.convert_ids_to_tokens(int(number)))


@pytest.mark.parametrize("kind", ["wordpiece", "prefixed pairs"])
def test_what_follows_a_span_inside_its_word_is_a_continuation(kind: str) -> None:
    tokenizer = built(kind)
    text = "서울은 크다"
    pieces = tokenize(tokenizer, text)
    assert entry(tokenizer, pieces.ids[0]) == "서울은"
    split = split_at(tokenizer, text, pieces, [(0, 2)])
    assert [entry(tokenizer, number) for number in split.ids[:2]] == ["서울", "##은"]
    assert rows(split)[0][1:] == (0, 2)
    assert rows(split)[1][1:] == (2, 3)


@pytest.mark.parametrize(("kind", "mark"), [("byte pairs", "Ġ"), ("unigram", "▁")])
def test_where_starts_are_marked_the_span_keeps_the_mark_and_the_rest_has_none(kind: str, mark: str) -> None:
    tokenizer = built(kind)
    text = "큰 한국은 크다"
    split = split_at(tokenizer, text, tokenize(tokenizer, text), [(2, 4)])
    low, high = split.cover(2, 4)
    assert entry(tokenizer, split.ids[low]).startswith(mark)
    after = split.cover(4, 5)
    assert not entry(tokenizer, split.ids[after[0]]).startswith(mark)
    assert split.ids[low:high].tolist() == word_ids(tokenizer, "한국")


def test_an_unknown_word_gives_up_only_the_part_that_is_unknown() -> None:
    tokenizer = built("wordpiece")
    text = "뷁은 (뷁뷁은)"
    split = split_at(tokenizer, text, tokenize(tokenizer, text), [(0, 1), (4, 6)])
    assert [entry(tokenizer, number) for number in split.ids] == ["[UNK]", "##은", "(", "[UNK]", "##은", ")"]


def test_an_unknown_word_start_is_read_as_a_start_again() -> None:
    tokenizer = built("wordpiece")
    text = "서울뷁"
    pieces = tokenize(tokenizer, text)
    assert [entry(tokenizer, number) for number in pieces.ids] == ["[UNK]"]
    split = split_at(tokenizer, text, pieces, [(0, 2)])
    assert [entry(tokenizer, number) for number in split.ids] == ["서울", "[UNK]"]


@each_kind
def test_a_span_in_the_middle_of_a_word_is_covered(kind: str) -> None:
    text = "한국은서울을 본다"
    split = split_at(built(kind), text, tokenize(built(kind), text), [(3, 5)])
    low, high = split.cover(3, 5)
    assert (split.starts[low], split.ends[high - 1]) == (3, 5)


@each_kind
def test_entry_words_are_the_words_that_word_ids_finds(kind: str) -> None:
    tokenizer = built(kind)
    words = entry_words(tokenizer)
    assert len(words) == len(tokenizer)
    whole = [(number, word) for number, word in enumerate(words) if word and word.isalpha() and len(word) > 1]
    assert whole
    assert "서울" in [word for _, word in whole]
    for number, word in whole:
        assert word_ids(tokenizer, word) == [number]


MARKS: dict[str, Any] = {
    "prepended by a normalizer": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    "of blanks": normalizers.Replace(" ", "▁"),
    **{scheme: pre_tokenizers.Metaspace(prepend_scheme=scheme) for scheme in ("always", "first", "never")},
    "bytes, prefixed": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
}


@pytest.mark.parametrize("marks", MARKS)
def test_a_word_has_the_ids_that_it_has_behind_a_blank(marks: str) -> None:
    """Llama's normalizer adds a mark before any text, and a second one before a blank."""
    mark, stage = "Ġ" if "bytes" in marks else "▁", MARKS[marks]
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL, show_progress=False
    )
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))
    if isinstance(stage, normalizers.Normalizer):
        backend.normalizer, stage = stage, pre_tokenizers.Split("▁", "merged_with_next")
    backend.pre_tokenizer = stage
    backend.train_from_iterator(TEXTS, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    for word in ("서울", "한국은", "강", "서울 한국"):
        text = f"부산 {word}"
        pieces = tokenize(tokenizer, text)
        low, high = pieces.cover(3, len(text))
        assert pieces.ids[low:high].tolist() == word_ids(tokenizer, word)
        assert entry(tokenizer, word_ids(tokenizer, word)[0]).startswith(mark)


@each_kind
def test_specials_and_continuations_are_no_words(kind: str) -> None:
    tokenizer = built(kind)
    words, starts = entry_words(tokenizer), word_starts(tokenizer)
    for number in tokenizer.all_special_ids:
        assert words[number] is None
        assert starts[number]
    mark = {"byte pairs": "Ġ", "unigram": "▁"}.get(kind)
    for number in set(range(len(tokenizer))) - set(tokenizer.all_special_ids):
        written = entry(tokenizer, number)
        opens = written.startswith(mark) if mark else not written.startswith("##")
        assert starts[number] == opens
        assert opens or words[number] is None


def test_parts_of_a_character_are_no_words() -> None:
    tokenizer = built("byte pairs")
    vocabulary = tokenizer.get_vocab()
    # A Hangul syllable takes three bytes: a mark and one or two letters outside ASCII are a part of one.
    broken = [n for written, n in vocabulary.items() if written[0] == "Ġ" and len(written) in (2, 3) and not written[1].isascii()]
    assert broken
    assert all(entry_words(tokenizer)[number] is None for number in broken)


@each_kind
def test_a_literal_mask_in_the_text_is_characters(kind: str) -> None:
    tokenizer = built(kind)
    assert tokenizer.mask_token_id not in tokenize(tokenizer, "서울 [MASK] 한국").ids
    assert tokenizer.mask_token_id in tokenizer("서울 [MASK] 한국")["input_ids"]


@each_kind
def test_a_cut_off_left_by_an_earlier_call_does_not_shorten_a_text(kind: str) -> None:
    tokenizer = built(kind)
    whole = tokenize(tokenizer, TEXTS[0])
    tokenizer(TEXTS[0], truncation=True, max_length=3, padding="max_length")
    assert tokenize(tokenizer, TEXTS[0]).ids.tolist() == whole.ids.tolist()


def test_decomposed_hangul_in_a_vocabulary_reads_as_composed() -> None:
    table = {"[UNK]": 0, unicodedata.normalize("NFD", "한국"): 1}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordPiece(table, unk_token="[UNK]")), unk_token="[UNK]")
    assert entry_words(tokenizer)[1] == "한국"


def test_a_normaliser_that_lengthens_the_text_keeps_spans_covered() -> None:
    backend = wordpiece()
    backend.normalizer = normalizers.NFD()
    letters = sorted(set(unicodedata.normalize("NFD", "서울은 한국의")) - {" "})
    entries = ["[UNK]", *letters, *(f"##{letter}" for letter in letters), unicodedata.normalize("NFD", "서울은")]
    backend.model = models.WordPiece({e: n for n, e in enumerate(entries)}, unk_token="[UNK]")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    text = "서울은 한국의"
    split = split_at(tokenizer, text, tokenize(tokenizer, text), [(0, 2), (4, 6)])
    for start, end in ((0, 2), (4, 6)):
        low, high = split.cover(start, end)
        assert (split.starts[low], split.ends[high - 1]) == (start, end)
    assert 0 not in split.ids


def test_entries_added_later_are_noticed() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=wordpiece(), unk_token="[UNK]")
    before = len(entry_words(tokenizer))
    tokenizer.add_tokens(["광화문"])
    assert entry_words(tokenizer)[before:] == ["광화문"]


def test_a_vocabulary_without_marks_is_refused() -> None:
    table: dict[str, Any] = {"[UNK]": 0, "서": 1}
    backend = Tokenizer(models.BPE(table, [], unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(ModelError, match="marks neither"):
        entry_words(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_read_in_parts_with_the_same_tokens(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(TEXTS[:6])
    whole = tokenize(built(kind), text)
    limit = vocabulary._PORTION.pattern
    assert [len(part[0]) for part in vocabulary._PORTION.finditer("가 " * (1 << 20))] == [(1 << 20) + 1, (1 << 20) - 1]
    monkeypatch.setattr(vocabulary, "_PORTION", re.compile(limit.replace(str(1 << 20), "5")))
    parts = tokenize(built(kind), text)
    assert all(np.array_equal(getattr(parts, name), getattr(whole, name)) for name in ("ids", "starts", "ends"))
    assert len(tokenize(built(kind), "")) == 0
