"""Files and folders. In: values and paths. Out: files that are complete or absent, and fingerprints of their bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import IO, Any

from coref_automl.errors import FolderError, InputError, StorageError
from coref_automl.guard import lines_of, parse_json, read_whole
from coref_automl.guard import refuse_special as refuse_special

DONE = "DONE"
MANIFEST = "manifest.json"
LOCK, HOLDER = ".lock", ".lock.json"
_MARK = ".coref-automl"
_CHUNK = 1 << 20
_LONGEST_MARK = 200
_PARTIAL = re.compile(r"\..*\.part")
SWAP = ".archive.swap"  # a whole archive that is being moved into place


_CLOSED = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
"""Places where nothing can be written, now or later."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an operating system error on writing into one sentence."""
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
        if error.errno in _CLOSED:
            raise StorageError(f"Cannot write {path} ({error.strerror}); choose another --out.") from error
        raise


@contextmanager
def written_whole(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file, flush to disk, rename: a reader sees the old file or the new one, never a partial one."""
    aside = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{threading.get_ident()}.part")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open(mode, encoding=None if "b" in mode else "utf-8") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def sweep(folder: Path, *, deep: bool = True) -> None:
    """Remove partial files of killed processes; those of live processes and of other machines stay."""
    for stray in folder.rglob(".*.part") if deep else folder.glob(".*.part"):
        writer = re.search(r"\.([0-9a-f]{6})-(\d+)(-\d+)?\.part$", stray.name)
        if writer and writer[1] == _host() and not _is_alive(int(writer[2])):
            stray.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


@cache
def _host() -> str:
    return fingerprint(socket.gethostname())[:6]


def write_text(path: Path, text: str) -> None:
    with written_whole(path) as handle:
        handle.write(text)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    refuse_special(path)
    try:
        return parse_json(read_whole(path))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
    except NOT_JSON as error:
        raise InputError(f"{path} is not JSON ({json_fault(error)}); it is damaged or belongs to something else.") from error


NOT_JSON = (ValueError, RecursionError)
"""What Python raises for text that is not JSON: wrong syntax or encoding, a number of thousands of digits, deep nesting."""


def json_fault(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).split(";")[0]  # the rest is advice to programmers about a limit of the interpreter


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    with written_whole(path) as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_jsonl(path: Path) -> Iterator[Any]:
    """The rows of a JSONL file. A last line without a line break was cut off by a kill and is skipped."""
    refuse_special(path)
    try:
        with path.open("rb") as handle:
            for number, line in enumerate(lines_of(path, handle), 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield parse_json(line)
                except NOT_JSON as error:
                    raise InputError(f"{path}, line {number}, is not JSON: {json_fault(error)}.") from error
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error


class JsonlAppender:
    """Append rows to a file whose writer may be killed at any moment; a torn last line is removed first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        refuse_special(path)
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = path.open("a+b")
            self._handle.seek(0)
            self._handle.truncate(self._handle.read().rfind(b"\n") + 1)

    def append(self, rows: Iterable[Any]) -> None:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with explained(self._path):
            self._handle.write(text.encode())
            self._handle.flush()

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> JsonlAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claim_folder(folder: Path, kind: str, *, fresh: bool = False) -> None:
    """Create an output folder, or reuse one of the same kind. A folder that holds something else is refused.

    `fresh=True` also refuses a finished folder of the right kind.
    """
    _refuse_other(folder, kind, fresh=fresh)
    if kind_of_folder(folder):
        return
    _refuse_closed(folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _MARK, kind + "\n")


def check_folder(folder: Path, kind: str, *, fresh: bool = False) -> None:
    """Refuse what `claim_folder` refuses, without writing: for dry runs, and before long work.

    A folder must also be writable, unless it is finished.
    """
    _refuse_other(folder, kind, fresh=fresh)
    if not is_done(folder):
        _refuse_closed(folder)


def _refuse_closed(folder: Path) -> None:
    """The folder, or its nearest existing parent, must be writable."""
    with explained(folder):
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        for code, fine in ((errno.ENOTDIR, above.is_dir()), (errno.EACCES, os.access(above, os.W_OK | os.X_OK))):
            if not fine:
                raise OSError(code, os.strerror(code))


def _refuse_other(folder: Path, kind: str, *, fresh: bool) -> None:
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(folder)):  # what a path makes of s3://
        raise FolderError(f"{folder} is a URL, and results are written to folders; choose a folder as --out, and copy it there.")
    with explained(folder):
        if folder.exists() and not folder.is_dir():
            raise FolderError(f"{folder} is a file; choose another --out.")
        if folder.is_dir() and (any(not _PARTIAL.fullmatch(path.name) for path in contents(folder)) or kind_of_folder(folder)):
            held = kind_of_folder(folder)
            if held != kind:
                what = with_article(held) if held else "something that is not ours"
                raise FolderError(f"{folder} holds {what} and is left alone; choose another --out, or empty it first.")
            if fresh and (folder / DONE).exists():
                raise FolderError(f"{folder} holds a finished {_in_words(kind)}; choose another --out or remove it first.")


def with_article(kind: str) -> str:
    """A folder's kind with its article: "a run", "an evaluation set"."""
    words = _in_words(kind)
    return f"{'an' if words[0] in 'aeiouAEIOU' else 'a'} {words}"


def _in_words(kind: str) -> str:
    return "evaluation set" if kind == "evalset" else kind


def kind_of_folder(folder: Path) -> str:
    """The kind that `claim_folder` gave a folder; empty for other folders, and for those that cannot be read."""
    mark = folder / _MARK
    try:
        if not mark.is_file():
            return ""
        with mark.open("rb") as handle:
            return handle.read(_LONGEST_MARK).decode("utf-8", "replace").strip()
    except PermissionError:
        return ""


def contents(folder: Path) -> list[Path]:
    """The contents of a folder, without its mark and its lock."""
    return [path for path in folder.iterdir() if path.name not in (_MARK, LOCK, HOLDER)]


def leave_empty(folder: Path) -> None:
    """Remove a claimed folder if nothing was written into it."""
    if folder.is_dir() and kind_of_folder(folder) and not contents(folder):
        remove(folder)


def check_room(folder: Path, gigabytes: float) -> None:
    """Refuse checkpoints that do not fit on the disk before any is trained; those that lie there already are among them."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    held = sum(path.stat().st_size for path in folder.rglob("checkpoint-*/*") if path.is_file())
    free = shutil.disk_usage(place).free
    if 1e9 * gigabytes - held > free:
        raise StorageError(
            f"The checkpoints in {folder} would take about {gigabytes:,.1f} GB, and the disk has {free / 1e9:,.1f} GB free; free "
            "some space and run the same command again, or choose another --out."
        )


def mark_done(folder: Path) -> None:
    write_text(folder / DONE, "")


def is_done(folder: Path) -> bool:
    return (folder / DONE).exists()


def remove(folder: Path) -> None:
    """Remove a folder that will be made again."""
    shutil.rmtree(folder, ignore_errors=True)


def fingerprint(*parts: Any) -> str:
    """A hash of a value, the same on every machine."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        raw = part if isinstance(part, bytes) else json.dumps(part, ensure_ascii=False, sort_keys=True).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


_FRAMED = {".safetensors", ".bin", ".npy", ".npz", ".model", ".pt", ".parquet", ".arrow", ".gz", ".xz", ".zip", ".zst", ".bz2"}
"""Files that say themselves how long they are. Any other ends at a NUL, or has its length counted."""


def chunks_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time."""
    refuse_special(path)
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk


def fingerprint_files(paths: Iterable[Path], *, read: Callable[[Path], Iterable[bytes]] = chunks_of) -> str:
    """A hash of the bytes of some files, whatever their names and wherever `read` finds them."""
    digest = hashlib.blake2b(digest_size=12)
    sizes, unclear = [], False
    for path in paths:
        size = 0
        for chunk in read(path):
            digest.update(chunk)
            size += len(chunk)
            unclear = unclear or (path.suffix not in _FRAMED and b"\0" in chunk)
        digest.update(b"\0")
        sizes.append(size)
    return fingerprint(digest.hexdigest(), sizes) if unclear else digest.hexdigest()


State = tuple[tuple[str, int, int], ...]


def state_of(folder: Path) -> State:
    """Names, sizes and times of a folder's files: what is kept in memory of it counts as long as they stay."""
    found = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def repeats_study(folder: Path) -> bool:
    """Whether a folder is the archive inside a study, which repeats the study's own results."""
    return kind_of_folder(folder) == "archive" and kind_of_folder(folder.parent) == "experiment"


def check_name(path: Path) -> None:
    """Refuse a path that is not UTF-8: no page and no record could name it."""
    if not is_text(str(path)):
        shown = os.fsencode(path).decode("utf-8", "replace")
        raise InputError(f"The name of {shown} is not UTF-8, so it cannot be shown; rename it.")


def files_under(folder: Path, wanted: Collection[str], unread: list[InputError] | None = None) -> list[Path]:
    """The files of some names under a folder, in natural order; those in the archive of a study under it are left out.

    `unread` gets an error for each folder that cannot be listed, and for each link to a folder outside, which is not followed.
    """
    repeats = cache(repeats_study)
    unread = [] if unread is None else unread

    def closed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # no folder, or one that was just removed
            unread.append(InputError(f"{error.filename} cannot be read ({error.strerror}); make it readable, or move it away."))

    found: list[Path] = []
    for at, inside, names in os.walk(folder, onerror=closed):
        if SWAP in inside and (Path(at) == folder or not repeats(Path(at))):
            unread.append(InputError(f"{at} was not archived to the end; run the same command again."))
            inside[:], names = [], []
        inside[:] = [name for name in inside if not _PARTIAL.fullmatch(name)]
        found += [Path(at, name) for name in wanted if name in names]
        for link in (path for path in (Path(at, one) for one in inside) if path.is_symlink()):
            if not Path(os.path.realpath(link)).is_relative_to(folder.resolve()):
                unread.append(InputError(f"{link} is a link to outside {folder} and is not followed; pass it by itself."))
    own = (path for path in found if not any(repeats(above) for above in _between(folder, path)))
    return sorted(own, key=natural_order)


def _between(folder: Path, path: Path) -> list[Path]:
    """The folders above a path and under a folder."""
    return [above for above in path.parents if above != folder and above.is_relative_to(folder)]


def short_names(folders: Iterable[PurePath]) -> dict[PurePath, str]:
    """A unique name for each folder: its own, preceded by as many parent folders as needed."""
    parts = {folder: [part for part in folder.parts if part not in (folder.anchor, "..")] or ["root"] for folder in folders}
    names = {folder: own[-1] for folder, own in parts.items()}
    for depth in range(2, 1 + max(map(len, parts.values()), default=0)):
        count = Counter(names.values())
        names |= {folder: "-".join(parts[folder][-depth:]) for folder, name in names.items() if count[name] > 1}
    count = Counter(names.values())
    return {folder: name if count[name] == 1 else f"{name}-{fingerprint(str(folder))[:6]}" for folder, name in names.items()}


def obey_umask(folder: Path) -> None:
    """Give the files of a folder the permissions of the umask: the library that writes weights makes them private."""
    mask = os.umask(0o077)
    os.umask(mask)
    for path in folder.iterdir():
        if path.is_file():
            path.chmod(0o666 & ~mask)


def at_home(place: str) -> Path:
    """A path with `~` expanded; that of an unknown user is kept and will be reported as missing."""
    try:
        return Path(place).expanduser()
    except RuntimeError:
        return Path(place)


def where_now(stored: str, near: Path, holds: str = "") -> str:
    """A stored path where it lies now: beside what names it, also after the whole folder was moved or renamed; else as stored.

    `holds` is a file that a folder must have to be the one meant. A checkpoint is known by its run, too.
    """
    parts = PurePath(stored).parts
    least = 1 if holds and not stored.rpartition("/")[2].startswith("checkpoint-") else 2
    for folder in (*near.parents, *near.resolve().parents):
        for start in range(len(parts) - least + 1):
            if (found := folder.joinpath(*parts[start:], holds)).exists():
                return str(found.parent if holds else found)
    return stored


def is_text(name: str) -> bool:
    """Whether a name can be encoded: bytes that are not UTF-8 reach Python as surrogates, which no file can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def natural_order(name: str | Path) -> list[tuple[int, str]]:
    """Sort key under which checkpoint-65 comes before checkpoint-131."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(name))]
