"""The head. In: the states of a document's tokens. Out: which spans are mentions, where they end, which antecedent each has.

A span is scored from its first and its last token; a pair by a biaffine form of both ends of both mentions, moved by what the
characters say of the two: how far apart they are (in tokens, in mentions), whether their surfaces are equal or contain each
other, and who speaks (narration and quotations, the same one or another). The later mention weighs these features: a pronoun need
not care that two surfaces are equal. How surely either is a mention counts too.

What counts as a mention depends on the scheme that texts were marked under, which is an input beside each token, and on whether
the same words occur again in the text: most schemes mark what is mentioned twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coref_automl.coreference.tokens import ALPHABET, LETTERS, REPEATS, TRAILING, WIDTH

Ints = NDArray[np.int64]
DISTANCES = 14
SURFACES = 6
QUOTES = 5
FEATURES = {"tokens": DISTANCES, "mentions": DISTANCES, "surface": SURFACES, "quote": QUOTES}
_OPENING, _CLOSING = "“「『‘", "”」』’"
_LONGEST = 1_000
"""Characters after which a quotation that was never closed is taken to be over."""


@dataclass(frozen=True, slots=True, eq=False)
class Surfaces:
    """Mentions in order: spans, first tokens, quotation (0: narration), and form as a number; `relation[a, b]` of two forms."""

    starts: Ints
    ends: Ints
    places: Ints
    quotes: Ints
    forms: Ints
    relation: NDArray[np.int8]

    def of(self, queries: slice, candidates: slice) -> Ints:
        """Features [4, queries, candidates]; a candidate precedes its query."""
        tokens = self.places[queries, None] - self.places[None, candidates]
        order = np.arange(len(self.places))
        apart = order[queries, None] - order[None, candidates]
        nested = (self.starts[None, candidates] < self.ends[queries, None]) & (
            self.starts[queries, None] < self.ends[None, candidates]
        )
        surface = np.where(nested, SURFACES - 1, self.relation[self.forms[queries][:, None], self.forms[candidates][None, :]])
        quoted, heard = self.quotes[queries][:, None], self.quotes[candidates][None, :]
        quote = np.where(quoted == heard, np.where(quoted > 0, 3, 0), np.where(quoted > 0, np.where(heard > 0, 4, 2), 1))
        return np.stack([_bucket(tokens), _bucket(apart), surface, quote]).astype(np.int64)


def surfaces(text: str, spans: Sequence[tuple[int, int]], places: Ints, quotes: Ints | None = None) -> Surfaces:
    """`places` are the mentions' first tokens; `quotes` is `quotations(text)` where it is known already."""
    quotes = quotations(text) if quotes is None else quotes
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([end for _, end in spans], np.int64)
    numbers: dict[str, int] = {}
    forms = np.array([numbers.setdefault("".join(text[a:b].split()), len(numbers)) for a, b in spans], np.int64)
    return Surfaces(starts, ends, places, quotes[starts] if len(spans) else starts, forms, _form_relations(list(numbers)))


def quotations(text: str) -> Ints:
    """For each character the number of the quotation it is in, 0 outside. A straight mark opens after a blank."""
    found = np.zeros(len(text) + 1, np.int64)
    number, since = 0, -1
    for at, sign in enumerate(text):
        if sign not in '"' + _OPENING + _CLOSING:
            continue
        opens = sign in _OPENING or (sign == '"' and (at == 0 or text[at - 1].isspace()))
        if since >= 0 and (not opens or at - since > _LONGEST):
            found[since : min(at, since + _LONGEST)] = number
            since = -1
        if opens and since < 0:
            number, since = number + 1, at
    if since >= 0:
        found[since : since + _LONGEST] = number
    return found


def _form_relations(forms: Sequence[str]) -> NDArray[np.int8]:
    """1 equal, 2 one ends in the other, 3 one begins with it, 4 one contains it, 0 otherwise."""
    table = np.eye(len(forms), dtype=np.int8)
    number = {form: place for place, form in enumerate(forms)}
    sizes = sorted({len(form) for form in forms} - {0})
    for a, long in enumerate(forms):
        for size in sizes[: bisect_left(sizes, len(long))]:
            for begin in range(len(long) - size + 1):
                b = number.get(long[begin : begin + size])
                if b is not None:
                    kind = 2 if begin + size == len(long) else 3 if begin == 0 else 4
                    table[a, b] = table[b, a] = min(kind, table[a, b] or kind)
    return table


def _bucket(distance: Ints) -> Ints:
    """0, 1, 2, 3 as they are, then by doubling."""
    far = np.maximum(distance, 0)
    grown = 4 + np.floor(np.log2(np.maximum(far, 4) / 4)).astype(np.int64)
    return np.asarray(np.where(far < 4, far, np.minimum(grown, DISTANCES - 1)))


_LETTER = 16
_CLASS = 8
_WEIGHING = 32
SURE = 4.0
"""The logit beyond which a mention is as sure as one that is given."""


class CoreferenceHead(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden: int, size: int, dropout: float, schemes: int) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.letters = nn.Embedding(ALPHABET, _LETTER, padding_idx=0)
        self.repeats = nn.Embedding(REPEATS, _CLASS)
        self.schemes = nn.Embedding(schemes, _CLASS)
        read = hidden + LETTERS * _LETTER + 2 * _CLASS
        self.first = _layer(read, size, dropout)
        self.last = _layer(read, size, dropout)
        self.first_score = nn.Linear(size, 1)
        self.last_score = nn.Linear(size, 1)
        self.span = nn.Linear(size, size, bias=False)
        self.width = nn.Parameter(torch.zeros(WIDTH))
        self.repeated = nn.Linear(size, REPEATS)
        self.trim = nn.Linear(size, TRAILING)  # so named in saved heads
        self.pair_first = _layer(read, size, dropout)
        self.pair_last = _layer(read, size, dropout)
        self.pair = nn.Linear(2 * size, 2 * size, bias=False)
        self.worth = nn.Linear(2 * size, 1)
        self.sure = nn.Parameter(torch.zeros(2))
        self.weigh = nn.Linear(2 * size, _WEIGHING)
        self.features = nn.ModuleList(nn.Embedding(count, _WEIGHING) for count in FEATURES.values())
        with torch.no_grad():
            self.first_score.bias.fill_(-2.0)  # most spans are not mentions
            for table in (self.pair.weight, self.span.weight):
                table.mul_(0.2)
            for table in self.features:
                table.weight.mul_(0.1)

    def read(self, states: Any, letters: Any, repeats: Any, scheme: Any) -> Any:
        """States [T, H] with the tokens' last characters, how often each occurs, and the scheme beside them."""
        beside = self.letters(letters).flatten(1), self.repeats(repeats[:, 0]), self.schemes(scheme)
        return torch.cat([self.drop(states.float()), *beside], dim=1)

    def span_scores(self, read: Any, repeats: Any) -> Any:
        """Logits [T, WIDTH] of the span that begins at t and has w + 1 tokens; those beyond the text are far below 0."""
        first, last = self.first(read), self.last(read)
        ends = nn.functional.pad(torch.cat([last, self.last_score(last)], dim=1), (0, 0, 0, WIDTH - 1))
        begins = torch.cat([self.span(first), torch.ones_like(first[:, :1])], dim=1)
        scores = (begins[:, None, :] * ends.unfold(0, WIDTH, 1).transpose(1, 2)).sum(2) + self.first_score(first) + self.width
        scores = scores + self.repeated(first).gather(1, repeats)
        places = torch.arange(len(read), device=read.device)
        beyond = places[:, None] + torch.arange(WIDTH, device=read.device) >= len(read)
        return scores.masked_fill(beyond, -1e4)

    def trailing(self, read: Any, sizes: Any) -> Any:
        """Logits [N, TRAILING] of how much is cut off behind the last token; something of it always stays."""
        logits = self.trim(self.last(read))
        return logits.masked_fill(torch.arange(TRAILING, device=read.device) >= sizes[:, None], -1e4)

    def mentions(self, first: Any, last: Any) -> Any:
        """The representation of each mention when it is linked, from its first and its last token as read: [N, 2 x size]."""
        return torch.cat([self.pair_first(first), self.pair_last(last)], dim=1)

    def antecedents(self, queries: Any, candidates: Any, features: Any, sure: tuple[Any, Any]) -> Any:
        """Scores [Q, C]; 0 is the score of having none. `features` [4, Q, C] are those of `Surfaces`, `sure` the mention logits
        of queries and candidates."""
        scores = self.pair(queries) @ candidates.T + self.worth(candidates).T
        query, candidate = (logits.clamp(-SURE, SURE) / SURE for logits in sure)
        scores = scores + self.sure[0] * query[:, None] + self.sure[1] * candidate[None, :]
        weights = self.weigh(queries)
        for table, buckets in zip(self.features, features, strict=True):
            scores = scores + (weights @ table.weight.T).gather(1, buckets)
        return scores


def _layer(read: int, size: int, dropout: float) -> Any:
    return nn.Sequential(nn.Linear(read, size), nn.GELU(), nn.Dropout(dropout))
