"""The machine: its cores and devices, memory that ran out or is given back, calls that must hear Ctrl-C, orphaned processes."""

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
from typing import TypeVar

from coref_automl.errors import ModelError, RecipeError, WorkError

T = TypeVar("T")


def interruptible(call: Callable[[], T]) -> T:
    """A long call of a library that hears Ctrl-C only when it returns. Interrupted, it is left, and ends with the process."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # a panic of a library in Rust is no Exception
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not answer.done():
        wait([answer], 0.2)
    return answer.result()


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


def pick_device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"Unknown device {device!r}; choose cpu, cuda, cuda:0 ... or auto.") from error
    if wanted.type not in ("cpu", "cuda"):  # Apple's MPS among them: nothing here was ever run on it
        raise ModelError(f"The device {device} is not supported; pass --device cpu, or cuda where there is an NVIDIA GPU.")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"This machine has no such CUDA device, so --device {device} cannot be used; pass --device cpu.")
    return device


def pick_first_gpu(device: str) -> str:
    """The device to train on in this process: the Trainer takes the first GPU it sees; another is chosen before it starts."""
    import torch

    if torch.device(pick_device(device)).index:
        number = environment_of(device)["CUDA_VISIBLE_DEVICES"]
        raise RecipeError(
            f"Training runs on the first GPU that it sees, so the device {device} cannot be used; "
            f"set CUDA_VISIBLE_DEVICES={number} for this command, with the device cuda."
        )
    return pick_device(device)


def tokens_at_once(device: str) -> int:
    """Tokens of a batch: on a CPU more is slower (page faults); on a GPU these fill it, and memory halves them when it must."""
    return 4_096 if device.startswith("cpu") else 65_536


@contextmanager
def without_panics() -> Iterator[None]:
    """Turn a panic of a Rust library, which is not an Exception and has a class per library, into an error of ours."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        first = (str(error).splitlines() or [""])[0][:200]
        raise WorkError(
            f"A library failed on what it was given ({first}); copy tokenizer and model again from their source."
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Torch has an exception of its own on a GPU, and only a sentence on a CPU and for some CUDA libraries."""
    if isinstance(error, RuntimeError):
        return type(error).__name__ == "OutOfMemoryError" or any(said in str(error) for said in _MEMORY)
    return isinstance(error, MemoryError)


_MEMORY = ("can't allocate memory", "out of memory", "ALLOC_FAILED")


def end_with_parent(pipe: int | None = None) -> None:
    """When the process that started this one is gone, so is this, whatever it is doing. `pipe`: one that the parent holds open.

    Linux kills this process as soon as the pipe has no writer; elsewhere a thread waits for that, as far as it gets a turn.
    """
    parent = parent_process()
    if pipe is None and parent is None:
        return
    held = pipe if pipe is not None else parent.sentinel  # type: ignore[union-attr]
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(held, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(held, fcntl.F_SETFL, fcntl.fcntl(held, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        connection.wait([held])
        os._exit(70)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def started_quietly() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, which reaches the whole group: their parent ends them without a stack."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # on its own start it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def release() -> None:
    """Between two models: a trainer and its model refer to each other, and glibc keeps what they held for later requests."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)
