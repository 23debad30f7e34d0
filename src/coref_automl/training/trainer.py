"""Hugging Face's Trainer, taught our batches, our optimizer and whole checkpoints. In: a model, a plan. Out: checkpoints."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PrinterCallback, Trainer, TrainingArguments

from coref_automl.errors import StorageError, TrainingError
from coref_automl.store import obey_umask
from coref_automl.training.collation import Collator, MaskedRows
from coref_automl.training.folder import checkpoints_of, drop_states
from coref_automl.training.optimizer import Group, adamw
from coref_automl.training.plan import EpochSampler, Plan
from coref_automl.training.schedule import Clock, rate_factor


class MaskedTrainer(Trainer):  # type: ignore[misc]
    """The loop people know, with five things of its own: the sampler, the optimizer, the rate, the loss watch, the saving."""

    def __init__(
        self,
        *,
        model: Any,
        args: TrainingArguments,
        rows: MaskedRows,
        collator: Collator,
        plan: Plan,
        groups: list[Group],
        clock: Clock,
        schedule: tuple[str, float],
        tokenizer: Any,
        finish: Callable[[Path, int], None],
        wait: Callable[[], None],
        keep_states: bool,
    ) -> None:
        super().__init__(model=model, args=args, train_dataset=rows, data_collator=collator, processing_class=tokenizer)
        self.remove_callback(PrinterCallback)
        self.model_accepts_loss_kwargs = True  # our forward divides by the items of the whole effective batch
        self.plan = plan
        self.clock = clock
        self._groups = groups
        self._schedule = schedule
        self._finish = finish
        self._wait = wait
        self._keep_states = keep_states
        self._first_bad = torch.full((), -1, dtype=torch.long, device=args.device)

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:  # noqa: ARG002 - the signature is the library's
        group = self.args.per_device_train_batch_size * self.args.world_size
        return EpochSampler(self.plan, group, lambda: int(self.state.global_step))

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:  # noqa: ARG002 - the signature is the library's
        if self.optimizer is None:  # type: ignore[has-type]
            self.optimizer = adamw(self._groups, fused=self.args.device.type == "cuda")
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> torch.optim.lr_scheduler.LRScheduler:
        if self.lr_scheduler is None:  # type: ignore[has-type]
            kind, warmup = self._schedule
            first = 0.5 / max(1, num_training_steps)  # the first step would have a rate of exactly 0 otherwise
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda step: rate_factor(self.clock.progress(step) + first, kind, warmup)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        # remembered on the device: asking for its value here would make the CPU wait for every step
        bad = ~torch.isfinite(loss) & (self._first_bad < 0)
        self._first_bad = torch.where(bad, self.state.global_step, self._first_bad)
        return loss

    def close_workers(self) -> None:
        """End the processes that prepare batches; left to the interpreter's exit, each of them costs five seconds."""
        loader = self.callback_handler.train_dataloader
        for owner in [part for part in (loader, getattr(loader, "base_dataloader", None)) if part is not None]:
            running = getattr(owner, "_iterator", None)
            if running is not None and hasattr(running, "_shutdown_workers"):
                running._shutdown_workers()
                owner._iterator = None

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - counting parameters at every step costs more than it tells
        return 0

    def check_loss(self) -> None:
        """Raise if a loss was not a number since the run began; the step's batch is saved beside the checkpoints."""
        first = self._first_bad[None]
        # every process must come to the same end, or the others would wait for one that has left
        step = int((self.accelerator.gather(first) if self.args.world_size > 1 else first).max())
        if step >= 0:
            where = self._save_batch(step)
            raise TrainingError(
                f"The loss of step {step + 1} is not a number; its batch is in {where}. Earlier checkpoints are intact: "
                f"lower --learning-rate and start in another folder."
            )

    def stop_at_zero(self, step: int) -> None:
        where = self._save_batch(step - 1)
        raise TrainingError(
            f"The loss is exactly 0 at step {step}: nothing is asked for. The batch is in {where}; check the masking rates."
        )

    def _save_batch(self, step: int) -> Path:
        import numpy as np

        epoch, numbers = self.plan.rows_of_step(step)
        rows = [self.train_dataset[int(number) + epoch * self.plan.rows] for number in numbers]
        where = Path(self.args.output_dir).parent / "bad-batch.npz"
        if self.is_world_process_zero():
            parts: dict[str, Any] = {
                name: np.stack([row[at] for row in rows]) for at, name in enumerate(("input_ids", "segments", "labels"))
            }
            np.savez_compressed(where, rows=numbers, epoch=epoch, step=step, **parts)
        return where

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write aside, complete, rename; a full disk removes what was begun and leaves earlier checkpoints alone."""
        self.check_loss()
        writing = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            self._wait()
            if self.is_world_process_zero():
                self._finish(writing / name, self.state.global_step)
                obey_umask(writing / name)
                flush_folder(writing / name)
                older = checkpoints_of(writing.parent)
                (writing / name).replace(writing.parent / name)
                for checkpoint in () if self._keep_states else older:
                    drop_states(checkpoint)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not is_disk_trouble(error):
                raise
            shutil.rmtree(writing, ignore_errors=True)
            raise StorageError(
                f"{name} could not be saved ({str(error).splitlines()[0]}); earlier checkpoints are intact: "
                f"free some space and run the same command again."
            ) from error
        self._wait()


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
