"""The training loop on Hugging Face's Trainer. In: a model, masked rows, a Loop. Out: checkpoints, and events of its steps."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from coref_automl.base.errors import NotFinite, StorageError, TrainingError
from coref_automl.base.progress import Progress, Stage, peak_gigabytes
from coref_automl.base.store import obey_umask
from coref_automl.training import state as checkpoint_state
from coref_automl.training.batches import BatchPlan, Collator, EpochSampler, MaskedRows
from coref_automl.training.folder import checkpoints_of, remove_checkpoint
from coref_automl.training.loss import MODULE, count_targets, named_losses
from coref_automl.training.optimizer import (
    OPEN_END,
    Clock,
    ParameterGroup,
    adamw,
    crossed_mark,
    is_save_step,
    load_optimizer_state,
    schedule_factor,
)

_CHECKED = ("loss", "gradient")
_NEVER = torch.iinfo(torch.long).max
"""The first non-finite step, while there is none."""


@dataclass(frozen=True, slots=True)
class Loop:
    """What this package supplies to the Trainer. `finish` completes the folder of a checkpoint of a step; `wait` is a barrier of
    all processes."""

    plan: BatchPlan
    groups: list[ParameterGroup]
    clock: Clock
    schedule: str
    warmup: float
    finish: Callable[[Path, int], None]
    wait: Callable[[], None]
    keep_states: bool


class MaskedTrainer(Trainer):  # type: ignore[misc]
    """Hugging Face's Trainer with our sampler, optimizer, auxiliary losses, NaN checks and checkpointing.

    Private hooks of transformers 5.17 that are overridden, and what would happen without them:
    _get_train_sampler          rows in the library's order: no exact resumption
    _get_grad_norm              a NaN or infinite gradient is not noticed
    _save_checkpoint, _save     half-written folders; projections of the mention losses saved among the model's own weights
    _load_optimizer_and_scheduler, _load_rng_state    a damaged training state raises a traceback, not a one-line error
    """

    def __init__(
        self, *, model: Any, args: TrainingArguments, rows: MaskedRows, collator: Collator, tokenizer: Any, loop: Loop
    ) -> None:
        super().__init__(model=model, args=args, train_dataset=rows, data_collator=collator, processing_class=tokenizer)
        self.remove_callback(PrinterCallback)
        for callback in self.callback_handler.callbacks:
            if getattr(callback, "logging_dir", "") is None:  # TensorBoard's, unless the environment names one
                callback.logging_dir = str(Path(args.output_dir).parent / "tensorboard")
        self.model_accepts_loss_kwargs = True  # our forward divides by the targets of the whole effective batch
        self.loop = loop
        # the first step with a NaN or infinite value, per quantity; on the device, as reading it would synchronize every step
        self._first_nonfinite = torch.full((len(_CHECKED),), _NEVER, device=args.device)
        self._mention_losses = tuple(getattr(model, MODULE).weights) if hasattr(model, MODULE) else ()
        self._sums: torch.Tensor | None = None

    # sampler
    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:  # noqa: ARG002 - the signature is the library's
        group = self.args.per_device_train_batch_size * self.args.world_size
        return EpochSampler(self.loop.plan, group, lambda: int(self.state.global_step))

    # optimizer and learning rate
    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:  # noqa: ARG002 - the signature is the library's
        if self.optimizer is None:  # type: ignore[has-type]
            self.optimizer = adamw(self.loop.groups, fused=self.args.device.type == "cuda")
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> torch.optim.lr_scheduler.LRScheduler:
        if self.lr_scheduler is None:  # type: ignore[has-type]
            loop = self.loop
            half_step = 0.5 / max(1, num_training_steps)  # otherwise the first step would have a learning rate of exactly 0
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer,
                lambda step: schedule_factor(loop.clock.progress(step) + half_step, loop.schedule, loop.warmup),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # losses
    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """Count the target tokens of the effective batch, and with mention losses its target mentions: both losses are means."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self._mention_losses and batches:
            targets = sum(count_targets(batch["labels"], batch["mentions"]) for batch in batches).to(device)
            items = self.accelerator.gather(targets[None]).sum(0) if self.args.world_size > 1 else targets
        return batches, items

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self._mention_losses:
            self._sums = outputs["sums"] if self._sums is None else self._sums + outputs["sums"]
        return (loss, outputs) if return_outputs else loss

    def take_losses(self) -> dict[str, float]:
        """Return each loss since the last call, if there are several. A collective: call it in every process."""
        if self._sums is None:
            return {}
        sums = self.accelerator.gather(self._sums[None]).sum(0) if self.args.world_size > 1 else self._sums
        self._sums = None
        return named_losses(sums, self._mention_losses)

    # NaN and infinity
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._record_nonfinite(loss, "loss")
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Check the norm before the optimizer's step: a finite loss may have an infinite gradient."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._record_nonfinite(torch.as_tensor(norm, device=self._first_nonfinite.device), "gradient")
        return norm

    def _record_nonfinite(self, value: torch.Tensor, name: str) -> None:
        first = self._first_nonfinite[_CHECKED.index(name)]
        first.copy_(torch.where(torch.isfinite(value), first, first.clamp(max=self.state.global_step)))

    def check_finite(self) -> None:
        """Raise if any loss or gradient since the start was NaN or infinite. A collective: call it in every process."""
        # all processes must raise together, or the others would wait for the one that did
        steps = self.accelerator.gather(self._first_nonfinite[None]).amin(0).tolist()
        step = min(steps)
        if step < _NEVER:
            losses = self.take_losses()
            bad = [name.removesuffix("_loss") for name, value in losses.items() if "_loss" in name and not math.isfinite(value)]
            named = f" ({', '.join(bad)})" if bad else ""
            raise NotFinite(
                f"The {_CHECKED[steps.index(step)]} of step {step + 1} is NaN or infinite{named}. "
                f"Earlier checkpoints are intact: lower --learning-rate and start in another folder."
            )

    # checkpoints
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint in a temporary folder, complete it, and rename it; on a full disk, remove only what was begun."""
        self.check_finite()
        writing = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            self.loop.wait()
            if self.is_world_process_zero():
                self.loop.finish(writing / name, self.state.global_step)
                obey_umask(writing / name)
                checkpoint_state.flush_folder(writing / name)
                older = [] if self.loop.keep_states else checkpoints_of(writing.parent)
                if (same_step := writing.parent / name).exists():  # of an attempt whose training state is gone
                    remove_checkpoint(same_step)
                (writing / name).replace(same_step)
                for checkpoint in older:
                    checkpoint_state.drop_states(checkpoint)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not checkpoint_state.is_disk_trouble(error):
                raise
            shutil.rmtree(writing, ignore_errors=True)
            raise StorageError(
                f"{name} could not be saved ({str(error).splitlines()[0]}); earlier checkpoints are intact: "
                f"free some space and run the same command again."
            ) from error
        self.loop.wait()

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save the model alone; the projections of the mention losses go to a file that only a resumption reads."""
        if self._mention_losses:
            weights = self.model.state_dict() if state_dict is None else state_dict
            state_dict = {name: value for name, value in weights.items() if not name.startswith(f"{MODULE}.")}
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            checkpoint_state.write_state(folder / checkpoint_state.MENTION_LOSSES, getattr(self.model, MODULE).state_dict())
        super()._save(output_dir, state_dict)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with checkpoint_state.stored_state(Path(checkpoint) / "optimizer.pt") as stored:
                load_optimizer_state(self.optimizer, stored)
            with checkpoint_state.stored_state(Path(checkpoint) / "scheduler.pt") as stored:
                self.lr_scheduler.load_state_dict(stored)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with checkpoint_state.readable_state(Path(checkpoint) / "rng_state.pth"):
                if not any(Path(checkpoint).glob("rng_state*.pth")):  # one per process
                    raise FileNotFoundError("rng_state.pth")
                super()._load_rng_state(checkpoint)

    # costs of the library that a run avoids
    def close_workers(self) -> None:
        """Stop the data-loading processes; left to the interpreter's exit, each of them costs five seconds."""
        loader = self.callback_handler.train_dataloader
        for owner in [part for part in (loader, getattr(loader, "base_dataloader", None)) if part is not None]:
            iterator = getattr(owner, "_iterator", None)
            if iterator is not None and hasattr(iterator, "_shutdown_workers"):
                iterator._shutdown_workers()
                owner._iterator = None

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - the library would count parameters at every step
        return 0


@dataclass(eq=False)
class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Decides when to save and when to stop, and reports at logging steps.

    save_every    epochs between checkpoints, if their number (`checkpoints`) is not given
    judge         scores each new checkpoint; returns a reason to stop, which is then in `stopped`, or None
    _saved_at     progress, from 0 to 1, at which a checkpoint was last due
    _tokens       tokens until the last report, which was at `_logged_at`
    _plan, _clock  those of the trainer's loop
    _timed_from   when the throughput began to count: at the last report, or after the checkpoint that was judged since
    """

    trainer: MaskedTrainer
    save_every: float
    checkpoints: int | None
    stage: Stage
    progress: Progress
    judge: Callable[[], str | None]
    last_loss: float | None = None
    stopped: str | None = None
    _saved_at: float = 0.0
    _tokens: int = 0
    _logged_at: float = 0.0
    _timed_from: float = 0.0

    def __post_init__(self) -> None:
        self._plan, self._clock = self.trainer.loop.plan, self.trainer.loop.clock

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        step = state.global_step
        self._tokens = self._plan.tokens_after(step)
        self._logged_at = self._timed_from = time.monotonic()
        self._saved_at = self._clock.progress(step)
        self.stage.skip(step if self._clock.last < OPEN_END else self._clock.earlier)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
        step = state.global_step
        finished = self._clock.finished(step)
        if finished:
            control.should_training_stop = True
        if finished or self._save_is_due(step):
            control.should_log = control.should_save = True
        return control

    def _save_is_due(self, step: int) -> bool:
        """Is a checkpoint due? Ask once per step: it remembers the progress that it saw."""
        if self.checkpoints is None:
            return is_save_step(step, self._plan.steps_per_epoch, self.save_every, self._clock.last)
        previous, self._saved_at = self._saved_at, self._clock.progress(step)
        return crossed_mark(previous, self._saved_at, self.checkpoints)

    def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        self.last_loss, step = float(logs["loss"]), state.global_step
        self.trainer.check_finite()
        if self.last_loss == 0.0:
            raise TrainingError(f"The loss is exactly 0 at step {step}: no position has a label; check the masking rates.")
        losses = {name: round(value, 5) for name, value in self.trainer.take_losses().items()}
        if state.is_world_process_zero:
            speed = self._throughput(step)
            self._write_event(step, logs, losses, speed)
            self._advance(step, logs, losses, speed)

    def _throughput(self, step: int) -> float:
        """Return tokens per second since the last report, without the time spent scoring checkpoints."""
        previous, self._tokens = self._tokens, self._plan.tokens_after(step)
        since, self._timed_from = self._timed_from, time.monotonic()
        return (self._tokens - previous) / max(self._timed_from - since, 1e-9)

    def _write_event(self, step: int, logs: dict[str, float], losses: dict[str, float], speed: float) -> None:
        progress, elapsed = self._clock.progress(step), self._clock.elapsed()
        facts = {
            "step": step,
            "epoch": round(step / self._plan.steps_per_epoch, 4),
            "progress": round(progress, 4),
            "loss": round(logs["loss"], 5),
            **losses,
            "rate": float(logs["learning_rate"]),
            "gradient": round(float(logs.get("grad_norm", 0.0)), 4),
            "tokens": self._tokens,
            "tokens_per_second": round(speed),
            "seconds": round(elapsed, 2),
        }
        if torch.cuda.is_available():
            facts["peak_gigabytes"] = peak_gigabytes()
        left = round(elapsed * (1 - progress) / progress, 1) if 0 < progress < 1 else None
        self.progress.event("step", **facts, left=left)

    def _advance(self, step: int, logs: dict[str, float], losses: dict[str, float], speed: float) -> None:
        """Move the progress bar, whose unit is a step, or a second if the budget is in minutes alone."""
        previous_time, self._logged_at = self._logged_at, time.monotonic()
        shown = {name.replace("_", " "): value for name, value in losses.items() if name.endswith("_accuracy")}
        shown = {"loss": round(logs["loss"], 4), **shown, "rate": float(logs["learning_rate"]), "tokens/s": round(speed)}
        if self._clock.last == OPEN_END:
            self.stage.advance(self._logged_at - previous_time, step=step, **shown)
        else:
            self.stage.advance(step - self.stage.done, **shown)

    def on_save(self, _args: Any, _state: Any, control: Any, **_: Any) -> Any:
        reason = self.judge()
        self._timed_from = time.monotonic()
        if reason is not None and not control.should_training_stop:
            self.stopped = reason
            control.should_training_stop = True
        return control
