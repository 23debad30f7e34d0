"""What a study maximises, on which items, and what it can show. In: metrics, guards, a set. Out: a Score, both halves, power.

Trials see the `select` half alone, so that `confirm` can judge at the end. Halves keep only the tasks that score and guards need.
Guards name cloze metrics, or outcomes of outside checks, which are fine-tuned from both sides at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.config import choose, from_mapping, parse_weights
from coref_automl.base.errors import RecipeError
from coref_automl.base.job import Job
from coref_automl.base.records import Estimate, Half, ItemScore, Record, Task
from coref_automl.comparison.carry_over import judge_starts, start_of
from coref_automl.comparison.claims import QuestionId
from coref_automl.comparison.outside_checks import CHECKS, CheckStage, TaskData
from coref_automl.comparison.power import Evidence, sizes_of, usual_metric
from coref_automl.evaluation.evalset import EvalSet, half_set
from coref_automl.evaluation.metrics import METRICS, Metric, hits, metric_named, tasks_of
from coref_automl.evaluation.tasks import TASKS
from coref_automl.extras.tune.problem import run_folder
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.models.load import load_tokenizer
from coref_automl.statistics.intervals import difference_intervals
from coref_automl.statistics.planning import Paired, detectable_difference, plans_for
from coref_automl.statistics.resampling import Floats, Part, joined

Clusters = NDArray[np.str_]
RunScores = Sequence[Sequence[ItemScore]]
"""The scored items of several runs."""


@dataclass(frozen=True, slots=True)
class MetricGuard(Record):
    """A metric that must not fall below this difference from the reference (a share, not points)."""

    metric: str
    least: float


@dataclass(frozen=True, slots=True)
class Score:
    """Metrics with weights that sum to 1, and the label that people read."""

    parts: tuple[tuple[str, float], ...]
    label: str
    guards: tuple[MetricGuard, ...] = ()

    @property
    def main(self) -> str:
        """The metric with the largest weight, which training runs report."""
        return max(self.parts, key=lambda part: part[1])[0]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that score and guards need, in the usual order."""
        names = (*(name for name, _ in self.parts), *(guard.metric for guard in self.guards))
        return tuple(task for task in TASKS if any(task in tasks_of(name) for name in names))

    def _single(self) -> Iterator[tuple[Metric, float]]:
        """The metrics without parts that make up the score, with their weights."""
        for name, weight in self.parts:
            for part, share in METRICS[name].parts or ((name, 1.0),):
                yield METRICS[part], weight * share

    def value(self, scores: Sequence[ItemScore]) -> float:
        return float(sum(np.mean(values) for values, _ in self._terms(scores)))

    def mrr(self, scores: Sequence[ItemScore]) -> float:
        """The mean reciprocal rank, weighted as the score is."""
        total = 0.0
        for metric, weight in self._single():
            total += weight * float(np.mean([1 / item.rank for item in scores if item.task == metric.task and item.rank]))
        return total

    def paired(self, ours: RunScores, theirs: RunScores) -> Paired:
        """Compare pairs of runs, in one part per task."""
        sides = [[self._terms(scores) for scores in runs] for runs in (ours, theirs)]
        parts = []
        for number, (_, clusters) in enumerate(sides[0][0]):
            first, second = (np.stack([run[number][0] for run in side], axis=1) for side in sides)
            parts.append(Part(first - second, clusters))
        return Paired.of(parts)

    def guarded(self, ours: RunScores, theirs: RunScores) -> dict[str, Estimate]:
        """Return the difference of every guard's metric, with its interval over documents."""
        differences = {}
        for guard in self.guards:
            alone = Score(((guard.metric, 1.0),), guard.metric)
            sides = [[alone._terms(scores) for scores in runs] for runs in (ours, theirs)]
            parts = []
            for number, (_, clusters) in enumerate(sides[0][0]):
                first, second = (np.mean([run[number][0] for run in side], axis=0) for side in sides)
                parts.append(Part(first - second, clusters))
            (differences[guard.metric],) = difference_intervals(parts, seed=0)
        return differences

    def _terms(self, scores: Sequence[ItemScore]) -> list[tuple[Floats, Clusters]]:
        """Return weighted hits and clusters, one pair of arrays per task, or one for tasks that share
        documents; items in the order of their ids."""
        ordered = sorted(scores, key=lambda item: item.item)
        by_task: dict[Task | None, tuple[Floats, Clusters]] = {}
        for metric, weight in self._single():
            _, hit, clusters = hits(ordered, metric.name)
            others = by_task.get(metric.task)
            by_task[metric.task] = weight * hit.astype(np.float64) + (others[0] if others else 0.0), clusters
        parts = joined([Part(values, clusters) for values, clusters in by_task.values()])
        return [(np.asarray(part.values), np.asarray(part.clusters)) for part in parts]


def score_of(recipe: TuneRecipe, evalset: EvalSet) -> Score:
    """Return the score of a recipe: --score, --metric, or the metric that leads on the set."""
    guards = tuple(guard for guard in map(guard_of, recipe.guards) if guard.metric in METRICS)
    if recipe.score is None:
        metric = metric_named(recipe.metric or usual_metric(evalset))
        return Score(((metric.name, 1.0),), metric.label, guards)
    parts = [(metric_named(name).name, weight) for name, weight in parse_weights(recipe.score, "--score").items()]
    if any(weight <= 0 for _, weight in parts) or abs(sum(weight for _, weight in parts) - 1) > 1e-6:
        raise RecipeError(f"The weights of --score {recipe.score} should be above 0 and sum to 1.")
    return Score(tuple(parts), " + ".join(f"{weight:g} {METRICS[name].label}" for name, weight in parts), guards)


def guard_of(text: str) -> MetricGuard:
    name, sign, least = (part.strip() for part in text.partition(">="))
    if not sign:
        raise RecipeError(f"--guard {text} should read METRIC>=POINTS, for example real_far1>=-0.5.")
    value = math.nan
    with suppress(ValueError):
        value = float(least) / 100
    if not math.isfinite(value):
        raise RecipeError(f"--guard {text} has no number behind >=.")
    return MetricGuard(name if name in _checks_by_outcome() else metric_named(name).name, value)


def is_met(guard: str, differences: Mapping[str, Estimate]) -> bool:
    """Was the guard's metric measured, and is its difference large enough?"""
    limit = guard_of(guard)
    return limit.metric in differences and differences[limit.metric].value >= limit.least


def outside_guards(recipe: TuneRecipe) -> list[QuestionId]:
    """Return the checks that guards name. A section for any other is refused: it would change nothing."""
    checks = _checks_by_outcome()
    guarded = [checks[guard.metric] for guard in map(guard_of, recipe.guards) if guard.metric in checks]
    for name in recipe.checks:
        if choose(name, CHECKS, "check") and name not in guarded:
            raise RecipeError(f"checks: no guard asks for {name}; add --guard '{CHECKS[name].outcome}>=-1', or leave it out.")
    return guarded


def _checks_by_outcome() -> dict[str, QuestionId]:
    return {check.outcome: question for question, check in CHECKS.items()}


def open_checks(recipe: TuneRecipe, out: Path) -> dict[QuestionId, tuple[CheckStage, TaskData]]:
    """Return the sections of checks that guards name, and the data of each."""
    checks = {}
    for question in outside_guards(recipe):
        stage = from_mapping(CHECKS[question].stage, recipe.checks.get(question, {}), f"checks: {question}")
        checks[question] = stage, CHECKS[question].open(stage, out)
    return checks


def outside_difference(question: QuestionId, pairs: Sequence[tuple[Job, Job]], seed: int) -> Estimate | None:
    """Return the difference of a check over pairs of finished fine-tuning jobs; None if it cannot be judged."""
    read = CHECKS[question].files.read
    ours, theirs = (
        {number: start_of([read(run_folder(job))]) for number, job in enumerate(side)} for side in zip(*pairs, strict=True)
    )
    judged = judge_starts(question, ("", ""), ours, theirs, seed)
    return judged.claim.difference if judged else None


_USUAL_GAIN = 0.01
"""Gain of a good search where there is something to gain."""


def power_of(confirm: EvalSet, score: Score, recipe: TuneRecipe) -> Evidence:
    """Estimate power from the variances of the archived studies; a weighted score by the metric that weighs most."""
    sizes = sizes_of(confirm, score.main)
    detectable = detectable_difference(sizes, recipe.seeds)
    plans = plans_for(_USUAL_GAIN, items_a_document=float(sizes.mean()), offered=(recipe.seeds,)) if recipe.seeds > 1 else []
    too_few = plans and (detectable is None or detectable > _USUAL_GAIN)
    return Evidence(score.main, int(sizes.sum()), len(sizes), detectable, recipe.seeds, plans[0].documents if too_few else None)


def split_set(evalset: EvalSet, out: Path, tasks: Sequence[Task], *, limit: int | None) -> dict[Half, EvalSet]:
    """Write both halves under `out`, or open existing ones. `limit` bounds the items per task in each half."""
    missing = [task for task in tasks if not evalset.items.get(task)]
    if missing:
        raise RecipeError(
            f"{evalset.folder} has no {missing[0]} items, which this study is scored on; choose another --metric or --eval-set."
        )
    return {half: half_set(evalset, out / half, half, tasks, limit) for half in get_args(Half)}


def prepare_vocabularies(recipe: TuneRecipe, halves: Mapping[Half, EvalSet]) -> None:
    """Make a noun table per tokenizer and half."""
    for model in recipe.models:
        tokenizer = load_tokenizer(str(recipe.settings.get("tokenizer") or model))
        for half in halves.values():
            half.noun_table(tokenizer)
