"""Scoring of checkpoints during training. In: a run's folder and an evaluation set. Out: evaluations, the best, a reason to stop.

Only the `select` half decides here; `confirm` is left for the verdict. The checkpoint to stop at is the one until which `compare`
advises to train next time: the earliest within the margin of the best at 95% confidence. When two further checkpoints do not
change it, training has stopped paying.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from coref_automl.comparison.choice import checked_margin, choose, next_time_of
from coref_automl.comparison.groups import group_of
from coref_automl.comparison.scores import choose_metric
from coref_automl.comparison.superseded import drop_replaced_weights
from coref_automl.errors import CorefError
from coref_automl.evaluation.results import find_evaluations
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from coref_automl.folders import EVENTS, natural_order
from coref_automl.models.model_files import full_name
from coref_automl.progress import Progress, read_events
from coref_automl.records import Evaluation
from coref_automl.say import say
from coref_automl.store import write_json
from coref_automl.training.folder import BEST, checkpoints_of, read_clock
from coref_automl.training.recipe import TrainRecipe

PATIENCE = 2
"""Checkpoints that must follow the chosen one before training stops."""
_LONGEST_WAIT = timedelta(days=30)
T = TypeVar("T")


class ProcessGroup:
    """The processes that share a run; one process alone never waits.

    Collectives of the training group give up after minutes (NCCL after ten), which is right inside a step and wrong while the
    first process scores a checkpoint. Waiting has a group of its own, over sockets: a process that dies ends it at once.
    """

    def __init__(self, processes: int, device: str) -> None:
        self._group: Any = None
        if processes > 1:
            import torch.distributed
            from accelerate import PartialState

            PartialState(cpu=not device.startswith("cuda"))
            self._group = torch.distributed.new_group(backend="gloo", timeout=_LONGEST_WAIT)

    def share_from_first(self, value: T) -> T:
        """What the first process passes; the values of the others are ignored."""
        shared = [value]
        if self._group is not None:
            torch.distributed.broadcast_object_list(shared, src=0, group=self._group)
        return shared[0]

    def wait(self) -> None:
        if self._group is not None:
            torch.distributed.barrier(group=self._group)


class Judge:
    """Evaluates in the first process; the others wait for its answer."""

    def __init__(self, recipe: TrainRecipe, run: Path, progress: Progress, accelerator: Any, group: ProcessGroup) -> None:
        self._recipe, self._run, self._progress, self._accelerator, self._group = recipe, run, progress, accelerator, group
        self._reported = reported_values(run, recipe.metric)

    def after_checkpoint(self) -> str | None:
        """Score what is not scored yet; a reason to stop, or None."""
        if self._recipe.eval_set is None:
            return None
        return self._group.share_from_first(self._judged() if self._accelerator.is_main_process else None)

    def _judged(self) -> str | None:
        try:
            with isolated_rng():
                found = self._score()
        except CorefError as error:
            ko, en = (
                "새 체크포인트를 채점하지 못했지만 학습은 계속합니다",
                "The newest checkpoint could not be scored, training continues",
            )
            self._progress.note(f"{say(ko, en)}: {error}")
            return None
        if found is None:
            return None
        best, behind = found
        write_json(self._run / BEST, best)
        if self._recipe.stop_when_flat and best["sure"] and behind >= PATIENCE:
            name, metric, margin = best["checkpoint"], best["metric"], f"{100 * best['margin']:g}"
            return say(
                f"조기 종료: {name}의 {metric}이 최고와 {margin}점 이내이고(선택용 절반), 이후 체크포인트 {behind}개도 "
                "이를 바꾸지 못했습니다.",
                f"Stopped: {name} is within {margin} points of the best on {metric} (select half), and {behind} further "
                "checkpoints have not changed that.",
            )
        return None

    def _score(self) -> tuple[dict[str, Any], int] | None:
        """What best.json says, and how many scored checkpoints came after that one; None where none could be scored."""
        found: list[Evaluation] = []
        checkpoints = checkpoints_of(self._run)
        how = _evaluate_recipe(self._recipe, self._accelerator.device)
        try:
            evaluate(list(checkpoints), how, progress=self._progress, on_result=found.append)
        except CorefError:
            if not any(full_name(one.path) == full_name(str(checkpoints[-1])) for one in found):
                raise  # an older one that cannot be scored was noted and stops nothing
        if not found:
            return None
        found.sort(key=lambda one: natural_order(Path(one.path).name))
        newest = found[-1]
        for one in self._unreported(found):
            self._report(one)
        return self._choose(newest)

    def _choose(self, newest: Evaluation) -> tuple[dict[str, Any], int]:
        """The earliest checkpoint within the margin of the best, where that is `sure`, else the best. Only what was scored as the
        newest was speaks here, whatever other sets and lengths the run was evaluated with."""
        stored, _ = drop_replaced_weights(
            [one for one in find_evaluations([self._run], skip_damaged=True) if one.evaluation.condition == newest.condition]
        )
        curve = group_of(stored, newest.fingerprints["items"], newest.scorer)
        there = {full_name(str(path)) for path in checkpoints_of(self._run)}
        left = replace(curve, entries=tuple(one for one in curve.entries if full_name(one.evaluation.path) in there))
        metric, _ = choose_metric(left, self._recipe.metric)
        margin, seed = checked_margin(self._recipe.margin), self._recipe.seed
        choice = choose(left, metric, seed=seed)
        ahead = next_time_of(left, metric, choice.arm(choice.chosen), choice.chosen, margin=margin, seed=seed)
        sure = ahead is not None and bool(ahead.checkpoint)
        early = next(one for one in left.entries if one.evaluation.path == ahead.checkpoint) if ahead and sure else choice.best
        name, value = Path(early.evaluation.path).name, choice.candidates[early].value.to_json()
        behind = sum(one.tokens > early.tokens for one in curve.entries)
        best = {"checkpoint": name, "metric": metric, "value": value, "margin": margin, "half": "select", "sure": sure}
        return best, behind

    def _unreported(self, found: list[Evaluation]) -> list[Evaluation]:
        """What no event reports yet: a process that was killed while scoring leaves more than the newest.

        The newest is reported again when its value has changed; ones older than the last reported are not: events keep order.
        """
        metric = self._recipe.metric
        last = max(map(natural_order, self._reported), default=[])
        return [
            one
            for one in found
            if metric in one.estimates
            and (
                natural_order(Path(one.path).name) > last
                or (one is found[-1] and self._reported.get(Path(one.path).name) != one.estimates[metric].value)
            )
        ]

    def _report(self, one: Evaluation) -> None:
        """An event, with the checkpoint's own progress: the run may have come further since."""
        metric, name = self._recipe.metric, Path(one.path).name
        value = one.estimates[metric]
        clock = read_clock(Path(one.path))
        own = {"progress": clock["progress"]} if "progress" in clock else {}
        self._progress.event("evaluation", checkpoint=name, metric=metric, text=str(value), **own, **value.to_json())
        self._progress.note(f"{name}: {metric} {value}")
        self._reported[name] = value.value


def score_average(recipe: TrainRecipe, checkpoint: Path, device: str) -> float:
    (found,) = evaluate([checkpoint], _evaluate_recipe(recipe, torch.device(device)))
    return found.estimates[recipe.metric].value


def _evaluate_recipe(recipe: TrainRecipe, device: torch.device) -> EvaluateRecipe:
    """How a run scores its checkpoints: on its own device, not on all that are there."""
    place = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
    return EvaluateRecipe((Path(str(recipe.eval_set)),), device=place, words=recipe.eval_words, base=False, seed=recipe.seed)


def reported_values(run: Path, metric: str) -> dict[str, float]:
    """The value of each checkpoint that a run's events report, the last one last."""
    values: dict[str, float] = {}
    for row in read_events(run / EVENTS):
        if row["event"] == "evaluation" and row["metric"] == metric:
            values.pop(row["checkpoint"], None)
            values[row["checkpoint"]] = float(row["value"])
    return values


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Random draws inside do not affect training: a scored run and an unscored one learn the same."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
