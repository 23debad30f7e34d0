"""The machine: its cores, devices, memory and current folder, and processes that end with their parent."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from multiprocessing import connection, parent_process, resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.base.errors import FolderError, ModelError, RecipeError, WorkError, first_line

T = TypeVar("T")


def interruptible(call: Callable[[], T]) -> T:
    """Run a blocking library call in a thread so that Ctrl-C works; an abandoned call ends with the process."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # the panic of a Rust library is not an Exception
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not future.done():
        wait([future], 0.2)
    return future.result()


def visible_devices() -> list[str]:
    """The devices for jobs: every visible GPU, or else the CPU."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{index}" for index in range(count)] or ["cpu"]


CORES = "COREF_AUTOML_CORES"
"""The number of cores that a process may use; set for each of several processes that are started side by side."""


def usable_cores() -> int:
    """The number of cores this process may use: those it may run on (on macOS all), at most its share in COREF_AUTOML_CORES."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(CORES)
    if not share:
        return allowed
    if not share.isdecimal() or int(share) < 1:
        raise RecipeError(f"{CORES} should be a whole number of cores, 1 or more, not {share!r}.")
    return min(allowed, int(share))


def environment_of(device: str) -> dict[str, str]:
    """The environment in which a process sees only this device. GPU numbers are those of this process."""
    if not device.startswith("cuda:"):
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    number = int(device.removeprefix("cuda:"))
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[number] if number < len(visible) else str(number)}


def device_seen(device: str) -> str:
    """The name of a device inside a process that sees only this one."""
    return "cuda:0" if device.startswith("cuda:") else device


def pick_device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"Unknown device {device!r}; choose cpu, cuda, cuda:0 ... or auto.") from error
    if wanted.type not in ("cpu", "cuda"):  # such as Apple's MPS, which is untested
        raise ModelError(f"The device {device} is not supported; pass --device cpu, or cuda where there is an NVIDIA GPU.")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"This machine has no such CUDA device, so --device {device} cannot be used; pass --device cpu.")
    return device


def pick_first_gpu(device: str) -> str:
    """The device to train on in this process. The Trainer uses the first visible GPU; any other is refused."""
    import torch

    if torch.device(pick_device(device)).index:
        number = environment_of(device)["CUDA_VISIBLE_DEVICES"]
        raise RecipeError(
            f"Training runs on the first GPU that it sees, so the device {device} cannot be used; "
            f"set CUDA_VISIBLE_DEVICES={number} for this command, with the device cuda."
        )
    return pick_device(device)


def default_batch_tokens(device: str) -> int:
    """Tokens per batch: more are slower on a CPU (page faults); these fill a GPU, and are halved when memory runs out."""
    return 4_096 if device.startswith("cpu") else 65_536


@contextmanager
def without_panics() -> Iterator[None]:
    """Turn a panic of a Rust library, which is not an Exception and has a class per library, into a WorkError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        problem = first_line(error)[:200]
        raise WorkError(f"A library failed on what it was given ({problem}); copy the model again from its source.") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Is memory exhausted? Torch has an exception for it on a GPU, but only a message on a CPU and in some CUDA libraries."""
    if isinstance(error, RuntimeError):
        return type(error).__name__ == "OutOfMemoryError" or any(message in str(error) for message in _OUT_OF_MEMORY)
    return isinstance(error, MemoryError)


_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "ALLOC_FAILED")


def end_with_parent(pipe: int | None = None) -> None:
    """End this process, whatever it is doing, when its parent is gone. `pipe`: one whose writing end the parent holds open.

    Linux kills this process as soon as the pipe has no writer; elsewhere a thread waits for that.
    """
    parent = parent_process()
    if pipe is None and parent is None:
        return
    sentinel = pipe if pipe is not None else parent.sentinel  # type: ignore[union-attr]
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(70)

    threading.Thread(target=watch, daemon=True).start()


def current_folder() -> str:
    """The folder that relative paths start from, for processes to work in; one that was deleted is refused."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise FolderError("The current folder was deleted; change to one that exists, and run it again.") from error


_STARTING = threading.Lock()


@contextmanager
def without_script() -> Iterator[None]:
    """Start processes in the current folder that do not run this process's script.

    multiprocessing would run it first in every child, where its `os.chdir` would hold, and where a
    script without `if __name__ == "__main__"` would start the work again.
    """
    current_folder()
    main = vars(sys.modules["__main__"])
    with _STARTING:
        hidden: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
        main.pop("__file__", None)
        main["__spec__"] = None
        try:
            yield
        finally:
            main.update(hidden)


@contextmanager
def block_sigint() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which reaches the whole process group: the parent ends them, without their stacks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it unblocks the signal when it is started later
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def free_memory() -> None:
    """Free the memory of the last model: a trainer and its model form a reference cycle, and glibc keeps freed memory."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library other than glibc
            ctypes.CDLL("libc.so.6").malloc_trim(0)
