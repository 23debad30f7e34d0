"""What a file may cost. In: a path or a stream. Out: its bytes, or one sentence before memory is asked for.

A few hundred kilobytes can unpack to gigabytes, a line can have no end, and a short JSON text can become millions of objects.
Every reader takes its limits from here: with them a command stays under a gigabyte whatever a file claims.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any

from coref_automl.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 64 << 20
"""Bytes of a file that is read whole, once unpacked."""
LINE = 16 << 20
"""Bytes of the longest line that is read as one row; a longer one is a broken export."""
ARRAYS = 256 << 20
"""Bytes of all arrays of one packed file."""
_UNREADABLE = (OSError, ValueError, EOFError, MemoryError, TokenError)  # the last of numpy's header, from Python 3.12
_OBJECTS = 600 << 20
"""Bytes that the objects of a JSON text may take."""
_EACH = {b"[": 64, b"{": 240, b",": 60}
"""What a list, a mapping and one more entry take at most; text takes four bytes a character where one of them is rare."""


class TooLarge(InputError):
    """A file that would take more memory than its kind can need."""


def check_size(path: Path, largest: int = LARGEST) -> None:
    """Refuse a file that is larger than one of its kind can be."""
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
    """The lines of a stream with their ends; one without an end in sight is refused."""
    while line := stream.readline(longest + 1):
        if len(line) > longest:
            raise TooLarge(f"{path} has a line over {longest >> 20} MB; it is damaged, or not a file of this kind.")
        yield line


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text in UTF-8. One that would become too many objects is a ValueError, like one that is not JSON."""
    if 4 * len(raw) + sum(raw.count(sign) * size for sign, size in _EACH.items()) > _OBJECTS:
        raise ValueError(f"over {_OBJECTS >> 20} MB once read")
    return json.loads(raw.decode("utf-8"))


def refuse_special(path: Path) -> None:
    """Refuse a pipe, a socket or a device, which may block or never end. A missing path is left to the caller."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe, a socket or a device"
        raise InputError(f"{path} is {what}, and a regular file is needed; copy the content into one and pass that.")


def read_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """The array of an .npy file, in memory or memory-mapped. What is wrong with it is an InputError of half a sentence."""
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
                if (whole := sum(entry.file_size for entry in packed.infolist())) > ARRAYS:
                    raise ValueError(f"its arrays claim {whole:,} bytes, and at most {ARRAYS >> 20:,} MB are read")
                for entry in packed.infolist():
                    with packed.open(entry) as handle:
                        _check_claim(handle, entry.file_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as held:
                return {name: held[name] for name in held.files}
    except (*_UNREADABLE, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path.name}: {_why(error)}") from error


def _check_claim(handle: IO[bytes], size: int) -> None:
    """What the header announces must follow it: numpy would ask for all of that memory before it reads."""
    from numpy.lib import format as npy

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


def check_packed(path: Path) -> None:
    """Refuse weights in a zip that unpack to more than the file holds: torch writes them as they are."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            claimed = sum(entry.file_size for entry in packed.infolist())
        if claimed > path.stat().st_size:
            raise TooLarge(f"{path} has {path.stat().st_size:,} bytes and unpacks to {claimed:,}; it is damaged, copy it again.")


def failure_apart(program: str, *arguments: str, seconds: float = 20.0, megabytes: int = 1024) -> str:
    """Run a short program in a process with limits of its own. Empty if it ends well, else what happened, in half a sentence."""
    limit = f"import resource as r; r.setrlimit(r.RLIMIT_AS, ({megabytes << 20},) * 2)\n" if os.name == "posix" else ""
    words = [sys.executable, "-c", limit + program, *arguments]
    try:
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:.0f} s"
    if not ended.returncode:
        return ""
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    last = next((line for line in reversed(lines) if not line.startswith("note:")), "")
    return last[:200] or f"its process ended with status {ended.returncode}"
