"""Output folders. In: a path and a kind. Out: a folder with the mark of that kind, or a refusal; `DONE` is written last."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from coref_automl.errors import FolderError, StorageError
from coref_automl.store import os_errors_as_ours, write_text

DONE = "DONE"
MANIFEST = "manifest.json"
EVENTS = "events.ndjson"
AVERAGE = "average"
"""The folder of a run's own average, in the run."""
EXPERIMENT = "experiment"
"""The kind of a study's folder."""
LOCK, HOLDER = ".lock", ".lock.json"
_MARK = ".coref-automl"
_LONGEST_MARK = 200
PARTIAL = re.compile(r"\..*\.part")


def claim_folder(folder: Path, kind: str, *, fresh: bool = False) -> None:
    """Create an output folder, or reuse one of the same kind. A folder that holds something else is refused.

    `fresh=True` also refuses a finished folder of the right kind.
    """
    _refuse_other(folder, kind, fresh=fresh)
    if kind_of_folder(folder):
        return
    _refuse_closed(folder)
    with os_errors_as_ours(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _MARK, kind + "\n")


def check_folder(folder: Path, kind: str, *, fresh: bool = False) -> None:
    """Refuse what `claim_folder` refuses, without writing: for dry runs, and before long work.

    A folder must also be writable, unless it is finished.
    """
    _refuse_other(folder, kind, fresh=fresh)
    if not is_done(folder):
        _refuse_closed(folder)


def refuse_existing(file: Path | None) -> None:
    """A file that a command is to write must be new: one that exists may be another command's, or hold corrections."""
    if file and file.exists():
        raise FolderError(f"{file} exists, and what it holds would be lost; pass another name.")


def _refuse_closed(folder: Path) -> None:
    """The folder, or its nearest existing parent, must be writable."""
    with os_errors_as_ours(folder):
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not above.is_dir():
            raise StorageError(f"Cannot write {folder} (Not a directory); choose another --out.")
        if not os.access(above, os.W_OK | os.X_OK):
            raise StorageError(f"Cannot write {folder} (Permission denied); choose another --out.")


def _refuse_other(folder: Path, kind: str, *, fresh: bool) -> None:
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(folder)):  # what a path makes of s3://
        raise FolderError(f"{folder} is a URL, and results are written to folders; choose a folder as --out, and copy it there.")
    with os_errors_as_ours(folder):
        if folder.exists() and not folder.is_dir():
            raise FolderError(f"{folder} is a file; choose another --out.")
        if folder.is_dir() and (any(not PARTIAL.fullmatch(path.name) for path in contents(folder)) or kind_of_folder(folder)):
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
    """Remove a claimed folder if nothing was written into it but what was told meanwhile."""
    if folder.is_dir() and kind_of_folder(folder) and {path.name for path in contents(folder)} <= {EVENTS}:
        remove(folder)


def mark_done(folder: Path) -> None:
    write_text(folder / DONE, "")


def is_done(folder: Path) -> bool:
    return (folder / DONE).exists()


def remove(folder: Path) -> None:
    """Remove a folder that will be made again."""
    shutil.rmtree(folder, ignore_errors=True)


State = tuple[tuple[str, int, int], ...]


def state_of(folder: Path) -> State:
    """Names, sizes and times of a folder's files: what is kept in memory of it counts as long as they stay."""
    found = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)
