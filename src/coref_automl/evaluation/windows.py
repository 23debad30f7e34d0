"""What a model reads of an item and is asked there. In: an item, its document as pieces, a length. Out: ids around the gap; rows.

The gap is one or more mask tokens in place of the hidden word. What follows the word inside its eojeol (a particle) remains the
continuation piece it was. The context does not depend on the number of masks: room for `MOST_MASKS` is always reserved.

Whole words are asked whatever the vocabulary: a candidate of k pieces is scored with k masks in the gap, by the mean
log-probability of its pieces; one of more than `MOST_MASKS` pieces by its first `MOST_MASKS`, so that none is left out. A word
with an unknown piece comes last.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import ModelError, RecipeError
from coref_automl.models.load import tokenizer_fingerprint
from coref_automl.models.vocabulary import FastTokenizer, Pieces, read_entries, split_at, tokenize, tokenize_all
from coref_automl.records import ClozeItem

MOST_MASKS = 4
"""The most masks in a gap; a longer word is scored by its first four pieces."""

LEAST_CONTEXT = 8
"""The fewest pieces of context around a gap that are worth scoring."""

_DOCUMENTS_KEPT = 8
_AT_ONCE = 256
"""Texts that are tokenized together; their pieces are kept until their windows are cut."""
_CHARACTERS = 4
"""Characters per piece, estimated high; a stretch that turns out too short is cut again, twice as wide."""

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The ids before and after the gap, special tokens included; `own_distance` counts this tokenizer's pieces.

    `initial`: in the document's own tokenization the hidden word starts with a piece that starts words; behind a sign or a line
    break it may run on instead, and entries of that form fill the gap.
    """

    before: Ids
    after: Ids
    own_distance: int
    out_of_reach: bool
    initial: bool

    @property
    def gap(self) -> int:
        return len(self.before)

    def filled(self, middle: Sequence[int]) -> Ids:
        return np.concatenate([self.before, np.asarray(middle, np.int32), self.after])

    def length(self, masks: int = MOST_MASKS) -> int:
        return len(self.before) + masks + len(self.after)


class WindowMaker:
    """Cuts windows for one tokenizer and one length. Consecutive items of one document tokenize it once.

    `window` tokenizes one text at a time; `prepare` tokenizes the texts of many items on all cores.
    """

    def __init__(self, tokenizer: FastTokenizer, seq_len: int) -> None:
        if tokenizer.mask_token_id is None:
            raise ModelError("The tokenizer has no mask token, so the model cannot fill a gap; pass a masked language model.")
        self.mask_id = int(tokenizer.mask_token_id)
        self._tokenizer = tokenizer
        self._opening, self._closing = special_edges(tokenizer)
        self._room = seq_len - len(self._opening) - len(self._closing) - MOST_MASKS
        if self._room < LEAST_CONTEXT:
            least = seq_len - self._room + LEAST_CONTEXT
            raise RecipeError(f"A window of {seq_len} tokens leaves no context around the gap; pass --seq-len {least} or more.")
        self._margin = _CHARACTERS * self._room
        self._tokenize = lru_cache(maxsize=_DOCUMENTS_KEPT)(lambda text: tokenize(tokenizer, text))
        self._read: dict[str, Pieces] = {}
        self._kept: dict[tuple[object, ...], Window] = {}

    def window(self, item: ClozeItem, text: str) -> Window:
        """The window of an item, cached: every checkpoint of a run asks for the same ones."""
        key = _key(item, text)
        if key not in self._kept:
            self._kept[key] = self._cut(item, text)
        return self._kept[key]

    def prepare(self, wanted: Iterable[tuple[ClozeItem, str]]) -> None:
        """Cut the windows of many items, given with their texts, ahead of `window`."""
        waiting: dict[str, list[tuple[ClozeItem, str]]] = {}
        for item, text in wanted:
            if _key(item, text) not in self._kept:
                low, high = _stretch(item, text, self._margin)
                waiting.setdefault(text[low:high], []).append((item, text))
        stretches = list(waiting)
        for low in range(0, len(stretches), _AT_ONCE):
            part = stretches[low : low + _AT_ONCE]
            self._read = dict(zip(part, tokenize_all(self._tokenizer, part), strict=True))
            for stretch in part:
                for item, text in waiting[stretch]:
                    self.window(item, text)
        self._read = {}

    def _cut(self, item: ClozeItem, text: str) -> Window:
        pieces, gap, antecedent = self._place(item, text)
        if gap[0] >= len(pieces):
            raise ModelError(f"The tokenizer makes no token of {text[item.start : item.end]!r}; check its tokenizer.json.")
        low, high, in_reach = bounds(len(pieces), gap, antecedent, self._room)
        return Window(
            np.concatenate([self._opening, pieces.ids[low : gap[0]]]).astype(np.int32),
            np.concatenate([pieces.ids[gap[1] : high], self._closing]).astype(np.int32),
            distance_between(gap, antecedent),
            not in_reach,
            read_entries(self._tokenizer).begins_word(int(pieces.ids[gap[0]]), text, item.start),
        )

    def _place(self, item: ClozeItem, text: str) -> tuple[Pieces, tuple[int, int], tuple[int, int] | None]:
        """The pieces around an item, and the places of gap and antecedent. Of a long document, only what a window can hold.

        The stretch starts and ends at blanks, where tokens never cross, so its pieces are those of the document.
        """
        margin = self._margin
        while True:
            low, high = _stretch(item, text, margin)
            moved = [(start - low, end - low) for start, end in _spans(item)]
            stretch = text[low:high]
            pieces = split_at(self._tokenizer, stretch, self._read.get(stretch) or self._tokenize(stretch), moved[:1])
            gap, *others = (pieces.cover(*span) for span in moved)
            if (low == 0 or gap[0] >= self._room) and (high == len(text) or len(pieces) - gap[1] >= self._room):
                return pieces, gap, others[0] if others else None
            margin *= 2


def _key(item: ClozeItem, text: str) -> tuple[object, ...]:
    return hash(text), item.start, item.end, item.antecedent


def _spans(item: ClozeItem) -> list[tuple[int, int]]:
    """The spans of the hidden word and, if any, of its antecedent."""
    return [(item.start, item.end), *([item.antecedent] if item.antecedent else [])]


def _stretch(item: ClozeItem, text: str, margin: int) -> tuple[int, int]:
    """From a blank `margin` characters before an item's words to one as far after; the whole text if that is over half of it."""
    spans = _spans(item)
    low = max(0, text.rfind(" ", 0, max(0, min(start for start, _ in spans) - margin)))
    high = text.find(" ", max(end for _, end in spans) + margin)
    return (0, len(text)) if high < 0 or 2 * (high - low) > len(text) else (low, high)


_MAKERS: dict[tuple[object, ...], WindowMaker] = {}


def maker_for(tokenizer: FastTokenizer, seq_len: int) -> WindowMaker:
    """A window maker that the checkpoints of one tokenizer share: cutting windows is most of the work outside the model."""
    frame = (tuple(edge.tolist()) for edge in special_edges(tokenizer))
    key = tokenizer_fingerprint(tokenizer), *frame, tokenizer.mask_token_id, seq_len
    if key not in _MAKERS:
        for oldest in list(_MAKERS)[:-1]:  # the last one stays beside the new one
            del _MAKERS[oldest]
        _MAKERS[key] = WindowMaker(tokenizer, seq_len)
    return _MAKERS[key]


def bounds(count: int, gap: tuple[int, int], antecedent: tuple[int, int] | None, room: int) -> tuple[int, int, bool]:
    """The range of pieces to keep, and whether the antecedent is in it. At most `room` pieces are outside the gap.

    The stretch from antecedent to gap is centred. If it does not fit, the gap alone is centred, and the item is out of reach.
    """
    left, right = gap[0], count - gap[1]
    need_left = max(0, gap[0] - antecedent[0]) if antecedent else 0
    need_right = max(0, antecedent[1] - gap[1]) if antecedent else 0
    in_reach = need_left + need_right <= room
    if not in_reach:
        need_left = need_right = 0
    spare = room - need_left - need_right
    more_left = min(left - need_left, spare // 2)
    more_right = min(right - need_right, spare - more_left)
    more_left = min(left - need_left, spare - more_right)
    return gap[0] - need_left - more_left, gap[1] + need_right + more_right, in_reach


def distance_between(gap: tuple[int, int], antecedent: tuple[int, int] | None) -> int:
    """Pieces between antecedent and gap; -1 without an antecedent."""
    return -1 if antecedent is None else max(gap[0] - antecedent[1], antecedent[0] - gap[1], 0)


def special_edges(tokenizer: FastTokenizer) -> tuple[Ids, Ids]:
    """What the tokenizer puts around a single text: [CLS] and [SEP], <s> and </s>, or nothing."""
    bare = list(tokenizer("가", add_special_tokens=False)["input_ids"])
    whole = list(tokenizer("가")["input_ids"])
    for at in range(len(whole) - len(bare) + 1):
        if whole[at : at + len(bare)] == bare:
            return np.array(whole[:at], np.int32), np.array(whole[at + len(bare) :], np.int32)
    raise ModelError("The tokenizer changes a text when it adds its special tokens, so windows cannot be cut with it.")


WordMode = Literal["all", "gold", "sample", "none"]
SAMPLE = 200
"""Items per task that `sample` scores."""


Asks = tuple[tuple[int, int], ...]
"""What is asked at one place of a gap: (piece, slot), whose log-probability belongs to the candidate of that slot."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row to run: the ids in the gap, and what is asked at each place of it."""

    middle: tuple[int, ...]
    asks: tuple[Asks, ...] = ((),)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one item as pieces: `words[slot]`, and the group of each slot. Group 0 is right."""

    words: tuple[tuple[int, ...], ...]
    groups: tuple[int, ...]

    def rank(self, sums: NDArray[np.float64]) -> int:
        """The rank of the right group from the summed log-probabilities of each slot; ties go against it."""
        best = np.full(max(self.groups) + 1, -math.inf)
        for slot, (pieces, group) in enumerate(zip(self.words, self.groups, strict=True)):
            if pieces:
                best[group] = max(best[group], sums[slot] / len(pieces))
        return 1 + int((best[1:] >= best[0]).sum())


def read_candidates(item: ClozeItem, pieces_of: Callable[[str], Sequence[int]], unknown: int | None) -> Candidates:
    words, groups = [], []
    for group, surfaces in enumerate(item.candidates):
        for surface in surfaces:
            pieces = tuple(pieces_of(surface)[:MOST_MASKS])
            words.append(() if unknown in pieces else pieces)
            groups.append(group)
    return Candidates(tuple(words), tuple(groups))


def masked_rows(candidates: Candidates, mask: int) -> list[Row]:
    """One row for each number of pieces among the candidates: that many masks, all words of that size asked at once."""
    by_size: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for slot, pieces in enumerate(candidates.words):
        by_size.setdefault(len(pieces), []).append((slot, pieces))
    return [
        Row((mask,) * size, tuple(tuple((pieces[offset], slot) for slot, pieces in words) for offset in range(size)))
        for size, words in sorted(by_size.items())
        if size
    ]


def sample(items: Iterable[ClozeItem], size: int = SAMPLE) -> frozenset[str]:
    """Ids of a fixed sample: the same for every model, spread over the set by hash."""
    ids = sorted((item.id for item in items), key=lambda name: hashlib.sha256(name.encode()).digest())
    return frozenset(ids[:size])


def wanted_ids(items: Sequence[ClozeItem], mode: WordMode) -> frozenset[str]:
    """Ids of the items whose word rank is wanted; a sample is drawn from each task separately."""
    if mode == "none":
        return frozenset()
    with_choice = [item for item in items if len(item.candidates) > 1 and (mode != "gold" or item.task == "gold")]
    if mode != "sample":
        return frozenset(item.id for item in with_choice)
    tasks = {item.task for item in with_choice}
    return frozenset().union(*(sample(item for item in with_choice if item.task == task) for task in tasks))
