"""Metrics and baselines. In: item scores. Out: hits by item, estimates with intervals, and the baselines on the same items.

A metric counts the items whose answer is one entry of the model's vocabulary at the gap (rank 0:
not counted). Noun@1, the mean of Real@1 and New@1, leads: half of the hidden nouns stand in the
document and half do not, so neither copying nor ignoring it wins. A baseline puts a noun of the
document into the gap: the most frequent one outside the gap, or the nearest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.config import choose
from coref_automl.base.errors import RecipeError
from coref_automl.base.records import ClozeItem, Estimate, Half, ItemScore, Task, halves_of
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of
from coref_automl.evaluation.tasks.task import begins_word, occurrences
from coref_automl.statistics.intervals import DRAWS, composite
from coref_automl.statistics.resampling import Part, joined


@dataclass(frozen=True, slots=True)
class Metric:
    """The share of the counted items of a task with a rank up to `at`, or a weighted sum of such metrics in `parts`."""

    name: str
    label: str
    task: Task | None = None
    at: int = 1
    parts: tuple[tuple[str, float], ...] = ()


_NAMED = (
    Metric("noun1", "Noun@1", parts=(("real1", 0.5), ("new1", 0.5))),
    Metric("real1", "Real@1", "real"),
    Metric("real5", "Real@5", "real", at=5),
    Metric("new1", "New@1", "new"),
    Metric("real_far1", "Real-far@1", "real-far"),
    Metric("lambada_top1", "LAMBADA@1", "lambada"),
    Metric("real_choice1", "Real-choice@1", "real-choice"),
)
_OTHERS = (
    Metric(f"{task.name.replace('-', '_')}1", f"{task.label}@1", task.name)
    for task in TASKS.values()
    if task.name not in {metric.task for metric in _NAMED}
)
_SCORE = Metric("score", "Score", parts=(("real1", 0.4), ("real5", 0.3), ("lambada_top1", 0.3)))
"""The evaluation guide's composite, in its JSON and printout alone."""
METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_NAMED, *_OTHERS, _SCORE)}
PRIMARY = "noun1"

COPY_BONUSES = (-1.0, -0.5, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Added to the logits of nouns visible in the window: what copying more would change, with nothing trained."""

GROUPINGS: dict[str, Callable[[Sequence[ItemScore]], list[str]]] = {
    "source": lambda scores: [score.source for score in scores],
    "tag": lambda scores: [score.tag for score in scores],
    "reach": lambda scores: ["out of reach" if score.out_of_reach else "in reach" for score in scores],
    "distance": lambda scores: [bucket(score.distance) for score in scores],
    "half": lambda scores: list(halves(scores)),
}
"""Labels of all items of a set; the halves depend on the number of its clusters."""


def metric_named(name: str) -> Metric:
    """The metric of a name or label, in any case: noun1, Noun@1."""
    lowered = name.lower()
    known = (metric for metric in METRICS.values() if lowered in (metric.name, metric.label.lower()))
    return next(known, None) or choose(name, METRICS, "metric")


def leading(names: Collection[str]) -> str:
    """The metric that leads among those with estimates: the first of METRICS."""
    return next((name for name in METRICS if name in names), PRIMARY)


def halves(scores: Sequence[ItemScore]) -> list[Half]:
    half_of_cluster = halves_of((score.task, score.cluster) for score in scores)
    return [half_of_cluster[score.cluster] for score in scores]


def hits(scores: Sequence[ItemScore], metric: str) -> tuple[list[str], NDArray[np.bool_], NDArray[np.str_]]:
    """Ids, hits and clusters of the items that a metric without parts counts; empty if there are none."""
    chosen = choose(metric, METRICS, "metric")
    if chosen.parts:
        raise RecipeError(
            f"{metric} is a composite and has no hits of its own; use its parts {', '.join(name for name, _ in chosen.parts)}."
        )
    return hits_of(scores, chosen)


def hits_of(scores: Sequence[ItemScore], metric: Metric) -> tuple[list[str], NDArray[np.bool_], NDArray[np.str_]]:
    """`hits` of a metric that need not be in METRICS."""
    counted = [score for score in scores if score.task == metric.task and score.rank > 0]
    return (
        [score.item for score in counted],
        np.array([score.rank <= metric.at for score in counted], np.bool_),
        np.array([score.cluster for score in counted], np.str_),
    )


def tasks_of(metric: str) -> set[str]:
    return {str(METRICS[name].task) for name, _ in METRICS[metric].parts or ((metric, 1.0),)}


def weighted_parts(scores: Sequence[ItemScore], metric: str) -> list[Part]:
    """The parts of a metric for `statistics.composite`: weighted hits, one part per task or one for tasks that share
    documents; empty if a task has none."""
    chosen = choose(metric, METRICS, "metric")
    by_task: dict[Task | None, tuple[NDArray[np.float64], NDArray[np.str_]]] = {}
    for name, weight in chosen.parts or ((metric, 1.0),):
        ids, hit, clusters = hits(scores, name)
        if not ids:
            return []
        values = weight * hit.astype(np.float64)
        if METRICS[name].task in by_task:
            values = values + by_task[METRICS[name].task][0]
        by_task[METRICS[name].task] = values, clusters
    return joined([Part(values, clusters) for values, clusters in by_task.values()])


def summarise_all(columns: Sequence[Sequence[ItemScore]], *, seed: int = 0, draws: int = DRAWS) -> list[dict[str, Estimate]]:
    """Estimate every metric that was run, for each list of scores; one that was not run is absent, never 0.

    Metrics on the same items share one set of bootstrap draws, which are most of the cost.
    """
    groups: dict[tuple[bytes, ...], list[tuple[int, str, list[Part]]]] = {}
    for column, scores in enumerate(columns):
        for name in METRICS:
            if parts := weighted_parts(scores, name):
                key = tuple(np.asarray(part.clusters).tobytes() for part in parts)
                groups.setdefault(key, []).append((column, name, parts))
    estimates: dict[tuple[int, str], Estimate] = {}
    for members in groups.values():
        first = members[0][2]
        stacked = [
            Part(np.column_stack([np.asarray(parts[number].values) for _, _, parts in members]), first[number].clusters)
            for number in range(len(first))
        ]
        for (column, name, _), estimate in zip(members, composite(stacked, seed=seed, draws=draws), strict=True):
            estimates[column, name] = estimate
    return [{name: estimates[column, name] for name in METRICS if (column, name) in estimates} for column in range(len(columns))]


def breakdown(scores: Sequence[ItemScore], metric: str, by: str, *, seed: int = 0, draws: int = 2000) -> dict[str, Estimate]:
    """One metric by source, tag, reach, distance or half; groups in natural order."""
    labels_of = choose(by, GROUPINGS, "grouping")
    tasks = tasks_of(metric)
    groups: dict[str, list[ItemScore]] = {}
    for score, label in zip(scores, labels_of(scores), strict=True):
        if score.task in tasks:
            groups.setdefault(label, []).append(score)
    order = sorted(groups, key=lambda name: ([low for low, high in BUCKETS if bucket(low) == name] or [1 << 30], name))
    parts = {name: weighted_parts(groups[name], metric) for name in order}
    return {name: composite(of_group, seed=seed, draws=draws)[0] for name, of_group in parts.items() if of_group}


def bucket(distance: int) -> str:
    if bounds := bucket_of(distance):
        return f"{bounds[0]}-{bounds[1] - 1}"
    return "none" if distance < 0 else f"{BUCKETS[-1][1]}+"


def counted(scores: Sequence[ItemScore]) -> dict[Task, float]:
    """The share of each task's items that the model counts."""
    tasks = dict.fromkeys(score.task for score in scores)
    return {task: _share([score for score in scores if score.task == task]) for task in tasks}


def counted_names(scores: Sequence[ItemScore]) -> float:
    """The share of the names among Real items that the model counts; 0 without names."""
    return _share([score for score in scores if score.task == "real" and score.tag == "NNP"])


def _share(scores: Sequence[ItemScore]) -> float:
    return sum(score.rank > 0 for score in scores) / max(1, len(scores))


_TOP = 5
_ABSENT = 1 << 30
"""The rank of an answer that is no noun of the rest of its document."""
Baselines = dict[str, dict[str, Estimate]]
Places = Sequence[tuple[int, str]]
"""The nouns of a text where they begin a word, in order."""


def _most_frequent(_: ClozeItem, places: Places) -> list[str]:
    return [word for word, _ in Counter(word for _, word in places).most_common()]


def _nearest(item: ClozeItem, places: Places) -> list[str]:
    def distance(place: tuple[int, str]) -> int:
        start, word = place
        return item.start - start - len(word) if start < item.start else start - item.end

    return list(dict.fromkeys(word for _, word in sorted(places, key=distance)))


BASELINES: dict[str, Callable[[ClozeItem, Places], list[str]]] = {
    "copy-most-frequent": _most_frequent,
    "copy-nearest": _nearest,
}
"""Nouns of the document outside the gap, in the order in which a baseline guesses them."""


def copy_scores(items: Iterable[ClozeItem], evalset: EvalSet) -> dict[str, list[ItemScore]]:
    """The scores of each baseline on these items."""
    scores: dict[str, list[ItemScore]] = {name: [] for name in BASELINES}
    known: dict[str, Places] = {}
    for item in items:
        if item.document not in known:
            known[item.document] = _places(evalset.documents[item.document], evalset.nouns[item.document])
        outside = [(at, word) for at, word in known[item.document] if at + len(word) <= item.start or at >= item.end]
        for name, order in BASELINES.items():
            scores[name].append(_copied(item, order(item, outside)))
    return scores


def _places(text: str, nouns: Iterable[str]) -> Places:
    """Where nouns begin a word; of several that begin at one place, the longest."""
    longest: dict[int, str] = {}
    for word in sorted(nouns, key=len):
        longest |= {start: word for start in occurrences(text, word) if begins_word(text, start)}
    return sorted(longest.items())


def _copied(item: ClozeItem, words: Sequence[str]) -> ItemScore:
    rank = words.index(item.answer) + 1 if item.answer in words else _ABSENT
    return ItemScore(
        item.id, item.task, item.cluster, item.source, item.answer, item.tag, item.distance, rank, tuple(words[:_TOP]), 0
    )


_COPIES: dict[str, dict[str, list[ItemScore]]] = {}


def summarise_with_baselines(
    scores: Sequence[ItemScore], evalset: EvalSet, *, seed: int = 0
) -> tuple[dict[str, Estimate], Baselines]:
    """The estimates of a model and of the baselines, on the items that the model counts and the same draws."""
    key = evalset.fingerprint
    if key not in _COPIES:  # computed once per set in a process
        _COPIES.clear()
        _COPIES[key] = copy_scores(evalset.select(), evalset)
    left_out = {score.item for score in scores if score.rank == 0}
    copies = [[replace(one, rank=0) if one.item in left_out else one for one in of] for of in _COPIES[key].values()]
    estimates, *copied = summarise_all([scores, *copies], seed=seed)
    return estimates, dict(zip(BASELINES, copied, strict=True))
