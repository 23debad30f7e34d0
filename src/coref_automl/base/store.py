"""Files. In: values. Out: files that are complete or absent, except a JSONL file that is appended to; and values read back."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

from coref_automl.base.errors import InputError, StorageError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.guard import lines_of, parse_json, read_whole, refuse_special

NOT_JSON = (ValueError, RecursionError)
"""What Python raises for text that is not JSON: wrong syntax or encoding, a number of thousands of digits, deep nesting."""
_UNWRITABLE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
"""Errors of a path where nothing can be written, now or later."""
_BLOCK = 1 << 16


def lone_surrogate(text: str) -> int | None:
    """The position of half a surrogate pair, which JSON and Python allow and no UTF-8 file can hold; None if there is none."""
    match = re.search("[\ud800-\udfff]", text)
    return match.start() if match else None


def is_text(name: str) -> bool:
    """Can the name be written as UTF-8? Bytes of a file name that are not UTF-8 reach Python as lone surrogates."""
    return lone_surrogate(name) is None


@contextmanager
def os_errors_as_ours(path: Path, *, opened: bool = False) -> Iterator[None]:
    """Turn an operating system error on writing into one sentence; of an `opened` file only a full disk or a size limit."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise StorageError(
                f"{path} grows beyond the largest file allowed here (ulimit -f); raise the limit and run the same command again."
            ) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"The disk is full while writing {path}; free some space and run the same command again."
            ) from error
        if error.errno in _UNWRITABLE and not opened:
            raise StorageError(f"Cannot write {path} ({error.strerror}); choose another --out.") from error
        raise


@contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file, flush to disk, rename: a reader sees the old file or the new one, never a partial one."""
    temporary = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{threading.get_ident()}.part")
    try:
        with os_errors_as_ours(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = temporary.open(mode, encoding=None if "b" in mode else "utf-8")
        with os_errors_as_ours(path, opened=True), handle:
            yield handle
            with os_errors_as_ours(path):
                handle.flush()
                os.fsync(handle.fileno())
        with os_errors_as_ours(path):
            temporary.replace(path)
    finally:
        with os_errors_as_ours(path):
            temporary.unlink(missing_ok=True)


def sweep(folder: Path, *, deep: bool = True) -> None:
    """Remove partial files of killed processes; those of live processes and of other machines stay."""
    for partial in folder.rglob(".*.part") if deep else folder.glob(".*.part"):
        writer = re.search(r"\.([0-9a-f]{6})-(\d+)(-\d+)?\.part$", partial.name)
        if writer and writer[1] == _host() and not _is_alive(int(writer[2])):
            partial.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # any other error: it runs as another user
    return True


@cache
def _host() -> str:
    return fingerprint(socket.gethostname())[:6]


def obey_umask(folder: Path) -> None:
    """Give the files of a folder the permissions of the umask; the library that writes weights makes them private."""
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    for path in folder.iterdir():
        if path.is_file():
            path.chmod(0o666 & ~mask)


def write_text(path: Path, text: str) -> None:
    with atomic_write(path) as handle:
        handle.write(text)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    with atomic_write(path) as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an operating system error on reading into one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error


def read_json(path: Path) -> Any:
    try:
        with _reading(path):
            return parse_json(read_whole(path))
    except NOT_JSON as error:
        raise InputError(f"{path} is not JSON ({json_fault(error)}); it is damaged or belongs to something else.") from error


def json_fault(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).split(";")[0]  # the rest is advice to programmers about a limit of the interpreter


def read_jsonl(path: Path) -> Iterator[Any]:
    """Yield the rows of a JSONL file. A last line without a line break was cut off by a kill and is skipped."""
    refuse_special(path)
    with _reading(path), path.open("rb") as handle:
        for number, line in enumerate(lines_of(path, handle), 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield parse_json(line)
            except NOT_JSON as error:
                raise InputError(f"{path}, line {number}, is not JSON: {json_fault(error)}.") from error


def _whole_lines(handle: IO[bytes], size: int) -> int:
    """The number of bytes up to the last line break of an open file, searched from its end."""
    while size:
        begin = max(0, size - _BLOCK)
        handle.seek(begin)
        if (last := handle.read(size - begin).rfind(b"\n")) >= 0:
            return begin + last + 1
        size = begin
    return 0


class JsonlAppender:
    """Appends rows to a file whose writer may be killed at any moment; a torn last line is removed first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        refuse_special(path)
        with os_errors_as_ours(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = path.open("a+b")
            size = self._handle.seek(0, os.SEEK_END)
            if (whole := _whole_lines(self._handle, size)) < size:
                self._handle.truncate(whole)

    def append(self, rows: Iterable[Any]) -> None:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with os_errors_as_ours(self._path):
            self._handle.write(text.encode())
            self._handle.flush()

    def close(self) -> None:
        with os_errors_as_ours(self._path):  # rows that did not fit on a full disk are written again
            self._handle.close()

    def __enter__(self) -> JsonlAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
