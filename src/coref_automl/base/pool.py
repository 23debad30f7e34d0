"""Many short calls in worker processes. In: calls that name a function. Out: what each returned, in their order.

Engines: `local` processes (one per device), or `ray` over a cluster. A function is named as "package.module:function"; arguments
and results are plain JSON values, so that a call runs here, in another process, or on another machine. A worker that dies
(killed, out of memory) is replaced and its call retried; an exception is a result of the call, is passed on as it is and not
retried. Workers end with the process that started them. A call runs in the folder that was current when `run_calls` was called,
so that relative paths mean the same; on Ray all machines must see it.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import platform
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import chdir, suppress
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, Literal

from coref_automl.base.errors import CorefError, FolderError, MissingExtra, WorkerDied, WorkError, first_line
from coref_automl.base.machine import (
    block_sigint,
    current_folder,
    end_with_parent,
    environment_of,
    without_panics,
    without_script,
)

Engine = Literal["local", "ray"]
Result = tuple[Any, Exception | None]
_PACKAGE = "coref-automl"
_INSTALL_ADVICE = (
    "Install the same version on every machine, or let Ray ship it: "
    """ray job submit --runtime-env-json '{"pip": ["coref-automl[scale]"]}' -- coref-automl ..."""
)
_JOIN_SECONDS = 2.0
"""How long to wait for the manager thread of a killed worker."""
_MIN_SUBMITTED = 64
"""Tasks submitted ahead to Ray, or two per CPU of a larger cluster: enough to keep nodes busy, and bounded."""


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """A finished call: its value, or the exception of its last attempt."""

    call: Call
    value: Any = None
    error: Exception | None = None
    attempts: int = 1


def run_calls(
    calls: Sequence[Call],
    *,
    workers: int = 1,
    devices: Sequence[str] | None = None,
    engine: Engine = "local",
    retries: int = 1,
    on_return: Callable[[Returned], None] | None = None,
) -> list[Returned]:
    """Make all calls and return their results in order. `on_return` is called with each as it finishes.

    A single worker without devices is this process itself. With `devices`, worker i sees only device i modulo their number. On
    Ray the cluster decides how many calls run at a time, and each asks for a GPU if there is one, unless `devices` is the CPU.
    """
    on_return = on_return or (lambda _: None)
    if engine == "ray":
        return _on_ray(calls, retries, on_return, cpu=devices is not None and set(devices) <= {"cpu"})
    if workers <= 1 and not devices:
        results = []
        for call in calls:
            results.append(Returned(call, *_call(call.target, call.arguments)))
            on_return(results[-1])
        return results
    return _in_processes(calls, min(max(workers, 1), len(calls)), devices or (), retries, on_return)


def _call(target: str, arguments: dict[str, Any]) -> Result:
    module, _, name = target.partition(":")
    try:
        with without_panics():
            return getattr(importlib.import_module(module), name)(**arguments), None
    except Exception as error:
        return None, error


def _picklable_call(target: str, arguments: dict[str, Any]) -> Result:
    """Make a call in a worker; an exception that cannot be pickled becomes a WorkError."""
    value, error = _call(target, arguments)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return value, WorkError(f"{type(error).__name__}: {error}")
    return value, error


def _call_in(folder: str, target: str, arguments: dict[str, Any]) -> Result:
    """Make a call in a worker, in a folder."""
    try:
        os.chdir(folder)
    except OSError as error:
        return None, FolderError(f"{folder} cannot be opened ({error.strerror}); run it again in a folder that exists.")
    return _picklable_call(target, arguments)


def _in_processes(
    calls: Sequence[Call], size: int, devices: Sequence[str], retries: int, on_return: Callable[[Returned], None]
) -> list[Returned]:
    """Run calls in worker processes. Each worker is its own executor, so that a crash loses only the call it was running."""
    folder = current_folder()
    waiting, attempts, results = deque(range(len(calls))), [0] * len(calls), dict[int, Returned]()
    workers, running = dict[int, ProcessPoolExecutor](), dict[Future[Result], tuple[int, int]]()

    def start(slot: int) -> None:
        """Submit the first waiting call to a free worker; it stays first if that worker has died while idle."""
        if slot not in workers:
            workers[slot] = single_worker(environment_of(devices[slot % len(devices)]) if devices else {})
        call = calls[waiting[0]]
        try:
            with block_sigint():
                running[workers[slot].submit(_call_in, folder, call.target, call.arguments)] = slot, waiting[0]
        except BrokenExecutor:
            workers.pop(slot)
        else:
            attempts[waiting.popleft()] += 1

    try:
        while waiting or running:
            for slot in sorted(set(range(size)) - {slot for slot, _ in running.values()})[: len(waiting)]:
                start(slot)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                slot, index = running.pop(future)
                try:
                    value, error = future.result()
                except BrokenExecutor:
                    workers.pop(slot)
                    if attempts[index] <= retries:
                        waiting.appendleft(index)
                        continue
                    value, error = None, _died(attempts[index])
                except Exception as unpicklable:  # the value cannot be sent here
                    value, error = None, WorkError(f"{type(unpicklable).__name__}: {unpicklable}")
                results[index] = Returned(calls[index], value, error, attempts[index])
                on_return(results[index])
    finally:
        busy = {slot for slot, _ in running.values()}
        for slot, worker in workers.items():
            kill_worker(worker) if slot in busy else worker.shutdown()
    return [results[index] for index in range(len(calls))]


def single_worker(environment: Mapping[str, str] | None = None) -> ProcessPoolExecutor:
    """An executor with one worker process, which starts with the first call, in the folder then current, and ends with this
    process."""
    return ProcessPoolExecutor(1, _WorkerContext(), _initialise, (environment or {},))


class _WorkerProcess(SpawnProcess):
    def start(self) -> None:
        with without_script():
            super().start()


class _WorkerContext(SpawnContext):
    Process = _WorkerProcess


def _initialise(environment: Mapping[str, str]) -> None:
    end_with_parent()
    os.environ.update(environment)


def kill_worker(worker: ProcessPoolExecutor) -> None:
    """Kill the process, and join the executor's manager thread: it closes a pipe that the interpreter writes to when it exits."""
    manager: Any = worker._executor_manager_thread  # a thread, which the stubs call a pipe
    for process in list((worker._processes or {}).values()):
        process.kill()
    worker.shutdown(wait=False, cancel_futures=True)
    if manager is not None:
        manager.join(timeout=_JOIN_SECONDS)


def _died(attempts: int) -> WorkerDied:
    return WorkerDied(f"the worker process died {attempts} time{'s' if attempts > 1 else ''}")


def ray_task(function: Callable[..., Any], *, retries: int, cpu: bool) -> Callable[..., Any]:
    """Connect to a Ray cluster, or start one here; return a function that submits `function` as a task with one CPU, and a GPU if
    there is one. A worker whose package or folder differs from the command's refuses the task."""
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("ray", "scale", "--engine ray") from missing
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        options: dict[str, Any] = {} if address else {"include_dashboard": False}  # unused here, and its start takes seconds
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    gpus = 1 if not cpu and ray.cluster_resources().get("GPU") else 0
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(call_on_worker)
    return lambda *arguments: remote.remote(current_folder(), version(_PACKAGE), function, *arguments)


def call_on_worker(folder: str, ours: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a Ray worker in the command's folder; refuse if the package's version is not the command's (`ours`)."""
    if ours != (theirs := version(_PACKAGE)):
        raise WorkError(f"{platform.node()} has {_PACKAGE} {theirs}, and this command is {ours}. {_INSTALL_ADVICE}")
    if not Path(folder).is_dir():
        raise FolderError(f"{folder} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(folder):
        return function(*arguments)


def ray_error(error: Exception) -> CorefError:
    """The error, in one sentence, of a task that no machine of the cluster could start."""
    cause, ours = getattr(error, "cause", None) or error, version(_PACKAGE)
    if f"No module named '{_PACKAGE.replace('-', '_')}" in str(error):
        return WorkError(f"A machine of the cluster has no {_PACKAGE}, and this command is {ours}. {_INSTALL_ADVICE}")
    name = type(cause).__name__
    return cause if isinstance(cause, CorefError) else WorkError(f"{name}: {first_line(cause)}".removesuffix(f": {name}"))


def cancel(reference: Any) -> None:
    """Kill a Ray task."""
    import ray

    with suppress(Exception):  # it may be over by now
        ray.cancel(reference, force=True)


def _on_ray(calls: Sequence[Call], retries: int, on_return: Callable[[Returned], None], *, cpu: bool) -> list[Returned]:
    submit = ray_task(_picklable_call, retries=retries, cpu=cpu)
    import ray

    waiting, pending = deque(enumerate(calls)), dict[Any, int]()
    results: dict[int, Returned] = {}
    try:
        while waiting or pending:
            while waiting and len(pending) < max(_MIN_SUBMITTED, 2 * int(ray.cluster_resources().get("CPU", 1))):
                index, call = waiting.popleft()
                pending[submit(call.target, call.arguments)] = index
            done, _ = ray.wait(list(pending), num_returns=1)
            index = pending.pop(done[0])
            try:
                value, error = ray.get(done[0])
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
                value, error = None, _died(retries + 1)
            except (ray.exceptions.RayError, ImportError) as failure:
                value, error = None, ray_error(failure)
            results[index] = Returned(calls[index], value, error)
            on_return(results[index])
    finally:
        for reference in pending:
            cancel(reference)
    return [results[index] for index in range(len(calls))]
