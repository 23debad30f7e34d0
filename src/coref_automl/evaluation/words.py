"""Whole words as answers, whatever the vocabulary. In: an item's candidates. Out: the rows to run, and the rank of the right one.

A word of k pieces is scored with k masks in the gap: the mean log-probability of its pieces. A word of more than `MOST_MASKS`
pieces is scored by its first `MOST_MASKS`, so that no candidate is left out. A word with an unknown piece comes last. As a check,
a fixed sample of each task is also scored piece by piece from left to right, at the cost of one row per piece of every candidate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.evaluation.windows import MOST_MASKS
from coref_automl.records import ClozeItem

WordMode = Literal["all", "gold", "sample", "none", "l2r"]
SAMPLE = 200
"""Items per task that `sample` scores, and on which `l2r` checks the result."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The log-probability of `piece` at the `offset`-th place of the gap belongs to candidate `slot`."""

    offset: int
    piece: int
    slot: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row to run: the ids in the gap, and what is asked there."""

    middle: tuple[int, ...]
    asks: tuple[Ask, ...] = ()

    @property
    def offsets(self) -> tuple[int, ...]:
        """Places of the gap at which the head runs."""
        return tuple(sorted({ask.offset for ask in self.asks}))


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
    asks: dict[int, list[Ask]] = {}
    for slot, pieces in enumerate(candidates.words):
        asks.setdefault(len(pieces), []).extend(Ask(offset, piece, slot) for offset, piece in enumerate(pieces))
    return [Row((mask,) * size, tuple(asked)) for size, asked in sorted(asks.items()) if size]


def left_to_right_rows(candidates: Candidates, mask: int) -> list[Row]:
    """One row per piece of each candidate: earlier pieces are shown, this and later ones are masked."""
    asks: dict[tuple[int, ...], list[Ask]] = {}
    for slot, pieces in enumerate(candidates.words):
        for at, piece in enumerate(pieces):
            asks.setdefault(pieces[:at] + (mask,) * (len(pieces) - at), []).append(Ask(at, piece, slot))
    return [Row(middle, tuple(asked)) for middle, asked in asks.items()]


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
