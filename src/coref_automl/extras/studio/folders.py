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

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError, InputError
from coref_automl.base.folders import EXPERIMENT, MANIFEST, check_name, is_done, kind_of_folder, natural_order, version_of
from coref_automl.base.records import grouped
from coref_automl.base.store import is_text
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.corpus.dataset import KIND as DATASET
from coref_automl.evaluation.columns import ITEMS, RANKS
from coref_automl.evaluation.evalset import DOCUMENTS, SetManifest, bundled_eval_set
from coref_automl.evaluation.results import RESULT, StoredEvaluation, open_evaluation, repeats_study, run_of
from coref_automl.models.tokenizer_files import has_tokenizer

T = TypeVar("T")
RUNS = {"run": "training", "study": "tuning", EXPERIMENT: "experiment", "relation grid": "grid"}
"""Kinds of folders that hold a run, and the word for each in addresses and styles; outside checks are called by their names."""
ARCHIVED = "archived"
_ARCHIVE = re.compile(r"items-.+\.npz")
"""The ranks of an archive's evaluations."""
_CHAINS = re.compile(rb'"clusters"\s*:\s*\[')
_MAX_TEXT_BYTES = 20_000_000
"""A larger file of chains cannot be corrected here."""
_MAX_FOLDERS = 50_000
"""Folders to scan; more than any study has."""
_SCAN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of any kind: its key, its folder, its kind, and the model that it started from, with that model's fingerprint."""

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
    """What lies under the folders at one moment, by key: evaluation `sets` by fingerprint, `texts` with chains, archives and
    experiments (`studies`), errors as sentences (`broken`). `owners` are the keys of the runs whose checkpoints were
    evaluated, by the evaluation's folder; a run of which only evaluations are left is of the kind ARCHIVED."""

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
        """Return the key of the archive or experiment that something lies in; empty outside of them."""
        return max((study for study in self.studies if key.startswith(f"{study}/")), key=len, default="")


class Folders:
    """The given folders. `contents()` is their last scan; once started, a thread scans them every two seconds."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.roots = _named_roots(paths)
        self._read: dict[tuple[Path, str], tuple[Any, Any]] = {}
        self._contents = FolderContents()
        self._stopped = threading.Event()

    def contents(self) -> FolderContents:
        return self._contents

    def start(self) -> None:
        self.scan()
        threading.Thread(target=self._watch, name="studio-folders", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def contains(self, path: Path) -> bool:
        """Does a path lie in one of the folders after links are resolved?"""
        try:
            real = Path(os.path.realpath(path))  # Path.resolve raises where links lead in a circle
        except (OSError, ValueError):
            return False
        return any(real.is_relative_to(root) for root in self.roots.values())

    def path_of(self, key: str) -> Path:
        root, _, inside = key.partition("/")
        return self.roots[root] / inside

    def run(self, key: str) -> Run | None:
        return self._contents.runs.get(key)

    def scan(self) -> FolderContents:
        """Scan the folders. Files that have not changed are not read again."""
        contents, runs = FolderContents(), dict[str, Run]()
        for key, folder, files in self._folders(contents.broken):
            try:
                self._add(contents, runs, key, folder, files)
            except Exception as error:  # of any kind: one folder must not hide the others
                contents.broken.append(_unreadable(folder, error))
        by_name = grouped(runs.values(), lambda run: run.folder.name if run.kind == "training" else "")
        owners = {
            stored.folder: owner
            for key, stored in contents.evaluations.items()
            if (owner := _owner(key, stored, runs, by_name)) is not None
        }
        contents.runs.update({run.key: run for run in owners.values() if run.kind == ARCHIVED} | runs)
        contents.owners.update({folder: run.key for folder, run in owners.items()})
        if contents != self._contents:  # pages cache by the identity of the contents
            self._contents = contents
        return self._contents

    def _add(self, contents: FolderContents, runs: dict[str, Run], key: str, folder: Path, files: set[str]) -> None:
        """Add what a folder is: a run, an evaluation set, an evaluation, a model; and its files with chains."""
        marked = kind_of_folder(folder)
        results = {check.files.results: name for name, check in CHECKS.items()}  # archives keep these without a manifest
        check_name = next((name for name, check in CHECKS.items() if check.folder_kind == marked), "")
        kind = RUNS.get(marked) or check_name or next((name for file, name in results.items() if file in files), "")
        if marked == EXPERIMENT or any(map(_ARCHIVE.fullmatch, files)):
            contents.studies.add(key)
        if marked == DATASET and not is_done(folder):
            contents.preparing[key] = folder
        if kind:
            record = next((name for name in (MANIFEST, *results) if name in files), "")
            runs[key] = Run(key, folder, kind, *(self.read_once(folder / record, _start, "start") if record else ()))
        elif files >= {MANIFEST, DOCUMENTS} and marked != DATASET:
            items = self.read_once(folder / MANIFEST, lambda path: read_stored(path, SetManifest)["fingerprint"])
            contents.sets[items] = folder
        elif RESULT in files and (ITEMS in files or RANKS in files):
            stored = self.read_once(folder / RESULT, lambda path: self._confined(open_evaluation(path.parent)))
            if stored is not None:
                contents.evaluations[key] = stored
        elif "config.json" in files and has_tokenizer(folder):
            contents.models[key] = folder
        for name in sorted(name for name in files if name.endswith(".jsonl") and name != ITEMS):
            if self.read_once(folder / name, _has_chains, "kind"):
                contents.texts[f"{key}/{name}"] = folder / name

    def _watch(self) -> None:
        took = 0.0
        while not self._stopped.wait(max(_SCAN_SECONDS, 20 * took)):
            began = time.monotonic()
            try:
                self.scan()
            except Exception as error:  # the next scan may succeed
                self._contents = replace(self._contents, broken=[in_words(error)])
            took = time.monotonic() - began

    def _folders(self, broken: list[str]) -> Iterator[tuple[str, Path, set[str]]]:
        """Yield every folder with its key and its files' names, in natural order. No link is followed out of the folders."""
        left = _MAX_FOLDERS
        waiting = [(name, root) for name, root in reversed(self.roots.items())]
        while waiting:
            key, folder = waiting.pop()
            if (left := left - 1) < 0:
                broken.append(f"More than {_MAX_FOLDERS:,} folders: those after {folder} are not shown; name fewer.")
                return
            try:
                files, inside = self._entries(folder, broken)
            except Exception as error:
                broken.append(_unreadable(folder, error))
                continue
            if files is not None:
                yield key, folder, files
            waiting += [(f"{key}/{name}", folder / name) for name in reversed(inside)]

    def _entries(self, folder: Path, broken: list[str]) -> tuple[set[str] | None, list[str]]:
        """Return the names of a folder's files, None if one of them is a link to outside, and of its folders in natural order."""
        with os.scandir(folder) as scanned:
            entries = [entry for entry in scanned if not entry.name.startswith(".") and _can_be_named(entry, broken)]
        is_outside = False
        links = {entry.name for entry in entries if entry.is_symlink()}
        if outside := [name for name in links if not self.contains(folder / name)]:
            broken.append(f"{folder / outside[0]} is a link to outside the given folders, and is not followed.")
            is_outside = any(not (folder / name).is_dir() for name in outside)
        inside = [entry.name for entry in entries if entry.name not in links and entry.is_dir(follow_symlinks=False)]
        if kind_of_folder(folder) == EXPERIMENT:
            inside = [name for name in inside if not repeats_study(folder / name)]
        files = {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
        files |= {name for name in links if (folder / name).is_file()}
        return None if is_outside else files, sorted(inside, key=natural_order)

    def read_once(self, path: Path, read: Callable[[Path], T], what: str = "") -> T:
        """Read a file, once while it stays the same; `what` tells two readings of one file apart."""
        version = version_of(path)
        cached = self._read.get((path, what))
        if cached is None or cached[0] != version:
            cached = self._read[path, what] = (version, read(path))
        value: T = cached[1]
        return value

    def _confined(self, stored: StoredEvaluation | None) -> StoredEvaluation | None:
        """Remove the path of a set that lies outside the folders; the bundled one may be read."""
        path = stored.evaluation.evalset_path if stored is not None else ""
        if stored is None or not path or self.contains(Path(path)) or Path(path).resolve() == bundled_eval_set().resolve():
            return stored
        return replace(stored, evaluation=replace(stored.evaluation, evalset_path=""))


def _named_roots(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by unique names; one that lies inside another is left out."""
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


def _owner(key: str, stored: StoredEvaluation, runs: Mapping[str, Run], by_name: Mapping[str, list[Run]]) -> Run | None:
    """Return the run of an evaluated checkpoint: the one that its folder lies in, else the nearest of that name, else an archived
    one; None for a model outside a run."""
    folder, provenance = run_of(stored.folder), stored.evaluation.provenance
    run_key = key.rsplit("/", 3)[0]
    if folder is not None and run_key in runs:
        return runs[run_key]
    if provenance is not None and (namesakes := by_name.get(Path(provenance.run).name)):
        return max(namesakes, key=lambda run: len(os.path.commonpath([run.key, key])))
    return Run(run_key, folder, ARCHIVED) if folder is not None else None


def _has_chains(path: Path) -> bool:
    """Do the first rows of a file look like texts with chains?"""
    if path.stat().st_size > _MAX_TEXT_BYTES:
        return False
    with path.open("rb") as handle:
        return bool(_CHAINS.search(handle.read(1 << 16)))


def _start(path: Path) -> tuple[str, str]:
    """Read what a run started from, and its fingerprint, from its manifest or, in an archive, from its results."""
    with suppress(CorefError):
        stored = read_stored(path, _Start)
        return stored.get("model", ""), stored.get("fingerprints", {}).get("weights", "")
    return "", ""


def _unreadable(folder: Path, error: Exception) -> str:
    known = isinstance(error, CorefError | OSError)
    return in_words(error) if known else f"{folder} cannot be read ({type(error).__name__}: {error})."


def in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
