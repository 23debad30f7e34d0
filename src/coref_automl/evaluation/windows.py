"""Context windows of cloze items. In: an item, its document, a tokenizer, a length. Out: the ids before and after the gap.

The gap is one or more mask tokens in place of the hidden word. What follows the word inside its eojeol (a particle) keeps its
continuation pieces. The context does not depend on the number of masks: space for `MOST_MASKS` is always reserved. `bounds`
decides which pieces are kept; of a long document only an excerpt around the item is tokenized, which gives the same window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import ModelError, RecipeError
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.vocabulary import FastTokenizer, Pieces, read_entries, split_at, tokenize, tokenize_all
from coref_automl.records import ClozeItem

MOST_MASKS = 4
"""The most masks in a gap."""

LEAST_CONTEXT = 8
"""The fewest pieces of context around a gap that are worth scoring."""

_CACHED_TEXTS = 8
_BATCH = 256
"""Texts that are tokenized together; their pieces are in memory until their windows are cut."""
_CHARACTERS = 4
"""Characters per piece, estimated high; if an excerpt turns out too short, one of twice the margin is cut."""

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The ids before and after the gap, special tokens included; `own_distance` counts this tokenizer's pieces.

    `initial` says whether the hidden word starts with a word-initial piece in the document's own tokenization. After punctuation
    or a line break it may be a continuation piece, and entries of that form fill the gap.
    """

    before: Ids
    after: Ids
    own_distance: int
    out_of_reach: bool
    initial: bool

    @property
    def gap(self) -> int:
        return len(self.before)

    def filled(self, gap_ids: Sequence[int]) -> Ids:
        return np.concatenate([self.before, np.asarray(gap_ids, np.int32), self.after])

    def length(self, masks: int = MOST_MASKS) -> int:
        return len(self.before) + masks + len(self.after)


class WindowMaker:
    """Cuts windows for one tokenizer and one length, and caches them.

    `window` tokenizes one text at a time, once for consecutive items; `prepare` those of many items, on all cores.
    """

    def __init__(self, tokenizer: FastTokenizer, seq_len: int) -> None:
        if tokenizer.mask_token_id is None:
            raise ModelError("The tokenizer has no mask token, so the model cannot fill a gap; pass a masked language model.")
        self.mask_id = int(tokenizer.mask_token_id)
        self._tokenizer = tokenizer
        self._prefix, self._suffix = special_edges(tokenizer)
        self._capacity = seq_len - len(self._prefix) - len(self._suffix) - MOST_MASKS
        if self._capacity < LEAST_CONTEXT:
            least = seq_len - self._capacity + LEAST_CONTEXT
            raise RecipeError(f"A window of {seq_len} tokens leaves no context around the gap; pass --seq-len {least} or more.")
        self._margin = _CHARACTERS * self._capacity
        self._tokenize = lru_cache(maxsize=_CACHED_TEXTS)(lambda text: tokenize(tokenizer, text))
        self._tokenized: dict[str, Pieces] = {}
        self._windows: dict[tuple[object, ...], Window] = {}

    def window(self, item: ClozeItem, text: str) -> Window:
        """The window of an item, cached: all checkpoints of a run ask for the same ones."""
        key = _key(item, text)
        if key not in self._windows:
            self._windows[key] = self._cut(item, text)
        return self._windows[key]

    def prepare(self, items: Iterable[tuple[ClozeItem, str]]) -> None:
        """Cut the windows of many items, given with their texts, for later calls of `window`."""
        by_excerpt: dict[str, list[tuple[ClozeItem, str]]] = {}
        for item, text in items:
            if _key(item, text) not in self._windows:
                low, high = _excerpt(item, text, self._margin)
                by_excerpt.setdefault(text[low:high], []).append((item, text))
        excerpts = list(by_excerpt)
        for start in range(0, len(excerpts), _BATCH):
            batch = excerpts[start : start + _BATCH]
            self._tokenized = dict(zip(batch, tokenize_all(self._tokenizer, batch), strict=True))
            for excerpt in batch:
                for item, text in by_excerpt[excerpt]:
                    self.window(item, text)
        self._tokenized = {}

    def _cut(self, item: ClozeItem, text: str) -> Window:
        pieces, gap, antecedent = self._pieces_around(item, text)
        if gap[0] >= len(pieces):
            raise ModelError(f"The tokenizer makes no token of {text[item.start : item.end]!r}; check its tokenizer.json.")
        low, high, in_reach = bounds(len(pieces), gap, antecedent, self._capacity)
        return Window(
            np.concatenate([self._prefix, pieces.ids[low : gap[0]]]).astype(np.int32),
            np.concatenate([pieces.ids[gap[1] : high], self._suffix]).astype(np.int32),
            distance_between(gap, antecedent),
            not in_reach,
            read_entries(self._tokenizer).begins_word(int(pieces.ids[gap[0]]), text, item.start),
        )

    def _pieces_around(self, item: ClozeItem, text: str) -> tuple[Pieces, tuple[int, int], tuple[int, int] | None]:
        """The pieces around an item, and the ranges of the gap and the antecedent among them.

        Of a long document an excerpt that can fill the window is enough. It starts and ends at blanks, which no token crosses, so
        its pieces are those of the document.
        """
        margin = self._margin
        while True:
            low, high = _excerpt(item, text, margin)
            excerpt = text[low:high]
            spans = [(start - low, end - low) for start, end in _spans(item)]
            tokenized = self._tokenized.get(excerpt) or self._tokenize(excerpt)
            pieces = split_at(self._tokenizer, excerpt, tokenized, spans[:1])
            gap, *antecedent = (pieces.cover(*span) for span in spans)
            if (low == 0 or gap[0] >= self._capacity) and (high == len(text) or len(pieces) - gap[1] >= self._capacity):
                return pieces, gap, antecedent[0] if antecedent else None
            margin *= 2


def _key(item: ClozeItem, text: str) -> tuple[object, ...]:
    return hash(text), item.start, item.end, item.antecedent


def _spans(item: ClozeItem) -> list[tuple[int, int]]:
    """The spans of the hidden word and, if any, of its antecedent."""
    return [(item.start, item.end), *([item.antecedent] if item.antecedent else [])]


def _excerpt(item: ClozeItem, text: str, margin: int) -> tuple[int, int]:
    """The range from a blank `margin` characters before an item's spans to one as far after; the whole text if not twice that."""
    spans = _spans(item)
    low = max(0, text.rfind(" ", 0, max(0, min(start for start, _ in spans) - margin)))
    high = text.find(" ", max(end for _, end in spans) + margin)
    return (0, len(text)) if high < 0 or 2 * (high - low) > len(text) else (low, high)


_MAKERS: dict[tuple[object, ...], WindowMaker] = {}


def maker_for(tokenizer: FastTokenizer, seq_len: int) -> WindowMaker:
    """The window maker shared by all models with one tokenizer: cutting windows is most of the work outside the model."""
    frame = (tuple(edge.tolist()) for edge in special_edges(tokenizer))
    key = tokenizer_fingerprint(tokenizer), *frame, tokenizer.mask_token_id, seq_len
    if key not in _MAKERS:
        for oldest in list(_MAKERS)[:-1]:  # keep the last one beside the new one
            del _MAKERS[oldest]
        _MAKERS[key] = WindowMaker(tokenizer, seq_len)
    return _MAKERS[key]


def bounds(count: int, gap: tuple[int, int], antecedent: tuple[int, int] | None, capacity: int) -> tuple[int, int, bool]:
    """The range of pieces to keep, at most `capacity` of them outside the gap, and whether the antecedent is in it.

    The range from antecedent to gap is centred. If it does not fit, the gap alone is centred, and the item is out of reach.
    """
    left, right = gap[0], count - gap[1]
    need_left = max(0, gap[0] - antecedent[0]) if antecedent else 0
    need_right = max(0, antecedent[1] - gap[1]) if antecedent else 0
    in_reach = need_left + need_right <= capacity
    if not in_reach:
        need_left = need_right = 0
    spare = capacity - need_left - need_right
    more_left = min(left - need_left, spare // 2)
    more_right = min(right - need_right, spare - more_left)
    more_left = min(left - need_left, spare - more_right)
    return gap[0] - need_left - more_left, gap[1] + need_right + more_right, in_reach


def distance_between(gap: tuple[int, int], antecedent: tuple[int, int] | None) -> int:
    """Pieces between antecedent and gap; -1 without an antecedent."""
    return -1 if antecedent is None else max(gap[0] - antecedent[1], antecedent[0] - gap[1], 0)


def special_edges(tokenizer: FastTokenizer) -> tuple[Ids, Ids]:
    """The special tokens before and after a single text: [CLS] and [SEP], <s> and </s>, or none."""
    bare = list(tokenizer("가", add_special_tokens=False)["input_ids"])
    framed = list(tokenizer("가")["input_ids"])
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return np.array(framed[:start], np.int32), np.array(framed[start + len(bare) :], np.int32)
    raise ModelError("The tokenizer changes a text when it adds its special tokens, so windows cannot be cut with it.")
