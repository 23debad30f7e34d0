"""Evaluations on disk. In: paths of checkpoints, runs, models, or folders of these. Out: what has been evaluated.

runs/<run>/evaluations/<set>-<length>/checkpoint-65/{items.jsonl, result.json, DONE}
runs/<run>/evaluations/<set>-<length>-<mark>/checkpoint-65/...           another set of that name, dtype or scorer version
runs/<run>/checkpoint-65_eval_results.json
evaluations/<model>/<set>-<length>/{items.jsonl, result.json, DONE}      a model outside a run folder
evaluations/<model>/<model>_eval_results.json
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.errors import InputError
from coref_automl.evaluation.columns import RANKS, has_items, holds_text, read_scores
from coref_automl.evaluation.targets import (
    CHECKPOINT,
    EVALUATIONS,
    Target,
    checkpoints_of,
    identity,
    is_model_folder,
    marked,
    model_slug,
    target_of,
)
from coref_automl.records import SCHEMA, Evaluation, ItemScore
from coref_automl.store import is_done, natural_order, read_json

RESULT = "result.json"


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """A finished evaluation and its folder; `scores()` reads the items. One of an archive has ranks and no text."""

    evaluation: Evaluation
    folder: Path

    @property
    def archived(self) -> bool:
        return not holds_text(self.folder)

    def scores(self) -> list[ItemScore]:
        return read_scores(self.folder)


def find_evaluations(paths: Sequence[str | Path], *, skip_damaged: bool = False) -> list[StoredEvaluation]:
    """Every finished evaluation under the paths, in natural order. A checkpoint's or a model's path leads to its evaluations.

    A damaged one is an error, or is passed over with `skip_damaged`.
    """
    found, damaged = look_through(paths)
    if damaged and not skip_damaged:
        raise damaged[0]
    return found


def look_through(paths: Sequence[str | Path]) -> tuple[list[StoredEvaluation], list[InputError]]:
    """Every finished evaluation under the paths, in natural order, and what is wrong with each that cannot be read."""
    found: dict[Path, StoredEvaluation] = {}
    damaged: dict[Path, InputError] = {}
    for path in paths:
        for folder in _evaluation_folders(str(path)):
            try:
                if (stored := open_evaluation(folder)) is not None:
                    found.setdefault(folder.resolve(), stored)
            except InputError as error:
                damaged.setdefault(folder.resolve(), error)
    return list(found.values()), list(damaged.values())


def is_of_one_model(path: str) -> bool:
    """Whether a path names one model or one evaluation, and no folder that may hold others."""
    folder = Path(path)
    if not folder.is_dir() or (folder / RESULT).is_file() or CHECKPOINT.fullmatch(folder.resolve().name):
        return True
    return is_model_folder(folder) and not checkpoints_of(folder)


def open_evaluation(folder: Path) -> StoredEvaluation | None:
    """The evaluation in a folder; None where there is none that is finished."""
    finished = is_done(folder) or (folder / RANKS).is_file()
    if not finished or not (folder / RESULT).is_file() or not has_items(folder):
        return None
    evaluation = _read(folder / RESULT)
    if evaluation.schema != SCHEMA:
        raise InputError(f"{folder} was written by another version; remove it and run coref-automl evaluate again.")
    in_run = CHECKPOINT.fullmatch(folder.name) and len(folder.parents) > 2 and folder.parents[1].name == EVALUATIONS
    if in_run and (moved := folder.parents[2] / folder.name).is_dir():
        evaluation = replace(evaluation, checkpoint=f"{moved.parent.resolve().name}/{moved.name}", path=str(moved))
    return StoredEvaluation(evaluation, folder)


def base_evaluation(model: str, wanted: Callable[[Evaluation], bool], out: Path | None = None) -> StoredEvaluation | None:
    """An evaluation of the model that a run began from; another model's of the same name is not taken for it."""
    plain = target_of(model, out)
    for target in (plain, marked(plain)) if plain.base.name else (plain,):
        for found in find_evaluations(_folders_of(target), skip_damaged=True):
            if identity(found.evaluation.path) == identity(model) and wanted(found.evaluation):
                return found
    return None


def _folders_of(target: Target) -> list[Path]:
    pattern = f"{EVALUATIONS}/*/{target.label}" if target.in_run else "*"
    return sorted((folder.parent for folder in target.base.glob(f"{pattern}/{RESULT}")), key=natural_order)


def neighbours(model: str, out: Path | None = None) -> list[StoredEvaluation]:
    """Evaluations near a model's own: those of its run, of the runs beside it, of models outside runs, and of `out`."""
    target = target_of(model)
    roots = [Path(EVALUATIONS), *([out] if out else [])]
    if target.in_run:
        beside = target.base.parent if target.base.name else target.base / ".."
        roots += sorted(beside.glob(f"*/{EVALUATIONS}"), key=natural_order)
    return find_evaluations([root for root in roots if root.is_dir()], skip_damaged=True)


def summary_json(evaluation: Evaluation) -> dict[str, Any]:
    """What `<checkpoint>_eval_results.json` holds: flat keys for `jq`, null for what was not run."""
    value = {name: estimate.value for name, estimate in evaluation.estimates.items()}
    count = {name: estimate.n for name, estimate in evaluation.estimates.items()}
    return {
        "checkpoint": evaluation.checkpoint,
        "seq_len": evaluation.seq_len,
        "dtype": evaluation.dtype,
        "evaluated_at": evaluation.evaluated_at,
        "real1": value.get("real1"),
        "real5": value.get("real5"),
        "lambada_top1": value.get("lambada_top1"),
        "score": value.get("score"),
        "coref_samples": count.get("real1", 0),
        "lambada_samples": count.get("lambada_top1", 0),
        "eval_time_seconds": evaluation.seconds,
        "schema": evaluation.schema,
        "path": evaluation.path,
        "eval_set": evaluation.evalset,
        "estimates": {name: estimate.to_json() for name, estimate in evaluation.estimates.items()},
        "fingerprints": evaluation.fingerprints,
    }


def _read(path: Path) -> Evaluation:
    held = read_json(path)
    try:
        return Evaluation.from_json(held)
    except (InputError, AttributeError, TypeError, ValueError) as error:  # JSON of some other shape
        raise InputError(f"{path} is no evaluation of ours ({str(error).rstrip('.')}); remove it, and evaluate again.") from error


def _evaluation_folders(path: str) -> Iterator[Path]:
    folder = Path(path)
    if not folder.is_dir():
        folder = Path(EVALUATIONS) / model_slug(path)
        if not folder.is_dir():
            return
    elif CHECKPOINT.fullmatch(folder.resolve().name) and not (folder / RESULT).is_file():
        yield from sorted(
            (folder.parent / EVALUATIONS).glob(f"*/{folder.resolve().name}"), key=lambda entry: natural_order(str(entry))
        )
        return
    elif is_model_folder(folder) and not checkpoints_of(folder):
        plain = target_of(path)
        folder = own if (own := marked(plain).base).is_dir() else plain.base
    yield from sorted((entry.parent for entry in folder.rglob(RESULT)), key=lambda entry: natural_order(str(entry)))
