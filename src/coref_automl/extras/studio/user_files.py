"""What people write in the studio: notes, tags, corrected chains. In: a folder and a name. Out: files beside it, never inside.

If that place is closed to writing, or lies outside the given folders, the file is kept in the user's data folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError, InputError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import kind_of_folder
from coref_automl.base.records import Record
from coref_automl.base.store import write_json
from coref_automl.extras.studio.folders import Folders, Run

T = TypeVar("T", bound=Record)
NOTES = ".notes.json"
MAX_NOTE, MAX_TAGS, MAX_TAG = 20_000, 1_000, 60
"""Characters of a note, tags of a run or an item, characters of a tag."""


@dataclass(frozen=True, slots=True)
class Note(Record):
    """A note on a run and its tags. `version` tells whether a form was filled from this one."""

    text: str = ""
    tags: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return fingerprint(self.text, list(self.tags))[:16] if self.text or self.tags else ""


@dataclass(frozen=True, slots=True)
class ItemTags(Record):
    tags: dict[str, list[str]] = field(default_factory=dict)


class NoteConflict(Exception):
    """Somebody else has saved since this form was filled; `stored` is what they saved."""

    def __init__(self, stored: Note) -> None:
        super().__init__("saved by somebody else")
        self.stored = stored


class UserFiles:
    """Reads and writes files beside the folders, or in the user's data folder."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = threading.RLock()

    def find(self, folder: Path, name: str) -> Path | None:
        """Return the newer of the file in the folder and that in the user's data folder."""
        inside = any(folder.is_relative_to(root) for root in self._folders.roots.values())
        paths = (*([folder / name] if inside else []), user_path(folder, name))
        files = [path for path in paths if path.is_file() and not path.is_symlink()]
        return max(files, key=lambda path: path.stat().st_mtime_ns, default=None)

    def write(self, folder: Path, name: str, write: Callable[[Path], None]) -> Path:
        """Write into the folder, unless it is a run, an archive or closed to writing; else into the user's data folder."""
        allowed = self._folders.contains(folder) and kind_of_folder(folder) in _HOLD_NOTES
        if allowed and os.access(folder, os.W_OK | os.X_OK):
            with suppress(OSError, CorefError):  # a disk that is mounted for reading, or full
                write(folder / name)
                return folder / name
        path = user_path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        return path

    def _read(self, path: Path | None, empty: T) -> T:
        return self._folders.read_once(path, lambda file: read_stored(file, type(empty))) if path is not None else empty

    def note_file(self, run: Run) -> Path | None:
        return self.find(run.folder.parent, run.folder.name + NOTES)

    def note(self, run: Run) -> Note:
        """Read a run's note. One that cannot be read is empty here; saving over it is refused."""
        with suppress(CorefError, OSError):
            return self._read(self.note_file(run), Note())
        return Note()

    def save_note(self, run: Run, note: Note, version: str) -> None:
        with self._lock:
            stored = self._read(self.note_file(run), Note())
            if stored.version != version and stored != note:
                raise NoteConflict(stored)
            self.write(run.folder.parent, run.folder.name + NOTES, lambda path: write_json(path, note.to_json()))

    def tags_file(self, mark: str) -> Path | None:
        return self.find(self._home(), f"items-{mark}{NOTES}")

    def item_tags(self, mark: str) -> Mapping[str, list[str]]:
        with suppress(CorefError, OSError):
            return self._read(self.tags_file(mark), ItemTags()).tags
        return {}

    def tag_items(self, mark: str, items: Sequence[str], tag: str, *, on: bool) -> None:
        """Add or remove one tag of some items; other tags stay, so that two browsers do not overwrite each other."""
        with self._lock:
            tags = dict(self._read(self.tags_file(mark), ItemTags()).tags)
            for item in items:
                tags[item] = [other for other in tags.get(item, []) if other != tag] + [tag] * on
                if len(tags[item]) > MAX_TAGS or len(tags) > 100 * MAX_TAGS:
                    raise InputError(f"At most {MAX_TAGS:,} tags of an item, on {100 * MAX_TAGS:,} items; remove some.")
            tagged = ItemTags({item: names for item, names in tags.items() if names})
            self.write(self._home(), f"items-{mark}{NOTES}", lambda path: write_json(path, tagged.to_json()))

    def _home(self) -> Path:
        return next(iter(self._folders.roots.values()))


_HOLD_NOTES = ("", "experiment")
"""Folders of these kinds contain others, and may hold notes on them."""


def note_of(text: str, tags: str) -> Note:
    """Return the note of a form, whose tags are separated by commas."""
    names = tuple(dict.fromkeys(name for part in tags.split(",") if (name := " ".join(part.split())[:MAX_TAG])))
    if len(text) > MAX_NOTE or len(names) > MAX_TAGS:
        size = f"{len(names):,} tags and {len(text):,} characters"
        raise InputError(f"A note has at most {MAX_TAGS:,} tags and {MAX_NOTE:,} characters, not {size}.")
    return Note(text.replace("\r\n", "\n").strip(), names)


def user_path(folder: Path, name: str = "") -> Path:
    """Where a file of a read-only folder is kept instead: in the user's data folder (XDG), under a hash of the folder's path."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share").absolute()
    return data / "coref-automl" / "studio" / fingerprint(str(folder.resolve()))[:12] / name
