"""What people write in the studio: notes, tags, corrected chains. In: a folder and a name. Out: files beside it, never inside.

What lies in a folder that is closed to writing, or directly in a given one, is kept in the user's data folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from coref_automl.decoder import read_stored
from coref_automl.errors import CorefError, InputError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import kind_of_folder
from coref_automl.records import Record
from coref_automl.store import write_json
from coref_automl.studio.folders import Folders, Run

T = TypeVar("T", bound=Record)
NOTES = ".notes.json"
LONGEST, MOST, TAG = 20_000, 1_000, 60
"""Characters of a note; tags of one thing; characters of a tag."""


@dataclass(frozen=True, slots=True)
class Note(Record):
    """A note on a run and its tags. `version` is what a form was filled from."""

    text: str = ""
    tags: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return fingerprint(self.text, list(self.tags))[:16] if self.text or self.tags else ""


@dataclass(frozen=True, slots=True)
class ItemTags(Record):
    tags: dict[str, list[str]] = field(default_factory=dict)


class Changed(Exception):
    """Somebody else has saved since this form was filled; `held` is what they saved."""

    def __init__(self, held: Note) -> None:
        super().__init__("saved by somebody else")
        self.held = held


class Kept:
    """Reads and writes beside the folders; what is written says where."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = threading.RLock()

    def find(self, folder: Path, name: str) -> Path | None:
        """The newer of the file beside and the one in the user's folder."""
        inside = any(folder.is_relative_to(root) for root in self._folders.roots.values())
        places = (*([folder / name] if inside else []), own_place(folder, name))
        found = [path for path in places if path.is_file() and not path.is_symlink()]
        return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)

    def write(self, folder: Path, name: str, write: Callable[[Path], None]) -> Path:
        """Write beside, else in the user's folder."""
        open_here = self._folders.holds(folder) and kind_of_folder(folder) in _OPEN  # not inside a run, an archive, or outside
        if open_here and os.access(folder, os.W_OK | os.X_OK):
            with suppress(OSError, CorefError):  # a disk that is mounted for reading, or full
                write(folder / name)
                return folder / name
        own = own_place(folder, name)
        own.parent.mkdir(parents=True, exist_ok=True)
        write(own)
        return own

    def _read(self, path: Path | None, empty: T) -> T:
        return self._folders.once(path, lambda at: read_stored(at, type(empty))) if path is not None else empty

    def note_file(self, run: Run) -> Path | None:
        return self.find(run.folder.parent, run.folder.name + NOTES)

    def note(self, run: Run) -> Note:
        """Empty where it cannot be read, which saving then tells."""
        with suppress(CorefError, OSError):
            return self._read(self.note_file(run), Note())
        return Note()

    def notes(self, runs: Iterable[Run]) -> dict[str, Note]:
        """Of many runs those that have one: each folder is listed once."""
        listed: dict[Path, set[str]] = {}
        out = {}
        for run in runs:
            folder = run.folder.parent
            if folder not in listed:
                places = [place for place in (folder, own_place(folder)) if place.is_dir()]
                listed[folder] = {path.name for place in places for path in place.glob(f"*{NOTES}")}
            if run.folder.name + NOTES in listed[folder]:
                out[run.key] = self.note(run)
        return out

    def save_note(self, run: Run, note: Note, version: str) -> None:
        with self._lock:
            held = self._read(self.note_file(run), Note())
            if held.version != version and held != note:
                raise Changed(held)
            self.write(run.folder.parent, run.folder.name + NOTES, lambda path: write_json(path, note.to_json()))

    def tags_file(self, mark: str) -> Path | None:
        return self.find(self._home(), f"items-{mark}{NOTES}")

    def item_tags(self, mark: str) -> Mapping[str, list[str]]:
        with suppress(CorefError, OSError):
            return self._read(self.tags_file(mark), ItemTags()).tags
        return {}

    def tag_items(self, mark: str, items: Sequence[str], tag: str, *, on: bool) -> None:
        """Set or take one tag of some items: two browsers lose nothing of each other's."""
        with self._lock:
            held = dict(self._read(self.tags_file(mark), ItemTags()).tags)
            for item in items:
                held[item] = [one for one in held.get(item, []) if one != tag] + [tag] * on
                if len(held[item]) > MOST or len(held) > 100 * MOST:
                    raise InputError(f"At most {MOST:,} tags of an item, on {100 * MOST:,} items; remove some.")
            kept = ItemTags({name: tags for name, tags in held.items() if tags})
            self.write(self._home(), f"items-{mark}{NOTES}", lambda path: write_json(path, kept.to_json()))

    def _home(self) -> Path:
        return next(iter(self._folders.roots.values()))


_OPEN = ("", "experiment")
"""Folders of these kinds hold others, and may hold notes on them."""


def note_of(text: str, tags: str) -> Note:
    """A note as a form gives it: its tags are separated by commas."""
    found = tuple(dict.fromkeys(one for part in tags.split(",") if (one := " ".join(part.split())[:TAG])))
    if len(text) > LONGEST or len(found) > MOST:
        told = f"{len(found):,} tags and {len(text):,} characters"
        raise InputError(f"A note has at most {MOST:,} tags and {LONGEST:,} characters, not {told}.")
    return Note(text.replace("\r\n", "\n").strip(), found)


def own_place(folder: Path, name: str = "") -> Path:
    """What belongs beside a folder's files, where the user's programs keep what they write by the convention of the desktop."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share").absolute()
    return data / "coref-automl" / "studio" / fingerprint(str(folder.resolve()))[:12] / name
