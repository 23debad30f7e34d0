"""One step of an experiment. In: a recipe and what it starts from. Out: a Job, how it ended, and (`run_step`) its work."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.base.binding import BYTES, check_binding
from coref_automl.base.config import from_mapping, to_mapping
from coref_automl.base.folders import DONE, is_done
from coref_automl.base.job import JOB, Job, Outcome, read_outcome
from coref_automl.base.machine import free_memory
from coref_automl.base.progress import Progress, peak_gigabytes
from coref_automl.base.records import Record
from coref_automl.base.store import read_json
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.evaluation.targets import is_model_folder
from coref_automl.models.model_files import model_fingerprints
from coref_automl.training.folder import checkpoints_of
from coref_automl.training.recipe import TrainRecipe

TASK = "coref_automl.extras.study.step:run_step"
RUNS = "runs"


@dataclass(frozen=True, slots=True)
class StepWork(Record):
    """What the job of a step keeps: the command's settings, and `start`: the run that it makes or needs, else a model."""

    kind: str
    start: str
    seeds: int
    settings: dict[str, Any]
    binding: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One command. `run` names the training run that it makes, or whose checkpoints it needs; None: it starts from `start`, or
    else from the base.

    `recipe`, that of the command, says what to do; `binding` what decides its numbers: settings by value, data by their bytes.
    Fine-tuning `seeds` beyond those of an earlier call are added to them.
    """

    kind: str
    name: str
    run: str | None
    recipe: Any
    binding: Mapping[str, Any]
    start: str | None = None

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def seeds(self) -> int:
        return getattr(self.recipe, "seeds", 1)

    def job(self, out: Path, base: str) -> Job:
        start = str(out / RUNS / self.run) if self.run else self.start or base
        work = StepWork(self.kind, start, self.seeds, to_mapping(self.recipe), dict(self.binding))
        return Job(TASK, self.name, str(out / "steps" / self.kind / self.name), work.to_json())

    def outcome(self, out: Path) -> Outcome | None:
        """Return how the step ended, None if it has not. A step begun with other settings or data is refused."""
        job = self.job(out, "")
        job_file = Path(job.folder) / JOB
        if not job_file.is_file():
            return None
        begun = StepWork.from_json(Job.from_json(read_json(job_file)).recipe)
        check_binding(job.folder, begun.binding, self.binding)
        outcome = read_outcome(job)
        return outcome if outcome is None or outcome.facts.get("seeds", begun.seeds) >= self.seeds else None


def run_step(job: Job) -> dict[str, Any]:
    """Do a step in this process. Returns the facts kept with its outcome: its cost, and what the command reports."""
    began, work = time.monotonic(), StepWork.from_json(job.recipe)
    _check_start(work, job.folder)
    facts = {"train": _train, "evaluate": _evaluate}.get(work.kind, _fine_tune)(work, Progress())
    free_memory()
    seconds = round(time.monotonic() - began, 2)
    return {"seconds": seconds, "peak_gigabytes": peak_gigabytes(), "seeds": work.seeds, **facts}


def _check_start(work: StepWork, folder: str) -> None:
    """Refuse a base whose bytes have changed since the study was planned."""
    if f"{BYTES}weights" in work.binding:
        current = start_bytes(work.settings["model"] if work.kind == "train" else work.start)
        check_binding(folder, {name: work.binding[name] for name in current if name in work.binding}, current)


def _train(work: StepWork, progress: Progress) -> dict[str, Any]:
    from coref_automl.training.run import train

    _reopen_without_weights(Path(work.start))
    result = train(from_mapping(TrainRecipe, work.settings, "step"), progress=progress)
    return {"tokens": result.tokens, "steps": result.steps, "loss": result.loss}


def _reopen_without_weights(run: Path) -> None:
    """Let a finished run whose weights were removed be trained again: a step needs them."""
    if is_done(run) and not checkpoints_of(run):
        (run / DONE).unlink()


def _evaluate(work: StepWork, progress: Progress) -> dict[str, Any]:
    from coref_automl.evaluation.run import evaluate

    recipe, is_base = from_mapping(EvaluateRecipe, work.settings, "step"), is_model_folder(Path(work.start))
    return {"evaluations": len(evaluate([work.start], recipe, progress=progress, themselves=is_base))}


def _fine_tune(work: StepWork, progress: Progress) -> dict[str, Any]:
    """Fine-tune an outside check from the last checkpoint of a run, or from a model as it is."""
    check, start = CHECKS[work.kind], Path(work.start)
    checkpoints = checkpoints_of(start) if not is_model_folder(start) else []
    model = str(checkpoints[-1]) if checkpoints else work.start
    result = check.train(from_mapping(check.recipe, work.settings | {"model": model}, "step"), progress)
    estimate = check.estimate(result)
    score = {"metric": check.short_metric, "score": round(100 * estimate.value, 2), "n": estimate.n} if estimate else {}
    return {"run": result.run, "split": result.split, **score}


def start_bytes(model: str) -> dict[str, str]:
    """The bytes of a base, as bindings name them."""
    return {f"{BYTES}{name}": value for name, value in model_fingerprints(model).items()}
