"""What happens between steps. In: the Trainer's state. Out: events, checkpoints when due, an end in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from coref_automl.progress import Progress, Stage
from coref_automl.training.plan import Plan
from coref_automl.training.schedule import OPEN_END, Clock, crossed_mark, is_save_step
from coref_automl.training.trainer import MaskedTrainer


class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Saves at the explicit steps, stops at the end of the budget, reports at logging steps, asks `judge` after each checkpoint.

    `judge` scores the new checkpoint and returns a reason to stop, or None.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        clock: Clock,
        save_every: float,
        checkpoints: int | None = None,
        stage: Stage,
        progress: Progress,
        judge: Callable[[], str | None],
    ) -> None:
        self.trainer: MaskedTrainer | None = None
        self.last_loss: float | None = None
        self.stopped: str | None = None
        self._plan = plan
        self._clock = clock
        self._save_every = save_every
        self._checkpoints = checkpoints
        self._before = 0.0
        self._stage = stage
        self._progress = progress
        self._judge = judge
        self._logged = (0, 0, 0.0)
        self._moving = 0.0

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self._moving = time.monotonic()
        self._logged = (state.global_step, self._plan.tokens_after(state.global_step), self._moving)
        self._before = self._clock.progress(state.global_step)
        self._stage.skip(state.global_step if self._clock.last < OPEN_END else self._clock.earlier)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
        step = state.global_step
        over = self._clock.over(step)
        if over:
            control.should_training_stop = True
        if over or self._save_due(step):
            control.should_log = control.should_save = True
        return control

    def _save_due(self, step: int) -> bool:
        if self._checkpoints is None:
            return is_save_step(step, self._plan.steps_per_epoch, self._save_every, self._clock.last)
        before, self._before = self._before, self._clock.progress(step)
        return crossed_mark(before, self._before, self._checkpoints)

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs or self.trainer is None:
            return
        step, loss = state.global_step, float(logs["loss"])
        self.trainer.check_loss()
        if loss == 0.0:
            self.trainer.stop_at_zero(step)
        self.last_loss = loss
        if not state.is_world_process_zero:
            return
        before, tokens_before, then = self._logged
        tokens, now = self._plan.tokens_after(step), time.monotonic()
        speed = (tokens - tokens_before) / max(now - self._moving, 1e-9)
        self._logged = (step, tokens, now)
        self._moving = now
        facts = {
            "step": step,
            "epoch": round(step / self._plan.steps_per_epoch, 4),
            "progress": round(self._clock.progress(step), 4),
            "loss": round(loss, 5),
            "rate": float(logs["learning_rate"]),
            "gradient": round(float(logs.get("grad_norm", 0.0)), 4),
            "tokens": tokens,
            "tokens_per_second": round(speed),
            "seconds": round(self._clock.elapsed(), 2),
        }
        if torch.cuda.is_available():
            facts["peak_gigabytes"] = round(torch.cuda.max_memory_allocated() / 1e9, 3)
        self._progress.event("step", **facts, left=self._seconds_left(step))
        amount = step - before if self._clock.last < OPEN_END else now - then
        shown = {"loss": round(loss, 4), "rate": float(logs["learning_rate"]), "tokens/s": round(speed)}
        self._stage.advance(amount, **({"step": step} if self._clock.last == OPEN_END else {}), **shown)

    def on_save(self, _args: Any, _state: Any, control: Any, **_: Any) -> Any:
        reason = self._judge()
        self._moving = time.monotonic()  # scoring a checkpoint makes training no slower
        if reason is not None and not control.should_training_stop:
            self.stopped = reason
            control.should_training_stop = True
        return control

    def _seconds_left(self, step: int) -> float | None:
        progress = self._clock.progress(step)
        return round(self._clock.elapsed() * (1 - progress) / progress, 1) if 0 < progress < 1 else None
