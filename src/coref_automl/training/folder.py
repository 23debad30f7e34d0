"""A run's folder. In: a recipe and fingerprints of its inputs. Out: a folder claimed for it, its checkpoints, their average.

A folder that was begun with other data, another model or another recipe is refused; the error names the difference.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from coref_automl.base.binding import BYTES, check_binding
from coref_automl.base.config import to_mapping, to_yaml
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import FolderError, ModelError, StorageError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import (
    AVERAGE,
    EVENTS,
    MANIFEST,
    check_folder,
    claim_folder,
    is_done,
    kind_of_folder,
    mark_done,
    natural_order,
    remove_if_unused,
)
from coref_automl.base.records import Provenance
from coref_automl.base.say import say
from coref_automl.base.store import write_json, write_text
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.models.model_files import full_name, model_fingerprints, weight_shapes
from coref_automl.training.recipe import FREE, TrainRecipe
from coref_automl.training.state import STATES, TRAINER_STATE, damaged_state

KIND = "run"
BEST = "best.json"
_WEIGHTS, _SOURCES = "model.safetensors", "sources.txt"
WRITING = ".writing"
"""Checkpoints are written here and moved to the run's folder when they are complete."""

REMOVING = ".removing"
"""Checkpoints to delete are moved here first, so that a kill leaves no folder that looks complete and has no weights."""


_VERSIONED = ("coref-automl", "torch", "transformers", "accelerate", "tokenizers")  # packages named in a run's manifest


class _Manifest(TypedDict, total=False):
    binding: dict[str, Any]
    plan: dict[str, Any]


class _Best(TypedDict):
    checkpoint: str


class ClockFacts(TypedDict, total=False):
    """clock.json of a checkpoint: seconds of training, seconds lost, and progress from 0 to 1."""

    seconds: float
    lost: float
    progress: float


def read_clock(checkpoint: Path) -> ClockFacts:
    path = checkpoint / "clock.json"
    return read_stored(path, ClockFacts) if path.is_file() else {}


def claim_run(recipe: TrainRecipe, fingerprints: dict[str, str], plan: dict[str, Any]) -> Path:
    """Create the run's folder with recipe.yaml and manifest.json, or resume the same one."""
    run = Path(recipe.out)
    check_run(recipe, fingerprints, plan)
    claim_folder(run, KIND)
    if not (run / MANIFEST).is_file():
        binding = binding_of(recipe, fingerprints)
        write_text(run / "recipe.yaml", to_yaml(recipe))
        names = {"kind": KIND, "fingerprint": fingerprint(binding), "model": full_name(recipe.model), "dataset": recipe.dataset}
        versions = {name: version(name) for name in _VERSIONED}
        write_json(run / MANIFEST, {**names, "plan": plan, "binding": binding, "versions": versions})
    for unfinished in (WRITING, REMOVING):
        shutil.rmtree(run / unfinished, ignore_errors=True)
    return run


def check_run(recipe: TrainRecipe, fingerprints: dict[str, str], plan: dict[str, Any]) -> None:
    """Refuse a folder with other files or with another run, as `claim_run` does; nothing is written."""
    run = Path(recipe.out)
    check_folder(run, KIND)
    if not (run / MANIFEST).is_file():
        return
    manifest, rows = read_stored(run / MANIFEST, _Manifest), plan["rows"]
    bindings = manifest.get("binding", {}), binding_of(recipe, fingerprints)
    stored, current = ({**binding, "tokenizer": None} for binding in bindings)  # its path; its bytes are compared
    if not is_done(run):  # a finished run no longer reads rows
        stored, current = {**stored, "rows": manifest.get("plan", {}).get("rows", rows)}, {**current, "rows": rows}
    check_binding(run, stored, current)


def binding_of(recipe: TrainRecipe, fingerprints: dict[str, str]) -> dict[str, Any]:
    """Collect what determines a run's numbers: settings by value, models and data by the fingerprint of their bytes."""
    free = {*FREE, "dataset", "words_from", *(() if recipe.shape else ("model",))}
    binding = {key: value for key, value in to_mapping(recipe).items() if key not in free}
    return {**binding, **{f"{BYTES}{name}": value for name, value in fingerprints.items()}}


def describe_state(run: Path) -> str:
    """Describe what an earlier call left; empty if training starts from the beginning."""
    if is_done(run):
        return say(f"{run}: 이미 끝난 실행입니다.", f"{run} is finished; nothing to do.")
    resume = resumable(run)
    return say(f"{resume.name}에서 이어서 진행합니다.", f"Resuming from {resume.name}.") if resume else ""


def release_untrained(run: Path) -> None:
    """Free the folder of a run whose model or data are unusable: without a checkpoint, other settings may take it."""
    if checkpoints_of(run):
        return
    for name in (MANIFEST, "recipe.yaml", EVENTS):
        (run / name).unlink(missing_ok=True)
    remove_if_unused(run)


def checkpoints_of(run: Path) -> list[Path]:
    """List the complete checkpoints of a run, by step; copies under other names (checkpoint-best) are no steps of it."""
    complete = [path.parent for path in run.glob("checkpoint-*/training.json") if CHECKPOINT.fullmatch(path.parent.name)]
    return sorted(complete, key=lambda path: natural_order(path.name))


def resumable(run: Path) -> Path | None:
    """Find the newest checkpoint that training can resume from; a truncated state is an error before anything is loaded."""
    states = [path for path in checkpoints_of(run) if (path / "optimizer.pt").is_file() and (path / TRAINER_STATE).is_file()]
    if not states:
        return None
    newest = states[-1]
    if (foreign := newest / "scaler.pt").exists():  # a gradient scaler is for float16, in which this package never trains
        raise FolderError(f"{foreign} was not written by this training; remove it and run the same command again.")
    if damaged := damaged_state(newest):
        earlier = f"remove {newest} to resume from {states[-2].name}" if len(states) > 1 else f"remove {run} to train again"
        raise FolderError(f"{damaged} is damaged (empty or cut short); copy it here again, or {earlier}.")
    return newest


def best_of(run: Path) -> Path | None:
    """Return the best checkpoint by the run's evaluations, if it was scored."""
    best = run / BEST
    return run / read_stored(best, _Best)["checkpoint"] if best.is_file() else None


def checkpoint_of_run(model: str, option: str) -> str | None:
    """Return the best checkpoint of a run's folder, or its newest if none was scored; None if it is not a run."""
    folder = Path(model)
    if kind_of_folder(folder) != KIND:
        return None
    checkpoints = checkpoints_of(folder)
    if not checkpoints:
        raise ModelError(f"The run {folder} has no complete checkpoint yet; finish it first, or pass another {option}.")
    return str(best_of(folder) or checkpoints[-1])


def remove_checkpoint(checkpoint: Path) -> None:
    """Delete a checkpoint: it loses its name first, then its files."""
    removing = checkpoint.parent / REMOVING / checkpoint.name
    shutil.rmtree(removing, ignore_errors=True)
    removing.parent.mkdir(exist_ok=True)
    checkpoint.replace(removing)
    shutil.rmtree(removing.parent, ignore_errors=True)


def average_of(run: Path, last: int) -> Path:
    """Write the mean weights of a run's last checkpoints as average/checkpoint-STEP, with the newest one's other files.

    Means are taken in float64 and stored in the checkpoints' dtype. An existing average of the same checkpoints is returned. Late
    checkpoints lie around a better point than any of them; with a learning rate that falls to 0 the gain is small.
    """
    checkpoints = _averageable(run, last)
    newest, out = checkpoints[-1], run / AVERAGE
    average, writing = out / newest.name, out / WRITING / newest.name
    sources = "".join(f"{path.name} {fingerprint(model_fingerprints(str(path)))}\n" for path in checkpoints)
    check_folder(out, KIND)
    same = (out / _SOURCES).is_file() and (out / _SOURCES).read_text("utf-8", "replace") == sources
    if same and is_done(out) and (average / "training.json").is_file():
        return average
    if is_done(out):
        shutil.rmtree(out, ignore_errors=True)
    claim_folder(out, KIND)
    shutil.rmtree(writing.parent, ignore_errors=True)
    shutil.copytree(newest, writing, ignore=shutil.ignore_patterns(*STATES, _WEIGHTS))
    _write_mean(checkpoints, writing / _WEIGHTS)
    provenance = read_stored(newest / "training.json", Provenance)
    averaged = replace(provenance, run=f"{provenance.run}-{AVERAGE}", method="", planned_end=None)
    write_json(writing / "training.json", averaged.to_json())
    write_text(out / _SOURCES, sources)
    shutil.rmtree(average, ignore_errors=True)  # left by a call that was killed before DONE
    writing.replace(average)
    shutil.rmtree(writing.parent, ignore_errors=True)
    mark_done(out)
    return average


def _averageable(run: Path, last: int) -> list[Path]:
    """Return the last checkpoints of a run; too few, or different shapes, are an error."""
    present = checkpoints_of(run)
    if last < 2 or len(present) < last:
        raise ModelError(f"{run} has {len(present)} checkpoints; an average takes two or more, and --average asks for {last}.")
    checkpoints, newest = present[-last:], present[-1]
    for path in checkpoints:
        if not (path / _WEIGHTS).is_file():
            raise ModelError(f"{path} has no {_WEIGHTS} to average; name checkpoints of a run that were saved whole.")
        if weight_shapes(path) != weight_shapes(newest):
            raise ModelError(f"{path} and {newest} have other weights; average checkpoints of one run.")
    return checkpoints


def _write_mean(checkpoints: list[Path], path: Path) -> None:
    """Write the mean of every floating-point tensor; other tensors are those of the last checkpoint."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    files: list[Any] = [safe_open(str(checkpoint / _WEIGHTS), "pt") for checkpoint in checkpoints]
    mean: dict[str, torch.Tensor] = {}
    for name in files[0].keys():  # noqa: SIM118 - not a dict
        values = [weights.get_tensor(name) for weights in files]
        mean[name] = values[-1]
        if values[0].is_floating_point():
            mean[name] = (sum(value.double() for value in values) / len(values)).to(values[-1].dtype).contiguous()
    save_file(mean, str(path), metadata={"format": "pt"})


def check_disk_space(folder: Path, gigabytes: float) -> None:
    """Refuse, before any training, checkpoints that would not fit on the disk; those already in the folder count towards it."""
    parent = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    present = sum(path.stat().st_size for path in folder.rglob("checkpoint-*/*") if path.is_file())
    free = shutil.disk_usage(parent).free
    if 1e9 * gigabytes - present > free:
        raise StorageError(
            f"The checkpoints in {folder} would take about {gigabytes:,.1f} GB, and the disk has {free / 1e9:,.1f} GB free; free "
            "some space and run the same command again, or choose another --out."
        )
