"""One step, in a process of its own. In: a Job. Out: what the step's command leaves in its folder, and what it cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coref_automl.config import from_mapping
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.engine.binding import BYTES, check_binding
from coref_automl.engine.job import Job
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.experiment.plan import start_bytes
from coref_automl.experiment.recipe import Kind
from coref_automl.models.memory import release
from coref_automl.progress import Progress, spent
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.store import DONE, is_done
from coref_automl.training.folder import checkpoints_of
from coref_automl.training.recipe import TrainRecipe


def run_step(job: Job) -> dict[str, Any]:
    """Do a step in the present process; what it cost is kept with its outcome."""
    began = time.monotonic()
    _check_start(job)
    facts = _WORK[job.recipe["kind"]](job.recipe["settings"], job.recipe["start"], Progress())
    release()
    seconds = round(time.monotonic() - began, 2)
    return {"seconds": seconds, "peak_gigabytes": peak_gigabytes(), "seeds": job.recipe["seeds"], **facts}


def _check_start(job: Job) -> None:
    """The base that the study was planned with may have changed since."""
    binding, settings = job.recipe["binding"], job.recipe["settings"]
    if f"{BYTES}weights" in binding:
        now = start_bytes(settings["model"] if job.recipe["kind"] == "train" else job.recipe["start"])
        check_binding(job.folder, {name: binding[name] for name in now if name in binding}, now)


def peak_gigabytes() -> float:
    """What this process has asked of its GPU at most, or of the machine's memory."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return round(spent(0.0).peak_bytes / 1e9, 2)
    return round(float(torch.cuda.max_memory_reserved()) / 1e9, 2)


def _train(settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    from coref_automl.training.run import train

    if is_done(Path(start)) and not checkpoints_of(Path(start)):
        (Path(start) / DONE).unlink()  # its weights were removed, and are needed again
    result = train(from_mapping(TrainRecipe, settings, "step"), progress=progress)
    return {"tokens": result.tokens, "steps": result.steps, "loss": result.loss}


def _evaluate(settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    from coref_automl.evaluation.run import evaluate

    return {"evaluations": len(evaluate([start], from_mapping(EvaluateRecipe, settings, "step"), progress=progress))}


def _relation(settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    from coref_automl.relation.train import train_relation

    result = train_relation(from_mapping(RelationRecipe, settings | {"model": _last(start)}, "step"), progress=progress)
    return {name: getattr(result, name) for name in ("split", "n", "micro_f1", "auprc", "accuracy", "scheme", "run")}


def _coreference(settings: dict[str, Any], start: str, progress: Progress) -> dict[str, Any]:
    from coref_automl.coreference.train import train_coreference

    result = train_coreference(from_mapping(CoreferenceRecipe, settings | {"model": _last(start)}, "step"), progress=progress)
    return {"conll": result.estimates["gold"]["conll"].value}


def _last(start: str) -> str:
    """The last checkpoint of a run; the base as it is."""
    checkpoints = checkpoints_of(Path(start))
    return str(checkpoints[-1]) if checkpoints else start


_WORK: dict[Kind, Callable[[dict[str, Any], str, Progress], dict[str, Any]]] = {
    "train": _train,
    "evaluate": _evaluate,
    "relation": _relation,
    "coreference": _coreference,
}
