"""Memory on the CPU. What is no longer used goes back to the system; a training state is written without a second copy of it."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import torch

from coref_automl.errors import FolderError
from coref_automl.guard import check_packed
from coref_automl.store import written_whole


def release() -> None:
    """Between two models: a trainer and its model refer to each other, and glibc keeps what they held for later requests."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write what `torch.load` reads, whole or not at all.

    Torch turns an exception of the file it writes into one of its own, or dies of it: it is shown none, and the first is raised
    once torch has ended.
    """
    with written_whole(path, "wb") as handle:
        writer = _Writer(handle)
        torch.save(state, writer)
        if writer.error is not None:
            raise writer.error


def read_state(path: Path) -> dict[str, Any]:
    """What `write_state` wrote. Nothing but numbers is read of it: a pickle that asks for more is refused."""
    check_packed(path)
    try:
        held: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, UnpicklingError) as error:
        raise FolderError(foreign_state(path)) from error
    return held


def foreign_state(path: Path) -> str:
    return f"{path} is damaged, or holds more than a training state; remove {path.parent} and run the same command again."


class _Writer:
    """A file that never refuses; it keeps the first error, a Ctrl-C included, and writes nothing more."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self.error: BaseException | None = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self._handle.write(data)
            except BaseException as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        return
