"""Many short calls in worker processes. In: calls that name a function. Out: what each returned, in their order.

Engines: `local` processes (one per device), or `ray` over a cluster. A function is named as "package.module:function"; arguments
and results are plain JSON values, so that a call runs here, in another process, or on another machine. A worker that dies
(killed, out of memory) is replaced and its call retried; an exception is the call's own answer, travels as itself and is not
retried. Workers end with the process that started them. On Ray a call works in the folder of the caller, which all machines must
see, so that relative paths mean the same.
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
from contextlib import chdir
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from coref_automl.errors import FolderError, MissingExtra, WorkerDied, WorkError
from coref_automl.machine import end_with_parent, environment_of, started_quietly, without_panics

Engine = Literal["local", "ray"]
Answer = tuple[Any, Exception | None]
_PACKAGE = "coref-automl"
_SHIP = (
    "Install the same version on every machine, or let Ray ship it: "
    """ray job submit --runtime-env-json '{"pip": ["coref-automl[scale]"]}' -- coref-automl ..."""
)
_CLOSING = 2.0
"""Seconds that an ended worker's manager is waited for."""
_AHEAD = 64
"""Calls that wait in the cluster beyond those that run: no node is idle, and no queue grows with the work."""


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """What became of a call: a value, or the exception of its last attempt."""

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
    """Make every call and wait for all. `on_return` hears of each as it ends; the list keeps the order of the calls.

    One worker without a device of its own runs in this process. With `devices`, worker i sees only device i modulo their number.
    On Ray the cluster decides how many run at a time; a call asks for a GPU where there is one, unless `devices` names the CPU.
    """
    tell = on_return or (lambda _: None)
    if engine == "ray":
        return _on_ray(calls, retries, tell, cpu=devices is not None and set(devices) <= {"cpu"})
    if workers <= 1 and not devices:
        found = []
        for call in calls:
            found.append(Returned(call, *_call(call.target, call.arguments)))
            tell(found[-1])
        return found
    return _in_processes(calls, min(max(workers, 1), len(calls)), devices or (), retries, tell)


def _call(target: str, arguments: dict[str, Any]) -> Answer:
    module, _, name = target.partition(":")
    try:
        with without_panics():
            return getattr(importlib.import_module(module), name)(**arguments), None
    except Exception as error:
        return None, error


def _answer(target: str, arguments: dict[str, Any]) -> Answer:
    """An answer that another process can read: a library's exception that cannot be pickled becomes one of ours."""
    value, error = _call(target, arguments)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return value, WorkError(f"{type(error).__name__}: {error}")
    return value, error


def _in_processes(
    calls: Sequence[Call], size: int, devices: Sequence[str], retries: int, tell: Callable[[Returned], None]
) -> list[Returned]:
    """Each worker is an executor of its own: one that dies takes nothing with it but its present attempt."""
    waiting, attempts, found = deque(range(len(calls))), [0] * len(calls), dict[int, Returned]()
    workers, running = dict[int, ProcessPoolExecutor](), dict[Future[Answer], tuple[int, int]]()
    try:
        while waiting or running:
            for slot in sorted(set(range(size)) - {slot for slot, _ in running.values()})[: len(waiting)]:
                if slot not in workers:
                    workers[slot] = one_process(environment_of(devices[slot % len(devices)]) if devices else {})
                call = calls[waiting[0]]
                try:
                    with started_quietly():
                        running[workers[slot].submit(_answer, call.target, call.arguments)] = slot, waiting[0]
                except BrokenExecutor:  # it died while idle
                    workers.pop(slot)
                    continue
                attempts[waiting.popleft()] += 1
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
                found[index] = Returned(calls[index], value, error, attempts[index])
                tell(found[index])
    finally:
        busy = {slot for slot, _ in running.values()}
        for slot, worker in workers.items():
            end_process(worker) if slot in busy else worker.shutdown()
    return [found[index] for index in range(len(calls))]


def one_process(environment: Mapping[str, str] | None = None) -> ProcessPoolExecutor:
    """One worker process, started with its first call; it ends with this one."""
    return ProcessPoolExecutor(1, get_context("spawn"), _begin, (environment or {},))


def _begin(environment: Mapping[str, str]) -> None:
    end_with_parent()
    os.environ.update(environment)


def end_process(worker: ProcessPoolExecutor) -> None:
    """At once, whatever it is doing. Its manager is waited for: the interpreter would write to a pipe that it closes."""
    manager: Any = worker._executor_manager_thread  # a thread, which the stubs call a pipe
    for process in list((worker._processes or {}).values()):
        process.kill()
    worker.shutdown(wait=False, cancel_futures=True)
    if manager is not None:
        manager.join(timeout=_CLOSING)


def _died(attempts: int) -> WorkerDied:
    return WorkerDied(f"the worker process died {attempts} time{'s' if attempts > 1 else ''}")


def ray_remote(function: Callable[..., Any], *, retries: int, cpu: bool) -> Any:
    """The function as a Ray task of one CPU, and of one GPU where the cluster has any. Joins the cluster, or starts one here."""
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("ray", "scale", "--engine ray") from missing
    if not ray.is_initialized():
        joined = os.environ.get("RAY_ADDRESS")
        own: dict[str, Any] = {} if joined else {"include_dashboard": False}  # it takes a core for seconds, and nobody looks
        ray.init(address=joined, log_to_driver=False, logging_level=logging.ERROR, **own)
    gpus = 1 if not cpu and ray.cluster_resources().get("GPU") else 0
    return ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(function)


def _call_in(folder: str, ours: str, target: str, arguments: dict[str, Any]) -> Answer:
    if ours != (theirs := version(_PACKAGE)):
        return None, WorkError(f"{platform.node()} has {_PACKAGE} {theirs}, and this command is {ours}. {_SHIP}")
    if not Path(folder).is_dir():
        return None, FolderError(f"{folder} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(folder):
        return _answer(target, arguments)


def _on_ray(calls: Sequence[Call], retries: int, tell: Callable[[Returned], None], *, cpu: bool) -> list[Returned]:
    remote = ray_remote(_call_in, retries=retries, cpu=cpu)
    import ray

    waiting, pending = deque(enumerate(calls)), dict[Any, int]()
    found: dict[int, Returned] = {}
    while waiting or pending:
        while waiting and len(pending) < max(_AHEAD, 2 * int(ray.cluster_resources().get("CPU", 1))):
            index, call = waiting.popleft()
            pending[remote.remote(str(Path.cwd()), version(_PACKAGE), call.target, call.arguments)] = index
        done, _ = ray.wait(list(pending), num_returns=1)
        index = pending.pop(done[0])
        try:
            value, error = ray.get(done[0])
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError):
            value, error = None, _died(retries + 1)
        except (ray.exceptions.RayError, ImportError) as failure:
            lacks = f"No module named '{_PACKAGE.replace('-', '_')}" in str(failure)
            text = f"A machine of the cluster has no {_PACKAGE}, and this command is {version(_PACKAGE)}. {_SHIP}"
            value, error = None, WorkError(text if lacks else f"{type(failure).__name__}: {str(failure).splitlines()[0]}")
        found[index] = Returned(calls[index], value, error)
        tell(found[index])
    return [found[index] for index in range(len(calls))]
