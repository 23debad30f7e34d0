"""Where a job runs. In: a Job and a slot. Out: a handle on it while it runs, and its exit status once it is over.

launcher   a job runs in                                  outcome.json is written by
Here       this process, one after the other              run_job
Local      a fork of a server                             run_job
           or a fresh interpreter under a bad fork        run_job; run_in_subprocess if it never began
Ray        a fresh interpreter under a Ray worker         run_job; run_in_subprocess if it never began; RayTask if no worker began

Statuses are those of `Running` in `job.py`. The server has imported torch: a job starts in a tenth of a second instead of seven,
and sees one device (more jobs than GPUs share them). A fork of a server that has touched a GPU cannot use it: a bad fork. The
machines of a Ray cluster must all see the command's folder. A job's process ends with the one that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, util
from pathlib import Path
from typing import Any

from coref_automl.engine.job import FAILED, OUTCOME, Job, Launcher, Outcome, Running, Work, crash_reason, failure, run_job
from coref_automl.engine.pool import Engine, cancel, ray_error, ray_task
from coref_automl.machine import CORES, devices_here, end_with_parent, environment_of, pick_device, started_quietly, usable_cores
from coref_automl.store import write_json

MODULE = "coref_automl.engine.launch"
PRELOAD = "coref_automl.engine.preload"
_THREADS = "OMP_NUM_THREADS"


def launcher_of(engine: Engine, jobs: int, device: str) -> Launcher:
    """One slot per job; job i has device i modulo their number, so that four jobs share one GPU."""
    if engine == "ray":
        return RayLauncher(jobs, device)
    return LocalLauncher(jobs, devices_here() if device in ("auto", "cuda") else [pick_device(device)])


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """The handle on a job that was over when it was given."""

    status: int
    alive: bool = False

    def result(self) -> int:
        return self.status

    def stop(self) -> None:
        """It is over already."""


@dataclass(slots=True)
class InProcessLauncher:
    """Runs a job in this process, where nothing is loaded twice. `call` does its work in place of its task; a failure of the kind
    `raising` is raised."""

    raising: type[Exception] = Exception
    call: Work | None = None
    slots: int = 1

    def start(self, job: Job, _slot: int) -> Running:
        return FinishedJob(run_job(job.to_json(), call=self.call, raising=self.raising).status)


class LocalLauncher:
    """Runs each job in a process of its own, with one device and its share of the cores."""

    def __init__(self, jobs: int, devices: Sequence[str]) -> None:
        self.slots = jobs
        self._devices = devices
        self._cores = str(max(1, usable_cores() // jobs))
        self._threads = {} if _THREADS in os.environ else {_THREADS: self._cores}  # unless the user has set it
        # the server looks for GPUs while it imports; asked through NVML they stay untouched, and only then may it fork
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self._context: Any = get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])

    def environment(self, slot: int) -> dict[str, str]:
        return {**environment_of(self._devices[slot % len(self._devices)]), CORES: self._cores, **self._threads}

    def start(self, job: Job, slot: int) -> Running:
        arguments = (job.to_json(), self.environment(slot))
        process = self._context.Process(target=run_in_process, args=arguments, name=f"job-{job.key}")
        os.environ.update(self._threads)  # libraries read it as the server imports them; another launcher has other shares
        try:
            with started_quietly():  # the server and what it forks; what follows waits for its imports, and hears Ctrl-C
                forkserver.ensure_running()
        finally:
            for name in self._threads:
                del os.environ[name]
        process.start()
        return ProcessHandle(process)


class ProcessHandle:
    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    def result(self) -> int:
        return int(self._process.exitcode or 0)

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def run_in_process(job: dict[str, Any], environment: dict[str, str]) -> None:
    """The life of a job's process: its own log, its parent's death, then the work."""
    os.environ.update(environment)
    end_with_parent()
    log = Job.from_json(job).log
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)
    torch = sys.modules.get("torch")
    if torch and _THREADS in environment:
        torch.set_num_threads(int(environment[_THREADS]))  # the server may have imported it for another launcher
    bad_fork = getattr(torch.cuda, "_is_in_bad_fork", lambda: False)() if torch else False
    status = run_in_subprocess(job) if bad_fork else run_job(job).status
    sys.stdout.flush()
    sys.stderr.flush()
    util._run_finalizers(0)  # type: ignore[attr-defined]  # else the semaphores of torch.compile are called leaked at the end
    if status < 0:
        os.kill(os.getpid(), -status)  # as the interpreter under it was: no exit status says so
    os._exit(status)  # threads of libraries must not hold back a job that is over


def run_in_subprocess(job: dict[str, Any]) -> int:
    """A job in a fresh interpreter, for a process that is used again (Ray's) or that cannot work itself. Gives its status."""
    work = Job.from_json(job)
    work.log.parent.mkdir(parents=True, exist_ok=True)
    with work.log.open("a") as log:
        command = [sys.executable, "-m", MODULE, json.dumps(job)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT) as process:
            status = process.wait()  # its input stays open as long as this process lives
    if status <= 0 or status == FAILED:
        return status
    return _failed(work, Outcome(False, "no outcome", crash_reason(status, work)))  # as every interpreter here would end


def _failed(job: Job, outcome: Outcome) -> int:
    """Write down why a job failed that could not do so itself."""
    write_json(Path(job.folder) / OUTCOME, outcome.to_json())
    return outcome.status


class RayLauncher:
    """Runs each job as a task of its own; Ray decides where."""

    def __init__(self, jobs: int, device: str) -> None:
        self.slots = jobs
        self._submit = ray_task(run_in_subprocess, retries=0, cpu=device == "cpu")

    def start(self, job: Job, _slot: int) -> Running:
        return RayTask(self._submit(job.to_json()), job)


class RayTask:
    def __init__(self, reference: Any, job: Job) -> None:
        import ray

        self._ray, self._reference, self._job = ray, reference, job

    @property
    def alive(self) -> bool:
        return not self._ray.wait([self._reference], timeout=0)[0]

    def result(self) -> int:
        """Its status; where no worker could begin, why is written down here."""
        try:
            return int(self._ray.get(self._reference))
        except (self._ray.exceptions.RayTaskError, ImportError) as error:
            return _failed(self._job, failure(ray_error(error)))
        except self._ray.exceptions.RayError:
            return -9  # the worker is gone: killed, or out of memory

    def stop(self) -> None:
        cancel(self._reference)


def main(job: str) -> int:
    """python -m coref_automl.engine.launch JOB, as JSON. The end of standard input ends it."""
    end_with_parent(sys.stdin.fileno())
    return run_job(json.loads(job)).status


if __name__ == "__main__":
    os._exit(main(sys.argv[1]))
