"""What needs no model. In: items and their texts. Out: the scores of copying a word of the document into the gap.

The words are the item's own candidates, which are nouns of the document: the most frequent outside the gap, or the one nearest to
it. They are ranked as a model's words are, so that every metric reads them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coref_automl.records import ClozeItem, Estimate, ItemScore
from coref_automl.statistics.intervals import bootstrap_mean

_TOP = 5


def places(text: str, word: str, item: ClozeItem) -> list[int]:
    """Where a word stands in the text, the gap left out."""
    found, at = [], text.find(word)
    while at >= 0:
        if at + len(word) <= item.start or at >= item.end:
            found.append(at)
        at = text.find(word, at + 1)
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """How often a candidate stands in the document outside the gap, and minus the characters from gap to nearest place."""

    count: int
    nearness: int


BASELINES: dict[str, Callable[[Seen], tuple[int, int]]] = {
    "copy-most-frequent": lambda seen: (seen.count, seen.nearness),
    "copy-nearest": lambda seen: (seen.nearness, 0),
}
"""What comes first: the higher key. A tie of counts goes to the nearer one."""


def copy_scores(items: Iterable[ClozeItem], texts: Mapping[str, str]) -> dict[str, list[ItemScore]]:
    """Each item with its candidates in the order of each baseline; ties go against the answer."""
    out: dict[str, list[ItemScore]] = {name: [] for name in BASELINES}
    for item in items:
        if item.candidates:
            seen = [look(texts[item.document], group, item) for group in item.candidates]
            for name, key in BASELINES.items():
                out[name].append(_score(item, [key(entry) for entry in seen]))
    return out


def look(text: str, group: Sequence[str], item: ClozeItem) -> Seen:
    found = [(at, len(word)) for word in group for at in places(text, word, item)]
    gaps = [item.start - (at + size) if at < item.start else at - item.end for at, size in found]
    return Seen(len(found), -min(gaps, default=1 << 30))


def chance(items: Sequence[ClozeItem], *, seed: int = 0) -> Estimate | None:
    """How often a blind choice among the candidates is right."""
    counted = [item for item in items if len(item.candidates) > 1]
    if not counted:
        return None
    shares = np.array([1 / len(item.candidates) for item in counted])
    return bootstrap_mean(shares, np.array([item.cluster for item in counted]), seed=seed)


def _score(item: ClozeItem, keys: Sequence[tuple[int, int]]) -> ItemScore:
    order = sorted(range(len(keys)), key=lambda at: (keys[at], at), reverse=True)
    rank = 1 + sum(other >= keys[0] for other in keys[1:])
    return ItemScore(
        item=item.id, task=item.task, cluster=item.cluster, source=item.source, answer=item.answer, tag=item.tag,
        distance=item.distance, strict_rank=rank, lenient_rank=rank, top=tuple(item.candidates[at][0] for at in order[:_TOP]),
        pieces=0, word_rank=rank if len(item.candidates) > 1 else None, pronoun_between=item.pronoun_between,
    )  # fmt: skip
