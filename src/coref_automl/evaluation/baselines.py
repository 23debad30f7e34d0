"""Baselines without a model. In: items and their texts. Out: the scores of copying a word of the document into the gap.

The words are the item's own candidates, which are nouns of the document: the most frequent one outside the gap, or the nearest.
They are ranked as a model's words are, so that every metric applies to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.evaluation.metrics import METRICS, summarise_all
from coref_automl.records import ClozeItem, Estimate, Half, ItemScore, Task
from coref_automl.statistics.intervals import bootstrap_mean

if TYPE_CHECKING:
    from coref_automl.evaluation.evalset import EvalSet

_TOP = 5
Baselines = dict[str, dict[str, Estimate]]


def places(text: str, word: str, item: ClozeItem) -> list[int]:
    """Where a word occurs in the text outside the gap."""
    found, at = [], text.find(word)
    while at >= 0:
        if at + len(word) <= item.start or at >= item.end:
            found.append(at)
        at = text.find(word, at + 1)
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """How often a candidate occurs outside the gap, and minus the characters between the gap and the nearest occurrence."""

    count: int
    nearness: int


BASELINES: dict[str, Callable[[Seen], tuple[int, int]]] = {
    "copy-most-frequent": lambda seen: (seen.count, seen.nearness),
    "copy-nearest": lambda seen: (seen.nearness, 0),
}
"""The higher key comes first. Of equal counts the nearer one wins."""


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
    """The expected accuracy of a random choice among the candidates."""
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


@dataclass(frozen=True, slots=True)
class Selection:
    """Some items of a set. Equal by the set's fingerprint, so that baselines are computed once per process."""

    evalset: EvalSet = field(compare=False)
    tasks: tuple[Task, ...] | None
    half: Half | None
    fingerprint: str


def summarise_with_baselines(
    scores: Sequence[ItemScore], part: Selection, *, seed: int = 0
) -> tuple[dict[str, Estimate], Baselines]:
    """The estimates of a model and of the baselines, on the same items and from the same draws."""
    copies = _copies(part)
    estimates, *copied = summarise_all([scores, *copies.values()], seed=seed)
    blind = {
        metric.name: share
        for metric in METRICS.values()
        if metric.rule == "word" and metric.task and (share := chance(part.evalset.select([metric.task], part.half), seed=seed))
    }
    shown = {name: blind[name] for name in blind if name in estimates}
    return estimates, {**dict(zip(copies, copied, strict=True)), **({"chance": shown} if shown else {})}


@lru_cache(maxsize=4)
def _copies(part: Selection) -> dict[str, list[ItemScore]]:
    return copy_scores(part.evalset.select(part.tasks, part.half), part.evalset.documents)
