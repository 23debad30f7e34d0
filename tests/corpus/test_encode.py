"""Encoding: token offsets of mentions stand for exactly their characters, whatever the text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from coref_automl.corpus import encode
from coref_automl.corpus.chains import chains, mentions
from coref_automl.corpus.encode import EncodeSettings, Special, special_of, tokenizer_of
from coref_automl.errors import ModelError
from coref_automl.korean import KINDS, Tags
from coref_automl.models.vocabulary import split_at, tokenize

_NOUNS = ("서울", "도서관", "김민수", "병원")
_WORDS = st.sampled_from(
    [
        *(f"{noun}{after}" for noun in _NOUNS for after in ("", "은", "에서", "의", ",", "!?")),
        "그리고",
        "😀",
        "ᄒᆞᆫ",
        "[MASK]",
        "a1",
        "힣",
    ]
)
_TEXTS = st.lists(st.tuples(_WORDS, st.sampled_from([" ", " ", " ", "\n", ". "])), min_size=1, max_size=80)


def tags_of(text: str) -> Tags:
    """Every occurrence of a known noun, as the tagger would give it."""
    spans = sorted((at, at + len(noun)) for noun in _NOUNS for at in range(len(text)) if text.startswith(noun, at))
    kinds = np.full(len(spans), KINDS.index("NNG"), np.uint8)
    return Tags(np.array(spans, np.int32).reshape(-1, 2), kinds, np.array([len(text)], np.int32))


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder: Path) -> PreTrainedTokenizerFast:
    return tokenizer_of(str(tokenizer_folder))


@pytest.fixture(scope="module")
def special(tokenizer: PreTrainedTokenizerFast) -> Special:
    return special_of(tokenizer, "m")


@settings(max_examples=80)
@given(words=_TEXTS, seq_len=st.integers(16, 70), cap=st.integers(2, 5))
def test_mentions_stand_for_their_characters_and_no_token_is_lost(
    tokenizer: PreTrainedTokenizerFast, special: Special, words: list[tuple[str, str]], seq_len: int, cap: int
) -> None:
    text = "".join(word + after for word, after in words).strip()
    tags = tags_of(text)
    chosen = EncodeSettings("m", "combined", seq_len, False, cap, Path())
    pieces, reason = encode._encode(text, tags, tokenizer, special, chosen)
    repeated = [m for chain in chains(mentions(text, tags), cap=None) for m in chain]
    whole = split_at(tokenizer, text, tokenize(tokenizer, text), [(m.start, m.end) for m in repeated])
    assert reason == (0 if len(whole) else 2)
    assert np.concatenate([ids for ids, _ in pieces] or [[]]).tolist() == whole.ids.tolist()
    base = 0
    for ids, found in pieces:
        assert len(ids) <= seq_len - 2
        by_chain: dict[int, list[str]] = {}
        for start, end, chain in found.tolist():
            first, last = base + start - 1, base + end - 2
            by_chain.setdefault(chain, []).append(text[whole.starts[first] : whole.ends[last]])
        for forms in by_chain.values():
            assert 2 <= len(forms) <= cap
            assert len(set(forms)) == 1
            assert forms[0] in {m.form for m in repeated}
        assert sorted(by_chain) == list(range(len(by_chain)))
        assert (np.diff(found[:, 0]) > 0).all()
        base += len(ids)


def test_only_names_leaves_common_nouns_alone(tokenizer: PreTrainedTokenizerFast, special: Special) -> None:
    text = "서울은 크다. 서울은 넓다."
    chosen = EncodeSettings("m", "combined", 64, True, 8, Path())
    ((_, found),), _ = encode._encode(text, tags_of(text), tokenizer, special, chosen)
    assert not len(found)


def test_a_tokenizer_without_a_mask_is_refused(tokenizer_folder: Path) -> None:
    from coref_automl.models.load import load_tokenizer

    bare = load_tokenizer(str(tokenizer_folder))
    bare.mask_token = None
    with pytest.raises(ModelError, match="no mask token"):
        special_of(bare, "m")
