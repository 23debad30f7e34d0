"""The numbers of a study, to publish or to keep. In: paths. Out: a folder without any text that `compare` and `report` read.

    ARCHIVE/items-<fingerprint>.npz                                   the items of a set as columns, once
    ARCHIVE/<run>/evaluations/<set>-<length>/<checkpoint>/{result.json, ranks.npz}
    ARCHIVE/evaluations/<model>/<set>-<length>/{result.json, ranks.npz}
    ARCHIVE/.../<set>-<length>-<mark>/...                             another set of that name, dtype or scorer version

No passage, answer, predicted word, title or path of a machine is kept. Every number, interval and verdict stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from coref_automl.base.config import as_paths
from coref_automl.base.errors import InputError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import contents, natural_order, remove
from coref_automl.base.locks import claimed
from coref_automl.base.records import Evaluation, Record
from coref_automl.base.say import say
from coref_automl.base.store import os_errors_as_ours, write_json
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.reader import find_runs, nothing_under, open_results
from coref_automl.comparison.runs import TaskRun, without_folders
from coref_automl.comparison.superseded import items_of
from coref_automl.evaluation.columns import write_ranks
from coref_automl.evaluation.results import RESULT, SWAP, StoredEvaluation, find_evaluations
from coref_automl.evaluation.targets import CHECKPOINT, EVALUATIONS, folder_name, model_slug

KIND = "archive"
_NAMED = 5
"""How many runs an error names."""


@dataclass(frozen=True, slots=True)
class Archive(Record):
    """What an archive holds, and its size."""

    folder: str
    evaluations: int
    runs: dict[str, int]
    megabytes: float
    not_evaluated: tuple[str, ...] = ()

    def __str__(self) -> str:
        contents = [say(f"평가 {self.evaluations:,}개", f"{self.evaluations:,} evaluations")]
        for name, check in CHECKS.items():
            if count := self.runs.get(name):
                contents.append(say(f"{check.title[0]} 실행 {count:,}개", f"{count:,} runs of {check.title[1]}"))
        size = say(f"{self.megabytes:.2f} MB, 글 없이 수치만 보관", f"{self.megabytes:.2f} MB, without any text")
        line = f"{self.folder}: {', '.join(contents)}, {size}"
        return f"{line}\n{nothing_under(self.not_evaluated)}" if self.not_evaluated else line


def archive(*paths: Any, out: str | Path) -> Archive:
    """Archive the finished evaluations and the runs of outside checks under the paths, without their text.

    Replaces an archive of the same runs. Evaluated base models are archived with their checkpoints. A folder with other runs is
    refused, so that nothing is lost.
    """
    names, folder = as_paths(paths, "paths"), Path(out)
    results = open_results(names)
    if results.damaged:
        raise results.damaged[0]
    evaluations = results.counted()
    if any(stored.folder.resolve().is_relative_to(folder.resolve()) for stored in evaluations):
        raise InputError(f"{folder} holds evaluations that would be archived into it; choose another --out.")
    if results.runs.unread:
        raise InputError(results.runs.unread[0])  # an archive is complete or not written
    with claimed(folder, KIND):
        _swap_in(folder)  # what a killed command had finished writing
        _refuse_loss(folder, evaluations, results.runs.all)
        with os_errors_as_ours(folder), TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as partial:  # readers skip it
            archive_evaluations(evaluations, Path(partial))
            for question, runs in results.runs.checks.items():
                CHECKS[question].files.archive(runs, Path(partial))
            Path(partial).rename(folder / SWAP)
        for path in contents(folder):
            if path.name != SWAP:
                remove(path) if path.is_dir() else path.unlink()
        _swap_in(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    counts: dict[str, int] = {question: len(runs) for question, runs in results.runs.checks.items()}
    return Archive(str(folder), len(evaluations), counts, size / 1e6, tuple(results.check_evaluated()))


def _swap_in(folder: Path) -> None:
    """Move what was written to the swap folder into place. Readers refuse an archive in which this was not finished."""
    for path in sorted((folder / SWAP).glob("*")):
        remove(folder / path.name)
        path.replace(folder / path.name)
    remove(folder / SWAP)


def archive_evaluations(evaluations: Sequence[StoredEvaluation], out: Path) -> None:
    """Write the evaluations to `out`, each once, in the layout of runs."""
    archived: dict[Path, StoredEvaluation] = {}
    by_set: dict[str, list[tuple[StoredEvaluation, Path]]] = {}
    for stored in evaluations:
        folder, condition = _archived_folder(stored.evaluation), stored.evaluation.condition
        if folder in archived and archived[folder].evaluation.condition != condition:
            folder = _archived_folder(stored.evaluation, fingerprint(*condition)[:8])
        if other := archived.get(folder):
            raise InputError(f"{other.folder} and {stored.folder} have the same name; rename one of the runs to keep both.")
        archived[folder] = stored
        by_set.setdefault(items_of(stored), []).append((stored, out / folder))
    for items, members in by_set.items():
        write_ranks([(stored.folder, folder) for stored, folder in members], out, items)
        for stored, folder in members:
            write_json(folder / RESULT, without_paths(stored.evaluation).to_json())


def without_paths(evaluation: Evaluation) -> Evaluation:
    """The same evaluation with names in place of this machine's paths, and no link to the texts."""
    provenance = evaluation.provenance and without_folders(evaluation.provenance)
    path = evaluation.path if not PurePath(evaluation.path).is_absolute() else f"runs/{evaluation.checkpoint}"
    return replace(evaluation, path=path, evalset_path="", provenance=provenance)


def _archived_folder(evaluation: Evaluation, mark: str = "") -> Path:
    """The folder of an evaluation in the archive."""
    run, _, label = evaluation.checkpoint.rpartition("/")
    condition = folder_name(evaluation.evalset, evaluation.seq_len, mark)
    if run and CHECKPOINT.fullmatch(label):
        return Path(PurePath(run).name) / EVALUATIONS / condition / label
    return Path(EVALUATIONS) / model_slug(evaluation.checkpoint) / condition


def _refuse_loss(folder: Path, evaluations: Sequence[StoredEvaluation], runs: Sequence[TaskRun]) -> None:
    """Refuse a folder with other runs or models: what an archive does not write again is removed."""
    others = {_run_or_model(stored) for stored in find_evaluations([folder], skip_damaged=True)}
    others -= {_run_or_model(stored) for stored in evaluations}
    others |= {run.name for run in find_runs([str(folder)]).all} - {run.name for run in runs}
    if others:
        ordered = sorted(others, key=natural_order)
        more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
        raise InputError(f"{folder} also holds {', '.join(ordered[:_NAMED])}{more}; pass them too, or choose another --out.")


def _run_or_model(stored: StoredEvaluation) -> str:
    name = stored.evaluation.checkpoint
    return PurePath(name.rpartition("/")[0]).name or name
