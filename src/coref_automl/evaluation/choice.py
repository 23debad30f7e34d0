"""Real-choice: answers of several pieces among nouns of their document. In: a window, nouns. Out: rows to run, and a rank.

A word of k pieces stands as k masks, filled from left to right: its log-probability is the sum of
each piece's, given the pieces before it. Only nouns with as many pieces as the answer compete, at
least two and at most nineteen of them by lot, so no length has an advantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import ClozeItem
from coref_automl.evaluation.tasks.task import draw_lot
from coref_automl.evaluation.windows import Window
from coref_automl.models.vocabulary import FastTokenizer, word_ids

LEAST, MOST = 3, 20
"""Words to choose from, the answer among them."""


@dataclass(frozen=True, slots=True)
class Row:
    """The ids in the gap, and at the first mask among them the (piece, word) pairs to read."""

    gap_ids: tuple[int, ...]
    place: int
    targets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WordChoice:
    """The words of one item, the answer first, each as its pieces."""

    words: tuple[str, ...]
    pieces: tuple[tuple[int, ...], ...]

    def rows(self, mask: int) -> list[Row]:
        """One row for every distinct beginning of a word."""
        size = len(self.pieces[0])
        targets: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for number, pieces in enumerate(self.pieces):
            for place in range(size):
                targets.setdefault(pieces[:place], []).append((pieces[place], number))
        return [Row(done + (mask,) * (size - len(done)), len(done), tuple(of)) for done, of in targets.items()]

    def rank(self, sums: NDArray[np.float64]) -> int:
        """The rank of the answer; ties go against it."""
        return 1 + int((sums[1:] >= sums[0]).sum())

    def best(self, sums: NDArray[np.float64], most: int) -> tuple[str, ...]:
        return tuple(self.words[number] for number in np.argsort(-sums, kind="stable")[:most])


def choice_of(item: ClozeItem, window: Window, nouns: Sequence[str], tokenizer: FastTokenizer) -> WordChoice | None:
    """The choice of an item; None if its answer is one piece, has no token edges, or has no two rivals."""
    if not window.whole or len(window.pieces) < 2 or tokenizer.unk_token_id in window.pieces:
        return None
    rivals: dict[tuple[int, ...], str] = {window.pieces: item.answer}
    for word in sorted(nouns, key=lambda word: draw_lot(item.id, word)):
        pieces = tuple(word_ids(tokenizer, word, initial=window.initial))
        if len(pieces) == len(window.pieces) and tokenizer.unk_token_id not in pieces and len(rivals) < MOST:
            rivals.setdefault(pieces, word)
    return WordChoice(tuple(rivals.values()), tuple(rivals)) if len(rivals) >= LEAST else None
