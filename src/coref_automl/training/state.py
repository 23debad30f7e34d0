"""The training state in a checkpoint. In: the state of a loop. Out: complete files, or one error that says what to do.

torch, safetensors and transformers each fail in their own way on a damaged or foreign state, and on a full disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any
from zipfile import is_zipfile

from coref_automl.base.errors import FolderError, InputError
from coref_automl.base.guard import check_packed
from coref_automl.base.store import atomic_write, read_json

MENTION_LOSSES = "mention_losses.pt"
"""The projections of the mention losses, which are not part of the model."""

STATES = ("optimizer.pt", "scheduler.pt", "rng_state*.pth", MENTION_LOSSES)
"""Files that only a resumption reads; most of a checkpoint's size."""

TRAINER_STATE = "trainer_state.json"
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EFBIG)
_UNWRITABLE_MESSAGES = (
    "No space left", "StorageFull", "Disk quota", "File too large", "os error 27", "os error 28",
    "PytorchStreamWriter failed", "iostream error", "unexpected pos",
)  # fmt: skip


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a state with `torch.save`, atomically.

    torch replaces an exception of the file it writes to by one of its own, or crashes. So the file hides its errors from torch,
    and the first is raised when torch is done.
    """
    import torch

    with atomic_write(path, "wb") as handle:
        writer = _Writer(handle)
        torch.save(state, writer)
        if writer.error is not None:
            raise writer.error


class _Writer:
    """A file that never raises: it keeps the first error, including Ctrl-C, and writes nothing more."""

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


@contextmanager
def readable_state(path: Path) -> Iterator[None]:
    """Turn every error of a damaged or foreign training state into one FolderError."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, OSError, EOFError, UnpicklingError, LookupError, TypeError, AttributeError) as error:
        problem = "missing, damaged, or not the state of this training"
        raise FolderError(f"{path} is {problem}; remove {path.parent} and run the same command again.") from error


@contextmanager
def stored_state(path: Path) -> Iterator[dict[str, Any]]:
    """Open a state of `write_state`; its errors, also inside the block, become one FolderError. Pickled code is refused."""
    import torch

    with readable_state(path):
        check_packed(path)
        yield torch.load(path, map_location="cpu", weights_only=True)


def check_trainer_state(checkpoint: Path) -> None:
    """Refuse a trainer_state.json of another step."""
    from transformers import TrainerState

    path, step = checkpoint / TRAINER_STATE, int(checkpoint.name.rpartition("-")[2])
    with readable_state(path):
        if TrainerState.load_from_json(str(path)).global_step != step:
            raise ValueError("the state of another step")


def damaged_state(checkpoint: Path) -> Path | None:
    """Find the first file of a training state that is empty or truncated."""
    states = [path for pattern in STATES for path in checkpoint.glob(pattern)]
    files = [checkpoint / TRAINER_STATE, checkpoint / "clock.json", *states]
    return next((path for path in files if not _is_whole(path)), None)


def _is_whole(path: Path) -> bool:
    """Tell whether a file is complete: torch writes zip archives, whose table of contents is at the end."""
    if path.suffix != ".json":
        check_packed(path)
        return is_zipfile(path)
    try:
        return isinstance(read_json(path), dict)
    except InputError:
        return False


def drop_states(checkpoint: Path) -> None:
    """Remove a checkpoint's training state: it loads and scores as before, but cannot be resumed."""
    for pattern in STATES:
        for path in checkpoint.glob(pattern):
            path.unlink()


def flush_folder(folder: Path) -> None:
    """Flush all files to disk, before the folder gets its final name."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())


def is_disk_trouble(error: BaseException) -> bool:
    """Tell whether torch, safetensors or the system could not write a file."""
    if isinstance(error, OSError):
        return error.errno in _UNWRITABLE
    return any(message in str(error) for message in _UNWRITABLE_MESSAGES)
