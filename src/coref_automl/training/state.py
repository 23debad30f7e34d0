"""What a resumption needs of a checkpoint. In: the state of a loop. Out: files that are whole, or one error that says what to do.

Torch, safetensors and the library each fail in their own way on a state that is damaged or foreign, and on a full disk.
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

from coref_automl.errors import FolderError, InputError
from coref_automl.guard import check_packed
from coref_automl.store import atomic_write, read_json

MENTION_LOSSES = "mention_losses.pt"
"""What a loss between mentions has learned beside the model."""

STATES = ("optimizer.pt", "scheduler.pt", "rng_state*.pth", MENTION_LOSSES)
"""What only a resumption needs; most of a checkpoint's size."""

TRAINER_STATE = "trainer_state.json"
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EFBIG)
_UNWRITABLE_SAID = (
    "No space left", "StorageFull", "Disk quota", "File too large", "os error 27", "os error 28",
    "PytorchStreamWriter failed", "iostream error", "unexpected pos",
)  # fmt: skip


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write what `torch.load` reads, whole or not at all.

    Torch turns an exception of the file it writes into one of its own, or dies of it: it is shown none, and the first is raised
    once torch has ended.
    """
    import torch

    with atomic_write(path, "wb") as handle:
        writer = _Writer(handle)
        torch.save(state, writer)
        if writer.error is not None:
            raise writer.error


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


@contextmanager
def readable_state(path: Path) -> Iterator[None]:
    """Turn every way a foreign training state fails into one FolderError."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, OSError, EOFError, UnpicklingError, LookupError, TypeError, AttributeError) as error:
        what = "missing, damaged, or not the state of this training"
        raise FolderError(f"{path} is {what}; remove {path.parent} and run the same command again.") from error


@contextmanager
def stored_state(path: Path) -> Iterator[dict[str, Any]]:
    """What `write_state` wrote, for the block to take up. Nothing but numbers is read: a pickle that asks for more is refused."""
    import torch

    with readable_state(path):
        check_packed(path)
        yield torch.load(path, map_location="cpu", weights_only=True)


def check_trainer_state(checkpoint: Path) -> None:
    """Refuse the trainer's record of another step."""
    from transformers import TrainerState

    path, step = checkpoint / TRAINER_STATE, int(checkpoint.name.rpartition("-")[2])
    with readable_state(path):
        if TrainerState.load_from_json(str(path)).global_step != step:
            raise ValueError("the state of another step")


def damaged_state(checkpoint: Path) -> Path | None:
    """The first file of a state that is empty or cut short."""
    states = [path for pattern in STATES for path in checkpoint.glob(pattern)]
    files = [checkpoint / TRAINER_STATE, checkpoint / "clock.json", *states]
    return next((path for path in files if not _is_whole(path)), None)


def _is_whole(path: Path) -> bool:
    """Can a file of a checkpoint's state be read? torch writes archives, whose table of contents is at their end."""
    if path.suffix != ".json":
        check_packed(path)
        return is_zipfile(path)
    try:
        return isinstance(read_json(path), dict)
    except InputError:
        return False


def drop_states(checkpoint: Path) -> None:
    """Make a checkpoint a plain model: it loads and scores as before, and can no longer be resumed."""
    for pattern in STATES:
        for path in checkpoint.glob(pattern):
            path.unlink()


def flush_folder(folder: Path) -> None:
    """Every byte on disk before the folder gets its name."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())


def is_disk_trouble(error: BaseException) -> bool:
    """The ways in which torch, safetensors and the system say that a file cannot be written."""
    if isinstance(error, OSError):
        return error.errno in _UNWRITABLE
    return any(said in str(error) for said in _UNWRITABLE_SAID)
