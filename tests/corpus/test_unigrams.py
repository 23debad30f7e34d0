"""Unigrams: learned, saved, read back; with bytes to fall back on, no text is unknown."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from coref_automl.base.korean import Tagger
from coref_automl.extras.tokenizer.recipe import train_unigrams
from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint
from coref_automl.models.vocabulary import split_at, tokenize
from tests.evaluation.tiny import TEXTS as TALES

ASCII = " ".join(chr(code) for code in range(0x21, 0x7F))
TEXTS = [*TALES, ASCII]


@cache
def learned() -> PreTrainedTokenizerFast:
    return train_unigrams(TEXTS * 5, vocab_size=900)


def test_saved_and_loaded_it_is_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = learned()
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(tokenizer)
    assert again("시민은 도서관을")["input_ids"][0] == again.cls_token_id
    assert again("시민은 도서관을")["input_ids"][-1] == again.sep_token_id
    assert again.mask_token_id is not None


def test_nouns_learned_apart_are_entries_and_no_entry_joins_one_with_its_particle() -> None:
    pytest.importorskip("kiwipiepy", reason="kiwipiepy is not installed")
    together, apart = (
        {entry.removeprefix("▁") for entry in train_unigrams(TEXTS * 5, vocab_size=700, tagger=tagger).get_vocab()}
        for tagger in (None, Tagger())
    )
    joined = {"시민은", "시민이", "도서관을", "도서관은", "기차는", "나무가", "강변의", "강변에"}
    assert joined & together
    assert not joined & apart
    assert {"시민", "도서관", "기차"} <= apart


@given(text=st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co", "Cf")), max_size=30))
def test_no_text_is_unknown_and_all_its_letters_read_back(text: str) -> None:
    tokenizer = learned()
    pieces = tokenize(tokenizer, text)
    assert tokenizer.unk_token_id not in pieces.ids
    normalized = tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    assert tokenizer.decode(pieces.ids).replace("▁", "").replace(" ", "") == "".join(normalized.replace("▁", " ").split())


def test_with_nouns_apart_a_pronoun_ends_where_its_particle_begins() -> None:
    pytest.importorskip("kiwipiepy", reason="kiwipiepy is not installed")
    texts = ["그는 나를 보았다. 나는 그의 책을 읽었다. 그가 나의 집에 왔다. 우리는 그를 기다렸다. " * 3, *TEXTS]
    tokenizer = train_unigrams(texts * 5, vocab_size=900, tagger=Tagger())
    assert tokenizer.tokenize("그는 나를 보았다.")[:4] == ["▁그", "는", "▁나", "를"]
    assert tokenizer.tokenize("(그는)")[:3] == ["▁(", "▁그", "는"]


def test_no_entry_joins_a_name_with_its_bracket_or_comma() -> None:
    tokenizer = train_unigrams([*TEXTS, "(시민), [시민]. <시민>!"] * 20, vocab_size=900)
    text = "어제 (시민), 오늘"
    pieces = tokenize(tokenizer, text)
    assert text.index("시민") in pieces.starts
    assert text.index("시민") + 2 in pieces.ends


def test_the_same_texts_give_the_same_unigrams() -> None:
    again = train_unigrams(TEXTS * 5, vocab_size=900)
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(learned())


@pytest.mark.parametrize("entry", ["<0x41>", "[PAD]"])
def test_a_text_that_spells_a_byte_or_a_special_entry_is_read_as_letters(entry: str) -> None:
    tokenizer = learned()
    read = tokenize(tokenizer, entry).ids
    assert tokenizer.convert_tokens_to_ids(entry) not in read
    assert tokenizer.decode(read).replace(" ", "") == entry


def test_an_entity_in_bytes_can_be_marked() -> None:
    tokenizer = learned()
    text = "시민 뷁똠은 왔다"
    split = split_at(tokenizer, text, tokenize(tokenizer, text), [(3, 5)])
    low, high = split.cover(3, 5)
    assert (split.starts[low], split.ends[high - 1]) == (3, 5)
    assert high - low >= 6
