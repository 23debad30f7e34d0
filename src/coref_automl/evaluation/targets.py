"""Models to evaluate, and where. In: paths of checkpoints, runs, or folders of runs. Out: each model once, with a unique name.

    runs/<run>/evaluations/<set>-<length>/checkpoint-65/{items.jsonl, result.json, DONE}
    runs/<run>/evaluations/<set>-<length>-<mark>/checkpoint-65/...           another set of that name, dtype or scorer version
    runs/<run>/checkpoint-65_eval_results.json                               the summary, one flat file for `jq`
    runs/<run>/base-evaluations/<model>/<set>-<length>/...                   the model that the run began from
    evaluations/<model>/<set>-<length>/{items.jsonl, result.json, DONE}      a model outside a run folder
    evaluations/<model>/<model>_eval_results.json

A run keeps its base's evaluation, so that it is found from any current folder and after the run has moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import CorefError, InputError, ModelError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import State, is_folder, natural_order, state_of
from coref_automl.base.records import Evaluation, Provenance
from coref_automl.corpus.inputs import frozen_fingerprint
from coref_automl.models.model_files import full_name, refuse_sentence_transformer, resolve, weights_fingerprint

EVALUATIONS = "evaluations"
BASES = "base-evaluations"
CHECKPOINT = re.compile(r"checkpoint-\d+")
REMEDY = "remove it, and evaluate again"
_DEEPEST = 3


class Summary(TypedDict, total=False):
    """The part of `<checkpoint>_eval_results.json` that is read."""

    path: str
    seq_len: int
    dtype: str
    fingerprints: dict[str, str]


def summary_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of `<checkpoint>_eval_results.json` and of `evaluate --json`: flat keys, null for metrics that were not run.

    docs/result-schema.md describes every key.
    """
    value = {name: estimate.value for name, estimate in evaluation.estimates.items()}
    count = {name: estimate.n for name, estimate in evaluation.estimates.items()}
    stored = evaluation.to_json()

    def fields(*names: str) -> dict[str, Any]:
        return {name: stored[name] for name in names}

    return {
        **fields("checkpoint", "seq_len", "dtype", "evaluated_at"),
        **{name: value.get(name) for name in ("real1", "real5", "lambada_top1", "score")},
        "coref_samples": count.get("real1", 0),
        "lambada_samples": count.get("lambada_top1", 0),
        "eval_time_seconds": evaluation.seconds,
        **fields("schema", "path"),
        "eval_set": evaluation.evalset,
        **fields("estimates", "fingerprints", "scorer", "counted", "counted_names", "out_of_reach", "baselines", "provenance"),
    }


@dataclass(frozen=True, slots=True)
class Target:
    """A model to evaluate: what to load, a unique name, the name of its own folder, and the folder of its evaluations."""

    model: str
    name: str
    label: str
    root: Path
    in_run: bool

    def folder(self, evalset: str, seq_len: int, mark: str = "") -> Path:
        """The folder of an evaluation; `mark` distinguishes it from another one that has the plain name."""
        name = folder_name(evalset, seq_len, mark)
        return self.root / EVALUATIONS / name / self.label if self.in_run else self.root / name

    def holds(self, folder: Path) -> bool:
        """Whether a folder is one of the model's own evaluations, whatever set it is named after."""
        without_set = folder.parents[1] / folder.name if self.in_run else folder.parent
        return without_set.resolve() == (self.root / EVALUATIONS / self.label if self.in_run else self.root).resolve()

    @property
    def summary(self) -> Path:
        return self.root / f"{self.label}_eval_results.json"

    @property
    def origin(self) -> str:
        """The path of the run or the model, which distinguishes two of one name."""
        return origin_of(self.model, self.in_run)

    def owner(self) -> str | None:
        """The origin of the model whose evaluations are in `root` already, if that model still exists.

        A run owns its own folder: in a copied run, the summaries still name the run that it was copied from.
        """
        if self.in_run and str(self.root.resolve()) == self.origin:
            return self.origin
        evaluated = self.stored_summary().get("path", "")
        exists, is_name = Path(evaluated).is_dir(), not Path(self.model).is_dir()  # a hub id has no folder that could be gone
        return origin_of(evaluated, self.in_run) if evaluated and (exists or is_name) else None

    def stored_summary(self) -> Summary:
        return read_stored(self.summary, Summary, remedy=REMEDY) if self.summary.is_file() else {}

    def marked(self) -> Target:
        """The same model with a hash of its origin in its folder and name, for when another model has the plain name."""
        root = self.root.with_name(f"{self.root.name}-{fingerprint(self.origin)[:6]}")
        return replace(self, root=root, name=f"{root.name}/{self.label}" if self.in_run else root.name)

    def provenance(self) -> Provenance | None:
        path = Path(self.model) / "training.json"
        return read_stored(path, Provenance) if path.is_file() else None


def target_of(model: str, out: Path | None = None) -> Target:
    """A model under its plain name; its evaluations are in `out`, or else in its run or ./evaluations."""
    folder = Path(model)
    if is_folder(folder) and CHECKPOINT.fullmatch(folder.resolve().name):
        folder = folder if folder.name else folder.resolve()
        run = folder.parent.resolve().name
        return Target(str(folder), f"{run}/{folder.name}", folder.name, out / run if out else folder.parent, True)
    label = model_slug(model)
    return Target(model, label, label, (out or Path(EVALUATIONS)) / label, False)


def origin_of(model: str, in_run: bool) -> str:
    """The resolved folder of a run or a model; a hub id or a bundled name as it is."""
    path = Path(model).resolve()
    return str(path.parent if in_run else path) if is_folder(path) else model


def folder_name(evalset: str, seq_len: int, mark: str = "") -> str:
    return f"{evalset}-{seq_len}-{mark}" if mark else f"{evalset}-{seq_len}"


def model_slug(model: str) -> str:
    """A folder name for a hub id, a bundled name or a model folder."""
    return Path(model).resolve().name if is_folder(model) or Path(model).is_absolute() else slug(model)


def slug(name: str) -> str:
    """A name without characters that are not allowed in folder names; a hub id keeps its owner."""
    return re.sub(r"[^\w.-]+", "-", name.replace("/", "--"))


def is_model_folder(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def is_model_alone(folder: Path) -> bool:
    """Whether a folder is a model's and holds no checkpoints."""
    return is_model_folder(folder) and not checkpoint_folders(folder)


def checkpoint_folders(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.is_dir() and CHECKPOINT.fullmatch(path.name)]
    return sorted(inside, key=lambda path: natural_order(path.name))


def root_of(model: str) -> Path | None:
    """The folder with the evaluations of a model outside runs; None if another model of that name has it."""
    target = target_of(model)
    if not is_folder(model):
        return target.root
    if (marked := target.marked().root).is_dir():
        return marked
    summary: Summary = {}
    with suppress(InputError):  # a damaged summary names no model
        summary = target.stored_summary()
    evaluated, weights = summary.get("path", ""), summary.get("fingerprints", {}).get("weights", "")
    is_own = not evaluated or origin_of(evaluated, target.in_run) == target.origin or has_bytes(Path(model), weights)
    return target.root if is_own else None


def has_bytes(folder: Path, known: str) -> bool:
    """Whether a folder holds the model, the dataset or the evaluation set with this fingerprint."""
    with suppress(CorefError, OSError):
        if known and is_model_folder(folder):
            return _weights_of(folder.resolve(), state_of(folder)) == known
        return bool(known) and frozen_fingerprint(folder) == known
    return False


@cache
def _weights_of(folder: Path, _state: State) -> str:
    return weights_fingerprint(str(folder))


def find_targets(paths: Sequence[str | Path], out: Path | None = None, unread: list[str] | None = None) -> list[Target]:
    """The models under the paths, each once: checkpoints of a run and runs of a folder in natural order.

    `unread` gets a sentence for each folder that cannot be read.
    """
    targets: dict[str, Target] = {}
    for path in paths:
        for model in _models(str(path), [] if unread is None else unread):
            targets.setdefault(full_name(model), target_of(model, out))
    return _unique(list(targets.values()))


def base_targets(models: Sequence[str], others: Sequence[Target], out: Path | None = None) -> dict[str, Target]:
    """The targets of base models; none shares a folder with another one, or with one of the `others`."""
    targets = {full_name(target.model): target for target in others}
    for model in models:
        targets.setdefault(full_name(model), target_of(model, out))
    unique = dict(zip(targets, _unique(list(targets.values())), strict=True))
    return {model: unique[full_name(model)] for model in models}


def _models(path: str, unread: list[str]) -> list[str]:
    """The models of one path; what is not a folder is left to the loader, which knows hub ids and bundled names."""
    folder = Path(path)
    if not path:
        raise ModelError("A path is empty; pass a checkpoint, a run, runs, or . for this folder.")
    if not folder.is_dir():
        resolve(path)
        return [path]
    if checkpoints := checkpoint_folders(folder):
        return [str(checkpoint) for checkpoint in checkpoints]
    if is_model_folder(folder) or CHECKPOINT.fullmatch(folder.resolve().name):
        return [path]
    models = [model for run in _run_folders(folder, _DEEPEST, unread) for model in _models(str(run), unread)]
    if not models and unread:
        raise ModelError(unread[0])
    if not models:
        resolve(path)
        refuse_sentence_transformer(folder)
        raise ModelError(f"{path} holds no checkpoint (neither checkpoint-N nor config.json); pass a checkpoint, a run, or runs.")
    return models


def _run_folders(folder: Path, depth: int, unread: list[str]) -> Iterator[Path]:
    for path in sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=lambda entry: natural_order(entry.name)):
        if path.name in (EVALUATIONS, BASES) or path.name.startswith("."):
            continue
        try:
            has_models = bool(checkpoint_folders(path)) or is_model_folder(path)
        except PermissionError as error:
            unread.append(f"{path} cannot be read ({error.strerror}); make it readable, or move it away.")
            continue
        if has_models:
            yield path
        elif depth > 1:
            yield from _run_folders(path, depth - 1, unread)


def _unique(targets: list[Target]) -> list[Target]:
    """Mark all but the first of several models with one name, so that none overwrites another."""
    owners: dict[Path, str] = {}
    unique = []
    for target in targets:
        if owners.setdefault(target.root, target.owner() or target.origin) != target.origin:
            target = target.marked()
        unique.append(target)
    names = [target.name for target in unique]
    return [replace(target, name=Path(target.model).as_posix()) if names.count(target.name) > 1 else target for target in unique]
