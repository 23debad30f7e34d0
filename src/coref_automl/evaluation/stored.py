"""Evaluations on disk. In: paths of checkpoints, runs, or folders of runs. Out: what is to be evaluated, and what has been.

runs/<run>/evaluations/<set>-<length>/checkpoint-65/{items.jsonl, result.json, DONE}
runs/<run>/checkpoint-65_eval_results.json
evaluations/<model>/<set>-<length>/{items.jsonl, result.json, DONE}      a model outside a run folder
evaluations/<model>/<model>_eval_results.json
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.errors import InputError, ModelError
from coref_automl.evaluation.columns import RANKS, has_items, holds_text, read_scores
from coref_automl.records import SCHEMA, Evaluation, ItemScore, Provenance
from coref_automl.store import fingerprint, is_done, natural_order, read_json

RESULT = "result.json"
EVALUATIONS = "evaluations"
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A model to evaluate: what to load, its unique name, and where its evaluations are written."""

    model: str
    name: str
    label: str
    base: Path
    in_run: bool

    def folder(self, evalset: str, seq_len: int) -> Path:
        inside = f"{evalset}-{seq_len}"
        return self.base / EVALUATIONS / inside / self.label if self.in_run else self.base / inside

    @property
    def summary(self) -> Path:
        return self.base / f"{self.label}_eval_results.json"

    def provenance(self) -> Provenance | None:
        path = Path(self.model) / "training.json"
        return Provenance.from_json(read_json(path)) if path.is_file() else None


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


def find_targets(paths: Sequence[str | Path], out: Path | None = None) -> list[Target]:
    """The models behind the paths, each once: checkpoints of a run in natural order, runs of a folder in natural order."""
    targets: dict[str, Target] = {}
    for path in paths:
        for model in _models(str(path)):
            targets.setdefault(identity(model), target_of(model, out))
    return _unique(list(targets.values()))


def base_targets(models: Sequence[str], beside: Sequence[Target], out: Path | None = None) -> dict[str, Target]:
    """The targets of models that checkpoints began from: none overwrites another of its name, nor one of those `beside` it."""
    held = {identity(target.model): target for target in beside}
    for model in models:
        held.setdefault(identity(model), target_of(model, out))
    apart = dict(zip(held, _unique(list(held.values())), strict=True))
    return {model: apart[identity(model)] for model in models}


def target_of(model: str, out: Path | None = None) -> Target:
    folder = Path(model)
    if folder.is_dir() and _CHECKPOINT.fullmatch(folder.resolve().name):
        folder = folder if folder.name else folder.resolve()
        run = folder.parent.resolve().name
        return Target(str(folder), f"{run}/{folder.name}", folder.name, out / run if out else folder.parent, True)
    label = model_slug(model)
    return Target(model, label, label, (out or Path(EVALUATIONS)) / label, False)


def identity(model: str) -> str:
    """What tells one model from another: the place of a folder, however it is written; a hub id or a bundled name as it is."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def marked(target: Target) -> Target:
    """The same with a mark of the model's place in its folder and its name, for where another model has its plain name."""
    home = _home(target.model, target.in_run)
    base = target.base.with_name(f"{target.base.name}-{fingerprint(home)[:6]}")
    return replace(target, base=base, name=f"{base.name}/{target.label}" if target.in_run else base.name)


def model_slug(model: str) -> str:
    """A folder name for a hub id, a bundled name or a model folder."""
    if Path(model).is_dir():
        return Path(model).resolve().name
    return re.sub(r"[^\w.-]+", "-", model.replace("/", "--"))


def find_evaluations(paths: Sequence[str | Path], *, skip_damaged: bool = False) -> list[StoredEvaluation]:
    """Every finished evaluation under the paths, in natural order. A checkpoint's or a model's path leads to its evaluations.

    A damaged one is an error, or is passed over with `skip_damaged`.
    """
    found: dict[Path, StoredEvaluation] = {}
    for path in paths:
        for folder in _evaluation_folders(str(path)):
            try:
                if (stored := open_evaluation(folder)) is not None:
                    found.setdefault(folder.resolve(), stored)
            except InputError:
                if not skip_damaged:
                    raise
    return list(found.values())


def open_evaluation(folder: Path) -> StoredEvaluation | None:
    """The evaluation in a folder; None where there is none that is finished."""
    finished = is_done(folder) or (folder / RANKS).is_file()
    if not finished or not (folder / RESULT).is_file() or not has_items(folder):
        return None
    evaluation = Evaluation.from_json(read_json(folder / RESULT))
    if evaluation.schema != SCHEMA:
        raise InputError(f"{folder} was written by another version; remove it and run coref-automl evaluate again.")
    in_run = _CHECKPOINT.fullmatch(folder.name) and len(folder.parents) > 2 and folder.parents[1].name == EVALUATIONS
    if in_run and (moved := folder.parents[2] / folder.name).is_dir():
        evaluation = replace(evaluation, checkpoint=f"{moved.parent.resolve().name}/{moved.name}", path=str(moved))
    return StoredEvaluation(evaluation, folder)


def base_evaluation(model: str, evalset: str, seq_len: int, out: Path | None = None) -> StoredEvaluation | None:
    """The evaluation of the model that a run began from; another model's of the same name is not taken for it."""
    plain = target_of(model, out)
    for target in (plain, marked(plain)) if plain.base.name else (plain,):
        found = open_evaluation(target.folder(evalset, seq_len))
        if found is not None and identity(found.evaluation.path) == identity(model):
            return found
    return None


def summary_json(evaluation: Evaluation) -> dict[str, Any]:
    """What `<checkpoint>_eval_results.json` holds: flat keys for `jq`, null for what was not run."""
    value = {name: estimate.value for name, estimate in evaluation.estimates.items()}
    count = {name: estimate.n for name, estimate in evaluation.estimates.items()}
    return {
        "checkpoint": evaluation.checkpoint,
        "seq_len": evaluation.seq_len,
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


def is_model_folder(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def checkpoints_of(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.is_dir() and _CHECKPOINT.fullmatch(path.name)]
    return sorted(inside, key=lambda path: natural_order(path.name))


def _models(path: str) -> list[str]:
    """A path as the models it stands for; what is no folder is left to the loader, which knows hub ids and bundled names."""
    folder = Path(path)
    if not folder.is_dir():
        from coref_automl.models.load import resolve

        resolve(path)
        return [path]
    if checkpoints := checkpoints_of(folder):
        return [str(checkpoint) for checkpoint in checkpoints]
    if is_model_folder(folder) or _CHECKPOINT.fullmatch(folder.resolve().name):
        return [path]
    inside = [model for run in _run_folders(folder, _DEEPEST) for model in _models(str(run))]
    if not inside:
        raise ModelError(
            f"{path} holds no checkpoint (no checkpoint-N folder and no config.json); pass a checkpoint, a run, or runs."
        )
    return inside


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=lambda entry: natural_order(entry.name)):
        if path.name == EVALUATIONS or path.name.startswith("."):
            continue
        if checkpoints_of(path) or is_model_folder(path):
            yield path
        elif depth > 1:
            yield from _run_folders(path, depth - 1)


def _evaluation_folders(path: str) -> Iterator[Path]:
    folder = Path(path)
    if not folder.is_dir():
        folder = Path(EVALUATIONS) / model_slug(path)
        if not folder.is_dir():
            return
    elif _CHECKPOINT.fullmatch(folder.resolve().name) and not (folder / RESULT).is_file():
        yield from sorted(
            (folder.parent / EVALUATIONS).glob(f"*/{folder.resolve().name}"), key=lambda entry: natural_order(str(entry))
        )
        return
    elif is_model_folder(folder) and not checkpoints_of(folder):
        plain = target_of(path)
        folder = own if (own := marked(plain).base).is_dir() else plain.base
    yield from sorted((entry.parent for entry in folder.rglob(RESULT)), key=lambda entry: natural_order(str(entry)))


def _unique(targets: list[Target]) -> list[Target]:
    """Models of one name from different places: the later ones carry a mark of their place, so that none overwrites another."""
    owners: dict[Path, str] = {}
    out = []
    for target in targets:
        home = _home(target.model, target.in_run)
        if owners.setdefault(target.base, _owner(target) or home) != home:
            target = marked(target)
        out.append(target)
    names = [target.name for target in out]
    return [replace(entry, name=Path(entry.model).as_posix()) if names.count(entry.name) > 1 else entry for entry in out]


def _home(model: str, in_run: bool) -> str:
    path = Path(model).resolve()
    return str(path.parent if in_run else path) if path.is_dir() else model


def _owner(target: Target) -> str | None:
    """Whose evaluations stand in the target's folder already, if that model still exists; a moved model keeps its own."""
    if not target.summary.is_file():
        return None
    path = str(read_json(target.summary).get("path", ""))
    return _home(path, target.in_run) if path and (Path(path).is_dir() or not Path(target.model).is_dir()) else None


def neighbours(model: str, out: Path | None = None) -> list[StoredEvaluation]:
    """Evaluations near a model's own: those of its run, of the runs beside it, of models outside runs, and of `out`."""
    target = target_of(model)
    roots = [Path(EVALUATIONS), *([out] if out else [])]
    if target.in_run:
        beside = target.base.parent if target.base.name else target.base / ".."
        roots += sorted(beside.glob(f"*/{EVALUATIONS}"), key=natural_order)
    return find_evaluations([root for root in roots if root.is_dir()], skip_damaged=True)
