"""Pieces of a document. In: its tokens with character offsets. Out: cuts at sentence ends; each piece fits, none is lost."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from coref_automl.korean import Tags

_SENTENCE_END = re.compile(r"""(?<=[가-힣\])」』”’"'])[.!?…]+["'”’」』)\]]*(?=\s)|\n""")


def sentence_ends(text: str, tags: Tags | None) -> NDArray[np.int32]:
    """Where sentences end: line breaks, and what the tagger says, or final punctuation after Hangul where there is no tagger."""
    if tags is None:
        return np.array([match.end() for match in _SENTENCE_END.finditer(text)], np.int32)
    breaks = [match.end() for match in re.finditer("\n", text)]
    return np.union1d(tags.sentence_ends, np.array(breaks, np.int32)).astype(np.int32)


def cuts(starts: NDArray[np.int32], ends: NDArray[np.int32], sentences: NDArray[np.int32], room: int) -> list[int]:
    """Token indices 0 = c0 < c1 < ... = n such that every part has at most `room` tokens.

    A part is as long as whole sentences allow. A sentence that is longer than a part is cut between words; a word that is longer
    still, anywhere.
    """
    count = len(starts)
    found = [0]
    if count <= room:
        return [0, count] if count else [0]
    at_sentence = np.unique(np.searchsorted(starts, sentences, "left"))
    at_word = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    while count - found[-1] > room:
        low, high = found[-1], found[-1] + room
        found.append(_last_within(at_sentence, low, high) or _last_within(at_word, low, high) or high)
    found.append(count)
    return found


def _last_within(places: NDArray[np.int64], low: int, high: int) -> int:
    """The greatest place p with low < p <= high; 0 when there is none."""
    at = int(np.searchsorted(places, high, "right")) - 1
    return int(places[at]) if at >= 0 and places[at] > low else 0
