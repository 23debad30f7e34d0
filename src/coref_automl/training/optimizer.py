"""AdamW and the schedule of a run. In: a model, a learning rate, a budget. Out: parameter groups; when to save, when to end.

Layer-wise decay of the learning rate goes by layer index: the head and everything after the last layer have the full rate, layer
i of n (from 0) has decay^(n - i), the embeddings have decay^(n + 1).

A run measures its progress from 0 to 1: by steps, or by the clock if its budget is in minutes, whichever is further. The learning
rate is a function of that progress alone, so a run that must end in five minutes still finishes its decay.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import nn

_LAYER = re.compile(r"(?:^|\.)layers?\.(\d+)\.")


@dataclass(frozen=True, slots=True, eq=False)
class ParameterGroup:
    """Parameters with one learning rate and one weight decay."""

    learning_rate: float
    weight_decay: float
    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]


def depth_of(name: str, layers: int, prefix: str) -> int:
    """Return the depth of a parameter, by its name. Tables that all layers share count as embeddings."""
    if match := _LAYER.search(name):
        return int(match.group(1)) + 1
    inner = name.removeprefix(prefix + ".")
    if inner == name:
        return layers + 1
    if inner.startswith("encoder.conv."):
        return 1
    return 0 if "embeddings" in inner or inner.startswith("encoder.") else layers + 1


def parameter_groups(model: Any, *, learning_rate: float, weight_decay: float, layer_decay: float = 1.0) -> list[ParameterGroup]:
    """Group the trainable parameters, in order of depth. Norms, biases and other vectors have no weight decay."""
    groups: dict[tuple[int, bool], list[tuple[str, nn.Parameter]]] = {}
    by_depth = layer_decay != 1.0
    layers, prefix = (model.config.num_hidden_layers, model.base_model_prefix) if by_depth else (0, "")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            name = name.removeprefix("module.")
            depth = depth_of(name, layers, prefix) if by_depth else layers + 1
            decayed = parameter.ndim >= 2 and "norm" not in name.lower()
            groups.setdefault((depth, decayed), []).append((name, parameter))
    return [
        ParameterGroup(
            learning_rate * layer_decay ** (layers + 1 - depth),
            weight_decay if decayed else 0.0,
            tuple(name for name, _ in members),
            tuple(parameter for _, parameter in members),
        )
        for (depth, decayed), members in sorted(groups.items(), key=lambda entry: (entry[0][0], not entry[0][1]))
    ]


def adamw(groups: Iterable[ParameterGroup], *, fused: bool) -> torch.optim.AdamW:
    """AdamW with the betas of BERT-like pretraining."""
    options = [{"params": list(g.parameters), "lr": g.learning_rate, "weight_decay": g.weight_decay} for g in groups]
    return torch.optim.AdamW(options, betas=(0.9, 0.98), eps=1e-6, fused=fused)


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state and check its shapes: torch only counts the parameters, and fails at the first step of another model."""
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        if any(value.ndim and value.shape != parameter.shape for value in moments.values()):
            raise ValueError("the optimizer's state is of other shapes")


OPEN_END = 1_000_000_000
"""The step count of a run whose budget is in minutes alone."""

_TOO_CLOSE = Fraction(1, 10)
"""Share of the save interval before the end in which no checkpoint is saved."""


def total_steps(steps_per_epoch: int, epochs: float | None, max_tokens: int | None, tokens_per_epoch: int) -> int:
    """Return the steps of a run, whose budget is in epochs, tokens or both: the smaller one counts."""
    shares = [_exact(epochs)] if epochs is not None else []
    shares += [Fraction(max_tokens, tokens_per_epoch)] if max_tokens is not None else []
    return max(1, math.floor(min(shares) * steps_per_epoch)) if shares else OPEN_END


def is_save_step(step: int, steps_per_epoch: int, every: float, last: int) -> bool:
    """Tell whether a checkpoint is due after this step: at floor(k x every x steps_per_epoch) for every k, and at the end.

    A step just before the end is skipped, so that the last two checkpoints are not nearly the same.
    """
    if step == last:
        return True
    interval = _exact(every) * steps_per_epoch
    if interval <= 0 or step <= 0 or step > last:
        return False
    if interval < 1:
        return True
    number = math.ceil(step / interval)
    return math.floor(number * interval) == step and last - step >= _TOO_CLOSE * interval


def save_steps(steps_per_epoch: int, every: float, last: int) -> tuple[int, ...]:
    """List the save steps of a run with a known end: every half epoch of 131 steps gives 65, 131, 196, 262 ..."""
    interval = max(_exact(every) * steps_per_epoch, Fraction(1)) if every else Fraction(last)
    due = {math.floor(number * interval) for number in range(1, math.floor(Fraction(last) / interval) + 1)} | {last}
    return tuple(step for step in sorted(due) if is_save_step(step, steps_per_epoch, every, last))


def crossed_mark(previous: float, current: float, marks: int) -> bool:
    """Tell whether a run crossed one of its evenly spaced marks between two values of its progress."""
    return math.floor(marks * current + 1e-9) > math.floor(marks * previous + 1e-9)


def even_steps(marks: int, last: int) -> tuple[int, ...]:
    """List the first step at or after each mark; a short run has fewer steps than marks."""
    marks = min(marks, last)
    return tuple(sorted({min(last, math.ceil(Fraction(number * last, marks))) for number in range(1, marks + 1)}))


def schedule_factor(progress: float, schedule: str, warmup: float) -> float:
    """Return the fraction of the peak learning rate at a progress between 0 and 1."""
    progress = min(1.0, max(0.0, progress))
    if progress < warmup:
        return progress / warmup
    rest = (progress - warmup) / (1.0 - warmup) if warmup < 1.0 else 1.0
    return _DECAYS[schedule](rest)


_DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda rest: 1.0 - rest,
    "cosine": lambda rest: 0.5 * (1.0 + math.cos(math.pi * rest)),
    "wsd": lambda rest: min(1.0, (1.0 - rest) / 0.2),  # stable for four fifths, then a linear decay
    "constant": lambda _: 1.0,
}


@dataclass(slots=True)
class Clock:
    """The progress of a run, from its steps and from the seconds it has trained, across interruptions.

    `earlier` and `lost` are stored in the resumed checkpoint: all its seconds, and those without training (loading, compiling, an
    attempt that ran out of memory). Lost seconds count towards the budget but not towards the schedule, which would otherwise
    skip its warm-up. `reserve` seconds are kept for saving the last checkpoint. `first` and `last` are the steps that this call
    begins and ends with. `shared` makes several processes agree on one progress.
    """

    last: int
    minutes: float | None = None
    earlier: float = 0.0
    lost: float = 0.0
    reserve: float = 0.0
    first: int = 0
    started: float = field(default_factory=time.monotonic)
    shared: Callable[[float], float] | None = None
    _running: bool = False
    _agreed: tuple[int, float] = (-1, 0.0)

    def elapsed(self) -> float:
        return self.earlier + time.monotonic() - self.started

    def progress(self, step: int) -> float:
        by_steps = step / self.last
        if self.minutes is None:
            return by_steps
        if step > self.first and not self._running:
            self._running = True
            self.lost += time.monotonic() - self.started
        return max(by_steps, self._by_time(step))

    def finished(self, step: int) -> bool:
        return self.progress(step) >= 1.0

    def _by_time(self, step: int) -> float:
        """Return the same progress in all processes; they exchange it at every tenth step, as each exchange costs time."""
        budget = 60.0 * (self.minutes or 0.0)
        seconds = self.elapsed() if self._running else self.earlier
        progress = (seconds - self.lost) / max(budget - self.reserve - self.lost, 0.05 * budget)
        if self.shared is None:
            return progress
        if self._agreed[0] != step // _AGREE_EVERY:
            self._agreed = (step // _AGREE_EVERY, self.shared(progress))
        return self._agreed[1]


_AGREE_EVERY = 10


def _exact(number: float) -> Fraction:
    """Return 0.1 as a tenth, not as the nearest binary fraction."""
    return Fraction(str(number))
