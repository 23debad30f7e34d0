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
from numpy.typing import NDArray

from coref_automl.korean import is_hangul
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.vocabulary import Entries, FastTokenizer, Pieces, entry_words, read_entries, tokenize_all
from coref_automl.records import Record

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
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


@dataclass(frozen=True, slots=True, eq=False)
class SpanLocations:
    """Spans in tokens: the `first` and `last` token, and their `count` (0 if the tokenizer drops all of a span).

    `before` and `over` are the characters of the first token before the span, and of the last token after it.
    """

    first: Ints
    last: Ints
    count: Ints
    before: Ints
    over: Ints

    @property
    def on_edges(self) -> Bools:
        return np.asarray((self.count > 0) & (self.before == 0) & (self.over == 0))


def locate(pieces: Pieces, spans: Sequence[tuple[int, int]]) -> SpanLocations:
    """Locate spans in tokens. A span without tokens gets the nearest one."""
    if not spans or not len(pieces):
        zeros = np.zeros(len(spans), np.int64)
        return SpanLocations(zeros, zeros, zeros, zeros, zeros)
    edges = np.array(spans, np.int64)
    low, high = np.array([pieces.cover(*span) for span in spans], np.int64).T
    first = low.clip(0, len(pieces) - 1)
    last = np.maximum(first, high - 1)
    before, over = edges[:, 0] - pieces.starts[first], pieces.ends[last] - edges[:, 1]
    return SpanLocations(first, last, high - low, np.maximum(0, before), np.maximum(0, over))


@dataclass(frozen=True, slots=True, eq=False)
class SpanFacts:
    """How a tokenizer splits spans, one entry per span. `broken`: one of its characters is split into several tokens."""

    pieces: Ints
    on_edges: Bools
    glued: Bools
    unknown: Bools
    broken: Bools

    @property
    def whole(self) -> Bools:
        return np.asarray(self.on_edges & (self.pieces == 1))

    def __len__(self) -> int:
        return len(self.pieces)

    @classmethod
    def joined(cls, parts: Sequence[SpanFacts]) -> SpanFacts:
        names = ("pieces", "on_edges", "glued", "unknown", "broken")
        if not parts:
            return cls(np.zeros(0, np.int64), *(np.zeros(0, np.bool_) for _ in names[1:]))
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def span_facts(text: str, pieces: Pieces, spans: Sequence[tuple[int, int]], unknown: int | None) -> SpanFacts:
    """Describe how the pieces of a text split its spans; blanks at a span's edges do not count."""
    words = [trimmed(text, *span) for span in spans]
    located = locate(pieces, words)
    shares_character = pieces.starts[1:] < pieces.ends[:-1]
    has_unknown, is_broken = [], []
    for low, count in zip(located.first.tolist(), located.count.tolist(), strict=True):
        has_unknown.append(unknown is not None and unknown in pieces.ids[low : low + count])
        is_broken.append(bool(shares_character[low : low + max(0, count - 1)].any()))
    hangul_follows = [is_hangul(text[end : end + 1] or " ") for _, end in words]
    return SpanFacts(
        pieces=located.count,
        on_edges=located.on_edges,
        glued=np.asarray((located.over > 0) & np.array(hangul_follows, np.bool_)),
        unknown=np.array(has_unknown, np.bool_),
        broken=np.array(is_broken, np.bool_),
    )


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Trim the blanks at a span's edges: a blank is not part of any token."""
    word = text[start:end]
    return start + len(word) - len(word.lstrip()), end - len(word) + len(word.rstrip())


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
