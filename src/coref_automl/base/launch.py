"""In which process a job runs. In: a Job and a slot. Out: a handle on it while it runs, and its exit status once it is over.

launcher    a job runs in                                outcome.json is written by
InProcess   this process, one after the other            run_job
Local       a fork of the fork server                    run_job
            or, after a bad fork, a fresh interpreter    run_job; run_in_subprocess if it never began
Ray         a fresh interpreter under a Ray worker       run_job; run_in_subprocess if it never began; RayTask if no worker began

Statuses are those of `Running` in `job.py`. The fork server has imported torch (`preload.py`): a job starts in a tenth of a
second instead of seven, and sees one device (more jobs than GPUs share them). A fork is bad if CUDA was initialised in the
server: it cannot use the GPU. A job runs in the folder current at its start, which all machines of a Ray cluster must see, and
ends with its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, util
from pathlib import Path
from typing import Any, NoReturn

from coref_automl.base.job import FAILED, OUTCOME, Job, Launcher, Outcome, Running, Work, crash_reason, failure, run_job
from coref_automl.base.machine import (
    CORES,
    block_sigint,
    current_folder,
    end_with_parent,
    environment_of,
    pick_device,
    usable_cores,
    visible_devices,
    without_script,
)
from coref_automl.base.pool import Engine, cancel, ray_error, ray_task
from coref_automl.base.store import write_json

MODULE = "coref_automl.base.launch"
PRELOAD = "coref_automl.base.preload"
_THREADS = "OMP_NUM_THREADS"


def launcher_of(engine: Engine, jobs: int, device: str) -> Launcher:
    """A launcher with one slot per job; slot i has device i modulo their number, so that four jobs can share one GPU."""
    if engine == "ray":
        return RayLauncher(jobs, device)
    return LocalLauncher(jobs, visible_devices() if device in ("auto", "cuda") else [pick_device(device)])


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """The handle on a job that is over."""

    status: int
    alive: bool = False

    def result(self) -> int:
        return self.status

    def stop(self) -> None: ...


@dataclass(slots=True)
class InProcessLauncher:
    """Runs each job in this process, which has loaded everything already; `start` returns when the job is over.

    `call` does its work in place of its task; failures of the kind `raising` are raised.
    """

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
        # torch looks for GPUs on import; through NVML it does so without initialising CUDA, which a fork could not use
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self._context: Any = get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])

    def environment(self, slot: int) -> dict[str, str]:
        return {**environment_of(self._devices[slot % len(self._devices)]), CORES: self._cores, **self._threads}

    def start(self, job: Job, slot: int) -> Running:
        arguments = (job.to_json(), self.environment(slot), current_folder())
        process = self._context.Process(target=run_in_process, args=arguments, name=f"job-{job.key}")
        with self._server_environment(), block_sigint():  # which the server and its forks inherit
            forkserver.ensure_running()
        with without_script():
            process.start()  # waits for the server's imports, and can be interrupted
        return ProcessHandle(process)

    @contextmanager
    def _server_environment(self) -> Iterator[None]:
        """The number of threads, which the server's libraries read on import; another launcher has another number."""
        os.environ.update(self._threads)
        try:
            yield
        finally:
            for name in self._threads:
                del os.environ[name]


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


def run_in_process(job: dict[str, Any], environment: dict[str, str], folder: str) -> None:
    """Entry point of a job's process: end with the parent, log to the job's file, run the job in a folder, exit."""
    os.chdir(folder)
    os.environ.update(environment)
    end_with_parent()
    _redirect_output(Job.from_json(job).log)
    torch = sys.modules.get("torch")
    if torch and _THREADS in environment:
        torch.set_num_threads(int(environment[_THREADS]))  # the server may have imported it for another launcher
    bad_fork = getattr(torch.cuda, "_is_in_bad_fork", lambda: False)() if torch else False
    _exit(run_in_subprocess(job) if bad_fork else run_job(job).status)


def _redirect_output(log: Path) -> None:
    """Append standard output and standard error of this process to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)


def _exit(status: int) -> NoReturn:
    """End this process at once: threads of libraries must not keep it alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    util._run_finalizers(0)  # type: ignore[attr-defined]  # else the semaphores of torch.compile are reported as leaked
    if status < 0:
        os.kill(os.getpid(), -status)  # by the signal that killed its subprocess: no exit status stands for it
    os._exit(status)


def run_in_subprocess(job: dict[str, Any]) -> int:
    """Run a job in a fresh interpreter and return its status: Ray reuses its workers, and a bad fork cannot use the GPU."""
    work = Job.from_json(job)
    work.log.parent.mkdir(parents=True, exist_ok=True)
    with work.log.open("a") as log:
        command = [sys.executable, "-m", MODULE, json.dumps(job)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT) as process:
            status = process.wait()  # it ends with this process, which holds its standard input open
    if status <= 0 or status == FAILED:
        return status
    # no signal: the interpreter could not start the job, and another attempt would end the same way
    return _write_failure(work, Outcome(False, "no outcome", crash_reason(status, work)))


def _write_failure(job: Job, outcome: Outcome) -> int:
    """Write the outcome of a job that could not do so itself; return its status."""
    write_json(Path(job.folder) / OUTCOME, outcome.to_json())
    return outcome.status


class RayLauncher:
    """Runs each job as a Ray task; the cluster decides where."""

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
        """Return the exit status; write the outcome here if no worker could begin."""
        try:
            return int(self._ray.get(self._reference))
        except (self._ray.exceptions.RayTaskError, ImportError) as error:
            return _write_failure(self._job, failure(ray_error(error)))
        except self._ray.exceptions.RayError:
            return -9  # the worker is gone: killed, or out of memory

    def stop(self) -> None:
        cancel(self._reference)


def main(job: str) -> int:
    """Run `python -m coref_automl.base.launch JOB`, with the job as JSON; it ends when its standard input does."""
    end_with_parent(sys.stdin.fileno())
    return run_job(json.loads(job)).status


if __name__ == "__main__":
    os._exit(main(sys.argv[1]))
