"""Trials as processes. In: a Job and a slot. Out: a handle that says whether it runs, how it ended, and that can stop it.

Locally a trial is a process that sees one device; with more workers than GPUs, trials share them. Processes are forked from a
server that has imported torch already: a trial starts in a tenth of a second instead of seven. With Ray a trial is a task
somewhere in the cluster; the folder of the command and that of the study must then be ones that all machines see.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from coref_automl.store import write_json
from coref_automl.tuning.problem import Job
from coref_automl.tuning.trial import OUTCOME, failure, run_apart, run_in_process
from coref_automl.workers import Engine, devices_here, environment_of, ray_remote, usable_cores

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
    devices = devices_here() if device in ("auto", "cuda") else [device]
    return LocalLauncher(workers, devices)


class LocalLauncher:
    def __init__(self, workers: int, devices: Sequence[str]) -> None:
        self.slots = workers
        self._devices = devices
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // workers)))
        # the server looks for GPUs while it imports; asked through NVML they stay untouched, and only then may it fork
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self._context: Any = get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)

    def environment(self, slot: int) -> dict[str, str]:
        return environment_of(self._devices[slot % len(self._devices)])

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
    """A task a trial; Ray decides where."""

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
