"""Paths and output folders. In: a path and a kind. Out: a folder marked with that kind, or a refusal; `DONE` is written last."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePath

from coref_automl.base.errors import FolderError, InputError, StorageError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.store import is_text, os_errors_as_ours, write_text

DONE = "DONE"
MANIFEST = "manifest.json"
EVENTS = "events.ndjson"
AVERAGE = "average"
"""The folder, inside a run, of the average of its weights."""
EXPERIMENT = "experiment"
"""The kind of a study's folder."""
LOCK, HOLDER = ".lock", ".lock.json"
_MARK = ".coref-automl"
_MAX_MARK_BYTES = 200
PARTIAL = re.compile(r"\..*\.part")


def expand_home(path: str) -> Path:
    """Expand `~`; the path of an unknown user is kept and will be reported as missing."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_there(path: str | Path) -> bool:
    """Does a file or folder exist? One in a folder that this user may not open does not, for us; Path.exists raises there."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: str | Path) -> bool:
    """Is it a folder? See `is_there`."""
    return os.path.isdir(path)  # noqa: PTH112


def check_name(path: Path) -> None:
    """Refuse a path that is not UTF-8: no page and no record could name it."""
    if not is_text(str(path)):
        readable = os.fsencode(path).decode("utf-8", "replace")
        raise InputError(f"The name of {readable} is not UTF-8, so it cannot be shown; rename it.")


def natural_order(name: str | Path) -> list[tuple[int, str]]:
    """Sort key under which checkpoint-65 comes before checkpoint-131; no two names have the same, not even 1 and 01."""
    parts = re.split(r"(\d+)", str(name))
    return [*((int(part), "") if part.isdecimal() else (-1, part) for part in parts), (-1, str(name))]


def short_names(folders: Iterable[PurePath]) -> dict[PurePath, str]:
    """Name every folder uniquely: by its own name, preceded by as many parent folders as needed."""
    parts = {folder: [part for part in folder.parts if part not in (folder.anchor, "..")] or ["root"] for folder in folders}
    names = {folder: kept[-1] for folder, kept in parts.items()}
    for depth in range(2, 1 + max(map(len, parts.values()), default=0)):
        count = Counter(names.values())
        names |= {folder: "-".join(parts[folder][-depth:]) for folder, name in names.items() if count[name] > 1}
    count = Counter(names.values())
    return {folder: name if count[name] == 1 else f"{name}-{fingerprint(str(folder))[:6]}" for folder, name in names.items()}


def claim_folder(folder: Path, kind: str, *, fresh: bool = False) -> None:
    """Create an output folder, or reuse one of the same kind; refuse a folder that holds anything else.

    `fresh=True` also refuses a finished folder of the right kind.
    """
    _refuse_other(folder, kind, fresh=fresh)
    if kind_of_folder(folder):
        return
    _refuse_unwritable(folder)
    with os_errors_as_ours(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _MARK, kind + "\n")


def check_folder(folder: Path, kind: str, *, fresh: bool = False) -> None:
    """Refuse what `claim_folder` refuses, without writing: for dry runs, and before long work.

    Also refuse an unfinished folder that cannot be written.
    """
    _refuse_other(folder, kind, fresh=fresh)
    if not is_done(folder):
        _refuse_unwritable(folder)


def refuse_existing(file: Path | None) -> None:
    """Refuse to overwrite a file: it may be another command's, or hold corrections made by hand."""
    if file and file.exists():
        raise FolderError(f"{file} exists, and what it holds would be lost; pass another name.")


def _refuse_unwritable(folder: Path) -> None:
    """Refuse a folder if it, or its nearest existing parent, cannot be written."""
    with os_errors_as_ours(folder):
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not existing.is_dir():
            raise StorageError(f"Cannot write {folder} (Not a directory); choose another --out.")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise StorageError(f"Cannot write {folder} (Permission denied); choose another --out.")


def _refuse_other(folder: Path, kind: str, *, fresh: bool) -> None:
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(folder)):  # pathlib turns s3:// into s3:/
        raise FolderError(f"{folder} is a URL, and results are written to folders; choose a folder as --out, and copy it there.")
    with os_errors_as_ours(folder):
        if folder.exists() and not folder.is_dir():
            raise FolderError(f"{folder} is a file; choose another --out.")
        if folder.is_dir() and (any(not PARTIAL.fullmatch(path.name) for path in contents(folder)) or kind_of_folder(folder)):
            existing = kind_of_folder(folder)
            if existing != kind:
                what = with_article(existing) if existing else "something that is not ours"
                raise FolderError(f"{folder} holds {what} and is left alone; choose another --out, or empty it first.")
            if fresh and (folder / DONE).exists():
                raise FolderError(f"{folder} holds a finished {_in_words(kind)}; choose another --out or remove it first.")


def with_article(kind: str) -> str:
    """Put an article before a folder's kind: "a run", "an evaluation set"."""
    words = _in_words(kind)
    return f"{'an' if words[0] in 'aeiouAEIOU' else 'a'} {words}"


def _in_words(kind: str) -> str:
    return "evaluation set" if kind == "evalset" else kind


def kind_of_folder(folder: Path) -> str:
    """The kind that `claim_folder` gave a folder; empty for other folders and unreadable ones."""
    mark = folder / _MARK
    try:
        if not mark.is_file():
            return ""
        with mark.open("rb") as handle:
            return handle.read(_MAX_MARK_BYTES).decode("utf-8", "replace").strip()
    except PermissionError:
        return ""


def contents(folder: Path) -> list[Path]:
    """The contents of a folder, without its mark and its lock."""
    return [path for path in folder.iterdir() if path.name not in (_MARK, LOCK, HOLDER)]


def remove_if_unused(folder: Path) -> None:
    """Remove a claimed folder if it holds nothing but events."""
    if folder.is_dir() and kind_of_folder(folder) and {path.name for path in contents(folder)} <= {EVENTS}:
        remove(folder)


def mark_done(folder: Path) -> None:
    write_text(folder / DONE, "")


def is_done(folder: Path) -> bool:
    return (folder / DONE).exists()


def remove(folder: Path) -> None:
    """Remove a folder that will be made again."""
    shutil.rmtree(folder, ignore_errors=True)


Version = tuple[int, ...]
State = tuple[tuple[str, Version], ...]


def version_of(path: Path) -> Version:
    """Size, inode and times of a file; while they stay the same, so do its bytes.

    The modification time alone can be restored (`cp -p`, `rsync -t`, `touch`), the change time cannot.
    """
    stat = path.stat()
    return stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def state_of(folder: Path, *, deep: bool = False) -> State:
    """Names and versions of a folder's files, with `deep` also those in the folders below it; while they stay the same, caches
    of the folder are valid."""
    paths = sorted(folder.rglob("*") if deep else folder.iterdir())
    return tuple((str(path.relative_to(folder)), version_of(path)) for path in paths if path.is_file())
