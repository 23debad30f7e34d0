"""A document as tokens. In: a text, its mentions, a tokenizer. Out: tokens, and mentions as places in them.

Korean particles are written onto the word, and a tokenizer often keeps the two in one token (나를, 꽁보는). A mention is
therefore its first token, its last token, and how many characters of the last one are cut off behind it: 0 to 3.
It never crosses a sentence boundary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.coreference.data import CorefDocument
from coref_automl.models.segmentation import place
from coref_automl.models.vocabulary import Pieces, tokenize_all
from coref_automl.records import Record

TRIMS = 4
"""Characters that may be cut off behind a mention, 0 included."""
WIDTH = 16
"""Tokens of the widest mention that is looked for."""
REPEATS = 4
"""Classes of how often tokens occur in their document: once, twice, three or four times, more."""
LETTERS = 3
ALPHABET = 1021
"""Rows of the table of last characters; a prime, so that syllables of one kind spread."""
_SENTENCE_END = re.compile(r"[.?!…][\"'”’」』)]*\s+|\n+")
Ints = NDArray[np.int64]


def within(sentences: Ints) -> NDArray[np.bool_]:
    """[T, WIDTH]: whether the w + 1 tokens from t on are there and in one sentence."""
    padded = np.pad(sentences, (0, WIDTH - 1), constant_values=-1)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, WIDTH) == sentences[:, None])


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A document as tokens. `letters[t]` are token t's last characters as rows of a table, 0 where it has fewer; `sizes` its
    count of characters, `sentences` the number of its sentence; `repeats[t, w]` is the class of how often the document has the
    w + 1 tokens from t on. Mentions are `first`, `last` and `trim`, in the order of the document's own."""

    document: CorefDocument
    pieces: Pieces
    letters: Ints
    sizes: Ints
    sentences: Ints
    repeats: Ints
    first: Ints
    last: Ints
    trim: Ints
    entity: Ints

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Which mentions the model can find exactly."""
        starts = np.array([mention.start for mention in self.document.mentions], np.int64)
        ends = np.array([mention.end for mention in self.document.mentions], np.int64)
        whole = (self.pieces.starts[self.first] == starts) & (self.pieces.ends[self.last] - self.trim == ends)
        near = (self.last - self.first < WIDTH) & (self.sentences[self.first] == self.sentences[self.last])
        return np.asarray(whole & (self.trim < TRIMS) & near)

    def span(self, first: int, last: int, trim: int) -> tuple[int, int]:
        return int(self.pieces.starts[first]), int(self.pieces.ends[last]) - trim


def lay(tokenizer: Any, documents: Sequence[CorefDocument]) -> list[Laid]:
    """Documents as tokens; line breaks and other blanks are not tokens of their own."""
    read = tokenize_all(tokenizer, [document.text for document in documents])
    return [_laid(document, _solid(pieces)) for document, pieces in zip(documents, read, strict=True)]


def _solid(pieces: Pieces) -> Pieces:
    """Without empty pieces, which represent blanks: no mention begins or ends in one."""
    keep = pieces.ends > pieces.starts
    return pieces if keep.all() else Pieces(pieces.ids[keep], pieces.starts[keep], pieces.ends[keep])


def _laid(document: CorefDocument, pieces: Pieces) -> Laid:
    codes = np.frombuffer(document.text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    sizes = (pieces.ends - pieces.starts).astype(np.int64)
    letters = np.zeros((len(pieces), LETTERS), np.int64)
    for back in range(LETTERS):
        held = sizes > back
        letters[held, back] = 1 + codes[pieces.ends[held] - 1 - back] % (ALPHABET - 1)
    ends_at = np.array([found.end() for found in _SENTENCE_END.finditer(document.text)], np.int64)
    sentences = np.searchsorted(ends_at, pieces.starts, "right").astype(np.int64)
    placed = place(pieces, [mention.span for mention in document.mentions])
    numbers: dict[str, int] = {}
    entity = np.array([numbers.setdefault(mention.entity, len(numbers)) for mention in document.mentions], np.int64)
    repeats = _repeats(np.asarray(pieces.ids, np.int64))
    return Laid(document, pieces, letters, sizes, sentences, repeats, placed.first, placed.last, placed.over, entity)


def _repeats(ids: Ints) -> Ints:
    """The class of how often each run of tokens occurs; where all of one length occur once, longer ones do."""
    found = np.zeros((len(ids), WIDTH), np.int64)
    own = runs = np.unique(ids, return_inverse=True)[1]
    for wide in range(min(WIDTH, len(ids))):
        if wide:
            runs = np.unique(runs[:-1] * (len(ids) + 1) + own[wide:], return_inverse=True)[1]
        often = np.bincount(runs)
        if often.max() == 1:
            break
        found[: len(runs), wide] = np.searchsorted((2, 3, 5), often, "right")[runs]
    return found


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens `low:high` are read together; of them the states of `keep_low:keep_high` are kept."""

    low: int
    high: int
    keep_low: int
    keep_high: int


def windows(length: int, size: int, overlap: int) -> list[Window]:
    """Windows over a document. Each token's state comes from the window in which it is farthest from an edge."""
    if length <= size:
        return [Window(0, length, 0, length)] if length else []
    step = size - overlap
    lows = [*range(0, length - size, step), length - size]
    cuts = [0, *((before + size + low) // 2 for before, low in pairwise(lows)), length]
    return [Window(low, low + size, a, b) for low, (a, b) in zip(lows, pairwise(cuts), strict=True)]


def segments(length: int, size: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """A document cut into stretches of at most `size` tokens, at other places in every epoch."""
    if length <= size:
        yield 0, length
        return
    low = 0
    first = int(rng.integers(size // 4, size + 1))
    while low < length:
        high = min(length, low + (first if low == 0 else size))
        yield low, high
        low = high


@dataclass(frozen=True, slots=True)
class Edges(Record):
    """How a tokenizer's tokens meet the mentions of some documents."""

    mentions: int
    tokens: int
    on_edges: int
    reachable: int
    lost: dict[str, int]

    @property
    def share(self) -> float:
        return self.on_edges / max(1, self.mentions)

    @property
    def reach(self) -> float:
        return self.reachable / max(1, self.mentions)


def edges(laid: Sequence[Laid]) -> Edges:
    lost: Counter[str] = Counter()
    on_edges = reachable = 0
    for one in laid:
        within = one.reachable
        reachable += int(within.sum())
        on_edges += int((within & (one.trim == 0)).sum())
        for index in np.flatnonzero(~within):
            lost[_reason(one, int(index))] += 1
    return Edges(sum(len(one.first) for one in laid), sum(map(len, laid)), on_edges, reachable, dict(lost.most_common()))


def _reason(one: Laid, index: int) -> str:
    mention = one.document.mentions[index]
    if one.pieces.starts[one.first[index]] != mention.start:
        return "begins inside a token"
    if one.trim[index] >= TRIMS:
        return f"ends {TRIMS} or more characters before its token does"
    if one.sentences[one.first[index]] != one.sentences[one.last[index]]:
        return "runs over the end of a sentence"
    return f"wider than {WIDTH} tokens"
