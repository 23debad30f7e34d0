"""Which words usually stand beside which. In: documents of a source that hold no item. Out: Neighbours, counted.

What is usual is never asked of a model under test: an answer that the word before or behind the gap calls for in other documents
needs no context, and is not asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

COUNTED = 100
"""The fewest other documents of a source from which the share that holds a word is counted."""
MOST_DOCUMENTS = 1_000
"""Documents of a source that are counted."""
LEAST, SHARE = 2, 0.1
"""A guessable answer stands beside the neighbour in this many other documents, and in this share of those that have it."""
_Beside = dict[str, list[tuple[str, int]]]


@dataclass(slots=True, eq=False)
class Neighbours:
    """For every word of the counted documents, the words behind it and before it, each with the number of its document."""

    behind: _Beside = field(default_factory=lambda: defaultdict(list))
    before: _Beside = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    """Every word that follows another, sorted."""

    @classmethod
    def count(cls, documents: Iterable[tuple[str, str]]) -> Neighbours:
        """Of documents given as (id, text)."""
        found = cls()
        behind, before = found.behind, found.before
        for number, (identity, text) in enumerate(documents):
            found.numbers[identity] = number
            for left, right in set(pairwise(text.split())):
                behind[left].append((right, number))
                before[right].append((left, number))
        found.words = sorted(before)
        return found

    def share(self, noun: str, document: str) -> float:
        """The share of other documents that hold a word which begins with a noun; 0 where too few were counted."""
        if len(self.numbers) < COUNTED:
            return 0.0
        found = {
            number
            for word in self.words[bisect_left(self.words, noun) : bisect_left(self.words, noun + "\uffff")]
            for _, number in self.before[word]
        }
        return len(found - {self.numbers.get(document, -1)}) / len(self.numbers)

    def call_for(self, answer: str, ending: str, before: str, behind: str, document: str) -> bool:
        """Whether the words around a gap call for its answer. `ending` is what follows the answer inside its word."""
        own = self.numbers.get(document, -1)
        right, left = self.behind.get(before, ()), self.before.get(behind, ())
        return _often({number for word, number in right if word.startswith(answer)}, right, own) or _often(
            {number for word, number in left if word == answer + ending}, left, own, ending
        )


def _often(hits: set[int], beside: Sequence[tuple[str, int]], own: int, ending: str = "") -> bool:
    """Whether enough other documents have the answer there, of those that have the neighbour beside a word of that ending."""
    hits.discard(own)
    if len(hits) < LEAST:
        return False
    return len(hits) >= SHARE * len({number for word, number in beside if number != own and word.endswith(ending)})
