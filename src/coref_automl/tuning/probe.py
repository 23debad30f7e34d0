"""What fits, and how fast it trains. In: a training recipe. Out: the largest micro-batch, step time, tokens/s, accumulation.

Sizes are tried upwards, each with a whole step: forward, backward, optimizer with its state. The trying is done in a process of
its own, so that a machine without memory to spare kills that process and not the command; what it had measured is kept.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.config import from_mapping, to_mapping
from coref_automl.decoder import read_stored_rows
from coref_automl.engine.pool import Call, run_calls
from coref_automl.errors import OutOfMemory
from coref_automl.machine import device_seen, pick_device
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.say import in_words, say
from coref_automl.store import JsonlAppender
from coref_automl.training.recipe import TrainRecipe

_ENOUGH = 0.97
"""On a CPU two larger micro-batches in a row that are slower end the climb: memory would be the last thing to run out.

One alone may be a busy moment of the machine.
"""

_SLOWER = "larger is slower on a CPU"
_NO_LARGER = "larger sizes were not tried"
_KILLED = "the process was killed: out of memory"
T = TypeVar("T")


@dataclass(slots=True)
class Stopwatch:
    """Seconds over all timed calls; on a GPU also the peak memory of any, beyond what was allocated before it."""

    device: str = "cpu"
    seconds: float = 0.0
    peak: int | None = None

    def timed(self, work: Callable[[], T]) -> T:
        gpu = self._gpu() if self.device.startswith("cuda") else None
        before = gpu.memory_allocated() if gpu else 0
        started = time.perf_counter()
        result = work()
        if gpu:
            gpu.synchronize()
            self.peak = max(self.peak or 0, gpu.max_memory_allocated() - before)
        self.seconds += time.perf_counter() - started
        return result

    def _gpu(self) -> Any:
        """Torch's, idle: it is launched ahead of, and a clock that is read before it is done measures the launch."""
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s" + (f", {self.peak / 1e6:,.0f} MB peak" if self.peak is not None else "")


def training_step(model: Any, device: str) -> Callable[[Callable[[], Any]], None]:
    """A whole step for a loss: forward (bfloat16 autocast on CUDA), backward, clipping, AdamW."""
    import torch

    from coref_automl.models.execution import autocast
    from coref_automl.training.optimizer import adamw, parameter_groups

    optimizer = adamw(parameter_groups(model, learning_rate=1e-6, weight_decay=0.01), fused=device.startswith("cuda"))

    def step(loss: Callable[[], Any]) -> None:
        with autocast(device, "auto"):
            found = loss()
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@dataclass(frozen=True, slots=True)
class Size(Record):
    """One micro-batch: seconds per step, real tokens per second, peak memory where known."""

    rows: int
    seconds: float
    tokens_per_second: float
    gigabytes: float | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult(Record):
    """`largest` is the largest size that trained, `fastest` the one to use; `accumulation` makes the batch from it.

    A larger size may train, too, unless memory ended the climb: `stopped` says what did.
    """

    model: str
    seq_len: int
    device: str
    sizes: tuple[Size, ...]
    largest: int
    fastest: int
    batch: int
    accumulation: int
    stopped: str

    def lines(self) -> list[str]:
        shown = [
            say(
                f"{size.rows:>5}행: 스텝당 {size.seconds:.3f}초, 초당 {size.tokens_per_second:,.0f}토큰",
                f"{size.rows:>5} rows: {size.seconds:.3f} s per step, {size.tokens_per_second:,.0f} tokens/s",
            )
            + (f", {size.gigabytes:.1f} GB" if size.gigabytes is not None else "")
            for size in self.sizes
        ]
        tried = self.stopped in (_SLOWER, _NO_LARGER)
        most = say("시도한 최대", "Largest tried") if tried else say("학습되는 최대", "Largest that trains")
        why = in_words(self.stopped)
        flags, length = f"--batch {self.batch} --micro-batch {self.fastest}", f"{self.seq_len:,}"
        return [
            say(
                f"{self.model}, {length}토큰, {self.device}, 옵티마이저 상태 포함",
                f"{self.model} at {length} tokens on {self.device}, optimizer state included",
            ),
            *shown,
            say(
                f"{most}: {self.largest}행 ({why}). 가장 빠른 크기: {self.fastest}행.",
                f"{most}: {self.largest} rows ({why}); fastest: {self.fastest} rows.",
            ),
            say(
                f"배치 {self.batch}에는: {flags} (누적 {self.accumulation}번)",
                f"For a batch of {self.batch}: {flags} ({self.accumulation} accumulation steps)",
            ),
        ]


def probe(
    recipe: TrainRecipe, *, first: int = 1, largest: int = 256, steps: int = 3, progress: Progress | None = None
) -> ProbeResult:
    """Climb from `first` rows until memory, the limit, or (on a CPU) the gain runs out."""
    from coref_automl.training.batches import micro_batch
    from coref_automl.training.setup import prepare_run, settled

    progress = progress or quiet()
    recipe = from_mapping(TrainRecipe, to_mapping(recipe), "probe")  # a value that cannot be is an error before a size is tried
    device = pick_device(recipe.device)
    recipe = replace(recipe, device=device_seen(recipe.device))
    work = prepare_run(recipe)
    tried = f"{recipe.model}, {work.dataset.seq_len:,}"
    progress.note(f"측정: {tried}토큰, {device} ...", f"Measuring {tried} tokens on {device} ...")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "sizes.jsonl"
        arguments = {"recipe": to_mapping(recipe), "kept": str(kept), "first": first, "largest": largest, "steps": steps}
        place = device if ":" in device or device == "cpu" else f"{device}:0"
        outcome = run_calls([Call("probe", f"{__name__}:climb", arguments)], devices=[place], retries=0)[0]
        sizes = tuple(read_stored_rows(kept, Size)) if kept.is_file() else ()
    if not sizes:
        raise OutOfMemory(
            f"Not even {'a single row' if first == 1 else f'a batch of {first} rows'} of {work.dataset.seq_len:,} tokens "
            f"trains here ({outcome.error or outcome.value}); pass --gradient-checkpointing, or prepare shorter blocks."
        )
    stopped = str(outcome.value) if outcome.error is None else _KILLED
    best = max(sizes, key=lambda size: size.tokens_per_second)
    batch = settled(work.recipe.batch)
    fastest = micro_batch(batch, best.rows)
    return ProbeResult(
        recipe.model, work.dataset.seq_len, device, sizes, sizes[-1].rows, fastest, batch, batch // fastest, stopped
    )


def climb(recipe: dict[str, Any], kept: str, first: int, largest: int, steps: int) -> str:
    """What the process of its own does: write down every size that trained; say why it stopped."""
    import torch

    from coref_automl.training.setup import prepare_run

    work = prepare_run(from_mapping(TrainRecipe, recipe, "probe"))
    rows, past, slower = first, 0.0, 0
    with JsonlAppender(Path(kept)) as out:
        while rows <= largest:
            try:
                size = timed_step(work, rows, steps)
            except torch.OutOfMemoryError:
                return f"{rows} do not fit"
            out.append([size.to_json()])
            slower = slower + 1 if size.tokens_per_second < _ENOUGH * past else 0
            if work.device == "cpu" and slower == 2:
                return _SLOWER
            past = max(past, size.tokens_per_second)
            rows *= 2
    return _NO_LARGER


def timed_step(work: Any, rows: int, steps: int) -> Size:
    """A few whole steps at one size; the first is not timed, as it makes the optimizer's state."""
    import numpy as np
    import torch

    from coref_automl.models.execution import without_cudnn
    from coref_automl.training.batches import Collator, MaskedRows
    from coref_automl.training.loss import prepare_model
    from coref_automl.training.setup import load_model, masking_of, mention_losses_of

    device, clock, tokens = work.device, Stopwatch(work.device), 0
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    model = load_model(work, None).model.train()
    if work.recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    prepare_model(model, mention_losses=mention_losses_of(work, model))
    masking, step = masking_of(work, model), training_step(model, device)
    source, collate = MaskedRows(work.dataset, masking, 0), Collator.of(work.dataset, masking)

    def run(batch: dict[str, Any]) -> None:
        with without_cudnn(work.dataset.seq_len):
            step(lambda: model(**batch)["loss"])

    for number in range(steps + 1):
        chosen = (np.arange(rows) + number * rows) % len(work.dataset)
        batch = {name: value.to(device) for name, value in collate([source[int(row)] for row in chosen]).items()}
        if number == 0:
            run(batch)
            continue
        clock.timed(partial(run, batch))
        tokens += int(work.plan.lengths[chosen].sum())
    peak = torch.cuda.max_memory_allocated() / 1e9 if clock.peak is not None else None
    return Size(rows, clock.seconds / steps, tokens / clock.seconds, peak)
