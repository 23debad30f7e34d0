"""Fine-tuning a head on an encoder. In: a model, parameter groups, a seed. Out: epochs of steps that resume where they stopped.

Relation extraction and coreference train with this. What an epoch draws (order, cuts, dropout) depends on (seed, epoch) alone, so
a run that resumes from its last whole epoch ends where an uninterrupted one does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from coref_automl.errors import NotFinite
from coref_automl.folders import mark_done
from coref_automl.records import Record
from coref_automl.store import write_json
from coref_automl.training.optimizer import ParameterGroup, adamw, load_optimizer, rate_factor
from coref_automl.training.state import stored_state, write_state

RESUME = "resume.pt"
"""The state of a fit after its last whole epoch, beside the weights it will leave."""

_CLIP = 1.0
State = TypeVar("State", bound="FitState")
Seen = TypeVar("Seen")
"""What a task sees of an epoch on the data that choose."""


class Updates:
    """AdamW on a linear schedule with warm-up, gradients clipped, and its state on disk."""

    def __init__(self, model: Any, groups: list[ParameterGroup], warmup: float) -> None:
        self._model = model
        self._optimizer = adamw(groups, fused=True)
        self._peaks = tuple(group["lr"] for group in self._optimizer.param_groups)
        self._warmup = warmup

    def set_rate(self, progress: float) -> None:
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * rate_factor(progress, "linear", self._warmup)

    def step(self, *, keep_gradients: bool = False) -> None:
        """Apply the gradients and clear them; `keep_gradients` zeroes them in place, as recorded steps need."""
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), _CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=not keep_gradients)

    def save(self, path: Path, **more: Any) -> None:
        write_state(path, {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), **more})

    def load(self, path: Path, kind: type[State]) -> State:
        """Put model and optimizer back as `save` left them; the fit's state (0.2.0 kept a part beside `state`), or a new one."""
        if not path.is_file():
            return kind()
        with stored_state(path) as held:
            self._model.load_state_dict(held.pop("model"))
            load_optimizer(self._optimizer, held.pop("optimizer"))
            return kind(**held.pop("state"), **held)


@dataclass(slots=True)
class FitState:
    """A fit after a whole epoch, plain values alone; all of it is in resume.pt. A task adds what it keeps of its best epoch."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_weights: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Fit(Generic[Seen]):
    """One seed's training: `epoch` trains one epoch, `look` scores what chooses, `over` says when to end. `run` advances
    `state.epoch` and `state.seconds`; all else of the state belongs to the three.

    `on_epoch(seed, epoch, seen)` hears of every epoch; what it raises ends the fit, which a later call can take up again.
    """

    seed: int
    state: FitState
    updates: Updates
    epoch: Callable[[], None]
    look: Callable[[], Seen]
    over: Callable[[], bool]
    on_epoch: Callable[[int, int, Seen], None] | None = None

    def run(self, resume: Path | None) -> None:
        """Train to the end; after every epoch the state is written to `resume`."""
        state = self.state
        while not self.over():
            began = time.monotonic()
            torch.manual_seed(1_000_003 * self.seed + state.epoch)
            self.epoch()
            state.epoch += 1
            seen = self.look()
            state.seconds += time.monotonic() - began
            if resume is not None:
                self.updates.save(resume, state={part.name: getattr(state, part.name) for part in fields(state)})
            if self.on_epoch is not None:
                self.on_epoch(self.seed, state.epoch, seen)


def finish_seed(folder: Path, result: Record) -> None:
    """Write the result of a seed and mark it done; the state to resume from is removed."""
    write_json(folder / "result.json", result.to_json())
    mark_done(folder)
    (folder / RESUME).unlink(missing_ok=True)


@contextmanager
def own_randomness(device: str) -> Iterator[None]:
    """Dropout draws from torch's global state, which is restored afterwards."""
    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        yield


def checked_loss(loss: Any, step: int) -> float:
    """The loss as a number; NaN and infinity end the run."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NotFinite(f"The loss is NaN or infinite at step {step}; lower --lr or pass --precision float32.")
    return value


def weights_on_cpu(model: Any, *, trained_only: bool = False) -> dict[str, Any]:
    """A copy of a model's weights; `trained_only` leaves out what is frozen and what is not a parameter."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    held = {name: value for name, value in model.state_dict().items() if name in trained or not trained_only}
    return {name: value.detach().to("cpu", copy=True) for name, value in held.items()}
