"""Metrics and baselines. In: item scores. Out: hits by item, estimates with intervals, and the baselines on the same items.

Lenient metrics have the short names (`real1`, `real5`, `lambada_top1`, `score`), for comparison with older tables; strict and
word metrics are reported beside them. A baseline copies a word of the document into the gap: of the item's candidates the most
frequent one outside the gap, or the nearest. Its words are ranked like a model's, so that every metric applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import choose
from coref_automl.errors import RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.far import BUCKETS, bucket_of
from coref_automl.evaluation.tasks.task import ClozeTask, occurrences
from coref_automl.records import ClozeItem, Estimate, Half, ItemScore, Task, halves_of
from coref_automl.statistics.intervals import DRAWS, bootstrap_mean, composite
from coref_automl.statistics.resampling import Part

Rule = Literal["strict", "lenient", "word"]


@dataclass(frozen=True, slots=True)
class Metric:
    """The share of items of a task with a rank up to `at` by a rule, or a weighted sum of such metrics in `parts`."""

    name: str
    label: str
    task: Task | None = None
    rule: Rule = "strict"
    at: int = 1
    parts: tuple[tuple[str, float], ...] = ()

    def rank(self, score: ItemScore) -> int | None:
        """The rank that this metric uses; None if it was not run."""
        return {"strict": score.strict_rank, "lenient": score.lenient_rank, "word": score.word_rank}[self.rule]


_SHARES = (
    Metric("real1", "Real@1", "real", "lenient", 1),
    Metric("real5", "Real@5", "real", "lenient", 5),
    Metric("lambada_top1", "LAMBADA@1", "lambada", "lenient", 1),
    Metric("real1_strict", "Real@1 strict", "real", "strict", 1),
    Metric("real5_strict", "Real@5 strict", "real", "strict", 5),
    Metric("lambada_top1_strict", "LAMBADA@1 strict", "lambada", "strict", 1),
    Metric("real_word", "Real word", "real", "word", 1),
    Metric("lambada_word", "LAMBADA word", "lambada", "word", 1),
    Metric("gold_word", "Gold", "gold", "word", 1),
)
_COMPOSITES = (
    Metric("score", "Score", parts=(("real1", 0.4), ("real5", 0.3), ("lambada_top1", 0.3))),
    Metric("score_strict", "Score strict", parts=(("real1_strict", 0.4), ("real5_strict", 0.3), ("lambada_top1_strict", 0.3))),
)


def _metrics_of(task: ClozeTask) -> tuple[Metric, ...]:
    """The metrics of a task without any above: lenient and strict at 1, and word."""
    name = task.name.replace("-", "_")
    return (
        Metric(f"{name}1", f"{task.label}@1", task.name, "lenient", 1),
        Metric(f"{name}1_strict", f"{task.label}@1 strict", task.name, "strict", 1),
        Metric(f"{name}_word", f"{task.label} word", task.name, "word", 1),
    )


_OTHERS = [task for name, task in TASKS.items() if name not in {metric.task for metric in _SHARES}]
METRICS: dict[str, Metric] = {
    metric.name: metric for metric in (*_SHARES, *(metric for task in _OTHERS for metric in _metrics_of(task)), *_COMPOSITES)
}
PRIMARY = "real1_strict"
WORD = "real_word"

GROUPINGS: dict[str, Callable[[Sequence[ItemScore]], list[str]]] = {
    "source": lambda scores: [score.source for score in scores],
    "tag": lambda scores: [score.tag for score in scores],
    "pieces": lambda scores: [str(min(score.pieces, 5)) + ("+" if score.pieces >= 5 else "") for score in scores],
    "reach": lambda scores: ["out of reach" if score.out_of_reach else "in reach" for score in scores],
    "distance": lambda scores: [bucket(score.distance) for score in scores],
    "half": lambda scores: list(halves(scores)),
    "pronoun": lambda scores: ["pronoun between" if score.pronoun_between else "none between" for score in scores],
    "before": lambda scores: [_label(score.before, "mentioned before", "mentioned behind only") for score in scores],
    "copyable": lambda scores: [_label(score.copyable, "beside the same word elsewhere", "not copyable") for score in scores],
}
"""Labels of all items of a set; the halves depend on the number of its clusters."""


def _label(fact: bool | None, yes: str, no: str) -> str:
    return "unknown" if fact is None else yes if fact else no


def halves(scores: Sequence[ItemScore]) -> list[Half]:
    half_of_cluster = halves_of((score.task, score.cluster) for score in scores)
    return [half_of_cluster[score.cluster] for score in scores]


def hits(scores: Sequence[ItemScore], metric: str) -> tuple[list[str], NDArray[np.bool_], NDArray[np.str_]]:
    """Ids, hits and clusters of the items that a metric without parts counts; empty if it was not run."""
    chosen = choose(metric, METRICS, "metric")
    if chosen.parts:
        raise RecipeError(
            f"{metric} is a composite and has no hits of its own; use its parts {', '.join(name for name, _ in chosen.parts)}."
        )
    return hits_of(scores, chosen)


def hits_of(scores: Sequence[ItemScore], metric: Metric) -> tuple[list[str], NDArray[np.bool_], NDArray[np.str_]]:
    """`hits` of a metric that need not be in METRICS."""
    counted = [(score, rank) for score in scores if score.task == metric.task and (rank := metric.rank(score)) is not None]
    return (
        [score.item for score, _ in counted],
        np.array([0 < rank <= metric.at for _, rank in counted], np.bool_),
        np.array([score.cluster for score, _ in counted], np.str_),
    )


def tasks_of(metric: str) -> set[str]:
    return {str(METRICS[name].task) for name, _ in METRICS[metric].parts or ((metric, 1.0),)}


def weighted_parts(scores: Sequence[ItemScore], metric: str) -> list[Part]:
    """The parts of a metric for `statistics.composite`: weighted hits, one part per task; empty if any was not run."""
    chosen = choose(metric, METRICS, "metric")
    by_task: dict[Task | None, tuple[list[str], NDArray[np.float64], NDArray[np.str_]]] = {}
    for name, weight in chosen.parts or ((metric, 1.0),):
        ids, hit, clusters = hits(scores, name)
        if not ids:
            return []
        previous = by_task.get(METRICS[name].task)
        values = weight * hit.astype(np.float64) + (previous[1] if previous else 0.0)
        by_task[METRICS[name].task] = ids, values, clusters
    return [Part(values, clusters) for _, values, clusters in by_task.values()]


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
    """One metric by source, tag, pieces, reach, distance ...; groups in natural order."""
    labels_of = choose(by, GROUPINGS, "grouping")
    counted = set(hits(scores, metric)[0])
    groups: dict[str, list[ItemScore]] = {}
    for score, label in zip(scores, labels_of(scores), strict=True):
        if score.item in counted and score.task == METRICS[metric].task:
            groups.setdefault(label, []).append(score)
    order = sorted(groups, key=lambda name: ([low for low, high in BUCKETS if bucket(low) == name] or [1 << 30], name))
    estimates = {}
    for name in order:
        _, hit, clusters = hits(groups[name], metric)
        estimates[name] = bootstrap_mean(hit, clusters, seed=seed, draws=draws)
    return estimates


def bucket(distance: int) -> str:
    if bounds := bucket_of(distance):
        return f"{bounds[0]}-{bounds[1] - 1}"
    return "none" if distance < 0 else f"{BUCKETS[-1][1]}+"


def strict_has_room(reachable: float) -> bool:
    """Whether enough answers are one vocabulary entry for strict to show a difference; if not, `word` is judged."""
    return reachable >= 0.1


def single_entry_share(scores: Sequence[ItemScore]) -> float:
    """The share of answers that are one vocabulary entry, the ceiling of strict: of the Real items, or without them of all."""
    counted = [score for score in scores if score.task == "real"] or list(scores)
    return sum(score.strict_rank > 0 for score in counted) / len(counted) if counted else 0.0


_TOP = 5
Baselines = dict[str, dict[str, Estimate]]
BASELINES: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "copy-most-frequent": lambda count, nearness: (count, nearness),
    "copy-nearest": lambda _, nearness: (nearness, 0),
}
"""Sort keys, highest first, from a candidate's count outside the gap and minus the characters to its nearest occurrence."""


def copy_scores(items: Iterable[ClozeItem], texts: Mapping[str, str]) -> dict[str, list[ItemScore]]:
    """The scores of each baseline, which ranks the candidates; ties go against the answer."""
    scores: dict[str, list[ItemScore]] = {name: [] for name in BASELINES}
    for item in items:
        if item.candidates:
            facts = [_occurrences(texts[item.document], group, item) for group in item.candidates]
            for name, key in BASELINES.items():
                scores[name].append(_score(item, [key(*fact) for fact in facts]))
    return scores


def _occurrences(text: str, group: Sequence[str], item: ClozeItem) -> tuple[int, int]:
    """How often a candidate occurs outside the gap, and minus the characters to the nearest occurrence."""
    spans = [(start, start + len(word)) for word in group for start in occurrences(text, word)]
    distances = [item.start - end if start < item.start else start - item.end for start, end in spans]
    outside = [distance for distance in distances if distance >= 0]
    return len(outside), -min(outside, default=1 << 30)


def chance(items: Sequence[ClozeItem], *, seed: int = 0) -> Estimate | None:
    """The expected accuracy of a random choice among the candidates."""
    counted = [item for item in items if len(item.candidates) > 1]
    if not counted:
        return None
    shares = np.array([1 / len(item.candidates) for item in counted])
    return bootstrap_mean(shares, np.array([item.cluster for item in counted]), seed=seed)


def _score(item: ClozeItem, keys: Sequence[tuple[int, int]]) -> ItemScore:
    order = sorted(range(len(keys)), key=lambda i: (keys[i], i), reverse=True)
    rank = 1 + sum(other >= keys[0] for other in keys[1:])
    return ItemScore(
        item=item.id, task=item.task, cluster=item.cluster, source=item.source, answer=item.answer, tag=item.tag,
        distance=item.distance, strict_rank=rank, lenient_rank=rank, top=tuple(item.candidates[i][0] for i in order[:_TOP]),
        pieces=0, word_rank=rank if len(item.candidates) > 1 else None, pronoun_between=item.pronoun_between,
    )  # fmt: skip


_COPIES: dict[str, dict[str, list[ItemScore]]] = {}


def summarise_with_baselines(
    scores: Sequence[ItemScore], evalset: EvalSet, *, seed: int = 0
) -> tuple[dict[str, Estimate], Baselines]:
    """The estimates of a model and of the baselines, on the same items (by words, those that the model ranked) and draws."""
    key = evalset.fingerprint
    if key not in _COPIES:  # computed once per set in a process
        _COPIES.clear()
        _COPIES[key] = copy_scores(evalset.select(), evalset.documents)
    ranked = {score.item for score in scores if score.word_rank is not None}
    copies = [[one if one.item in ranked else replace(one, word_rank=None) for one in _COPIES[key][name]] for name in BASELINES]
    estimates, *copied = summarise_all([scores, *copies], seed=seed)
    by_chance = {
        metric.name: share
        for metric in METRICS.values()
        if metric.name in estimates and metric.rule == "word" and metric.task
        if (share := chance([item for item in evalset.select([metric.task]) if item.id in ranked], seed=seed))
    }
    return estimates, {**dict(zip(_COPIES[key], copied, strict=True)), **({"chance": by_chance} if by_chance else {})}
