"""Where a job runs. In: a Job and a slot. Out: a handle on it while it runs, and its `code` once it is over.

launcher   a job runs in                              outcome.json written by                  code
Here       this process, one after the other          run_job                                  0 done, 1 failed
Local      a fork of a server                         run_job                                  0, 1, -signal
 bad fork  a fresh interpreter under that fork        run_job; run_apart if it never began     that interpreter's
Ray        a fresh interpreter under a Ray worker     the same; _RayTask if no worker began    that interpreter's; -9: worker gone

The server has imported torch: a job starts in a tenth of a second instead of seven, and sees one device (more jobs than GPUs
share them). A fork of a server that has touched a GPU is a bad one: it cannot use it. The machines of a Ray cluster must all see
the command's folder. A job's process ends with the one that started it.
"""

from __future__ import annotations

import json
import os
import platform
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
    """Nothing is loaded twice. A failure of the kind `raising` is raised; `call` does the work with what this process holds."""

    raising: type[Exception] = Exception
    call: Work | None = None
    slots: int = 1

    def start(self, job: Job, _slot: int) -> Running:
        return Ended(int(not run_job(job.to_json(), call=self.call, raising=self.raising).done))


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
        return ProcessHandle(process)


class ProcessHandle:
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
    bad_fork = getattr(torch.cuda, "_is_in_bad_fork", lambda: False)() if torch else False
    code = run_apart(job) if bad_fork else int(not run_job(job).done)
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)  # as the interpreter under it was: no exit status says so
    os._exit(code)  # threads of libraries must not hold back a job that is over


def run_apart(job: dict[str, Any], at: str | None = None) -> int:
    """A job in a fresh interpreter, for a process that is used again (Ray's) or that cannot work itself. Gives its status.

    `at` is the folder that relative paths are meant from, where this process was started in another one.
    """
    if at is not None and not Path(at).is_dir():
        raise FolderError(f"{at} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(at or "."):
        work = Job.from_json(job)
        ended = Path(work.folder) / OUTCOME
        older = ended.stat().st_mtime_ns if ended.is_file() else None
        work.log.parent.mkdir(parents=True, exist_ok=True)
        with work.log.open("a") as log:
            command = [sys.executable, "-m", MODULE, json.dumps(job)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT) as process:
                code = process.wait()  # its input stays open as long as this process lives
        if code > 0 and (not ended.is_file() or ended.stat().st_mtime_ns == older):  # it never came to its work
            write_json(ended, Outcome(False, "no outcome", death(code, work)).to_json())
        return code


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
