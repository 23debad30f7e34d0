"""Fine-tuning a head on an encoder. In: a model, parameter groups, a seed. Out: epochs of steps that resume where they stopped.

Relation extraction and coreference train with this. All randomness of an epoch (order, cuts, dropout) depends on (seed, epoch)
alone, so a run that resumes after its last complete epoch ends with the weights of an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from coref_automl.base.errors import NotFinite
from coref_automl.base.folders import mark_done
from coref_automl.base.records import Record
from coref_automl.base.store import write_json
from coref_automl.training.optimizer import ParameterGroup, adamw, load_optimizer_state, schedule_factor
from coref_automl.training.state import stored_state, write_state

RESUME = "resume.pt"
"""Weights, optimizer and `FitState` after the last complete epoch of a seed."""

_CLIP = 1.0
State = TypeVar("State", bound="FitState")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Updates:
    """AdamW on a linear schedule with warm-up and gradient clipping, and its state on disk."""

    def __init__(self, model: Any, groups: list[ParameterGroup], warmup: float) -> None:
        self._model = model
        self._optimizer = adamw(groups, fused=True)
        self._peaks = tuple(group["lr"] for group in self._optimizer.param_groups)
        self._warmup = warmup

    def set_learning_rate(self, progress: float) -> None:
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * schedule_factor(progress, "linear", self._warmup)

    def step(self, *, keep_gradients: bool = False) -> None:
        """Apply the gradients and clear them; `keep_gradients` zeroes them in place, as a captured CUDA graph needs."""
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), _CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=not keep_gradients)

    def save(self, path: Path, **more: Any) -> None:
        write_state(path, {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), **more})

    def load(self, path: Path, kind: type[State]) -> State:
        """Restore model and optimizer, and return the state saved with them; without a file, return a new state."""
        if not path.is_file():
            return kind()
        with stored_state(path) as saved:
            self._model.load_state_dict(saved.pop("model"))
            load_optimizer_state(self._optimizer, saved.pop("optimizer"))
            return kind(**saved.pop("state"), **saved)  # 0.2.0 wrote some fields of the state beside it


@dataclass(slots=True)
class FitState:
    """Progress of one seed after its last complete epoch, in plain values; a task adds the scores of its best epoch."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_weights: dict[str, Any] = field(default_factory=dict)


class SeedTraining(Protocol[Result_co]):
    """One seed's training, as relation extraction and coreference implement it."""

    def train_epoch(self) -> None:
        """Train one epoch."""

    def validate(self) -> Result_co:
        """Score the validation data, and keep the weights if they are the best so far."""

    def should_stop(self) -> bool:
        """Tell whether all epochs are done or patience has run out."""


def run_epochs(
    training: SeedTraining[Result],
    *,
    seed: int,
    state: FitState,
    updates: Updates,
    resume: Path | None,
    on_epoch: Callable[[int, int, Result], None] | None = None,
) -> None:
    """Train and validate until `training` should stop; the state is written to `resume` after every epoch.

    `on_epoch(seed, epoch, result)` is called after every validation; an exception it raises ends the loop, which a later call
    resumes. The loop advances `state.epoch` and `state.seconds`; all other fields are the task's.
    """
    while not training.should_stop():
        started = time.monotonic()
        torch.manual_seed(1_000_003 * seed + state.epoch)
        training.train_epoch()
        state.epoch += 1
        result = training.validate()
        state.seconds += time.monotonic() - started
        if resume is not None:
            updates.save(resume, state={part.name: getattr(state, part.name) for part in fields(state)})
        if on_epoch is not None:
            on_epoch(seed, state.epoch, result)


def finish_seed(folder: Path, result: Record) -> None:
    """Write the result of a seed, mark it done, and remove the state it could resume from."""
    write_json(folder / "result.json", result.to_json())
    mark_done(folder)
    (folder / RESUME).unlink(missing_ok=True)


@contextmanager
def scoped_rng(device: str) -> Iterator[None]:
    """Restore torch's global random state afterwards: dropout samples from it."""
    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        yield


def checked_loss(loss: Any, step: int) -> float:
    """Return the loss as a number; NaN and infinity end the run."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NotFinite(f"The loss is NaN or infinite at step {step}; lower --lr or pass --precision float32.")
    return value


def weights_on_cpu(model: Any, *, trained_only: bool = False) -> dict[str, Any]:
    """Copy a model's weights to the CPU; `trained_only` leaves out frozen parameters and buffers."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    weights = {name: value for name, value in model.state_dict().items() if name in trained or not trained_only}
    return {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}
