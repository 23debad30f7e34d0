"""The training loop: Hugging Face's Trainer with our batches, optimizer and checkpoints. In: a model, a plan, a clock."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import PrinterCallback, Trainer, TrainingArguments

from coref_automl.errors import NotFinite, StorageError
from coref_automl.store import obey_umask
from coref_automl.training import state as disk
from coref_automl.training.batches import BatchPlan, Collator, EpochSampler, MaskedRows
from coref_automl.training.folder import checkpoints_of
from coref_automl.training.loss import HEAD, count_targets, named_losses
from coref_automl.training.optimizer import Clock, ParameterGroup, adamw, load_optimizer_state, schedule_factor

_WATCHED = ("loss", "gradient")
_NEVER = torch.iinfo(torch.long).max


@dataclass(frozen=True, slots=True)
class Loop:
    """What is ours in the loop. `schedule` is its kind and the share of warm-up; `finish` completes the folder of a checkpoint;
    `wait` is for the other processes."""

    plan: BatchPlan
    groups: list[ParameterGroup]
    clock: Clock
    schedule: tuple[str, float]
    finish: Callable[[Path, int], None]
    wait: Callable[[], None]
    keep_states: bool


class MaskedTrainer(Trainer):  # type: ignore[misc]
    """The loop people know, with its own sampler, optimizer, parts of the loss, watch over it, and saving.

    Private hooks of transformers 5.17 that are overridden, and what would be without them:
    _get_train_sampler          the library's order of rows: no exact resumption
    _get_grad_norm              a gradient that is not finite changes the weights before it is seen
    _save_checkpoint, _save     folders half written; what the objective learned among the model's own weights
    _load_optimizer_and_scheduler, _load_rng_state    a damaged state of a checkpoint is a traceback, not a sentence
    """

    def __init__(
        self, *, model: Any, args: TrainingArguments, rows: MaskedRows, collator: Collator, tokenizer: Any, loop: Loop
    ) -> None:
        super().__init__(model=model, args=args, train_dataset=rows, data_collator=collator, processing_class=tokenizer)
        self.remove_callback(PrinterCallback)
        self.model_accepts_loss_kwargs = True  # our forward divides by the items of the whole effective batch
        self.loop = loop
        self._first_bad = torch.full((len(_WATCHED),), _NEVER, device=args.device)
        self._mention_losses = tuple(getattr(model, HEAD).weights) if hasattr(model, HEAD) else ()
        self._sums: torch.Tensor | None = None

    # the sampler
    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:  # noqa: ARG002 - the signature is the library's
        group = self.args.per_device_train_batch_size * self.args.world_size
        return EpochSampler(self.loop.plan, group, lambda: int(self.state.global_step))

    # the optimizer and its rate
    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:  # noqa: ARG002 - the signature is the library's
        if self.optimizer is None:  # type: ignore[has-type]
            self.optimizer = adamw(self.loop.groups, fused=self.args.device.type == "cuda")
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> torch.optim.lr_scheduler.LRScheduler:
        if self.lr_scheduler is None:  # type: ignore[has-type]
            kind, warmup = self.loop.schedule
            first = 0.5 / max(1, num_training_steps)  # the first step would have a rate of exactly 0 otherwise
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda step: schedule_factor(self.loop.clock.progress(step) + first, kind, warmup)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # the parts of the loss
    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """Beside the asked tokens of the whole effective batch, its asked mentions: a loss between them is a mean over those."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self._mention_losses and batches:
            asked = sum(count_targets(batch["labels"], batch["mentions"]) for batch in batches).to(device)
            items = self.accelerator.gather(asked[None]).sum(0) if self.args.world_size > 1 else asked
        return batches, items

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if self._mention_losses:
            self._sums = outputs["sums"] if self._sums is None else self._sums + outputs["sums"]
        return (loss, outputs) if return_outputs else loss

    def take_losses(self) -> dict[str, float]:
        """The parts of the loss since the last call, where it has several; every process must ask."""
        if self._sums is None:
            return {}
        sums = self.accelerator.gather(self._sums[None]).sum(0) if self.args.world_size > 1 else self._sums
        self._sums = None
        return named_losses(sums, self._mention_losses)

    # the watch over it
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._watch(loss, "loss")
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """A finite loss may have a gradient that is not: the norm is known before the weights are changed by it."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._watch(torch.as_tensor(norm, device=self._first_bad.device), "gradient")
        return norm

    def _watch(self, value: torch.Tensor, name: str) -> None:
        """Remembered on the device: asking for a value here would make the CPU wait for every step."""
        first = self._first_bad[_WATCHED.index(name)]
        first.copy_(torch.where(torch.isfinite(value), first, first.clamp(max=self.state.global_step)))

    def check_finite(self) -> None:
        """Raise if any loss or gradient since the start was NaN or infinite; every process must ask."""
        first = self._first_bad[None]
        # every process must come to the same end, or the others would wait for one that has left
        steps = (self.accelerator.gather(first) if self.args.world_size > 1 else first).amin(0).tolist()
        step = min(steps)
        if step < _NEVER:
            parts = self.take_losses()
            bad = [name.removesuffix("_loss") for name, value in parts.items() if "_loss" in name and not math.isfinite(value)]
            named = f" ({', '.join(bad)})" if bad else ""
            raise NotFinite(
                f"The {_WATCHED[steps.index(step)]} of step {step + 1} is NaN or infinite{named}. "
                f"Earlier checkpoints are intact: lower --learning-rate and start in another folder."
            )

    # saving, and loading what was saved
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write aside, complete, rename; a full disk removes what was begun and leaves earlier checkpoints alone."""
        self.check_finite()
        writing = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            self.loop.wait()
            if self.is_world_process_zero():
                self.loop.finish(writing / name, self.state.global_step)
                obey_umask(writing / name)
                disk.flush_folder(writing / name)
                older = checkpoints_of(writing.parent)
                (writing / name).replace(writing.parent / name)
                for checkpoint in () if self.loop.keep_states else older:
                    disk.drop_states(checkpoint)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not disk.is_disk_trouble(error):
                raise
            shutil.rmtree(writing, ignore_errors=True)
            raise StorageError(
                f"{name} could not be saved ({str(error).splitlines()[0]}); earlier checkpoints are intact: "
                f"free some space and run the same command again."
            ) from error
        self.loop.wait()

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """The model alone in its own files; what the objective learned beside it in another, which only a resumption needs."""
        if self._mention_losses:
            weights = self.model.state_dict() if state_dict is None else state_dict
            state_dict = {name: value for name, value in weights.items() if not name.startswith(f"{HEAD}.")}
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            disk.write_state(folder / disk.MENTION_LOSSES, getattr(self.model, HEAD).state_dict())
        super()._save(output_dir, state_dict)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with disk.stored_state(Path(checkpoint) / "optimizer.pt") as stored:
                load_optimizer_state(self.optimizer, stored)
            with disk.stored_state(Path(checkpoint) / "scheduler.pt") as stored:
                self.lr_scheduler.load_state_dict(stored)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with disk.readable_state(Path(checkpoint) / "rng_state.pth"):
                if not any(Path(checkpoint).glob("rng_state*.pth")):  # one for each process, where there are several
                    raise FileNotFoundError("rng_state.pth")
                super()._load_rng_state(checkpoint)

    # what a step should not cost
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
