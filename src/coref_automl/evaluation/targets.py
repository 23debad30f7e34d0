"""Models to evaluate. In: paths of checkpoints, runs, or folders of runs. Out: each model once, with its name and its folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coref_automl.errors import ModelError
from coref_automl.records import Provenance
from coref_automl.store import fingerprint, natural_order, read_json, read_object, sweep

EVALUATIONS = "evaluations"
CHECKPOINT = re.compile(r"checkpoint-\d+")
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A model to evaluate: what to load, its unique name, and where its evaluations are written."""

    model: str
    name: str
    label: str
    base: Path
    in_run: bool

    def folder(self, evalset: str, seq_len: int, mark: str = "") -> Path:
        """Where an evaluation is written; `mark` tells it from another one that has the plain name already."""
        inside = folder_name(evalset, seq_len, mark)
        return self.base / EVALUATIONS / inside / self.label if self.in_run else self.base / inside

    def holds(self, folder: Path) -> bool:
        """Is this folder one of the model's own evaluations, whatever set it is named after?"""
        home = folder.parents[1] / folder.name if self.in_run else folder.parent
        return home.resolve() == (self.base / EVALUATIONS / self.label if self.in_run else self.base).resolve()

    @property
    def summary(self) -> Path:
        return self.base / f"{self.label}_eval_results.json"

    def sweep(self, evalset: str, seq_len: int) -> None:
        """Remove what killed processes left half written where this model's evaluation is written."""
        for folder in (self.folder(evalset, seq_len), self.base):
            sweep(folder, deep=False)

    def provenance(self) -> Provenance | None:
        path = Path(self.model) / "training.json"
        return Provenance.from_json(read_json(path)) if path.is_file() else None


def folder_name(evalset: str, seq_len: int, mark: str = "") -> str:
    return f"{evalset}-{seq_len}-{mark}" if mark else f"{evalset}-{seq_len}"


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
    if folder.is_dir() and CHECKPOINT.fullmatch(folder.resolve().name):
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
    return slug(model)


def slug(name: str) -> str:
    """A name without the signs that a folder's name cannot have; a hub id's owner stays in it."""
    return re.sub(r"[^\w.-]+", "-", name.replace("/", "--"))


def is_model_folder(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def checkpoints_of(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.is_dir() and CHECKPOINT.fullmatch(path.name)]
    return sorted(inside, key=lambda path: natural_order(path.name))


def _models(path: str) -> list[str]:
    """A path as the models it stands for; what is no folder is left to the loader, which knows hub ids and bundled names."""
    folder = Path(path)
    if not path:
        raise ModelError("A path is empty; pass a checkpoint, a run, runs, or . for this folder.")
    if not folder.is_dir():
        from coref_automl.models.load import resolve

        resolve(path)
        return [path]
    if checkpoints := checkpoints_of(folder):
        return [str(checkpoint) for checkpoint in checkpoints]
    if is_model_folder(folder) or CHECKPOINT.fullmatch(folder.resolve().name):
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
    path = str(read_object(target.summary).get("path", ""))
    return _home(path, target.in_run) if path and (Path(path).is_dir() or not Path(target.model).is_dir()) else None
