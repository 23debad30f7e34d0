"""Context windows of cloze items. In: an item, its document, a tokenizer, lengths. Out: the ids before and after the gap.

A window has 256 tokens. Where gap and antecedent do not fit, it is doubled: to at most 512, for
far items to what the model can read. One `--seq-len` overrides all of this. The window is cut by
tokens and centred so that gap and antecedent stay inside. What follows the hidden word inside its
eojeol (a particle) keeps its continuation pieces. Of a long document only an excerpt around the
item is tokenized, which gives the same window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import ModelError, RecipeError
from coref_automl.base.records import ClozeItem
from coref_automl.evaluation.tasks import TASKS
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.model_files import detect_seq_len
from coref_automl.models.vocabulary import FastTokenizer, Pieces, read_entries, split_at, tokenize, tokenize_all

WINDOW, NEAR = 256, 512
"""The usual length of a window, and the longest one that is no far item's."""

LEAST_CONTEXT = 8
"""The fewest pieces of context around a gap that are worth scoring."""

_CACHED_TEXTS = 8
_BATCH = 256
"""Texts that are tokenized together; their pieces are in memory until their windows are cut."""
_CHARACTERS = 4
"""Characters per piece, estimated high; if an excerpt turns out too short, one of twice the margin is cut."""

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long windows are: usually, at most, and at most for far items."""

    usual: int
    near: int
    far: int

    @classmethod
    def fixed(cls, length: int) -> Lengths:
        return cls(length, length, length)

    @classmethod
    def of(cls, seq_len: int, longest: int) -> Lengths:
        """Of the default, `WINDOW` tokens, windows grow to what a model of `longest` reads; other lengths are fixed."""
        return cls(WINDOW, min(NEAR, longest), longest) if seq_len == WINDOW else cls.fixed(seq_len)


def window_of(model: str, seq_len: int | None) -> int:
    """The length of a model's windows: the given one, else `WINDOW`, or the model's own length if that is shorter."""
    return seq_len or min(WINDOW, detect_seq_len(model))


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The ids before and after the gap, special tokens included, and the pieces of the answer.

    `entry` is the answer as one entry of the vocabulary, if it is one in the document's own
    tokenization; `whole` says that the gap has token edges at both ends. `initial` says whether the
    hidden word starts with a word-initial piece: after punctuation or a line break it may be a
    continuation piece, and entries of that form fill the gap. `own_distance` counts pieces.
    """

    before: Ids
    after: Ids
    pieces: tuple[int, ...]
    whole: bool
    entry: int | None
    own_distance: int
    out_of_reach: bool
    initial: bool

    @property
    def gap(self) -> int:
        return len(self.before)

    def filled(self, gap_ids: Sequence[int]) -> Ids:
        return np.concatenate([self.before, np.asarray(gap_ids, np.int32), self.after])

    def length(self, masks: int = 1) -> int:
        return len(self.before) + masks + len(self.after)


class WindowMaker:
    """Cuts windows for one tokenizer, and caches them.

    `window` tokenizes one text at a time, once for consecutive items; `prepare` those of many items, on all cores.
    """

    def __init__(self, tokenizer: FastTokenizer, lengths: Lengths) -> None:
        if tokenizer.mask_token_id is None:
            raise ModelError("The tokenizer has no mask token, so the model cannot fill a gap; pass a masked language model.")
        self.mask_id = int(tokenizer.mask_token_id)
        self._tokenizer, self._lengths = tokenizer, lengths
        self._prefix, self._suffix = special_edges(tokenizer)
        self._special = len(self._prefix) + len(self._suffix)
        least = self._special + 1 + LEAST_CONTEXT
        if lengths.usual < least:
            raise RecipeError(
                f"A window of {lengths.usual} tokens leaves no context around the gap; pass --seq-len {least} or more."
            )
        self._margin = _CHARACTERS * lengths.usual
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
        margin = self._margin
        while (window := self._cut_within(item, text, margin)) is None:
            margin *= 2
        return window

    def _cut_within(self, item: ClozeItem, text: str, margin: int) -> Window | None:
        """The window of an item, from the pieces of an excerpt with this margin; None if they cannot fill it.

        An excerpt starts and ends at blanks, which no token crosses, so its pieces are those of the document.
        """
        low, high = _excerpt(item, text, margin)
        excerpt = text[low:high]
        spans = [(start - low, end - low) for start, end in _spans(item)]
        tokenized = self._tokenized.get(excerpt) or self._tokenize(excerpt)
        pieces = split_at(self._tokenizer, excerpt, tokenized, spans[:1])
        gap, *others = (pieces.cover(*span) for span in spans)
        if gap[0] >= len(pieces):
            raise ModelError(f"The tokenizer makes no token of {item.answer!r}; check its tokenizer.json.")
        antecedent = others[0] if others else None
        capacity = self._capacity(gap, antecedent, is_far=TASKS[item.task].is_far)
        if (low > 0 and gap[0] < capacity) or (high < len(text) and len(pieces) - gap[1] < capacity):
            return None
        first, last, in_reach = bounds(len(pieces), gap, antecedent, capacity)
        answer = tuple(pieces.ids[gap[0] : gap[1]].tolist())
        whole = _has_edges(tokenized, spans[0])
        is_entry = whole and len(answer) == 1 and answer[0] != self._tokenizer.unk_token_id
        return Window(
            before=np.concatenate([self._prefix, pieces.ids[first : gap[0]]]).astype(np.int32),
            after=np.concatenate([pieces.ids[gap[1] : last], self._suffix]).astype(np.int32),
            pieces=answer,
            whole=whole,
            entry=answer[0] if is_entry else None,
            own_distance=distance_between(gap, antecedent),
            out_of_reach=not in_reach,
            initial=read_entries(self._tokenizer).begins_word(int(pieces.ids[gap[0]]), text, item.start),
        )

    def _capacity(self, gap: tuple[int, int], antecedent: tuple[int, int] | None, *, is_far: bool) -> int:
        """How many pieces stand around the gap: the length is doubled until gap and antecedent fit."""
        taken = self._special + gap[1] - gap[0]
        span = max(gap[1], antecedent[1]) - min(gap[0], antecedent[0]) if antecedent else 0
        most = self._lengths.far if is_far else self._lengths.near
        length = self._lengths.usual
        while length < min(most, span + self._special):
            length = min(2 * length, most)
        return max(0, length - taken)


def _has_edges(pieces: Pieces, span: tuple[int, int]) -> bool:
    """Whether the tokenizer's own pieces begin and end where a span does."""
    low, high = pieces.cover(*span)
    return low < high and int(pieces.starts[low]) == span[0] and int(pieces.ends[high - 1]) == span[1]


def _key(item: ClozeItem, text: str) -> tuple[object, ...]:
    return hash(text), item.start, item.end, item.antecedent, TASKS[item.task].is_far


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


def maker_for(tokenizer: FastTokenizer, lengths: Lengths) -> WindowMaker:
    """The window maker shared by all models with one tokenizer: cutting windows is most of the work outside the model."""
    frame = (tuple(edge.tolist()) for edge in special_edges(tokenizer))
    key = tokenizer_fingerprint(tokenizer), *frame, tokenizer.mask_token_id, lengths
    if key not in _MAKERS:
        for oldest in list(_MAKERS)[:-1]:  # keep the last one beside the new one
            del _MAKERS[oldest]
        _MAKERS[key] = WindowMaker(tokenizer, lengths)
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
