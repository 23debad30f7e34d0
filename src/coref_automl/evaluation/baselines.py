"""What needs no model. In: items and their texts. Out: the scores of copying a word of the document into the gap.

The words are the item's own candidates, which are nouns of the document: the most frequent outside the gap, or the one nearest to
it. They are ranked as a model's words are, so that every metric reads them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from coref_automl.records import ClozeItem, Estimate, ItemScore
from coref_automl.statistics import bootstrap_mean

_TOP = 5


def places(text: str, word: str, item: ClozeItem) -> list[int]:
    """Where a word stands in the text, the gap left out."""
    found, at = [], text.find(word)
    while at >= 0:
        if at + len(word) <= item.start or at >= item.end:
            found.append(at)
        at = text.find(word, at + 1)
    return found


def frequency(text: str, group: Sequence[str], item: ClozeItem) -> tuple[float, float]:
    """Higher comes first: by count, then by nearness."""
    return float(sum(len(places(text, word, item)) for word in group)), nearness(text, group, item)[0]


def nearness(text: str, group: Sequence[str], item: ClozeItem) -> tuple[float, float]:
    """Higher comes first: minus the characters between the gap and the nearest occurrence, on either side."""
    gaps = [
        item.start - (at + len(word)) if at < item.start else at - item.end for word in group for at in places(text, word, item)
    ]
    return -float(min(gaps, default=1 << 30)), 0.0


BASELINES: dict[str, Callable[[str, Sequence[str], ClozeItem], tuple[float, float]]] = {
    "copy-most-frequent": frequency,
    "copy-nearest": nearness,
}


def copy_scores(name: str, items: Iterable[ClozeItem], texts: Mapping[str, str]) -> list[ItemScore]:
    """Each item with its candidates in the order of a baseline; ties go against the answer."""
    return [_score(BASELINES[name], item, texts[item.document]) for item in items if item.candidates]


def chance(items: Sequence[ClozeItem], *, seed: int = 0) -> Estimate | None:
    """How often a blind choice among the candidates is right."""
    counted = [item for item in items if len(item.candidates) > 1]
    if not counted:
        return None
    shares = np.array([1 / len(item.candidates) for item in counted])
    return bootstrap_mean(shares, np.array([item.cluster for item in counted]), seed=seed)


def _score(key: Callable[[str, Sequence[str], ClozeItem], tuple[float, float]], item: ClozeItem, text: str) -> ItemScore:
    keys = [key(text, group, item) for group in item.candidates]
    order = sorted(range(len(keys)), key=lambda at: (keys[at], at), reverse=True)
    rank = 1 + sum(other >= keys[0] for other in keys[1:])
    return ItemScore(
        item=item.id, task=item.task, cluster=item.cluster, source=item.source, answer=item.answer, tag=item.tag,
        distance=item.distance, strict_rank=rank, lenient_rank=rank, top=tuple(item.candidates[at][0] for at in order[:_TOP]),
        pieces=0, word_rank=rank if len(item.candidates) > 1 else None, pronoun_between=item.pronoun_between,
    )  # fmt: skip
