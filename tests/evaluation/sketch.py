"""Documents sketched part by part, with tags that need no tagger and a tokenizer of one token a letter: distances can be seen."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from coref_automl.base.korean import KINDS, Tags
from coref_automl.base.records import Document
from coref_automl.evaluation.tasks.task import ParsedDocument, parse_document

Part = tuple[str, str]
"""What kind of part (NNG, NNP, NP, or empty for anything else) and its characters."""


def letter_tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), behavior="isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


LETTERS = letter_tokenizer()


def sketch(parts: Sequence[Part], *, name: str = "document") -> ParsedDocument:
    """The parts written one after another; a blank before a part begins a word and is no part of its span."""
    text, rows = "", []
    for kind, word in parts:
        start = len(text) + len(word) - len(word.lstrip())
        text += word
        if kind:
            rows.append((start, len(text), KINDS.index(kind)))
    spans = np.array([row[:2] for row in rows], np.int32).reshape(-1, 2)
    ends = [match.end() for match in re.finditer(r"\.(?=\s|$)", text)] or [len(text)]
    tags = Tags(spans, np.array([row[2] for row in rows], np.uint8), np.array(ends, np.int32))
    return parse_document(Document(name, "sketches", text), tags, LETTERS)


def letters_between(text: str, span: tuple[int, int], other: tuple[int, int]) -> int:
    before, after = sorted((span, other))
    return len("".join(text[before[1] : after[0]].split()))


NOUNS = ("서울", "서울역", "부산", "한강", "기차", "기차역", "도서관", "시장")

parts = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["NNG", "NNP"]), st.sampled_from([f" {noun}" for noun in NOUNS])),
        st.tuples(st.sampled_from(["NNG", "NNP"]), st.sampled_from(NOUNS)),
        st.tuples(st.just("NP"), st.just(" 그")),
        st.tuples(
            st.just(""), st.sampled_from(["을", "에서", " 그 길로 다시 걸어서 갔다.", ".\n", " 갔다", " 새", " (", "서울"])
        ),
        st.tuples(st.just(""), st.integers(1, 420).map(lambda size: " " + "아" * size)),
    ),
    max_size=25,
)
