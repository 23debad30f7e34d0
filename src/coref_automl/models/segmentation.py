"""What tokenizers make of words and entities. In: tokenizers and annotated texts. Out: where spans lie in tokens; facts of each.

A span is on token edges if a token begins where it begins and one ends where it ends; whole if one token is exactly the span;
glued if the token with its last character also holds Hangul that is written on to it, as a particle is. Characters that a
vocabulary lacks are found one by one: WordPiece gives up the whole word for one of them, and does not say which. No weights are
loaded.
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
"""The cause of an unknown token all of whose characters are known."""
WINDOWS = (512, 2048)
"""Tokens of the windows whose characters are counted."""
_CAUSES = 30
_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A text and the (start, end) of its entities."""

    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SpanLocations:
    """Spans as places in pieces: `first` and `last` token, `count` of tokens (0 where the tokenizer leaves nothing of a span).

    `before` and `over` are the characters of the first token before the span and of the last one behind it.
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
    """Where spans lie. A span without tokens gets the nearest one."""
    if not spans or not len(pieces):
        none = np.zeros(len(spans), np.int64)
        return SpanLocations(none, none, none, none, none)
    edges = np.array(spans, np.int64)
    low, high = np.array([pieces.cover(*span) for span in spans], np.int64).T
    first = low.clip(0, len(pieces) - 1)
    last = np.maximum(first, high - 1)
    before, over = edges[:, 0] - pieces.starts[first], pieces.ends[last] - edges[:, 1]
    return SpanLocations(first, last, high - low, np.maximum(0, before), np.maximum(0, over))


@dataclass(frozen=True, slots=True, eq=False)
class SpanFacts:
    """What a tokenizer makes of spans, one entry per span. `broken`: a character of it is spread over several tokens."""

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
    """What the pieces of a text make of its spans; blanks at a span's edges do not count."""
    solid = [trimmed(text, *span) for span in spans]
    placed = locate(pieces, solid)
    shared = pieces.starts[1:] < pieces.ends[:-1]
    lost, parted = [], []
    for low, count in zip(placed.first.tolist(), placed.count.tolist(), strict=True):
        lost.append(unknown is not None and unknown in pieces.ids[low : low + count])
        parted.append(bool(shared[low : low + max(0, count - 1)].any()))
    follows = [is_hangul(text[end : end + 1] or " ") for _, end in solid]
    return SpanFacts(
        pieces=placed.count,
        on_edges=placed.on_edges,
        glued=np.asarray((placed.over > 0) & np.array(follows, np.bool_)),
        unknown=np.array(lost, np.bool_),
        broken=np.array(parted, np.bool_),
    )


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the blanks at its edges: a blank is not part of any token."""
    word = text[start:end]
    return start + len(word) - len(word.lstrip()), end - len(word) + len(word.rstrip())


def unknown_characters(tokenizer: FastTokenizer, text: str, pieces: Pieces) -> Counter[str]:
    """The characters behind the unknown tokens of a text, each as often as it occurs there."""
    entries, found = read_entries(tokenizer), Counter[str]()
    if entries.unknown is None:
        return found
    for at in np.flatnonzero(pieces.ids == entries.unknown).tolist():
        start, end = int(pieces.starts[at]), int(pieces.ends[at])
        opens = start < end and entries.begins_word(entries.unknown, text, start)
        composed = unicodedata.normalize("NFC", text[start:end])
        found.update(entries.lacking(composed, initial=opens) or [TOO_LONG])
    return found


@dataclass(frozen=True, slots=True)
class EntityFacts(Record):
    """All entities of some texts. `pieces` is a mean; the others are shares of the entities, `unknown` a count.

    `one_entry` are those whose word, by itself, is one vocabulary entry: the ceiling of strict.
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
    """One tokenizer on some texts. `held` are the characters that windows of WINDOWS tokens hold, special tokens aside.

    `causes` are the characters behind unknown tokens, most frequent first; `entities` is None where nothing is annotated.
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
    """WordPiece, BPE, byte-level BPE or Unigram, and what it does with a character it lacks."""
    name = type(entries.model).__name__
    if entries.byte_level:
        return f"byte-level {name}"
    return f"{name} with bytes" if {"<0x00>", "<0xFF>"} <= entries.vocabulary.keys() else name


def facts_of(model: str, tokenizer: FastTokenizer, texts: Sequence[AnnotatedText]) -> TokenizerFacts:
    """All facts about one tokenizer."""
    entries, words = read_entries(tokenizer), {word for word in entry_words(tokenizer) if word}
    parts: list[SpanFacts] = []
    causes: Counter[str] = Counter()
    tokens = unknown_tokens = unknown_texts = 0
    for low in range(0, len(texts), _AT_ONCE):
        some = texts[low : low + _AT_ONCE]
        for text, pieces in zip(some, tokenize_all(tokenizer, [one.text for one in some]), strict=True):
            tokens += len(pieces)
            if lost := int((pieces.ids == entries.unknown).sum()) if entries.unknown is not None else 0:
                unknown_tokens += lost
                unknown_texts += 1
                causes += unknown_characters(tokenizer, text.text, pieces)
            parts.append(span_facts(text.text, pieces, text.spans, entries.unknown))
    held = SpanFacts.joined(parts)
    alone = [one.text[start:end].strip() in words for one in texts for start, end in one.spans]
    characters, count = sum(len(text.text) for text in texts), sum(len(text.text.split()) for text in texts)
    room = int(tokenizer.num_special_tokens_to_add())
    entities = EntityFacts(
        entities=len(held), pieces=float(held.pieces.mean()), one_piece=float(held.whole.mean()),
        on_edges=float(held.on_edges.mean()), glued=float(held.glued.mean()), broken=float(held.broken.mean()),
        one_entry=sum(alone) / len(alone), unknown=int(held.unknown.sum()),
    ) if len(held) else None  # fmt: skip
    return TokenizerFacts(
        model=model, kind=vocabulary_kind(entries), entries=len(tokenizer), fingerprint=tokenizer_fingerprint(tokenizer),
        words=count, characters=characters, tokens=tokens, tokens_per_word=tokens / max(1, count),
        tokens_per_1000=1000 * tokens / max(1, characters),
        held={str(window): round((window - room) * characters / max(1, tokens)) for window in WINDOWS},
        unknown_tokens=unknown_tokens, unknown_texts=unknown_texts, causes=dict(causes.most_common(_CAUSES)), entities=entities,
    )  # fmt: skip
