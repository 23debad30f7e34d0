"""Which vocabulary entries match an answer. In: the word of every entry, and the entries allowed. Out: ids, fast for any answer.

Strict: equal. Lenient: equal, or one contains the other, the contained one of two or more characters (a single syllable is inside
half of all words and says nothing).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST_CONTAINED = 2
_BETWEEN = "\n"


def matches(word: str, answer: str) -> bool:
    """The lenient rule for one pair of words."""
    if word == answer:
        return True
    short, long = sorted((word, answer), key=len)
    return len(short) >= LEAST_CONTAINED and short in long


class MatchTable:
    """Which entries match? Without a loop over the vocabulary: substrings are looked up, superstrings searched in one text."""

    def __init__(self, words: Sequence[str | None], allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.words = words
        self._ids: dict[str, list[int]] = {}
        for entry in np.flatnonzero(allowed).tolist():
            word = words[entry]
            if word and _BETWEEN not in word:
                self._ids.setdefault(word, []).append(entry)
        distinct = list(self._ids)
        self._distinct = distinct
        self._starts = np.cumsum([1] + [len(word) + 1 for word in distinct])[:-1]
        self._text = _BETWEEN + _BETWEEN.join(distinct) + _BETWEEN
        self._known: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def of(self, answer: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of the strict and of the lenient matches among the allowed entries."""
        if answer not in self._known:
            strict = self._ids.get(answer, [])
            found = {answer} | self._inside(answer) | self._around(answer)
            lenient = sorted(entry for word in found for entry in self._ids.get(word, ()))
            self._known[answer] = np.array(strict, np.int64), np.array(lenient, np.int64)
        return self._known[answer]

    def _inside(self, answer: str) -> set[str]:
        size = len(answer)
        return {answer[low:high] for low in range(size) for high in range(low + LEAST_CONTAINED, size + 1)} & self._ids.keys()

    def _around(self, answer: str) -> set[str]:
        if len(answer) < LEAST_CONTAINED or _BETWEEN in answer:
            return set()
        places, at = [], self._text.find(answer)
        while at >= 0:
            places.append(at)
            at = self._text.find(answer, at + 1)
        owners = np.searchsorted(self._starts, np.array(places, np.int64), side="right") - 1
        return {self._distinct[owner] for owner in owners}
