"""Encoding: token offsets of mentions stand for exactly their characters, whatever the text."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from coref_automl.base.errors import ModelError
from coref_automl.base.korean import KINDS, Tags
from coref_automl.corpus import encode
from coref_automl.corpus.chains import chains, mentions
from coref_automl.corpus.encode import EncodeSettings, Special, special_of, store_tokenizer, tokenizer_of
from coref_automl.models.load import load_tokenizer
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
    chosen = EncodeSettings(Path(), "combined", seq_len, False, cap, Path())
    pieces, reason = encode._encode(text, tags, tokenizer, special, chosen)
    repeated = [m for chain in chains(mentions(text, tags), cap=None) for m in chain]
    whole = split_at(tokenizer, text, tokenize(tokenizer, text), [(m.start, m.end) for m in repeated])
    assert reason == (0 if len(whole) else 2)
    assert np.concatenate([ids for ids, _ in pieces] or [[]]).tolist() == whole.ids.tolist()
    base = 0
    for ids, spans in pieces:
        assert len(ids) <= seq_len - 2
        by_chain: dict[int, list[str]] = {}
        for start, end, chain in spans.tolist():
            first, last = base + start - 1, base + end - 2
            by_chain.setdefault(chain, []).append(text[whole.starts[first] : whole.ends[last]])
        for forms in by_chain.values():
            assert 2 <= len(forms) <= cap
            assert len(set(forms)) == 1
            assert forms[0] in {m.form for m in repeated}
        assert sorted(by_chain) == list(range(len(by_chain)))
        assert (np.diff(spans[:, 0]) > 0).all()
        base += len(ids)


def test_only_names_leaves_common_nouns_alone(tokenizer: PreTrainedTokenizerFast, special: Special) -> None:
    text = "서울은 크다. 서울은 넓다."
    chosen = EncodeSettings(Path(), "combined", 64, True, 8, Path())
    ((_, spans),), _ = encode._encode(text, tags_of(text), tokenizer, special, chosen)
    assert not len(spans)


def test_a_worker_reads_the_same_tokenizer_without_the_library_that_made_it(tokenizer_folder: Path, tmp_path: Path) -> None:
    text = "서울의 도서관은 [MASK] 힣 a1 서울에 있다."
    stored = store_tokenizer(str(tokenizer_folder), tmp_path / "tokenizer.json")
    code = (
        "import sys; from pathlib import Path; from coref_automl.corpus import encode, shards;"
        "from coref_automl.models.vocabulary import read_entries, split_at, tokenize;"
        "one = encode.stored_tokenizer(Path(sys.argv[1])); entries = read_entries(one);"
        "read = split_at(one, sys.argv[2], tokenize(one, sys.argv[2]), [(0, 1)]);"
        "print(read.ids.tolist(), read.starts.tolist(), len(one), one.special, entries.unknown, sorted(entries.special));"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code, str(stored), text], capture_output=True, text=True, check=True).stdout
    whole = load_tokenizer(str(tokenizer_folder))
    read = split_at(whole, text, tokenize(whole, text), [(0, 1)])
    named = (whole.unk_token_id, sorted(whole.all_special_ids))
    assert printed.split("\n")[0] == " ".join(
        map(str, (read.ids.tolist(), read.starts.tolist(), len(whole), special_of(whole, "m"), *named))
    )


def test_a_worker_that_outlives_a_command_reads_the_tokenizer_of_the_next(
    tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = load_tokenizer(str(tokenizer_folder))
    larger.add_tokens(["새낱말"])
    larger.save_pretrained(str(tmp_path / "larger"))
    worker = encode.stored_tokenizer
    monkeypatch.setattr(encode, "stored_tokenizer", lru_cache(worker.__wrapped__))  # the command has a cache of its own
    models = (str(tokenizer_folder), str(tmp_path / "larger"))
    first, second = (len(worker(store_tokenizer(model, tmp_path / "tokenizer.json"))) for model in models)
    assert second == first + 1


def test_a_tokenizer_without_a_mask_is_refused(tokenizer_folder: Path) -> None:
    bare = load_tokenizer(str(tokenizer_folder))
    bare.mask_token = None
    with pytest.raises(ModelError, match="no mask token"):
        special_of(bare, "m")
