"""Arrays on disk. In: .npy and .npz files. Out: arrays, once the file is known to hold as much as its header claims.

Whatever is wrong with a file is an InputError that says it in half a sentence; the caller knows what to do next.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from coref_automl.errors import InputError
from coref_automl.store import refuse_special


def read_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """The array of an .npy file, in memory or memory-mapped."""
    refuse_special(path)
    try:
        with path.open("rb") as handle:
            _check_claim(handle, path.stat().st_size)
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise InputError(f"{path.name}: {_why(error)}") from error
    return array


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name."""
    refuse_special(path)
    try:
        with ZipFile(path) as packed:
            for entry in packed.infolist():
                with packed.open(entry) as handle:
                    _check_claim(handle, entry.file_size)
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError, MemoryError, KeyError, NotImplementedError, BadZipFile, zlib.error) as error:
        raise InputError(f"{path.name}: {_why(error)}") from error


def _check_claim(handle: IO[bytes], size: int) -> None:
    """What the header announces must follow it: numpy would ask for all of that memory before it reads."""
    if not size:
        raise ValueError("the file is empty")
    version = npy.read_magic(handle)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(handle)
    claimed, held = math.prod(shape) * dtype.itemsize, size - handle.tell()
    if min(shape, default=0) < 0 or claimed > held:
        raise ValueError(f"its header claims {claimed:,} bytes and {held:,} follow")


def _why(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
