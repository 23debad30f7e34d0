"""Where a job runs. In: a Job and a slot. Out: a handle on it while it runs.

In this process, one job after the other; in processes that see one device each (more jobs than GPUs share them); or as a task
somewhere in a Ray cluster, whose machines must all see the command's folder. Local processes are forked from a server that has
imported torch already: a job starts in a tenth of a second instead of seven. A job's process ends with the one that started it.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

from coref_automl.engine.job import OUTCOME, Job, Launcher, Outcome, Running, Work, death, failure, run_job
from coref_automl.engine.pool import Engine, ray_remote
from coref_automl.errors import FolderError
from coref_automl.machine import CORES, devices_here, end_with_parent, environment_of, pick_device, started_quietly, usable_cores
from coref_automl.store import write_json

MODULE = "coref_automl.engine.launch"
PRELOAD = "coref_automl.engine.preload"


def launcher_of(engine: Engine, jobs: int, device: str) -> Launcher:
    """One slot per job; job i has device i modulo their number, so that four jobs share one GPU."""
    if engine == "ray":
        return RayLauncher(jobs, device)
    return LocalLauncher(jobs, devices_here() if device in ("auto", "cuda") else [pick_device(device)])


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    alive: bool = False

    def stop(self) -> None:
        """It is over already."""


@dataclass(slots=True)
class HereLauncher:
    """Jobs in this process: nothing is loaded twice. A failure of the kind `raising` goes on as the exception that it is; `call`
    does the work with what this process holds already."""

    raising: type[Exception] = Exception
    call: Work | None = None
    slots: int = 1

    def start(self, job: Job, _slot: int) -> Running:
        def goes_on(error: BaseException) -> bool:
            return isinstance(error, self.raising) or not isinstance(error, Exception)

        return Ended(int(not run_job(job.to_json(), call=self.call, raising=goes_on).done))


class LocalLauncher:
    def __init__(self, jobs: int, devices: Sequence[str]) -> None:
        self.slots = jobs
        self._devices = devices
        self._cores = str(max(1, usable_cores() // jobs))
        os.environ.setdefault("OMP_NUM_THREADS", self._cores)
        # the server looks for GPUs while it imports; asked through NVML they stay untouched, and only then may it fork
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self._context: Any = get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])

    def environment(self, slot: int) -> dict[str, str]:
        return {**environment_of(self._devices[slot % len(self._devices)]), CORES: self._cores}

    def start(self, job: Job, slot: int) -> Running:
        arguments = (job.to_json(), self.environment(slot))
        process = self._context.Process(target=run_in_process, args=arguments, name=f"job-{job.key}")
        with started_quietly():  # the server and what it forks; what follows waits for its imports, and hears Ctrl-C
            forkserver.ensure_running()
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
    bad_fork = getattr(torch.cuda, "_is_in_bad_fork", lambda: False)() if torch else False  # its parent had touched a GPU
    _end(run_apart(job) if bad_fork else int(not run_job(job).done))


def _end(code: int) -> None:
    """End this process at once, as its work ended: threads of libraries must not hold back a job that is over."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:  # killed, as `run_apart` tells: no exit status says so
        with suppress(OSError):  # a signal that cannot be handled needs no default
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def run_apart(job: dict[str, Any], at: str | None = None) -> int:
    """A job in a fresh interpreter, for a process that is used again (Ray's) or that cannot work itself. Gives its status.

    `at` is the folder that relative paths are meant from, where this process was started in another one.
    """
    if at is not None and not Path(at).is_dir():
        raise FolderError(f"{at} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(at or "."):
        work = Job.from_json(job)
        ended = Path(work.folder) / OUTCOME
        before = _written_at(ended)
        work.log.parent.mkdir(parents=True, exist_ok=True)
        with work.log.open("a") as log:
            command = [sys.executable, "-m", MODULE, json.dumps(job)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT) as process:
                code = process.wait()  # its input stays open as long as this process lives
        if code > 0 and _written_at(ended) == before:  # it never came to its work
            write_json(ended, Outcome(False, "no outcome", death(code, work)).to_json())
        return code


def _written_at(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.is_file() else None


class RayLauncher:
    """One task per job; Ray decides where."""

    def __init__(self, jobs: int, device: str) -> None:
        self.slots = jobs
        self._remote = ray_remote(run_apart, retries=0, cpu=device == "cpu")

    def start(self, job: Job, _slot: int) -> Running:
        return _RayTask(self._remote.remote(job.to_json(), str(Path.cwd())), job)


class _RayTask:
    def __init__(self, reference: Any, job: Job) -> None:
        import ray

        self._ray, self._reference, self._job = ray, reference, job

    @property
    def alive(self) -> bool:
        return not self._ray.wait([self._reference], timeout=0)[0]

    @property
    def code(self) -> int:
        try:
            return int(self._ray.get(self._reference))
        except self._ray.exceptions.RayTaskError as error:  # it could not begin: nobody there could write down why
            write_json(Path(self._job.folder) / OUTCOME, failure(error.cause or error).to_json())
            return 1
        except self._ray.exceptions.RayError:
            return -9  # the worker is gone: killed, or out of memory

    def stop(self) -> None:
        with suppress(Exception):  # it may have ended in the meantime
            self._ray.cancel(self._reference, force=True)


def main(job: str) -> int:
    """python -m coref_automl.engine.launch JOB, as JSON. The end of standard input ends it."""
    end_with_parent(sys.stdin.fileno())
    return int(not run_job(json.loads(job)).done)


if __name__ == "__main__":
    os._exit(main(sys.argv[1]))
