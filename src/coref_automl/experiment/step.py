"""One step of an experiment. In: a recipe and what it starts from. Out: a Job, how it ended, and (`run_step`) its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.config import from_mapping, to_mapping
from coref_automl.engine.binding import BYTES, check_binding
from coref_automl.engine.job import JOB, Job, Outcome, read_outcome
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.evaluation.targets import is_model_folder
from coref_automl.folders import DONE, is_done
from coref_automl.machine import free_memory
from coref_automl.models.model_files import model_fingerprints
from coref_automl.progress import Progress, peak_gigabytes
from coref_automl.store import read_json
from coref_automl.training.folder import checkpoints_of
from coref_automl.training.recipe import TrainRecipe

TASK = "coref_automl.experiment.step:run_step"
RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Step:
    """One command. `run` names the training run that it makes or whose checkpoints it needs; None: it starts from `start`, or
    else from the base.

    `recipe`, that of the command, says what to do; `binding` what decides its numbers: settings by value, data by their bytes.
    More `seeds` than an earlier call asked for are added to those.
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
        work = {"kind": self.kind, "start": start, "seeds": self.seeds}
        work |= {"settings": to_mapping(self.recipe), "binding": dict(self.binding)}
        return Job(TASK, self.name, str(out / "steps" / self.kind / self.name), work)

    def outcome(self, out: Path) -> Outcome | None:
        """How the step ended; None if it has not. One that was begun with other settings or data is refused."""
        job = self.job(out, "")
        job_file = Path(job.folder) / JOB
        if not job_file.is_file():
            return None
        begun = Job.from_json(read_json(job_file)).recipe
        check_binding(job.folder, begun["binding"], job.recipe["binding"])
        outcome = read_outcome(job)
        return outcome if outcome is None or outcome.facts.get("seeds", begun["seeds"]) >= self.seeds else None


def run_step(job: Job) -> dict[str, Any]:
    """Do a step in the present process; what it cost is kept with its outcome."""
    began = time.monotonic()
    _check_start(job)
    kind, settings, start = (job.recipe[name] for name in ("kind", "settings", "start"))
    work: Callable[..., dict[str, Any]] = {"train": _train, "evaluate": _evaluate}.get(kind) or partial(_check, kind)
    facts = work(settings, start, Progress())
    free_memory()
    seconds = round(time.monotonic() - began, 2)
    return {"seconds": seconds, "peak_gigabytes": peak_gigabytes(), "seeds": job.recipe["seeds"], **facts}


def _check_start(job: Job) -> None:
    """The base that the study was planned with may have changed since."""
    binding, settings = job.recipe["binding"], job.recipe["settings"]
    if f"{BYTES}weights" in binding:
        now = start_bytes(settings["model"] if job.recipe["kind"] == "train" else job.recipe["start"])
        check_binding(job.folder, {name: binding[name] for name in now if name in binding}, now)


def _train(settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    from coref_automl.training.run import train

    if is_done(Path(start)) and not checkpoints_of(Path(start)):
        (Path(start) / DONE).unlink()  # its weights were removed, and are needed again
    result = train(from_mapping(TrainRecipe, settings, "step"), progress=progress)
    return {"tokens": result.tokens, "steps": result.steps, "loss": result.loss}


def _evaluate(settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    from coref_automl.evaluation.run import evaluate

    recipe, is_base = from_mapping(EvaluateRecipe, settings, "step"), is_model_folder(Path(start))
    return {"evaluations": len(evaluate([start], recipe, progress=progress, themselves=is_base))}


def _check(name: str, settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    check = CHECKS[name]
    checkpoints = checkpoints_of(Path(start)) if not is_model_folder(Path(start)) else []
    model = str(checkpoints[-1]) if checkpoints else start  # the last checkpoint of a run; the base as it is
    result = check.train(from_mapping(check.recipe, settings | {"model": model}, "step"), progress)
    estimate = check.estimate(result)
    score = {"metric": check.short_metric, "score": round(100 * estimate.value, 2), "n": estimate.n} if estimate else {}
    return {"run": result.run, "split": result.split, **score}


def start_bytes(model: str) -> dict[str, str]:
    """A base in a step's binding."""
    return {f"{BYTES}{name}": value for name, value in model_fingerprints(model).items()}
