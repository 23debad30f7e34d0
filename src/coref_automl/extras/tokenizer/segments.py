"""How tokenizers split words and entities. In: tokenizers and annotated texts. Out: token positions of spans; statistics.

A span is on token edges if a token starts where it starts and one ends where it ends; whole if one token is exactly the span;
glued if the token of its last character also has the Hangul that follows without a blank, such as a particle. Characters that are
not in a vocabulary are found one by one: WordPiece makes the whole word unknown, and does not say for which character. No weights
are loaded.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coref_automl.base.records import Record
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.spans import SpanFacts, span_facts
from coref_automl.models.vocabulary import Entries, FastTokenizer, Pieces, entry_words, read_entries, tokenize_all

TOO_LONG = "a word too long for the tokenizer"
"""The cause of an unknown token whose characters are all known."""
WINDOWS = (512, 2048)
"""Window sizes in tokens, for which the characters that fit are estimated."""
_CAUSES = 30
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A text and the (start, end) of its entities."""

    text: str
    spans: tuple[tuple[int, int], ...] = ()


def unknown_characters(tokenizer: FastTokenizer, text: str, pieces: Pieces) -> Counter[str]:
    """Count the characters that cause the unknown tokens of a text."""
    entries, causes = read_entries(tokenizer), Counter[str]()
    if entries.unknown is None:
        return causes
    for index in np.flatnonzero(pieces.ids == entries.unknown).tolist():
        start, end = int(pieces.starts[index]), int(pieces.ends[index])
        initial = start < end and entries.begins_word(entries.unknown, text, start)
        composed = unicodedata.normalize("NFC", text[start:end])
        causes.update(entries.missing_characters(composed, initial=initial) or [TOO_LONG])
    return causes


@dataclass(frozen=True, slots=True)
class EntityFacts(Record):
    """All entities of some texts. `pieces` is a mean, `unknown` a count; the others are fractions of the entities.

    `one_entry`: the word by itself is one vocabulary entry, which is the upper bound of strict.
    """

    entities: int
    pieces: float
    one_piece: float
    on_edges: float
    glued: float
    broken: float
    one_entry: float
    unknown: int


@dataclass(frozen=True, slots=True)
class TokenizerFacts(Record):
    """One tokenizer on some texts. `held` are the characters that fit into windows of WINDOWS tokens, less special tokens.

    `causes` are the characters that cause unknown tokens, most frequent first; `entities` is None without annotations.
    """

    model: str
    kind: str
    entries: int
    fingerprint: str
    words: int
    characters: int
    tokens: int
    tokens_per_word: float
    tokens_per_1000: float
    held: dict[str, int]
    unknown_tokens: int
    unknown_texts: int
    causes: dict[str, int]
    entities: EntityFacts | None


def vocabulary_kind(entries: Entries) -> str:
    """Name the model: WordPiece, BPE, byte-level BPE or Unigram, and whether it writes unknown characters as bytes."""
    name = type(entries.model).__name__
    if entries.byte_level:
        return f"byte-level {name}"
    return f"{name} with bytes" if {"<0x00>", "<0xFF>"} <= entries.vocabulary.keys() else name


def facts_of(model: str, tokenizer: FastTokenizer, texts: Sequence[AnnotatedText]) -> TokenizerFacts:
    """Collect the statistics of one tokenizer."""
    entries, words = read_entries(tokenizer), {word for word in entry_words(tokenizer) if word}
    parts: list[SpanFacts] = []
    causes: Counter[str] = Counter()
    tokens = unknown_tokens = unknown_texts = 0
    for low in range(0, len(texts), _BATCH):
        batch = texts[low : low + _BATCH]
        for text, pieces in zip(batch, tokenize_all(tokenizer, [text.text for text in batch]), strict=True):
            tokens += len(pieces)
            if unknown := int((pieces.ids == entries.unknown).sum()) if entries.unknown is not None else 0:
                unknown_tokens += unknown
                unknown_texts += 1
                causes += unknown_characters(tokenizer, text.text, pieces)
            parts.append(span_facts(text.text, pieces, text.spans, entries.unknown))
    spans = SpanFacts.joined(parts)
    is_entry = [text.text[start:end].strip() in words for text in texts for start, end in text.spans]
    characters, count = sum(len(text.text) for text in texts), sum(len(text.text.split()) for text in texts)
    special = int(tokenizer.num_special_tokens_to_add())
    entities = EntityFacts(
        entities=len(spans), pieces=float(spans.pieces.mean()), one_piece=float(spans.whole.mean()),
        on_edges=float(spans.on_edges.mean()), glued=float(spans.glued.mean()), broken=float(spans.broken.mean()),
        one_entry=sum(is_entry) / len(is_entry), unknown=int(spans.unknown.sum()),
    ) if len(spans) else None  # fmt: skip
    return TokenizerFacts(
        model=model, kind=vocabulary_kind(entries), entries=len(tokenizer), fingerprint=tokenizer_fingerprint(tokenizer),
        words=count, characters=characters, tokens=tokens, tokens_per_word=tokens / max(1, count),
        tokens_per_1000=1000 * tokens / max(1, characters),
        held={str(window): round((window - special) * characters / max(1, tokens)) for window in WINDOWS},
        unknown_tokens=unknown_tokens, unknown_texts=unknown_texts, causes=dict(causes.most_common(_CAUSES)), entities=entities,
    )  # fmt: skip
