"""Run many jobs. In: jobs that name a function. Out: one outcome per job, in the order of the jobs; nothing is lost.

Engines: `local` processes (one per device), or `ray` over a cluster. A job's function is named as "package.module:function" and
its arguments and result are plain JSON values, so that one job runs here, in another process, or on another machine. A worker
that dies (killed, out of memory) is replaced and its job retried; an exception is the job's own answer, travels as itself and is
not retried. Workers end with the process that started them: one that is killed leaves nobody writing behind its back. On Ray a
job works in the folder of the caller, which all machines must see, so that relative paths mean the same.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import platform
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any, Literal, TypeVar

from coref_automl.errors import FolderError, MissingExtra, RecipeError, WorkError

Engine = Literal["local", "ray"]
_SPAWN = get_context("spawn")
Answer = tuple[Any, Exception | None]
T = TypeVar("T")


def interruptible(call: Callable[[], T]) -> T:
    """A long call of a library that hears Ctrl-C only when it returns. Interrupted, it is left, and ends with the process."""
    answers: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    if errors:
        raise errors[0]
    return answers[0]


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: a value, or the exception of its last attempt."""

    job: Job
    value: Any = None
    error: Exception | None = None
    attempts: int = 1


def devices_here() -> list[str]:
    """The devices that jobs can be spread over: every visible GPU, or the CPU once."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{index}" for index in range(count)] or ["cpu"]


CORES = "COREF_AUTOML_CORES"
"""How many cores a process may take for itself; what starts several side by side sets it for each of them."""


def usable_cores() -> int:
    """The cores this process may run on: its share of them if others run beside it.

    Where the system keeps no such list (macOS), all of them.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(CORES)
    if not share:
        return allowed
    if not share.isdecimal() or int(share) < 1:
        raise RecipeError(f"{CORES} should be a whole number of cores, 1 or more, not {share!r}.")
    return min(allowed, int(share))


def environment_of(device: str) -> dict[str, str]:
    """The environment in which a process sees this device alone. Numbers count among the GPUs visible here."""
    if not device.startswith("cuda:"):
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    number = int(device.removeprefix("cuda:"))
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[number] if number < len(visible) else str(number)}


def device_seen(device: str) -> str:
    """The name that a device has in a process that sees this one alone."""
    return "cuda:0" if device.startswith("cuda:") else device


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    devices: Sequence[str] | None = None,
    engine: Engine = "local",
    retries: int = 1,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run every job and wait for all. `on_outcome` hears of each as it ends; the list keeps the order of the jobs.

    One worker without a device of its own runs in this process. With `devices`, worker i sees only device i modulo their number.
    On Ray the cluster decides how many run at a time; a job asks for a GPU where there is one, unless `devices` names the CPU.
    """
    tell = on_outcome or (lambda _: None)
    if engine == "ray":
        return _on_ray(jobs, retries, tell, cpu=devices is not None and set(devices) <= {"cpu"})
    if workers <= 1 and not devices:
        return _in_this_process(jobs, tell)
    return _Pool(min(max(workers, 1), len(jobs)), devices, retries, tell).run(jobs)


def _in_this_process(jobs: Sequence[Job], tell: Callable[[Outcome], None]) -> list[Outcome]:
    outcomes = []
    for job in jobs:
        value, error = _call(job.target, job.arguments)
        outcomes.append(Outcome(job, value, error))
        tell(outcomes[-1])
    return outcomes


def _call(target: str, arguments: dict[str, Any]) -> Answer:
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(**arguments), None
    except Exception as error:
        return None, error


def _portable(answer: Answer) -> Answer:
    """An answer that another process can read: a library's exception that cannot be pickled becomes one of ours."""
    value, error = answer
    if error is None:
        return answer
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return value, WorkError(f"{type(error).__name__}: {error}")
    return answer


@dataclass(slots=True)
class _Worker:
    process: Any
    pipe: Any
    slot: int
    job: int | None = None


@dataclass(slots=True)
class _Pool:
    """Worker processes, each with a pipe of its own: one that dies takes nothing with it but its present attempt."""

    size: int
    devices: Sequence[str] | None
    retries: int
    tell: Callable[[Outcome], None]
    workers: list[_Worker] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        waiting = deque(range(len(jobs)))
        attempts = [0] * len(jobs)
        outcomes: dict[int, Outcome] = {}
        try:
            self.workers = [self._start(slot) for slot in range(self.size)]
            while len(outcomes) < len(jobs):
                for worker in self.workers:
                    if worker.job is None and waiting:
                        worker.job = waiting.popleft()
                        attempts[worker.job] += 1
                        self._give(worker, jobs[worker.job])
                for worker in self._ready():
                    index = worker.job
                    answer = self._answer(worker)
                    if index is None:
                        continue
                    if answer is None and attempts[index] <= self.retries:
                        waiting.appendleft(index)
                        continue
                    value, error = answer or (None, _died(attempts[index]))
                    outcomes[index] = Outcome(jobs[index], value, error, attempts[index])
                    self.tell(outcomes[index])
        finally:
            self._stop()
        return [outcomes[index] for index in range(len(jobs))]

    def _start(self, slot: int) -> _Worker:
        ours, theirs = _SPAWN.Pipe()
        device = self.devices[slot % len(self.devices)] if self.devices else None
        process = _SPAWN.Process(target=_serve, args=(theirs, environment_of(device) if device else {}), daemon=False)
        process.start()
        theirs.close()
        return _Worker(process, ours, slot)

    def _give(self, worker: _Worker, job: Job) -> None:
        with suppress(OSError):  # it died while idle: its closed pipe is noticed by _ready
            worker.pipe.send((job.target, job.arguments))

    def _ready(self) -> list[_Worker]:
        ready = set(connection.wait([worker.pipe for worker in self.workers]))
        return [worker for worker in self.workers if worker.pipe in ready]

    def _answer(self, worker: _Worker) -> Answer | None:
        """The worker's answer, or None when it is dead; a dead one is replaced in its place."""
        try:
            answer: Answer = worker.pipe.recv()
            worker.job = None
            return answer
        except (EOFError, OSError):
            worker.process.join()
            self.workers[self.workers.index(worker)] = self._start(worker.slot)
            return None

    def _stop(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            if worker.job is not None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()


def _died(attempts: int) -> WorkError:
    return WorkError(f"the worker process died {attempts} time{'s' if attempts > 1 else ''}")


def _serve(pipe: Any, environment: dict[str, str]) -> None:
    """A worker's life: take a job, answer, until the pipe closes."""
    end_with_parent()
    os.environ.update(environment)
    try:
        while True:
            target, arguments = pipe.recv()
            pipe.send(_portable(_call(target, arguments)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        return


def end_with_parent() -> None:
    """Watch the process that started this one; when it is gone, so is this, whatever it is doing."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(70)

    threading.Thread(target=watch, daemon=True).start()


def ray_remote(function: Callable[..., Any], *, retries: int, cpu: bool) -> Any:
    """The function as a Ray task of one CPU, and of one GPU where the cluster has any. Joins the cluster, or starts one here."""
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("ray", "scale", "--engine ray") from missing
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, logging_level=logging.ERROR)
    gpus = 1 if not cpu and ray.cluster_resources().get("GPU") else 0
    return ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(function)


def _call_in(folder: str, target: str, arguments: dict[str, Any]) -> Answer:
    if not Path(folder).is_dir():
        return None, FolderError(f"{folder} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(folder):
        return _portable(_call(target, arguments))


def _on_ray(jobs: Sequence[Job], retries: int, tell: Callable[[Outcome], None], *, cpu: bool) -> list[Outcome]:
    remote = ray_remote(_call_in, retries=retries, cpu=cpu)
    import ray

    pending = {remote.remote(str(Path.cwd()), job.target, job.arguments): index for index, job in enumerate(jobs)}
    outcomes: dict[int, Outcome] = {}
    while pending:
        done, _ = ray.wait(list(pending), num_returns=1)
        index = pending.pop(done[0])
        try:
            value, error = ray.get(done[0])
        except ray.exceptions.RayError as failure:
            value, error = None, WorkError(f"{type(failure).__name__}: {str(failure).splitlines()[0]}")
        outcomes[index] = Outcome(jobs[index], value, error)
        tell(outcomes[index])
    return [outcomes[index] for index in range(len(jobs))]
