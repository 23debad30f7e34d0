"""The folders that the studio shows. In: the given paths. Out: what lies under them now; nothing outside them is opened.

Addresses of pages name things by keys, `<given folder>/<path under it>`, which are looked up here and never opened as paths.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.corpus.dataset import KIND as DATASET
from coref_automl.decoder import read_stored
from coref_automl.errors import CorefError, InputError
from coref_automl.evaluation.columns import ITEMS, RANKS
from coref_automl.evaluation.evalset import DOCUMENTS, SetManifest, bundled_eval_set
from coref_automl.evaluation.results import RESULT, StoredEvaluation, open_evaluation, repeats_study, run_of
from coref_automl.folders import EXPERIMENT, MANIFEST, check_name, is_done, kind_of_folder, natural_order
from coref_automl.models.tokenizer_files import has_tokenizer
from coref_automl.store import is_text

T = TypeVar("T")
RUNS = {"run": "training", "study": "tuning", EXPERIMENT: "experiment", "relation grid": "grid"}
"""Kinds of folders that hold a run, and the word for each in addresses and styles; those of outside checks have their names."""
ARCHIVED = "archived"
_ARCHIVE = re.compile(r"items-.+\.npz")
"""The ranks of an archive's evaluations."""
_CHAINS = re.compile(rb'"clusters"\s*:\s*\[')
_LARGEST = 20_000_000
"""Bytes of a file with chains that is opened to be corrected."""
_MOST = 50_000
"""Folders to look into; more than any study has."""
_EVERY = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of any kind: its key, its folder, what it is, and the model that it started from, with the fingerprint of that."""

    key: str
    folder: Path
    kind: str
    model: str = ""
    weights: str = ""


class _Start(TypedDict, total=False):
    model: str
    fingerprints: dict[str, str]


@dataclass(frozen=True, slots=True)
class FolderContents:
    """What lies under the folders at one moment, by key. `sets` are evaluation sets by fingerprint, `texts` files with annotated
    chains, `preparing` unfinished datasets, `studies` the keys of archives and experiments, `broken` are sentences. `owners` are
    the keys of the runs whose checkpoints were evaluated, by its folder; a run of which the evaluations alone are there is of the
    kind ARCHIVED."""

    runs: dict[str, Run] = field(default_factory=dict)
    evaluations: dict[str, StoredEvaluation] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    sets: dict[str, Path] = field(default_factory=dict)
    texts: dict[str, Path] = field(default_factory=dict)
    preparing: dict[str, Path] = field(default_factory=dict)
    studies: set[str] = field(default_factory=set)
    owners: dict[Path, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def study(self, key: str) -> str:
        """The key of the archive or experiment that something lies in; empty outside of them."""
        return max((one for one in self.studies if key.startswith(f"{one}/")), key=len, default="")


class Folders:
    """The given folders. `now()` is the last look at them; a thread looks again every two seconds, once started."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.roots = _named_roots(paths)
        self._kept: dict[tuple[Path, str], tuple[Any, Any]] = {}
        self._now = FolderContents()
        self._over = threading.Event()

    def now(self) -> FolderContents:
        return self._now

    def start(self) -> None:
        self.look()
        threading.Thread(target=self._watch, name="studio-folders", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def holds(self, path: Path) -> bool:
        """Does a path, links followed, lie in one of the folders?"""
        try:
            real = Path(os.path.realpath(path))  # Path.resolve raises where links lead in a circle
        except (OSError, ValueError):
            return False
        return any(real.is_relative_to(root) for root in self.roots.values())

    def place(self, key: str) -> Path:
        root, _, inside = key.partition("/")
        return self.roots[root] / inside

    def run(self, key: str) -> Run | None:
        return self._now.runs.get(key)

    def look(self) -> FolderContents:
        """Look again. Files that have not changed are not read again."""
        found = FolderContents()
        runs, broken = dict[str, Run](), found.broken
        for key, folder, files in self._folders(broken):
            try:
                marked = kind_of_folder(folder)
                held = {check.files.results: name for name, check in CHECKS.items()}  # archives keep these without a manifest
                own = next((name for name, check in CHECKS.items() if check.folder_kind == marked), "")
                kind = RUNS.get(marked) or own or next((name for file, name in held.items() if file in files), "")
                if marked == EXPERIMENT or any(map(_ARCHIVE.fullmatch, files)):
                    found.studies.add(key)
                if marked == DATASET and not is_done(folder):
                    found.preparing[key] = folder
                if kind:
                    told = next((name for name in (MANIFEST, *held) if name in files), "")
                    runs[key] = Run(key, folder, kind, *(self.once(folder / told, _start, "start") if told else ()))
                elif files >= {MANIFEST, DOCUMENTS} and marked != DATASET:
                    found.sets[self.once(folder / MANIFEST, lambda at: read_stored(at, SetManifest)["fingerprint"])] = folder
                elif RESULT in files and (ITEMS in files or RANKS in files):
                    stored = self.once(folder / RESULT, lambda at: self._confined(open_evaluation(at.parent)))
                    if stored is not None:
                        found.evaluations[key] = stored
                elif "config.json" in files and has_tokenizer(folder):
                    found.models[key] = folder
                for name in sorted(name for name in files if name.endswith(".jsonl") and name != ITEMS):
                    if self.once(folder / name, _holds_chains, "kind"):
                        found.texts[f"{key}/{name}"] = folder / name
            except Exception as error:  # whatever it is, it hides no other folder
                broken.append(_unread(folder, error))
        named: dict[str, list[Run]] = {}
        for run in runs.values():
            named.setdefault(run.folder.name if run.kind == "training" else "", []).append(run)
        owners = {
            one.folder: owner for key, one in found.evaluations.items() if (owner := _owner(key, one, runs, named)) is not None
        }
        found.runs.update({run.key: run for run in owners.values() if run.kind == ARCHIVED} | runs)
        found.owners.update({folder: run.key for folder, run in owners.items()})
        if found != self._now:  # pages keep what they made of it
            self._now = found
        return self._now

    def _watch(self) -> None:
        took = 0.0
        while not self._over.wait(max(_EVERY, 20 * took)):
            began = time.monotonic()
            try:
                self.look()
            except Exception as error:  # the next look may succeed
                self._now = replace(self._now, broken=[in_words(error)])
            took = time.monotonic() - began

    def _folders(self, broken: list[str]) -> Iterator[tuple[str, Path, set[str]]]:
        """Every folder with its key and the names of its files, in natural order. No link is followed out of the folders."""
        left = _MOST
        waiting = [(name, root) for name, root in reversed(self.roots.items())]
        while waiting:
            key, folder = waiting.pop()
            if (left := left - 1) < 0:
                broken.append(f"More than {_MOST:,} folders: those after {folder} are not shown; name fewer.")
                return
            try:
                files, inside = self._contents(folder, broken)
            except Exception as error:
                broken.append(_unread(folder, error))
                continue
            if files is not None:
                yield key, folder, files
            waiting += [(f"{key}/{name}", folder / name) for name in reversed(inside)]

    def _contents(self, folder: Path, broken: list[str]) -> tuple[set[str] | None, list[str]]:
        """The names of a folder's files, None if one of them lies elsewhere, and of the folders in it in natural order."""
        with os.scandir(folder) as entries:
            held = [entry for entry in entries if not entry.name.startswith(".") and _can_be_named(entry, broken)]
        away = False
        links = {entry.name for entry in held if entry.is_symlink()}
        if outside := [name for name in links if not self.holds(folder / name)]:
            broken.append(f"{folder / outside[0]} is a link to outside the given folders, and is not followed.")
            away = any(not (folder / name).is_dir() for name in outside)
        inside = [entry.name for entry in held if entry.name not in links and entry.is_dir(follow_symlinks=False)]
        if kind_of_folder(folder) == EXPERIMENT:
            inside = [name for name in inside if not repeats_study(folder / name)]
        files = {entry.name for entry in held if entry.is_file(follow_symlinks=False)}
        files |= {name for name in links if (folder / name).is_file()}
        return None if away else files, sorted(inside, key=natural_order)

    def once(self, path: Path, read: Callable[[Path], T], what: str = "") -> T:
        """What was read of a file, while its size and time stay the same; `what` tells two readings of one file apart."""
        stat = path.stat()
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        held = self._kept.get((path, what))
        if held is None or held[0] != mark:
            held = self._kept[path, what] = (mark, read(path))
        found: T = held[1]
        return found

    def _confined(self, stored: StoredEvaluation | None) -> StoredEvaluation | None:
        """Without the place of a set that lies outside the folders; the bundled one may be read."""
        place = stored.evaluation.evalset_path if stored is not None else ""
        if stored is None or not place or self.holds(Path(place)) or Path(place).resolve() == bundled_eval_set().resolve():
            return stored
        return replace(stored, evaluation=replace(stored.evaluation, evalset_path=""))


def _named_roots(paths: Sequence[Path]) -> dict[str, Path]:
    """The folders by unique names; a folder inside another one is shown once."""
    roots: dict[str, Path] = {}
    for path in dict.fromkeys(path.resolve() for path in paths):
        if any(path != other.resolve() and path.is_relative_to(other.resolve()) for other in paths):
            continue
        name, number = path.name or "root", 2
        while name in roots:
            name, number = f"{path.name}~{number}", number + 1
        roots[name] = path
    return roots


def _can_be_named(entry: os.DirEntry[str], broken: list[str]) -> bool:
    try:
        if not is_text(entry.name):
            check_name(Path(entry.path))
    except InputError as error:
        broken.append(str(error))
        return False
    return True


def _owner(key: str, stored: StoredEvaluation, runs: Mapping[str, Run], named: Mapping[str, list[Run]]) -> Run | None:
    """The run of an evaluated checkpoint: the one it lies in, else the nearest of that name; without one, what is left of it."""
    folder, made = run_of(stored.folder), stored.evaluation.provenance
    inside = key.rsplit("/", 3)[0]
    if folder is not None and inside in runs:
        return runs[inside]
    if made is not None and (near := named.get(Path(made.run).name)):
        return max(near, key=lambda run: len(os.path.commonpath([run.key, key])))
    return Run(inside, folder, ARCHIVED) if folder is not None else None


def _holds_chains(path: Path) -> bool:
    """Does a file look like texts with chains? Its first rows tell."""
    if path.stat().st_size > _LARGEST:
        return False
    with path.open("rb") as handle:
        return bool(_CHAINS.search(handle.read(1 << 16)))


def _start(path: Path) -> tuple[str, str]:
    """What a run started from, by its manifest; by its results, where that is all an archive keeps."""
    with suppress(CorefError):
        held = read_stored(path, _Start)
        return held.get("model", ""), held.get("fingerprints", {}).get("weights", "")
    return "", ""


def _unread(folder: Path, error: Exception) -> str:
    known = isinstance(error, CorefError | OSError)
    return in_words(error) if known else f"{folder} cannot be read ({type(error).__name__}: {error})."


def in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
