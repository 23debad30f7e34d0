"""How tokens meet the spans of a text. In: pieces of a text and character spans. Out: where each span lies in them, as columns.

A span is on token edges if a token begins where it begins and one ends where it ends; whole if one token is exactly the span;
glued if the token with its last character also holds Hangul that is written on to it, as a particle is. Characters that a
vocabulary lacks are found one by one: WordPiece gives up the whole word for one of them, and does not say which.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.korean import is_hangul
from coref_automl.models.vocabulary import Pieces, read_entries

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
TOO_LONG = "a word too long for the tokenizer"
"""The cause of an unknown token all of whose characters are known."""


@dataclass(frozen=True, slots=True)
class Span:
    """`text[start:end]`, and what it is: an entity's type, a mention's kind, a task."""

    start: int
    end: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    text: str
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
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


def place(pieces: Pieces, spans: Sequence[tuple[int, int]]) -> Placed:
    """Where spans lie. A span without tokens gets the nearest one."""
    if not spans or not len(pieces):
        none = np.zeros(len(spans), np.int64)
        return Placed(none, none, none, none, none)
    edges = np.array(spans, np.int64)
    low, high = np.array([pieces.cover(*span) for span in spans], np.int64).T
    first = low.clip(0, len(pieces) - 1)
    last = np.maximum(first, high - 1)
    before, over = edges[:, 0] - pieces.starts[first], pieces.ends[last] - edges[:, 1]
    return Placed(first, last, high - low, np.maximum(0, before), np.maximum(0, over))


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
    placed = place(pieces, solid)
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


def unknown_characters(tokenizer: PreTrainedTokenizerFast, text: str, pieces: Pieces) -> Counter[str]:
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
