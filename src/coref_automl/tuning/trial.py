"""One trial, in a process of its own. In: a Job and a slot. Out: a handle on it; its run's folder, a log, and outcome.json.

Locally a trial is a process that sees one device; with more workers than GPUs, trials share them. Processes are forked from a
server that has imported torch already: a trial starts in a tenth of a second instead of seven. With Ray a trial is a task
somewhere in the cluster; the folder of the command and that of the study must then be ones that all machines see.

The process ends with the study that started it: a study that is killed leaves no trial training behind its back.
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from coref_automl.decoder import read_stored
from coref_automl.errors import FolderError, NotFinite, OutOfMemory
from coref_automl.locks import locked
from coref_automl.progress import Progress
from coref_automl.records import Record
from coref_automl.store import is_done, read_json, remove, write_json
from coref_automl.tuning.problem import Job
from coref_automl.workers import CORES, Engine, devices_here, end_with_parent, environment_of, ray_remote, usable_cores

OUTCOME = "outcome.json"
MODULE = "coref_automl.tuning.trial"


@dataclass(frozen=True, slots=True)
class TrialOutcome(Record):
    """`kind` is what failures are alike by: memory, not a number, or the error's own name. `facts` are what the work returned."""

    done: bool
    kind: str = ""
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def run_in_process(job: dict[str, Any], environment: dict[str, str]) -> None:
    """The life of a trial's process: its own log, its parent's death, then the work."""
    os.environ.update(environment)
    end_with_parent()
    log = Job.from_json(job).log
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)
    code = run_apart(job) if _cannot_use_cuda() else int(not run_job(job).done)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of libraries must not hold back a trial that is over


def run_apart(job: dict[str, Any], at: str | None = None) -> int:
    """A trial in a fresh interpreter, for a process that is used again (Ray's) or that cannot work itself. Gives its status.

    `at` is the folder that relative paths are meant from, where this process was started in another one.
    """
    if at is not None and not Path(at).is_dir():
        raise FolderError(f"{at} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(at or "."):
        work = Job.from_json(job)
        path, ended = Path(work.folder) / "job.json", Path(work.folder) / OUTCOME
        write_json(path, job)
        before = ended.stat().st_mtime_ns if ended.is_file() else 0
        with work.log.open("a") as log:
            command = [sys.executable, "-m", MODULE, str(path), "--with-parent"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT) as process:
                code = process.wait()  # its input stays open as long as this process lives
        if code > 0 and (ended.stat().st_mtime_ns if ended.is_file() else 0) == before:  # it never came to its work
            write_json(ended, TrialOutcome(False, "no outcome", death(code, work)).to_json())
        return code


def death(code: int, job: Job, times: str = "") -> str:
    """How a process ended that left no outcome; only a signal kills."""
    if code < 0:
        return f"its process was killed (signal {-code}){times}"
    lines = job.log.read_text("utf-8", "replace").splitlines() if job.log.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
    return f"its process ended with status {code}{times}: {last}"


def _cannot_use_cuda() -> bool:
    """Was this process forked from one that had touched a GPU? Then it can use none itself."""
    torch = sys.modules.get("torch")
    return bool(torch is not None and getattr(torch.cuda, "_is_in_bad_fork", lambda: False)())


def run_job(job: dict[str, Any]) -> TrialOutcome:
    """Train and score; every failure becomes an outcome. Two processes that want the same recipe take turns."""
    work = Job.from_json(job)
    folder = Path(work.folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "job.json", job)
    with locked(folder, on_wait=print):
        (folder / OUTCOME).unlink(missing_ok=True)
        try:
            outcome = TrialOutcome(True, facts=_work_of(work.task)(work) or {})
        except BaseException as error:
            traceback.print_exc()
            outcome = failure(error)
        write_json(folder / OUTCOME, outcome.to_json())
    return outcome


def read_outcome(job: Job) -> TrialOutcome | None:
    """How a job ended; None where its process died without one."""
    path = Path(job.folder) / OUTCOME
    return read_stored(path, TrialOutcome, remedy="remove it, and run the study again") if path.is_file() else None


def outcome_of(job: Job, code: int) -> TrialOutcome | None:
    """What a process left that ended with this status; None where it died first. Then an outcome that says done is older."""
    found = read_outcome(job) if code >= 0 else None
    return None if found is not None and found.done and code else found


def failure(error: BaseException) -> TrialOutcome:
    from coref_automl.models.load import is_out_of_memory

    text = (str(error).splitlines() or [""])[0] or type(error).__name__
    if isinstance(error, OutOfMemory) or is_out_of_memory(error):
        return TrialOutcome(False, "out of memory", text)
    return TrialOutcome(False, "not a number" if isinstance(error, NotFinite) else type(error).__name__, text)


def _masked(job: Job) -> None:
    from coref_automl.config import from_mapping
    from coref_automl.errors import EvaluationError
    from coref_automl.evaluation.run import EvaluateRecipe, evaluate
    from coref_automl.training.judge import reported_values
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    recipe = from_mapping(TrainRecipe, job.recipe, "trial")
    if job.confirm is not None and is_done(job.run) and not list(job.run.glob("checkpoint-*/training.json")):
        remove(job.run)  # its weights were given up when it was not among the best; now it is a finalist
    result = train(recipe, progress=Progress())
    reported = list(reported_values(job.run, recipe.metric))
    if result.checkpoints and reported[-1:] != [result.checkpoints[-1].name]:
        raise EvaluationError(f"The last checkpoint of {job.run} could not be scored; its log says why.")
    if job.confirm is not None:
        how = EvaluateRecipe(
            eval_sets=(Path(job.confirm),), device=recipe.device, words=recipe.eval_words, base=False, seed=recipe.seed
        )
        evaluate([result.checkpoints[-1]], how)


def _relation(job: Job) -> None:
    from coref_automl.config import from_mapping
    from coref_automl.relation.metrics import Scores
    from coref_automl.relation.recipe import RelationRecipe
    from coref_automl.relation.train import train_relation

    recipe = from_mapping(RelationRecipe, job.recipe, "trial")
    if job.confirm is not None and is_done(job.run) and not list(job.run.glob("seed-*/model")):
        remove(job.run)

    def heard(_seed: int, epoch: int, scores: Scores) -> None:
        Progress(shown=False, events=job.run / "events.ndjson").event(
            "epoch", epoch=epoch, epochs=recipe.epochs, micro_f1=scores.micro_f1, auprc=scores.auprc
        )

    train_relation(recipe, progress=Progress(), on_epoch=heard)


_WORK: dict[str, Callable[[Job], Any]] = {"mlm": _masked, "re": _relation}


def _work_of(task: str) -> Callable[[Job], Any]:
    """What a job does: a trial of one of our tasks, or a function that is named as "package.module:function"."""
    if task in _WORK:
        return _WORK[task]
    module, _, name = task.partition(":")
    work: Callable[[Job], Any] = getattr(importlib.import_module(module), name)
    return work


def main(arguments: list[str]) -> int:
    """python -m coref_automl.tuning.trial JOB [--with-parent]; with the flag, the end of standard input ends the trial."""
    if "--with-parent" in arguments:

        def watch() -> None:
            sys.stdin.buffer.read()
            os._exit(70)

        threading.Thread(target=watch, daemon=True).start()
    return 0 if run_job(read_json(Path(arguments[0]))).done else 1


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))


PRELOAD = ["torch", "transformers", "coref_automl.training.run", "coref_automl.relation.train"]


class Running(Protocol):
    """A trial on its way. `code` is its exit status once it is over, negative for a signal."""

    @property
    def alive(self) -> bool: ...

    @property
    def code(self) -> int: ...

    def stop(self) -> None: ...


class Launcher(Protocol):
    slots: int

    def start(self, job: Job, slot: int, /) -> Running: ...


def launcher_of(engine: Engine, workers: int, device: str) -> Launcher:
    """One slot a worker; worker i has device i modulo their number, so that four workers share one GPU."""
    if engine == "ray":
        return RayLauncher(workers, device)
    from coref_automl.models.load import pick_device

    devices = devices_here() if device in ("auto", "cuda") else [pick_device(device)]
    return LocalLauncher(workers, devices)


class LocalLauncher:
    def __init__(self, workers: int, devices: Sequence[str]) -> None:
        self.slots = workers
        self._devices = devices
        self._cores = str(max(1, usable_cores() // workers))
        os.environ.setdefault("OMP_NUM_THREADS", self._cores)
        # the server looks for GPUs while it imports; asked through NVML they stay untouched, and only then may it fork
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self._context: Any = get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)

    def environment(self, slot: int) -> dict[str, str]:
        return {**environment_of(self._devices[slot % len(self._devices)]), CORES: self._cores}

    def start(self, job: Job, slot: int) -> Running:
        arguments = (job.to_json(), self.environment(slot))
        process = self._context.Process(target=run_in_process, args=arguments, name=f"trial-{job.key}")
        process.start()
        return _Process(process)


class _Process:
    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    @property
    def code(self) -> int:
        return int(self._process.exitcode or 0)

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class RayLauncher:
    """One task per trial; Ray decides where."""

    def __init__(self, workers: int, device: str) -> None:
        self.slots = workers
        self._remote = ray_remote(run_apart, retries=0, cpu=device == "cpu")

    def start(self, job: Job, _slot: int) -> Running:
        return _RayTask(self._remote.remote(job.to_json(), str(Path.cwd())), job)


class _RayTask:
    def __init__(self, reference: Any, job: Job) -> None:
        self._reference, self._job = reference, job

    @property
    def alive(self) -> bool:
        import ray

        return not ray.wait([self._reference], timeout=0)[0]

    @property
    def code(self) -> int:
        import ray

        try:
            return int(ray.get(self._reference))
        except ray.exceptions.RayTaskError as error:  # it could not begin: nobody there could write down why
            write_json(Path(self._job.folder) / OUTCOME, failure(error.cause or error).to_json())
            return 1
        except ray.exceptions.RayError:
            return -9  # the worker is gone: killed, or out of memory

    def stop(self) -> None:
        import ray

        with suppress(Exception):  # it may have ended in the meantime
            ray.cancel(self._reference, force=True)
