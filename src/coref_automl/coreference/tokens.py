"""A document as tokens. In: a text, its mentions, a tokenizer. Out: tokens, and mentions as places in them.

Korean particles are written onto the word, and a tokenizer often keeps the two in one token (나를, 꽁보는). A mention is
therefore its first token, its last token, and how many characters of the last one are cut off behind it: 0 to 3.
It never crosses a sentence boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.coreference.documents import CorefDocument
from coref_automl.errors import CoreferenceDataError
from coref_automl.models.segmentation import locate
from coref_automl.models.vocabulary import Pieces, tokenize_all

TRAILING = 4
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
class TokenizedDocument:
    """A document as tokens. `letters[t]` are token t's last characters as rows of a table, 0 where it has fewer; `sizes` its
    count of characters, `sentences` the number of its sentence; `repeats[t, w]` is the class of how often the document has the
    w + 1 tokens from t on. Mentions are `first`, `last` and `trailing`, in the order of the document's own."""

    document: CorefDocument
    pieces: Pieces
    letters: Ints
    sizes: Ints
    sentences: Ints
    repeats: Ints
    first: Ints
    last: Ints
    trailing: Ints
    entity: Ints

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Which mentions the model can find exactly."""
        starts = np.array([mention.start for mention in self.document.mentions], np.int64)
        ends = np.array([mention.end for mention in self.document.mentions], np.int64)
        whole = (self.pieces.starts[self.first] == starts) & (self.pieces.ends[self.last] - self.trailing == ends)
        near = (self.last - self.first < WIDTH) & (self.sentences[self.first] == self.sentences[self.last])
        return np.asarray(whole & (self.trailing < TRAILING) & near)

    def span(self, first: int, last: int, trailing: int) -> tuple[int, int]:
        return int(self.pieces.starts[first]), int(self.pieces.ends[last]) - trailing


def tokenized(tokenizer: Any, documents: Sequence[CorefDocument]) -> list[TokenizedDocument]:
    """Documents as tokens; line breaks and other blanks are not tokens of their own."""
    read = tokenize_all(tokenizer, [document.text for document in documents])
    return [_tokenized(document, _solid(pieces)) for document, pieces in zip(documents, read, strict=True)]


def _solid(pieces: Pieces) -> Pieces:
    """Without empty pieces, which represent blanks: no mention begins or ends in one."""
    keep = pieces.ends > pieces.starts
    return pieces if keep.all() else Pieces(pieces.ids[keep], pieces.starts[keep], pieces.ends[keep])


def _tokenized(document: CorefDocument, pieces: Pieces) -> TokenizedDocument:
    if document.mentions and not len(pieces):
        raise CoreferenceDataError(
            f"The tokenizer makes no token of the text of {document.id!r} ({document.text[:20]!r}); take it out of the data."
        )
    codes = np.frombuffer(document.text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    sizes = (pieces.ends - pieces.starts).astype(np.int64)
    letters = np.zeros((len(pieces), LETTERS), np.int64)
    for back in range(LETTERS):
        long = sizes > back
        letters[long, back] = 1 + codes[pieces.ends[long] - 1 - back] % (ALPHABET - 1)
    ends_at = np.array([found.end() for found in _SENTENCE_END.finditer(document.text)], np.int64)
    sentences = np.searchsorted(ends_at, pieces.starts, "right").astype(np.int64)
    placed = locate(pieces, [mention.span for mention in document.mentions])
    numbers: dict[str, int] = {}
    entity = np.array([numbers.setdefault(mention.entity, len(numbers)) for mention in document.mentions], np.int64)
    repeats = _repeats(np.asarray(pieces.ids, np.int64))
    return TokenizedDocument(document, pieces, letters, sizes, sentences, repeats, placed.first, placed.last, placed.over, entity)


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
class TokenWindow:
    """Tokens `low:high` are read together; of them the states of `keep_low:keep_high` are kept."""

    low: int
    high: int
    keep_low: int
    keep_high: int


def windows(length: int, size: int, overlap: int) -> list[TokenWindow]:
    """Windows over a document. Each token's state comes from the window in which it is farthest from an edge."""
    if length <= size:
        return [TokenWindow(0, length, 0, length)] if length else []
    step = size - overlap
    lows = [*range(0, length - size, step), length - size]
    cuts = [0, *((before + size + low) // 2 for before, low in pairwise(lows)), length]
    return [TokenWindow(low, low + size, a, b) for low, (a, b) in zip(lows, pairwise(cuts), strict=True)]


def segments(length: int, size: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """A document cut into parts of at most `size` tokens, at other places in every epoch."""
    if length <= size:
        yield 0, length
        return
    low = 0
    first = int(rng.integers(size // 4, size + 1))
    while low < length:
        high = min(length, low + (first if low == 0 else size))
        yield low, high
        low = high
