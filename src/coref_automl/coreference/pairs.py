"""What the characters say of two mentions. In: mentions of one text. Out: a few small whole numbers for each pair.

How far apart they stand (in tokens, in mentions), whether their surfaces are equal or contain each other, and who speaks:
narration and quotations, the same one or another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """Mentions in order: their spans, tokens, quotation (0: narration), and form as a number; `alike[a, b]` relates two forms."""

    starts: Ints
    ends: Ints
    places: Ints
    quotes: Ints
    forms: Ints
    alike: NDArray[np.int8]

    def of(self, queries: slice, candidates: slice) -> Ints:
        """Features [4, queries, candidates]; a candidate stands before its query."""
        tokens = self.places[queries, None] - self.places[None, candidates]
        order = np.arange(len(self.places))
        apart = order[queries, None] - order[None, candidates]
        nested = (self.starts[None, candidates] < self.ends[queries, None]) & (
            self.starts[queries, None] < self.ends[None, candidates]
        )
        surface = np.where(nested, SURFACES - 1, self.alike[self.forms[queries][:, None], self.forms[candidates][None, :]])
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
    return Surfaces(starts, ends, places, quotes[starts] if len(spans) else starts, forms, _alike(list(numbers)))


def quotations(text: str) -> Ints:
    """For each character the number of the quotation it stands in, 0 outside. A straight mark opens after a blank."""
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


def _alike(forms: Sequence[str]) -> NDArray[np.int8]:
    """1 equal, 2 one ends in the other, 3 one begins with it, 4 one contains it, 0 otherwise."""
    table = np.zeros((len(forms), len(forms)), np.int8)
    for a, one in enumerate(forms):
        table[a, a] = 1
        for b in range(a):
            short, long = sorted((one, forms[b]), key=len)
            if short and short in long:
                kind = 2 if long.endswith(short) else 3 if long.startswith(short) else 4
                table[a, b] = table[b, a] = kind
    return table


def _bucket(distance: Ints) -> Ints:
    """0, 1, 2, 3 as they are, then by doubling."""
    far = np.maximum(distance, 0)
    grown = 4 + np.floor(np.log2(np.maximum(far, 4) / 4)).astype(np.int64)
    return np.asarray(np.where(far < 4, far, np.minimum(grown, DISTANCES - 1)))
