"""What fits, and how fast it trains. In: a training recipe. Out: the largest micro-batch, step time, tokens/s, accumulation.

Sizes are tried upwards, each with whole steps: forward, backward, optimizer with its state. This happens in a process of its own,
so that a machine that runs out of memory kills that process and not the command; what it had measured is kept.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.base.config import from_mapping, to_mapping
from coref_automl.base.decoder import read_stored_rows
from coref_automl.base.errors import OutOfMemory
from coref_automl.base.machine import device_seen, pick_device
from coref_automl.base.pool import Call, run_calls
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.say import in_words, say
from coref_automl.base.store import JsonlAppender
from coref_automl.training.recipe import TrainRecipe

_SPEED_RATIO = 0.97
"""On a CPU, two sizes in a row below this share of the best speed end the climb; one alone may be a busy moment."""

_SLOWER = "larger is slower on a CPU"
_NO_LARGER = "larger sizes were not tried"
_KILLED = "the process was killed: out of memory"
T = TypeVar("T")


@dataclass(slots=True)
class Stopwatch:
    """Seconds of all timed calls; on a GPU also the peak memory of any call, beyond what was allocated before it."""

    device: str = "cpu"
    seconds: float = 0.0
    peak: int | None = None

    def timed(self, work: Callable[[], T]) -> T:
        gpu = self._gpu() if self.device.startswith("cuda") else None
        allocated = gpu.memory_allocated() if gpu else 0
        started = time.perf_counter()
        result = work()
        if gpu:
            gpu.synchronize()
            self.peak = max(self.peak or 0, gpu.max_memory_allocated() - allocated)
        self.seconds += time.perf_counter() - started
        return result

    def _gpu(self) -> Any:
        """Return torch.cuda, idle: kernels run asynchronously, and a clock read before they end measures their launch."""
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s" + (f", {self.peak / 1e6:,.0f} MB peak" if self.peak is not None else "")


def training_step(model: Any, device: str) -> Callable[[Callable[[], Any]], None]:
    """Return a function that does a whole step: forward (bfloat16 autocast on CUDA), backward, clipping, AdamW."""
    import torch

    from coref_automl.models.execution import autocast
    from coref_automl.training.optimizer import adamw, parameter_groups

    optimizer = adamw(parameter_groups(model, learning_rate=1e-6, weight_decay=0.01), fused=device.startswith("cuda"))

    def step(loss: Callable[[], Any]) -> None:
        with autocast(device, "auto"):
            value = loss()
        value.backward()
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
    """`largest` is the largest size that trained, `fastest` the one to use, with `accumulation` steps per batch.

    `stopped` says what ended the climb; unless it was memory, a larger size may train, too.
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
        lines = [
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
            *lines,
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
    recipe = from_mapping(TrainRecipe, to_mapping(recipe), "probe")  # refuses impossible values before a size is tried
    device = pick_device(recipe.device)
    recipe = replace(recipe, device=device_seen(recipe.device))
    run = prepare_run(recipe)
    model = f"{recipe.model}, {run.dataset.seq_len:,}"
    progress.note(f"측정: {model}토큰, {device} ...", f"Measuring {model} tokens on {device} ...")
    with tempfile.TemporaryDirectory() as folder:
        sizes_file = Path(folder) / "sizes.jsonl"
        sizing = {"first": first, "largest": largest, "steps": steps}
        arguments = {"recipe": to_mapping(recipe), "sizes_file": str(sizes_file), **sizing}
        one_device = device if ":" in device or device == "cpu" else f"{device}:0"
        outcome = run_calls([Call("probe", f"{__name__}:climb", arguments)], devices=[one_device], retries=0)[0]
        sizes = tuple(read_stored_rows(sizes_file, Size)) if sizes_file.is_file() else ()
    if not sizes:
        raise OutOfMemory(
            f"Not even {'a single row' if first == 1 else f'a batch of {first} rows'} of {run.dataset.seq_len:,} tokens "
            f"trains here ({outcome.error or outcome.value}); pass --gradient-checkpointing, or prepare shorter blocks."
        )
    reason = str(outcome.value) if outcome.error is None else _KILLED
    best = max(sizes, key=lambda size: size.tokens_per_second)
    batch = settled(run.recipe.batch)
    fastest = micro_batch(batch, best.rows)
    return ProbeResult(recipe.model, run.dataset.seq_len, device, sizes, sizes[-1].rows, fastest, batch, batch // fastest, reason)


def climb(recipe: dict[str, Any], sizes_file: str, first: int, largest: int, steps: int) -> str:
    """Write every size that trains to `sizes_file`, and return why the climb ended; runs in a process of its own."""
    import torch

    from coref_automl.training.setup import prepare_run

    run = prepare_run(from_mapping(TrainRecipe, recipe, "probe"))
    rows, fastest, slower = first, 0.0, 0
    with JsonlAppender(Path(sizes_file)) as out:
        while rows <= largest:
            try:
                size = timed_step(run, rows, steps)
            except torch.OutOfMemoryError:
                return f"{rows} do not fit"
            out.append([size.to_json()])
            slower = slower + 1 if size.tokens_per_second < _SPEED_RATIO * fastest else 0
            if run.device == "cpu" and slower == 2:
                return _SLOWER
            fastest = max(fastest, size.tokens_per_second)
            rows *= 2
    return _NO_LARGER


def timed_step(run: Any, rows: int, steps: int) -> Size:
    """Time a few whole steps at one size, after one that allocates the optimizer's state."""
    import numpy as np
    import torch

    from coref_automl.models.execution import without_cudnn
    from coref_automl.training.batches import Collator, MaskedRows
    from coref_automl.training.loss import prepare_model
    from coref_automl.training.setup import load_model, masking_of, mention_losses_of

    device, clock, tokens = run.device, Stopwatch(run.device), 0
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    model = load_model(run, None).model.train()
    if run.recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    prepare_model(model, mention_losses=mention_losses_of(run, model))
    masking, step = masking_of(run, model), training_step(model, device)
    source, collate = MaskedRows(run.dataset, masking, 0), Collator.of(run.dataset, masking)

    def train_on(batch: dict[str, Any]) -> None:
        with without_cudnn(run.dataset.seq_len):
            step(lambda: model(**batch)["loss"])

    for number in range(steps + 1):
        chosen = (np.arange(rows) + number * rows) % len(run.dataset)
        batch = {name: value.to(device) for name, value in collate([source[int(row)] for row in chosen]).items()}
        if number == 0:
            train_on(batch)
            continue
        clock.timed(partial(train_on, batch))
        tokens += int(run.plan.lengths[chosen].sum())
    peak = torch.cuda.max_memory_allocated() / 1e9 if clock.peak is not None else None
    return Size(rows, clock.seconds / steps, tokens / clock.seconds, peak)
