"""A document as tokens. In: a text, its mentions, a tokenizer. Out: tokens, and mentions as positions in them.

Korean particles are written onto the word, and a tokenizer often keeps the two in one token (나를, 꽁보는). A mention is
therefore its first token, its last token, and the number of trailing characters to cut off the last one: 0 to 3.
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

from coref_automl.base.errors import CoreferenceDataError
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.models.spans import locate
from coref_automl.models.vocabulary import Pieces, tokenize_all

TRIMS = 4
"""Numbers of characters that may be cut off behind a mention, from 0."""
MAX_WIDTH = 16
"""Tokens of the widest mention that is considered."""
RECURRENCE_CLASSES = 4
"""How often tokens occur in their document: once, twice, three or four times, more."""
CHARS = 3
CHAR_TABLE = 1021
"""Rows of the embedding table of last characters; a prime, so that similar syllables hash apart."""
_OPENING, _CLOSING = "“「『‘", "”」』’"
_LONGEST_QUOTE = 1_000
"""Characters after which an unclosed quotation is assumed to end."""
_SENTENCE_END = re.compile(r"[.?!…][\"'”’」』)]*\s+|\n+")
Ints = NDArray[np.int64]


def within_sentence(sentence_ids: Ints) -> NDArray[np.bool_]:
    """[T, MAX_WIDTH]: whether the w + 1 tokens from t on exist and lie in one sentence."""
    padded = np.pad(sentence_ids, (0, MAX_WIDTH - 1), constant_values=-1)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, MAX_WIDTH) == sentence_ids[:, None])


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedDocument:
    """A document as tokens. `char_ids[t]` are token t's last characters as rows of a table, 0 where it has fewer; `lengths` its
    number of characters. `recurrence[t, w]` is the class of how often the document contains the w + 1 tokens from t on. `quotes`
    numbers the quotation of each character. Mentions are `first`, `last` and `trailing`, in the order of the document's own."""

    document: CorefDocument
    pieces: Pieces
    char_ids: Ints
    lengths: Ints
    sentence_ids: Ints
    recurrence: Ints
    quotes: Ints
    first: Ints
    last: Ints
    trailing: Ints
    entity: Ints

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Which mentions the model can predict exactly."""
        starts = np.array([mention.start for mention in self.document.mentions], np.int64)
        ends = np.array([mention.end for mention in self.document.mentions], np.int64)
        exact = (self.pieces.starts[self.first] == starts) & (self.pieces.ends[self.last] - self.trailing == ends)
        near = (self.last - self.first < MAX_WIDTH) & (self.sentence_ids[self.first] == self.sentence_ids[self.last])
        return np.asarray(exact & (self.trailing < TRIMS) & near)

    def span(self, first: int, last: int, trailing: int) -> tuple[int, int]:
        return int(self.pieces.starts[first]), int(self.pieces.ends[last]) - trailing


def tokenize_documents(tokenizer: Any, documents: Sequence[CorefDocument]) -> list[TokenizedDocument]:
    """Tokenize documents; line breaks and other blanks are not tokens of their own."""
    tokenized = tokenize_all(tokenizer, [document.text for document in documents])
    return [_tokenize(document, _without_blanks(pieces)) for document, pieces in zip(documents, tokenized, strict=True)]


def _without_blanks(pieces: Pieces) -> Pieces:
    """Drop empty pieces, which represent blanks: no mention begins or ends in one."""
    keep = pieces.ends > pieces.starts
    return pieces if keep.all() else Pieces(pieces.ids[keep], pieces.starts[keep], pieces.ends[keep])


def _tokenize(document: CorefDocument, pieces: Pieces) -> TokenizedDocument:
    if document.mentions and not len(pieces):
        raise CoreferenceDataError(
            f"The tokenizer makes no token of the text of {document.id!r} ({document.text[:20]!r}); take it out of the data."
        )
    codes = np.frombuffer(document.text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    lengths = (pieces.ends - pieces.starts).astype(np.int64)
    char_ids = np.zeros((len(pieces), CHARS), np.int64)
    for back in range(CHARS):
        long_enough = lengths > back
        char_ids[long_enough, back] = 1 + codes[pieces.ends[long_enough] - 1 - back] % (CHAR_TABLE - 1)
    sentence_ends = np.array([match.end() for match in _SENTENCE_END.finditer(document.text)], np.int64)
    sentence_ids = np.searchsorted(sentence_ends, pieces.starts, "right").astype(np.int64)
    placed = locate(pieces, [mention.span for mention in document.mentions])
    numbers: dict[str, int] = {}
    entity = np.array([numbers.setdefault(mention.entity, len(numbers)) for mention in document.mentions], np.int64)
    facts = char_ids, lengths, sentence_ids, _recurrence(np.asarray(pieces.ids, np.int64)), quotations(document.text)
    return TokenizedDocument(document, pieces, *facts, placed.first, placed.last, placed.over, entity)


def _recurrence(ids: Ints) -> Ints:
    """Return the recurrence class of every n-gram; if all n-grams of one length are unique, longer ones are too."""
    classes = np.zeros((len(ids), MAX_WIDTH), np.int64)
    unigrams = ngrams = np.unique(ids, return_inverse=True)[1]
    for width in range(min(MAX_WIDTH, len(ids))):
        if width:
            ngrams = np.unique(ngrams[:-1] * (len(ids) + 1) + unigrams[width:], return_inverse=True)[1]
        counts = np.bincount(ngrams)
        if counts.max() == 1:
            break
        classes[: len(ngrams), width] = np.searchsorted((2, 3, 5), counts, "right")[ngrams]
    return classes


def quotations(text: str) -> Ints:
    """Number the quotation that each character is in, 0 outside. A straight mark opens after a blank."""
    numbers = np.zeros(len(text) + 1, np.int64)
    number, opened = 0, -1
    for index, sign in enumerate(text):
        if sign not in '"' + _OPENING + _CLOSING:
            continue
        opens = sign in _OPENING or (sign == '"' and (index == 0 or text[index - 1].isspace()))
        if opened >= 0 and (not opens or index - opened > _LONGEST_QUOTE):
            numbers[opened : min(index, opened + _LONGEST_QUOTE)] = number
            opened = -1
        if opens and opened < 0:
            number, opened = number + 1, index
    if opened >= 0:
        numbers[opened : opened + _LONGEST_QUOTE] = number
    return numbers


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """Tokens `low:high` are encoded together; the states of `keep_low:keep_high` are kept."""

    low: int
    high: int
    keep_low: int
    keep_high: int


def windows(length: int, size: int, overlap: int) -> list[TokenWindow]:
    """Cut a document into overlapping windows. Each token's state comes from the window in which it is farthest from an edge."""
    if length <= size:
        return [TokenWindow(0, length, 0, length)] if length else []
    step = size - overlap
    lows = [*range(0, length - size, step), length - size]
    cuts = [0, *((previous + size + low) // 2 for previous, low in pairwise(lows)), length]
    return [TokenWindow(low, low + size, a, b) for low, (a, b) in zip(lows, pairwise(cuts), strict=True)]


def segments(length: int, size: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Cut a document into segments of at most `size` tokens, at different positions in every epoch."""
    if length <= size:
        yield 0, length
        return
    low = 0
    first = int(rng.integers(size // 4, size + 1))
    while low < length:
        high = min(length, low + (first if low == 0 else size))
        yield low, high
        low = high
