"""Finished evaluations. In: paths. Out: the evaluations under them, opened, with the paths they name as they are now.

Their layout is in `targets`. A checkpoint or a model means its own evaluations, any other folder all that lie under it, without
those of base models in runs, which are found through the checkpoints that began from them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import InputError
from coref_automl.base.folders import EXPERIMENT, PARTIAL, check_name, is_done, is_there, kind_of_folder, natural_order
from coref_automl.base.guard import TooLarge
from coref_automl.base.records import SCHEMA, Evaluation, ItemScore, Provenance
from coref_automl.evaluation.columns import RANKS, has_items, holds_text, read_scores
from coref_automl.evaluation.targets import BASES, CHECKPOINT, EVALUATIONS, REMEDY, has_bytes, is_model_alone, root_of, target_of
from coref_automl.models.model_files import full_name

RESULT = "result.json"
SWAP = ".archive.swap"
"""A complete archive that is being moved into place."""

_MOST_FOLDERS = 50_000
"""Limit of a search: a study of a thousand runs has fewer folders, a whole disk has more."""


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
    return StoredEvaluation(_with_current_paths(evaluation, folder), folder)


def _with_current_paths(evaluation: Evaluation, folder: Path) -> Evaluation:
    """The evaluation with the paths of its model and set as they are now; a checkpoint goes by the current name of its run."""
    run, fingerprints = run_of(folder), evaluation.fingerprints
    if run is not None and (checkpoint := run / folder.name).is_dir():
        evaluation = replace(evaluation, checkpoint=f"{run.resolve().name}/{folder.name}", path=str(checkpoint))
    else:
        evaluation = replace(evaluation, path=_relocated_model(evaluation.path, folder, fingerprints.get("weights", "")))
    evalset = relocated(evaluation.evalset_path, folder, "documents.jsonl", fingerprints.get("items", ""))
    return replace(evaluation, evalset_path=evalset)


def _relocated_model(stored: str, near: Path, weights: str) -> str:
    """Where a model is now. A removed checkpoint goes by its run: where /a/runs/x is /b/runs/x now, /b/runs/x/checkpoint-65."""
    model = relocated(stored, near, "config.json", weights)
    if model != stored or not CHECKPOINT.fullmatch(Path(stored).name):
        return model
    return str(Path(relocated(str(Path(stored).parent), near, "recipe.yaml")) / Path(stored).name)


def relocated(stored: str, near: Path, marker_file: str = "", known: str = "") -> str:
    """Where a stored path is now, after its folders were moved or renamed together with `near`, which names it.

        stored              now                    found, searching up from `near`
        /a/runs/x/model     /b/runs/x/model        x/model in /b/runs: two names agree
        evalsets/s          /b/evalsets/s          evalsets/s in /b: two names agree
        /a/runs/x/model     /b/runs/y/model        model in /b/runs/y: one name, so its bytes must be `known`

    Otherwise the path as it was stored. `marker_file` is a file that the folder must have to be the one that is meant.
    """
    names = PurePath(stored).parts
    for folder in (*near.parents, *near.resolve().parents):
        for start in range(len(names)):  # the first candidate of an absolute path is the path itself
            file = folder.joinpath(*names[start:], marker_file)
            candidate = file.parent if marker_file else file
            if is_there(file) and (start < len(names) - 1 or has_bytes(candidate, known)):
                return str(candidate)
    return stored


def run_of(folder: Path) -> Path | None:
    """The run of an evaluated checkpoint: runs/a for runs/a/evaluations/bundled-512/checkpoint-65; None for other models."""
    in_run = CHECKPOINT.fullmatch(folder.name) and len(folder.parents) > 2 and folder.parents[1].name == EVALUATIONS
    return folder.parents[2] if in_run else None


def find_evaluations(paths: Sequence[str | Path], *, skip_damaged: bool = False) -> list[StoredEvaluation]:
    """Every finished evaluation under the paths, in natural order; a checkpoint's or a model's path means its evaluations.

    A damaged one is an error, unless `skip_damaged`.
    """
    evaluations, errors = open_evaluations(paths)
    if errors and not skip_damaged:
        raise errors[0]
    return evaluations


Accepts = Callable[[Evaluation], bool]  # whether it has the items, the length, the dtype and the scorer that the caller needs
Opened = dict[Path, StoredEvaluation | InputError | None]
"""What resolved folders hold: an evaluation, one that cannot be read, or none. Callers that pass it open each folder once."""


def open_evaluations(paths: Sequence[str | Path], cache: Opened | None = None) -> tuple[list[StoredEvaluation], list[InputError]]:
    """Every finished evaluation under the paths, in natural order, and an error for each folder that cannot be read."""
    cache = {} if cache is None else cache
    opened: Opened = {}
    unlisted: list[InputError] = []
    for path in paths:
        for folder in _evaluation_folders(str(path), unlisted):
            key = folder.resolve()
            if key not in cache:
                try:
                    cache[key] = open_evaluation(folder)
                except InputError as error:
                    cache[key] = error
            opened[key] = cache[key]
    evaluations = [result for result in opened.values() if isinstance(result, StoredEvaluation)]
    damaged = [result for result in opened.values() if isinstance(result, InputError)]
    return evaluations, [*damaged, *{str(error): error for error in unlisted}.values()]


def is_of_one_model(path: str) -> bool:
    """Whether a path means one model or one evaluation, rather than a folder that may hold several."""
    folder = Path(path)
    if not folder.is_dir() or (folder / RESULT).is_file() or CHECKPOINT.fullmatch(folder.resolve().name):
        return True
    return is_model_alone(folder)


def base_evaluation(
    provenance: Provenance, accepts: Accepts, *, run: Path | None = None, out: Path | None = None, opened: Opened | None = None
) -> StoredEvaluation | None:
    """An accepted evaluation of a checkpoint's base model: in its run, in `out`, or in ./evaluations."""
    for root in _base_roots(provenance.base, run, out):
        for stored in open_evaluations([root] if root.is_dir() else [], opened)[0]:
            if _is_of_base(stored.evaluation, provenance, root) and accepts(stored.evaluation):
                return stored
    return None


def _base_roots(base: str, run: Path | None, out: Path | None) -> list[Path]:
    """Folders that may hold evaluations of a base: under its plain name, and under the one for when another model has that."""
    roots = [run / BASES] if run else []
    for target in dict.fromkeys(target_of(base, folder) for folder in (out, None)):
        roots += [target.root, target.marked().root] if target.root.name else [target.root]  # "." has no name to mark
    return roots


def _is_of_base(evaluation: Evaluation, provenance: Provenance, root: Path) -> bool:
    """Whether an evaluation is of the base by its bytes, never by its name. Older records have none: then by its run or path."""
    if provenance.base_bytes:
        return evaluation.fingerprints.get("weights") == provenance.base_bytes
    return BASES in root.parts or full_name(evaluation.path) == full_name(provenance.base)


def nearby_evaluations(model: str, out: Path | None = None) -> list[StoredEvaluation]:
    """Evaluations to compare a model's with: those in `out`, else of its run, of sibling runs and of models outside runs."""
    target, roots = target_of(model), [out or Path(EVALUATIONS)]
    if target.in_run and out is None:
        runs = target.root / ".." if target.root.name in ("", "..") else target.root.parent  # "." and ".." name no parent
        roots += sorted(runs.glob(f"*/{EVALUATIONS}"), key=natural_order)
    return find_evaluations([root for root in roots if root.is_dir()], skip_damaged=True)


def _evaluation_folders(path: str, errors: list[InputError]) -> Iterator[Path]:
    """Yield the folders that may hold an evaluation which the path means; `errors` as in `files_under`."""
    folder = Path(path)
    if folder.is_dir() and CHECKPOINT.fullmatch(folder.resolve().name) and not (folder / RESULT).is_file():
        evaluations = folder.parent / EVALUATIONS
        if evaluations.is_dir() and not os.access(evaluations, os.R_OK | os.X_OK):
            errors.append(InputError(f"{evaluations} cannot be read (Permission denied); make it readable."))
        yield from sorted(evaluations.glob(f"*/{folder.resolve().name}"), key=natural_order)
    elif root := folder if folder.is_dir() and not is_model_alone(folder) else root_of(path):
        for file in files_under(root, (RESULT,), errors):
            if BASES not in file.relative_to(root).parts:
                yield file.parent


def repeats_study(folder: Path) -> bool:
    """Whether a folder is the archive inside a study, which repeats the study's own results."""
    return kind_of_folder(folder) == "archive" and kind_of_folder(folder.parent) == EXPERIMENT


def files_under(folder: Path, names: Collection[str], errors: list[InputError]) -> list[Path]:
    """The files of these names under a folder, in natural order, without those in the archive of a study.

    `errors` gets one for each folder that cannot be listed, each archive that was not moved into place, and each link to a
    folder outside, which is not followed.
    """

    def on_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # no folder, or one that was just removed
            errors.append(InputError(f"{error.filename} cannot be read ({error.strerror}); make it readable, or move it away."))

    files: list[Path] = []
    for number, (root, subfolders, present) in enumerate(os.walk(folder, onerror=on_error)):
        if number == _MOST_FOLDERS:
            raise TooLarge(f"{folder} holds over {_MOST_FOLDERS:,} folders; pass the folder of the runs.")
        if SWAP in subfolders:
            errors.append(InputError(f"{root} was not archived to the end; run the same command again."))
            subfolders.clear()
            continue
        files += [Path(root, name) for name in names if name in present]
        is_study = kind_of_folder(Path(root)) == EXPERIMENT
        whole = [name for name in subfolders if not PARTIAL.fullmatch(name)]
        subfolders[:] = [name for name in whole if not (is_study and repeats_study(Path(root, name)))]  # os.walk enters these
        for link in filter(Path.is_symlink, (Path(root, name) for name in subfolders)):
            if not Path(os.path.realpath(link)).is_relative_to(folder.resolve()):
                errors.append(InputError(f"{link} is a link to outside {folder} and is not followed; pass it by itself."))
    return sorted(files, key=natural_order)
