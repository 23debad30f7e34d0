"""A run's folder. In: a recipe and fingerprints of what it names. Out: a folder claimed for it, and its checkpoints.

A folder that was begun with other data, another model or another recipe is refused, and the message says what differs.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, TypedDict
from zipfile import is_zipfile

from coref_automl.config import to_mapping, to_yaml
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import BYTES, check_binding
from coref_automl.errors import FolderError, InputError, ModelError, StorageError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import MANIFEST, check_folder, claim_folder, is_done, kind_of_folder, leave_empty, mark_done, remove
from coref_automl.guard import check_packed
from coref_automl.models.model_files import model_place, weight_shapes
from coref_automl.paths import natural_order
from coref_automl.records import Provenance
from coref_automl.say import say
from coref_automl.store import read_json, write_json, write_text, written_whole
from coref_automl.training.recipe import FREE, TrainRecipe

KIND = "run"
BEST = "best.json"
AVERAGE = "average"
"""The folder of a run's own average."""
_WEIGHTS = "model.safetensors"
WRITING = ".writing"
"""Checkpoints are written here and moved to the run's folder when they are whole."""

REMOVING = ".removing"
"""Checkpoints that are given up are moved here first: a kill midway leaves no folder that looks whole and has no weights."""

MENTION_LOSSES = "mention_losses.pt"
"""What a loss between mentions has learned beside the model."""

STATES = ("optimizer.pt", "scheduler.pt", "rng_state*.pth", MENTION_LOSSES)
"""What only a resumption needs; most of a checkpoint's size."""


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


def claim_run(recipe: TrainRecipe, prints: dict[str, str], plan: dict[str, Any]) -> Path:
    """The run's folder with recipe.yaml and manifest.json, new or the same as before."""
    run = Path(recipe.out)
    check_run(recipe, prints, plan)
    claim_folder(run, KIND)
    if not (run / MANIFEST).is_file():
        whole = binding_of(recipe, prints)
        write_text(run / "recipe.yaml", to_yaml(recipe))
        manifest = {
            "kind": KIND,
            "fingerprint": fingerprint(whole),
            "model": model_place(recipe.model),
            "dataset": recipe.dataset,
        }
        write_json(run / MANIFEST, {**manifest, "plan": plan, "binding": whole, "versions": _versions()})
    for left in (WRITING, REMOVING):
        shutil.rmtree(run / left, ignore_errors=True)
    return run


def check_run(recipe: TrainRecipe, prints: dict[str, str], plan: dict[str, Any]) -> None:
    """Refuse a folder that `claim_run` refuses: one that holds something else, or a run of something else. Nothing is written."""
    run = Path(recipe.out)
    check_folder(run, KIND)
    if not (run / MANIFEST).is_file():
        return
    held, rows = read_stored(run / MANIFEST, _Manifest), plan["rows"]
    begun = held.get("binding", {}) | ({} if is_done(run) else {"rows": held.get("plan", {}).get("rows", rows)})
    check_binding(run, begun, binding_of(recipe, prints) | ({} if is_done(run) else {"rows": rows}))


def describe_state(run: Path) -> str:
    """What an earlier call left, in words; empty where training starts from the beginning."""
    if is_done(run):
        return say(f"{run}: 이미 끝난 실행입니다.", f"{run} is finished; nothing to do.")
    resume = resumable(run)
    return say(f"{resume.name}에서 이어서 진행합니다.", f"Resuming from {resume.name}.") if resume else ""


def give_up(run: Path) -> None:
    """Free the folder of a run whose model or data cannot be used: where nothing was trained, nothing binds the next command."""
    if checkpoints_of(run):
        return
    for name in (MANIFEST, "recipe.yaml", "events.ndjson"):
        (run / name).unlink(missing_ok=True)
    leave_empty(run)


def checkpoints_of(run: Path) -> list[Path]:
    """The whole checkpoints of a run, in the order of their steps."""
    found = [path for path in run.glob("checkpoint-*") if (path / "training.json").is_file()]
    return sorted(found, key=lambda path: natural_order(path.name))


def resumable(run: Path) -> Path | None:
    """The newest checkpoint that training can resume from; one whose state is truncated is an error before anything is loaded."""
    able = [path for path in checkpoints_of(run) if (path / "optimizer.pt").is_file() and (path / "trainer_state.json").is_file()]
    if not able:
        return None
    if (foreign := able[-1] / "scaler.pt").exists():  # gradients are scaled for float16, which is not trained in
        raise FolderError(f"{foreign} was not written by this training; remove it and run the same command again.")
    for path in (able[-1] / "trainer_state.json", able[-1] / "clock.json", *(p for s in STATES for p in able[-1].glob(s))):
        if not _is_whole(path):
            earlier = f"remove {able[-1]} to resume from {able[-2].name}" if len(able) > 1 else f"remove {run} to train again"
            raise FolderError(f"{path} is damaged (empty or cut short); copy it here again, or {earlier}.")
    return able[-1]


def _is_whole(path: Path) -> bool:
    """Can a file of a checkpoint's state be read? torch writes archives, whose table of contents is at their end."""
    if path.suffix != ".json":
        check_packed(path)
        return is_zipfile(path)
    try:
        return isinstance(read_json(path), dict)
    except InputError:
        return False


def best_of(run: Path) -> Path | None:
    """The checkpoint that the run's evaluations chose, if it was scored."""
    chosen = run / BEST
    return run / read_stored(chosen, _Best)["checkpoint"] if chosen.is_file() else None


def checkpoint_meant(model: str, option: str) -> str | None:
    """A run's folder means the checkpoint that its evaluations chose, or its newest one. None: it is not a run."""
    folder = Path(model)
    if kind_of_folder(folder) != KIND:
        return None
    checkpoints = checkpoints_of(folder)
    if not checkpoints:
        raise ModelError(f"The run {folder} has no complete checkpoint yet; finish it first, or pass another {option}.")
    return str(best_of(folder) or checkpoints[-1])


def drop_states(checkpoint: Path) -> None:
    """Make a checkpoint a plain model: it loads and scores as before, and can no longer be resumed."""
    for pattern in STATES:
        for path in checkpoint.glob(pattern):
            path.unlink()


def remove_checkpoint(checkpoint: Path) -> None:
    """Give a checkpoint's disk back: first it loses its name, then its files."""
    aside = checkpoint.parent / REMOVING / checkpoint.name
    shutil.rmtree(aside, ignore_errors=True)
    aside.parent.mkdir(exist_ok=True)
    checkpoint.replace(aside)
    shutil.rmtree(aside.parent, ignore_errors=True)


def average_of(run: Path, last: int, out: Path) -> Path:
    """The mean of a run's last checkpoints (in float64, stored as they were) as `out`/checkpoint-STEP; all else is the last's.

    An existing one of the same checkpoints is returned. Late checkpoints lie around a better point than any of them; with a rate
    that falls to 0 the gain is small, and it costs nothing.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    held = checkpoints_of(run)
    if last < 2 or len(held) < last:
        raise ModelError(f"{run} has {len(held)} checkpoints; an average takes two or more, and --average asks for {last}.")
    checkpoints, newest, made = held[-last:], held[-1], out / held[-1].name
    names = [path.name for path in checkpoints]
    if is_done(out) and (made / "training.json").is_file() and (out / f"{'+'.join(names)}.txt").is_file():
        return made
    for path in checkpoints:
        if not (path / _WEIGHTS).is_file():
            raise ModelError(f"{path} has no {_WEIGHTS} to average; name checkpoints of a run that were saved whole.")
        if weight_shapes(path) != weight_shapes(newest):
            raise ModelError(f"{path} and {newest} have other weights; average checkpoints of one run.")
    if is_done(out):
        remove(out)
    claim_folder(out, KIND)
    aside = out / WRITING / newest.name
    shutil.rmtree(aside.parent, ignore_errors=True)
    shutil.copytree(newest, aside, ignore=shutil.ignore_patterns(*STATES, _WEIGHTS))
    opened: list[Any] = [safe_open(str(path / _WEIGHTS), "pt") for path in checkpoints]
    mean: dict[str, torch.Tensor] = {}
    for name in opened[0].keys():  # noqa: SIM118 - not a dict
        values = [one.get_tensor(name) for one in opened]
        mean[name] = values[-1]
        if values[0].is_floating_point():
            mean[name] = (sum(value.double() for value in values) / len(values)).to(values[-1].dtype).contiguous()
    save_file(mean, str(aside / _WEIGHTS), metadata={"format": "pt"})
    provenance = read_stored(newest / "training.json", Provenance)
    name = f"{provenance.run}-{AVERAGE}" if out.name == AVERAGE else out.name
    write_json(aside / "training.json", replace(provenance, run=name, method="", planned_end=None).to_json())
    aside.replace(made)
    shutil.rmtree(aside.parent, ignore_errors=True)
    (out / f"{'+'.join(names)}.txt").write_text("\n".join(map(str, checkpoints)) + "\n", "utf-8")
    mark_done(out)
    return made


def binding_of(recipe: TrainRecipe, prints: dict[str, str]) -> dict[str, Any]:
    """What decides a run's numbers: settings by value, what they name by its bytes, wherever it lies."""
    free = {*FREE, "dataset", "words_from", *(() if recipe.shape else ("model",))}
    binding = {key: value for key, value in to_mapping(recipe).items() if key not in free}
    return {**binding, **{f"{BYTES}{name}": value for name, value in prints.items()}}


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("coref-automl", "torch", "transformers", "accelerate", "tokenizers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"  # run from a source tree
    return found


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write what `torch.load` reads, whole or not at all.

    Torch turns an exception of the file it writes into one of its own, or dies of it: it is shown none, and the first is raised
    once torch has ended.
    """
    import torch

    with written_whole(path, "wb") as handle:
        writer = _Writer(handle)
        torch.save(state, writer)
        if writer.error is not None:
            raise writer.error


@contextmanager
def own_state(path: Path) -> Iterator[None]:
    """Libraries fail in many ways on a training state that is not theirs; here it is one."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, OSError, EOFError, UnpicklingError, LookupError, TypeError, AttributeError) as error:
        what = "missing, damaged, or not the state of this training"
        raise FolderError(f"{path} is {what}; remove {path.parent} and run the same command again.") from error


@contextmanager
def stored_state(path: Path) -> Iterator[dict[str, Any]]:
    """What `torch.save` wrote, for the block to take up. Nothing but numbers is read: a pickle that asks for more is refused."""
    import torch

    with own_state(path):
        check_packed(path)
        yield torch.load(path, map_location="cpu", weights_only=True)


class _Writer:
    """A file that never refuses; it keeps the first error, a Ctrl-C included, and writes nothing more."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self.error: BaseException | None = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self._handle.write(data)
            except BaseException as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        return


def check_room(folder: Path, gigabytes: float) -> None:
    """Refuse checkpoints that do not fit on the disk before any is trained; those that lie there already are among them."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    present = sum(path.stat().st_size for path in folder.rglob("checkpoint-*/*") if path.is_file())
    free = shutil.disk_usage(place).free
    if 1e9 * gigabytes - present > free:
        raise StorageError(
            f"The checkpoints in {folder} would take about {gigabytes:,.1f} GB, and the disk has {free / 1e9:,.1f} GB free; free "
            "some space and run the same command again, or choose another --out."
        )


def flush_folder(folder: Path) -> None:
    """Every byte on disk before the folder gets its name."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())


def is_disk_trouble(error: BaseException) -> bool:
    """The ways in which torch, safetensors and the system say that a file cannot be written."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EFBIG)
    text = str(error)
    return any(part in text for part in _DISK)


_DISK = (
    "No space left", "StorageFull", "Disk quota", "File too large", "os error 27", "os error 28",
    "PytorchStreamWriter failed", "iostream error", "unexpected pos",
)  # fmt: skip


def check_trainer_state(checkpoint: Path) -> None:
    from transformers import TrainerState

    path, step = checkpoint / "trainer_state.json", int(checkpoint.name.rpartition("-")[2])
    with own_state(path):
        if TrainerState.load_from_json(str(path)).global_step != step:
            raise ValueError("the state of another step")
