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
from contextlib import chdir, suppress
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from coref_automl.errors import CorefError, FolderError, MissingExtra, WorkerDied, WorkError, first_line
from coref_automl.machine import end_with_parent, environment_of, started_quietly, without_panics

Engine = Literal["local", "ray"]
Answer = tuple[Any, Exception | None]
_PACKAGE = "coref-automl"
_INSTALL_ADVICE = (
    "Install the same version on every machine, or let Ray ship it: "
    """ray job submit --runtime-env-json '{"pip": ["coref-automl[scale]"]}' -- coref-automl ..."""
)
_CLOSING = 2.0
"""Seconds that an ended worker's manager is waited for."""
_MOST_QUEUED = 64
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

    def start(slot: int) -> None:
        """Hand the first waiting call to a free worker; it keeps its place where that one died while idle."""
        if slot not in workers:
            workers[slot] = one_process(environment_of(devices[slot % len(devices)]) if devices else {})
        call = calls[waiting[0]]
        try:
            with started_quietly():
                running[workers[slot].submit(_answer, call.target, call.arguments)] = slot, waiting[0]
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


def ray_task(function: Callable[..., Any], *, retries: int, cpu: bool) -> Callable[..., Any]:
    """What submits the function as a Ray task of one CPU, and of one GPU where the cluster has any. Joins the cluster, or starts
    one here; a machine that cannot do as the command would refuses the task."""
    try:
        import ray
    except ImportError as missing:
        raise MissingExtra("ray", "scale", "--engine ray") from missing
    if not ray.is_initialized():
        joined = os.environ.get("RAY_ADDRESS")
        quiet: dict[str, Any] = {} if joined else {"include_dashboard": False}  # it takes a core for seconds, and nobody looks
        ray.init(address=joined, log_to_driver=False, logging_level=logging.ERROR, **quiet)
    gpus = 1 if not cpu and ray.cluster_resources().get("GPU") else 0
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(call_on_worker)
    return lambda *arguments: remote.remote(str(Path.cwd()), version(_PACKAGE), function, *arguments)


def call_on_worker(folder: str, ours: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a machine of the cluster as the command would: with its version of this package, in its folder."""
    if ours != (theirs := version(_PACKAGE)):
        raise WorkError(f"{platform.node()} has {_PACKAGE} {theirs}, and this command is {ours}. {_INSTALL_ADVICE}")
    if not Path(folder).is_dir():
        raise FolderError(f"{folder} does not exist on {platform.node()}; start the command in a folder all machines see.")
    with chdir(folder):
        return function(*arguments)


def ray_error(error: Exception) -> CorefError:
    """Why a machine of the cluster could not begin a task, in one sentence."""
    cause, ours = getattr(error, "cause", None) or error, version(_PACKAGE)
    if f"No module named '{_PACKAGE.replace('-', '_')}" in str(error):
        return WorkError(f"A machine of the cluster has no {_PACKAGE}, and this command is {ours}. {_INSTALL_ADVICE}")
    name = type(cause).__name__
    return cause if isinstance(cause, CorefError) else WorkError(f"{name}: {first_line(cause)}".removesuffix(f": {name}"))


def cancel(reference: Any) -> None:
    """End a Ray task at once."""
    import ray

    with suppress(Exception):  # it may have ended in the meantime
        ray.cancel(reference, force=True)


def _on_ray(calls: Sequence[Call], retries: int, tell: Callable[[Returned], None], *, cpu: bool) -> list[Returned]:
    submit = ray_task(_answer, retries=retries, cpu=cpu)
    import ray

    waiting, pending = deque(enumerate(calls)), dict[Any, int]()
    found: dict[int, Returned] = {}
    try:
        while waiting or pending:
            while waiting and len(pending) < max(_MOST_QUEUED, 2 * int(ray.cluster_resources().get("CPU", 1))):
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
            found[index] = Returned(calls[index], value, error)
            tell(found[index])
    finally:
        for reference in pending:
            cancel(reference)
    return [found[index] for index in range(len(calls))]
