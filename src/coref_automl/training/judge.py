"""Scoring of checkpoints during training. In: a run's folder and an evaluation set. Out: evaluations, the best, a reason to stop.

Only the `select` half is used here; `confirm` is kept for the verdict. Training stops at the checkpoint up to which `compare`
recommends to train next time: the earliest within the margin of the best at 95% confidence. If two further checkpoints do not
change it, training no longer pays.
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

from coref_automl.base.errors import CorefError, EvaluationError
from coref_automl.base.folders import EVENTS, natural_order
from coref_automl.base.progress import Progress, read_events
from coref_automl.base.records import Evaluation
from coref_automl.base.say import say
from coref_automl.base.store import write_json
from coref_automl.comparison.groups import group_of
from coref_automl.comparison.next_step import next_time_of
from coref_automl.comparison.scores import choose_metric
from coref_automl.comparison.study_data import checked_margin, choose
from coref_automl.comparison.superseded import drop_replaced_weights
from coref_automl.evaluation.metrics import METRICS
from coref_automl.evaluation.results import find_evaluations
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from coref_automl.models.model_files import full_name
from coref_automl.training.folder import BEST, checkpoints_of, read_clock
from coref_automl.training.recipe import TrainRecipe

PATIENCE = 2
"""Checkpoints that must follow the chosen one before training stops."""
_LONGEST_WAIT = timedelta(days=30)
T = TypeVar("T")


class ProcessGroup:
    """The processes that share a run; a single process never waits.

    Collectives of the training group time out after minutes (NCCL after ten), which is right inside a step and wrong while the
    first process scores a checkpoint. So waiting uses a gloo group of its own, which fails at once if a process dies.
    """

    def __init__(self, processes: int, device: str) -> None:
        self._group: Any = None
        if processes > 1:
            import torch.distributed
            from accelerate import PartialState

            PartialState(cpu=not device.startswith("cuda"))
            self._group = torch.distributed.new_group(backend="gloo", timeout=_LONGEST_WAIT)

    def share_from_first(self, value: T) -> T:
        """Return the first process's value in every process."""
        shared = [value]
        if self._group is not None:
            torch.distributed.broadcast_object_list(shared, src=0, group=self._group)
        return shared[0]

    def wait(self) -> None:
        if self._group is not None:
            torch.distributed.barrier(group=self._group)


class Judge:
    """Scores checkpoints in the first process; the others wait for its result."""

    def __init__(self, recipe: TrainRecipe, run: Path, progress: Progress, accelerator: Any, group: ProcessGroup) -> None:
        self._recipe, self._run, self._progress, self._accelerator, self._group = recipe, run, progress, accelerator, group
        self._metric = str(recipe.metric)
        self._reported = reported_values(run, self._metric)

    def after_checkpoint(self) -> str | None:
        """Score the checkpoints without a score; return a reason to stop, or None."""
        if self._recipe.eval_set is None:
            return None
        return self._group.share_from_first(self._reason_to_stop() if self._accelerator.is_main_process else None)

    def _reason_to_stop(self) -> str | None:
        try:
            with isolated_rng():
                choice = self._score()
        except CorefError as error:
            self._progress.note(
                f"새 체크포인트를 채점하지 못했지만 학습은 계속합니다: {error}",
                f"The newest checkpoint could not be scored, training continues: {error}",
            )
            return None
        if choice is None:
            return None
        best, later = choice
        write_json(self._run / BEST, best)
        if self._recipe.stop_when_flat and best["sure"] and later >= PATIENCE:
            name, metric, margin = best["checkpoint"], best["metric"], f"{100 * best['margin']:g}"
            return say(
                f"조기 종료: {name}의 {metric}이 최고와 {margin}점 이내이고(선택용 절반), 이후 체크포인트 {later}개도 "
                "이를 바꾸지 못했습니다.",
                f"Stopped: {name} is within {margin} points of the best on {metric} (select half), and {later} further "
                "checkpoints have not changed that.",
            )
        return None

    def _score(self) -> tuple[dict[str, Any], int] | None:
        """Return the content of best.json and the number of scored checkpoints after the best; None if none could be scored."""
        evaluations: list[Evaluation] = []
        checkpoints = checkpoints_of(self._run)
        settings = _evaluate_recipe(self._recipe, self._accelerator.device)
        try:
            evaluate(list(checkpoints), settings, progress=self._progress, on_result=evaluations.append)
        except CorefError:
            if not any(full_name(evaluation.path) == full_name(str(checkpoints[-1])) for evaluation in evaluations):
                raise  # an older checkpoint that cannot be scored was noted and stops nothing
        if not evaluations:
            return None
        evaluations.sort(key=lambda evaluation: natural_order(Path(evaluation.path).name))
        for evaluation in self._unreported(evaluations):
            self._report(evaluation)
        return self._choose(evaluations[-1])

    def _choose(self, newest: Evaluation) -> tuple[dict[str, Any], int]:
        """Choose the earliest checkpoint within the margin of the best if that is `sure`, else the best. Only evaluations under
        the conditions of the newest count, whatever other sets and lengths the run was evaluated with."""
        found = find_evaluations([self._run], skip_damaged=True)
        stored, _ = drop_replaced_weights([entry for entry in found if entry.evaluation.condition == newest.condition])
        curve = group_of(stored, newest.fingerprints["items"], newest.scorer)
        existing = {full_name(str(path)) for path in checkpoints_of(self._run)}
        present = replace(curve, entries=tuple(e for e in curve.entries if full_name(e.evaluation.path) in existing))
        metric = choose_metric(present, self._metric)
        margin, seed = checked_margin(self._recipe.margin), self._recipe.seed
        choice = choose(present, metric, seed=seed)
        advice = next_time_of(present, metric, choice.arm(choice.chosen), choice.chosen, margin=margin, seed=seed)
        sure = advice is not None and bool(advice.checkpoint)
        best = next(e for e in present.entries if e.evaluation.path == advice.checkpoint) if advice and sure else choice.best
        name, value = Path(best.evaluation.path).name, choice.candidates[best].value.to_json()
        later = sum(entry.tokens > best.tokens for entry in curve.entries)
        return {"checkpoint": name, "metric": metric, "value": value, "margin": margin, "half": "select", "sure": sure}, later

    def _unreported(self, evaluations: list[Evaluation]) -> list[Evaluation]:
        """Select the evaluations without an event: a process that was killed while scoring leaves more than the newest.

        The newest is reported again if its value has changed; others only after the last reported one, as events keep the order.
        """
        metric, newest = self._metric, evaluations[-1]
        last = max(map(natural_order, self._reported), default=[])

        def is_unreported(evaluation: Evaluation) -> bool:
            name = Path(evaluation.path).name
            changed = evaluation is newest and self._reported.get(name) != evaluation.estimates[metric].value
            return natural_order(name) > last or changed

        return [evaluation for evaluation in evaluations if metric in evaluation.estimates and is_unreported(evaluation)]

    def _report(self, evaluation: Evaluation) -> None:
        """Write an event with the checkpoint's own progress: by now the run may be further."""
        metric, path = self._metric, Path(evaluation.path)
        value, clock = evaluation.estimates[metric], read_clock(path)
        progress = {"progress": clock["progress"]} if "progress" in clock else {}
        self._progress.event("evaluation", checkpoint=path.name, metric=metric, text=str(value), **progress, **value.to_json())
        self._progress.note(f"{path.name}: {metric} {value}")
        self._reported[path.name] = value.value


def score_average(recipe: TrainRecipe, checkpoint: Path, device: str) -> float:
    (evaluation,) = evaluate([checkpoint], _evaluate_recipe(recipe, torch.device(device)))
    metric = str(recipe.metric)
    if metric not in evaluation.estimates:
        raise EvaluationError(
            f"{checkpoint.name} counts no item of {METRICS[metric].label} on {evaluation.evalset}; pass another --metric."
        )
    return evaluation.estimates[metric].value


def _evaluate_recipe(recipe: TrainRecipe, device: torch.device) -> EvaluateRecipe:
    """Settings with which a run scores its checkpoints: on its own device, not on every device of the machine."""
    name = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
    return EvaluateRecipe((Path(str(recipe.eval_set)),), device=name, base=False, seed=recipe.seed)


def reported_values(run: Path, metric: str) -> dict[str, float]:
    """Return the value of each checkpoint by a run's events, in the order of the last report."""
    values: dict[str, float] = {}
    for row in read_events(run / EVENTS):
        if row["event"] == "evaluation" and row["metric"] == metric:
            values.pop(row["checkpoint"], None)
            values[row["checkpoint"]] = float(row["value"])
    return values


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Restore all random states afterwards, so that scoring checkpoints does not change training."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
