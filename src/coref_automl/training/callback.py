"""What happens between steps. In: a trainer, its clock and plan. Out: saves when due, an end in time, events, a bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from coref_automl.errors import TrainingError
from coref_automl.progress import Progress, Stage, peak_gigabytes
from coref_automl.training.optimizer import OPEN_END, crossed_mark, is_save_step
from coref_automl.training.trainer import MaskedTrainer


class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Saves at the explicit steps, stops at the end of the budget, reports at logging steps, asks `judge` after each checkpoint.

    `judge` scores the new checkpoint and returns a reason to stop, or None.
    """

    def __init__(
        self,
        trainer: MaskedTrainer,
        *,
        save_every: float,
        checkpoints: int | None,
        stage: Stage,
        progress: Progress,
        judge: Callable[[], str | None],
    ) -> None:
        self.last_loss: float | None = None
        self.stopped: str | None = None
        self._trainer, self._plan, self._clock = trainer, trainer.loop.plan, trainer.loop.clock
        self._save_every, self._checkpoints = save_every, checkpoints
        self._stage, self._progress, self._judge = stage, progress, judge
        self._saved_at = 0.0
        self._step, self._tokens, self._logged_at, self._timed_from = 0, 0, 0.0, 0.0

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        step = state.global_step
        self._step, self._tokens = step, self._plan.tokens_after(step)
        self._logged_at = self._timed_from = time.monotonic()
        self._saved_at = self._clock.progress(step)
        self._stage.skip(step if self._clock.last < OPEN_END else self._clock.earlier)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
        step = state.global_step
        over = self._clock.finished(step)
        if over:
            control.should_training_stop = True
        if over or self._save_due(step):
            control.should_log = control.should_save = True
        return control

    def _save_due(self, step: int) -> bool:
        if self._checkpoints is None:
            return is_save_step(step, self._plan.steps_per_epoch, self._save_every, self._clock.last)
        before, self._saved_at = self._saved_at, self._clock.progress(step)
        return crossed_mark(before, self._saved_at, self._checkpoints)

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        self.last_loss, step = float(logs["loss"]), state.global_step
        self._trainer.check_finite()
        if self.last_loss == 0.0:
            raise TrainingError(f"The loss is exactly 0 at step {step}: no position has a label; check the masking rates.")
        parts = {name: round(value, 5) for name, value in self._trainer.take_losses().items()}
        if state.is_world_process_zero:
            speed = self._throughput(step)
            self._write_event(step, logs, parts, speed)
            self._advance(step, logs, parts, speed)

    def _throughput(self, step: int) -> float:
        """Tokens per second since the last report; scoring a checkpoint does not count."""
        before, self._tokens = self._tokens, self._plan.tokens_after(step)
        since, self._timed_from = self._timed_from, time.monotonic()
        return (self._tokens - before) / max(self._timed_from - since, 1e-9)

    def _write_event(self, step: int, logs: dict[str, float], parts: dict[str, float], speed: float) -> None:
        progress, elapsed = self._clock.progress(step), self._clock.elapsed()
        facts = {
            "step": step,
            "epoch": round(step / self._plan.steps_per_epoch, 4),
            "progress": round(progress, 4),
            "loss": round(logs["loss"], 5),
            **parts,
            "rate": float(logs["learning_rate"]),
            "gradient": round(float(logs.get("grad_norm", 0.0)), 4),
            "tokens": self._tokens,
            "tokens_per_second": round(speed),
            "seconds": round(elapsed, 2),
        }
        if torch.cuda.is_available():
            facts["peak_gigabytes"] = peak_gigabytes()
        left = round(elapsed * (1 - progress) / progress, 1) if 0 < progress < 1 else None
        self._progress.event("step", **facts, left=left)

    def _advance(self, step: int, logs: dict[str, float], parts: dict[str, float], speed: float) -> None:
        """Move the bar: by steps, or by seconds where the budget is in minutes alone."""
        before, self._step = self._step, step
        then, self._logged_at = self._logged_at, time.monotonic()
        timed = self._clock.last == OPEN_END
        accuracies = {name.replace("_", " "): value for name, value in parts.items() if name.endswith("_accuracy")}
        shown = {"loss": round(logs["loss"], 4), **accuracies, "rate": float(logs["learning_rate"]), "tokens/s": round(speed)}
        self._stage.advance(self._logged_at - then if timed else step - before, **({"step": step} if timed else {}), **shown)

    def on_save(self, _args: Any, _state: Any, control: Any, **_: Any) -> Any:
        reason = self._judge()
        self._timed_from = time.monotonic()
        if reason is not None and not control.should_training_stop:
            self.stopped = reason
            control.should_training_stop = True
        return control
