"""Finished evaluations. In: paths. Out: the evaluations that lie under them, opened; and what they name, where it lies now.

Their layout is in `targets`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from coref_automl.decoder import read_stored
from coref_automl.errors import InputError
from coref_automl.evaluation.columns import RANKS, has_items, holds_text, read_scores
from coref_automl.evaluation.targets import BASES, CHECKPOINT, EVALUATIONS, REMEDY, has_bytes, is_model_alone, place_of, target_of
from coref_automl.folders import EXPERIMENT, PARTIAL, check_name, is_done, kind_of_folder, natural_order
from coref_automl.guard import TooLarge
from coref_automl.models.model_files import full_name
from coref_automl.records import SCHEMA, Evaluation, ItemScore, Provenance

RESULT = "result.json"
SWAP = ".archive.swap"
"""A whole archive that is being moved into place."""

_FOLDERS = 50_000
"""How many are searched: a study of a thousand runs has fewer, a whole disk more."""


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """A finished evaluation and its folder; `scores()` reads the items. An archived one has ranks but no text."""

    evaluation: Evaluation
    folder: Path

    @property
    def archived(self) -> bool:
        return not holds_text(self.folder)

    def scores(self) -> list[ItemScore]:
        return read_scores(self.folder)


def open_evaluation(folder: Path) -> StoredEvaluation | None:
    """The evaluation in a folder; None if it holds no finished one."""
    check_name(folder)
    finished = is_done(folder) or (folder / RANKS).is_file()
    if not finished or not (folder / RESULT).is_file() or not has_items(folder):
        return None
    evaluation = read_stored(folder / RESULT, Evaluation, remedy=REMEDY)
    if evaluation.schema != SCHEMA:
        raise InputError(f"{folder} was written by another version; remove it and run coref-automl evaluate again.")
    run, fingerprints = run_of(folder), evaluation.fingerprints
    if run is not None and (moved := run / folder.name).is_dir():
        evaluation = replace(evaluation, checkpoint=f"{moved.parent.resolve().name}/{moved.name}", path=str(moved))
    else:
        evaluation = replace(evaluation, path=_model_now(evaluation.path, folder, fingerprints.get("weights", "")))
    items = where_now(evaluation.evalset_path, folder, "documents.jsonl", fingerprints.get("items", ""))
    return StoredEvaluation(replace(evaluation, evalset_path=items), folder)


def _model_now(stored: str, near: Path, weights: str) -> str:
    """A model's folder, or that of a run whose weights were removed."""
    found = where_now(stored, near, "config.json", weights)
    if found != stored or not CHECKPOINT.fullmatch(Path(stored).name):
        return found
    return str(Path(where_now(str(Path(stored).parent), near, "recipe.yaml")) / Path(stored).name)


def where_now(stored: str, near: Path, holds: str = "", known: str = "") -> str:
    """A stored path where it lies now: beside what names it, also after the whole folder was moved or renamed; else as stored.

    `holds` is a file that a folder must have to be the one meant. Two names of the path that agree are enough; its last alone,
    which another folder may have too, only where the fingerprint of what lies there is the one that is `known`.
    """
    parts = PurePath(stored).parts
    for folder in (*near.parents, *near.resolve().parents):
        for start in range(len(parts)):
            found = folder.joinpath(*parts[start:], holds)
            place = found.parent if holds else found
            if found.exists() and (start < len(parts) - 1 or has_bytes(place, known)):
                return str(place)
    return stored


def run_of(folder: Path) -> Path | None:
    """The run whose checkpoint was evaluated in this folder; None for a model outside runs."""
    in_run = CHECKPOINT.fullmatch(folder.name) and len(folder.parents) > 2 and folder.parents[1].name == EVALUATIONS
    return folder.parents[2] if in_run else None


def find_evaluations(paths: Sequence[str | Path], *, skip_damaged: bool = False) -> list[StoredEvaluation]:
    """Every finished evaluation under the paths, in natural order. A checkpoint's or a model's path leads to its evaluations.

    A damaged one is an error, unless `skip_damaged`.
    """
    found, damaged = look_through(paths)
    if damaged and not skip_damaged:
        raise damaged[0]
    return found


Wanted = Callable[[Evaluation], bool]
Opened = dict[Path, StoredEvaluation | InputError | None]
"""Folders that were opened, and what they hold: a reader that passes it along opens each once."""


def look_through(paths: Sequence[str | Path], opened: Opened | None = None) -> tuple[list[StoredEvaluation], list[InputError]]:
    """Every finished evaluation under the paths, in natural order, and the error of each that cannot be read or looked for."""
    opened = {} if opened is None else opened
    found: dict[Path, StoredEvaluation] = {}
    errors: dict[Path | str, InputError] = {}
    for path in paths:
        unread: list[InputError] = []
        for folder in _evaluation_folders(str(path), unread):
            place = folder.resolve()
            if place not in opened:
                try:
                    opened[place] = open_evaluation(folder)
                except InputError as error:
                    opened[place] = error
            if isinstance(stored := opened[place], InputError):
                errors.setdefault(place, stored)
            elif stored is not None:
                found.setdefault(place, stored)
        errors |= {str(error): error for error in unread}
    return list(found.values()), list(errors.values())


def is_of_one_model(path: str) -> bool:
    """Whether a path names one model or one evaluation, rather than a folder that may hold several."""
    folder = Path(path)
    if not folder.is_dir() or (folder / RESULT).is_file() or CHECKPOINT.fullmatch(folder.resolve().name):
        return True
    return is_model_alone(folder)


def base_evaluation(
    made: Provenance, wanted: Wanted, *, run: Path | None = None, out: Path | None = None, opened: Opened | None = None
) -> StoredEvaluation | None:
    """An evaluation of the model that a checkpoint began from: in its run, in `out`, or in ./evaluations.

    Its bytes decide, never its name; where an older record has none, the run's own, or one of a model in the same place.
    """
    roots = [run / BASES] if run else []
    for plain in dict.fromkeys(target_of(made.base, beside) for beside in (out, None)):
        roots += [plain.place, plain.marked().place] if plain.place.name else [plain.place]
    for root in roots:
        for stored in look_through([root] if root.is_dir() else [], opened)[0]:
            weights, in_run = stored.evaluation.fingerprints.get("weights"), BASES in root.parts
            same_place = in_run or full_name(stored.evaluation.path) == full_name(made.base)
            if (weights == made.base_bytes if made.base_bytes else same_place) and wanted(stored.evaluation):
                return stored
    return None


def neighbours(model: str, out: Path | None = None) -> list[StoredEvaluation]:
    """Evaluations near a model's own: those of its run, of sibling runs, of models outside runs, and of `out`."""
    target = target_of(model)
    roots = [Path(EVALUATIONS), *([out] if out else [])]
    if target.in_run:
        runs = target.place.parent if target.place.name else target.place / ".."
        roots += sorted(runs.glob(f"*/{EVALUATIONS}"), key=natural_order)
    return find_evaluations([root for root in roots if root.is_dir()], skip_damaged=True)


def _evaluation_folders(path: str, unread: list[InputError]) -> Iterator[Path]:
    folder = Path(path)
    if folder.is_dir() and CHECKPOINT.fullmatch(folder.resolve().name) and not (folder / RESULT).is_file():
        beside = folder.parent / EVALUATIONS
        if beside.is_dir() and not os.access(beside, os.R_OK | os.X_OK):
            unread.append(InputError(f"{beside} cannot be read (Permission denied); make it readable."))
        yield from sorted(beside.glob(f"*/{folder.resolve().name}"), key=natural_order)
        return
    is_results = folder.is_dir() and not is_model_alone(folder)
    root = folder if is_results else place_of(path)
    if root is not None:
        for entry in files_under(root, (RESULT,), unread):
            if BASES not in entry.relative_to(root).parts:  # found through the checkpoints that began from it
                yield entry.parent


def repeats_study(folder: Path) -> bool:
    """Whether a folder is the archive inside a study, which repeats the study's own results."""
    return kind_of_folder(folder) == "archive" and kind_of_folder(folder.parent) == EXPERIMENT


def files_under(folder: Path, wanted: Collection[str], unread: list[InputError]) -> list[Path]:
    """The files of some names under a folder, in natural order; those in the archive of a study under it are left out.

    `unread` gets an error for each folder that cannot be listed, and for each link to a folder outside, which is not followed.
    """

    def closed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # no folder, or one that was just removed
            unread.append(InputError(f"{error.filename} cannot be read ({error.strerror}); make it readable, or move it away."))

    found: list[Path] = []
    for number, (at, inside, names) in enumerate(os.walk(folder, onerror=closed)):
        if number == _FOLDERS:
            raise TooLarge(f"{folder} holds over {_FOLDERS:,} folders; pass the folder of the runs.")
        if SWAP in inside:
            unread.append(InputError(f"{at} was not archived to the end; run the same command again."))
            inside[:], names = [], []
        study = kind_of_folder(Path(at)) == EXPERIMENT
        inside[:] = [name for name in inside if not PARTIAL.fullmatch(name) and not (study and repeats_study(Path(at, name)))]
        found += [Path(at, name) for name in wanted if name in names]
        for link in (path for path in (Path(at, name) for name in inside) if path.is_symlink()):
            if not Path(os.path.realpath(link)).is_relative_to(folder.resolve()):
                unread.append(InputError(f"{link} is a link to outside {folder} and is not followed; pass it by itself."))
    return sorted(found, key=natural_order)
