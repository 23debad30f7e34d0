"""Limits on untrusted files. In: a path or a stream. Out: its bytes, or an error of one sentence before memory is allocated.

A few hundred kilobytes can unpack to gigabytes, and a line can be endless. All readers take their limits from here.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any

from coref_automl.base.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 64 << 20
"""Bytes of a file that is read as a whole, unpacked."""
LINE = 16 << 20
"""Bytes of the longest line that is read as a row; a longer one is a broken export."""
ARRAYS = 256 << 20
"""Bytes of all arrays of one packed file."""
_UNREADABLE = (OSError, ValueError, EOFError, MemoryError, TokenError)  # numpy raises the last for a header, from Python 3.12 on


class TooLarge(InputError):
    """A file that would take more memory than a file of its kind needs."""


def check_size(path: Path, largest: int = LARGEST) -> None:
    """Refuse a file that is too large for its kind."""
    size = path.stat().st_size
    if size > largest:
        raise TooLarge(f"{path} has {size:,} bytes, and at most {largest >> 20:,} MB are read; split it, or pass the right file.")


def read_whole(path: Path, stream: IO[bytes] | None = None, largest: int = LARGEST) -> bytes:
    """The bytes of a file, or of the stream that unpacks it."""
    if stream is None:
        refuse_special(path)
        with path.open("rb") as plain:
            return read_whole(path, plain, largest)
    raw = stream.read(largest + 1)
    if len(raw) > largest:
        raise TooLarge(f"{path} holds more than {largest >> 20:,} MB; split it, or pass the right file.")
    return raw


def lines_of(path: Path, stream: IO[bytes], longest: int = LINE) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends; refuse one that is too long."""
    while line := stream.readline(longest + 1):
        if len(line) > longest:
            raise TooLarge(f"{path} has a line over {longest >> 20} MB; it is damaged, or not a file of this kind.")
        yield line


def parse_json(raw: bytes) -> Any:
    """Parse JSON in strict UTF-8; `json.loads` of bytes would let other encodings and halves of characters pass."""
    return json.loads(raw.decode("utf-8"))


def refuse_special(path: Path) -> None:
    """Refuse a folder, and a pipe, socket or device, which may block or never end; a missing path is left to the caller."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe, a socket or a device"
        raise InputError(f"{path} is {what}, and a regular file is needed; copy the content into one and pass that.")


def read_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read an .npy file, in memory or memory-mapped; an InputError says in half a sentence what is wrong with it."""
    import numpy as np

    refuse_special(path)
    try:
        with path.open("rb") as handle:
            _check_claim(handle, path.stat().st_size)
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except _UNREADABLE as error:
        raise InputError(f"{path.name}: {_why(error)}") from error
    return array


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    refuse_special(path)
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as packed:
                if (total := sum(entry.file_size for entry in packed.infolist())) > ARRAYS:
                    raise ValueError(f"its arrays claim {total:,} bytes, and at most {ARRAYS >> 20:,} MB are read")
                for entry in packed.infolist():
                    with packed.open(entry) as handle:
                        _check_claim(handle, entry.file_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except (*_UNREADABLE, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path.name}: {_why(error)}") from error


def _check_claim(handle: IO[bytes], size: int) -> None:
    """Refuse a header that claims more than follows it: numpy would allocate all of it before reading."""
    from numpy.lib import format as npy

    if not size:
        raise ValueError("the file is empty")
    version = npy.read_magic(handle)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(handle)
    claimed, available = math.prod(shape) * dtype.itemsize, size - handle.tell()
    if min(shape, default=0) < 0 or claimed > available:
        raise ValueError(f"its header claims {claimed:,} bytes and {available:,} follow")


def _why(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def check_packed(path: Path) -> None:
    """Refuse zipped weights that unpack to more bytes than the file has: torch stores them uncompressed."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            claimed = sum(entry.file_size for entry in packed.infolist())
        if claimed > path.stat().st_size:
            raise TooLarge(f"{path} has {path.stat().st_size:,} bytes and unpacks to {claimed:,}; it is damaged, copy it again.")
