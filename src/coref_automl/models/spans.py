"""Where spans of a text lie among its pieces. In: spans in characters. Out: places in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.korean import is_hangul
from coref_automl.models.vocabulary import Pieces

Ints = NDArray[np.int64]


Bools = NDArray[np.bool_]


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
