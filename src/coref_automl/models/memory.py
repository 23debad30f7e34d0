"""Memory on the CPU. What is no longer used goes back to the system; a training state is written without a second copy of it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def own_state(path: Path) -> Iterator[None]:
    """Libraries fail in many ways on a training state that is not theirs; here it is one."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, OSError, EOFError, UnpicklingError, LookupError, TypeError, AttributeError) as error:
        what = "missing, damaged, or not the state of this training"
        raise FolderError(f"{path} is {what}; remove {path.parent} and run the same command again.") from error


@contextmanager
def stored_state(path: Path) -> Iterator[dict[str, Any]]:
    """What `torch.save` wrote, for the block to take up. Nothing but numbers is read: a pickle that asks for more is refused."""
    with own_state(path):
        check_packed(path)
        yield torch.load(path, map_location="cpu", weights_only=True)


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
