"""AdamW and the schedule of a run. In: a model, rates, a budget of steps or minutes. Out: parameter groups; end, saves, rate.

Layer-wise decay goes by layer index: the head and everything after the last layer have the full rate, layer i of n has
decay^(n - i), the embeddings decay^(n + 1).

A run measures its progress from 0 to 1: by steps, or by the clock when its budget is in minutes, whichever is further on. The
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
    """Parameters of one depth: 0 the embeddings, 1 to n the layers, n + 1 the head; None where depth makes no difference."""

    depth: int | None
    rate: float
    weight_decay: float
    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]


def depth_of(name: str, layers: int, prefix: str) -> int:
    """The depth of a parameter, by its name. Tables that all layers share count as embeddings."""
    if match := _LAYER.search(name):
        return int(match.group(1)) + 1
    inner = name.removeprefix(prefix + ".")
    if inner == name:
        return layers + 1
    if inner.startswith("encoder.conv."):
        return 1
    return 0 if "embeddings" in inner or inner.startswith("encoder.") else layers + 1


def groups_of(model: Any, *, rate: float, weight_decay: float, layer_decay: float = 1.0) -> list[ParameterGroup]:
    """The groups in order of depth. Norms, biases and other vectors are not decayed."""
    found: dict[tuple[int, bool], list[tuple[str, nn.Parameter]]] = {}
    by_depth = layer_decay != 1.0
    layers, prefix = (model.config.num_hidden_layers, model.base_model_prefix) if by_depth else (0, "")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            name = name.removeprefix("module.")
            depth = depth_of(name, layers, prefix) if by_depth else layers + 1
            decayed = parameter.ndim >= 2 and "norm" not in name.lower()
            found.setdefault((depth, decayed), []).append((name, parameter))
    return [
        ParameterGroup(
            depth if by_depth else None,
            rate * layer_decay ** (layers + 1 - depth),
            weight_decay if decayed else 0.0,
            tuple(name for name, _ in members),
            tuple(parameter for _, parameter in members),
        )
        for (depth, decayed), members in sorted(found.items(), key=lambda entry: (entry[0][0], not entry[0][1]))
    ]


def adamw(groups: Iterable[ParameterGroup], *, fused: bool) -> torch.optim.AdamW:
    """AdamW with the betas that BERT-like pretraining uses."""
    members = [{"params": list(g.parameters), "lr": g.rate, "weight_decay": g.weight_decay} for g in groups]
    return torch.optim.AdamW(members, betas=(0.9, 0.98), eps=1e-6, fused=fused)


def load_optimizer(optimizer: torch.optim.Optimizer, held: dict[str, Any]) -> None:
    """Torch counts the parameters of a state; that of another model with as many would fail at the first step."""
    optimizer.load_state_dict(held)
    for parameter, state in optimizer.state.items():
        if any(value.ndim and value.shape != parameter.shape for value in state.values()):
            raise ValueError("the optimizer's state is of other shapes")


OPEN_END = 1_000_000_000
"""The step count of a run whose budget is in minutes alone."""

_TWIN = Fraction(1, 10)


def total_steps(steps_per_epoch: int, epochs: float | None, max_tokens: int | None, tokens_per_epoch: int) -> int:
    """The steps of a run: those of its epochs or of its tokens, whichever ends first."""
    shares = []
    if epochs is not None:
        shares.append(_exact(epochs))
    if max_tokens is not None:
        shares.append(Fraction(max_tokens, tokens_per_epoch))
    return max(1, math.floor(min(shares) * steps_per_epoch)) if shares else OPEN_END


def is_save_step(step: int, steps_per_epoch: int, every: float, last: int) -> bool:
    """Is a checkpoint due after this step? At floor(k x every x steps_per_epoch) for whole k, and at the end.

    A step that comes just before the end (a tenth of the interval) gives way to it, so that a run does not end with twins.
    """
    if step == last:
        return True
    interval = _exact(every) * steps_per_epoch
    if interval <= 0 or step <= 0 or step > last:
        return False
    if interval < 1:
        return True
    number = math.ceil(step / interval)
    return math.floor(number * interval) == step and last - step >= _TWIN * interval


def save_steps(steps_per_epoch: int, every: float, last: int) -> tuple[int, ...]:
    """All save steps of a run with a known end: 131 steps per epoch, every half, give 65, 131, 196, 262 ..."""
    interval = max(_exact(every) * steps_per_epoch, Fraction(1)) if every else Fraction(last)
    due = {math.floor(number * interval) for number in range(1, math.floor(Fraction(last) / interval) + 1)} | {last}
    return tuple(step for step in sorted(due) if is_save_step(step, steps_per_epoch, every, last))


def crossed_mark(before: float, now: float, marks: int) -> bool:
    """Is one of the evenly spaced marks of a run crossed between two values of its progress?"""
    return math.floor(marks * now + 1e-9) > math.floor(marks * before + 1e-9)


def even_steps(marks: int, last: int) -> tuple[int, ...]:
    """The first step at or after each mark; fewer than the marks where a step crosses several."""
    marks = min(marks, last)
    return tuple(sorted({min(last, math.ceil(Fraction(number * last, marks))) for number in range(1, marks + 1)}))


def rate_factor(progress: float, schedule: str, warmup: float) -> float:
    """The share of the peak rate at a progress between 0 and 1."""
    progress = min(1.0, max(0.0, progress))
    if progress < warmup:
        return progress / warmup
    rest = (progress - warmup) / (1.0 - warmup) if warmup < 1.0 else 1.0
    return _DECAYS[schedule](rest)


_DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda rest: 1.0 - rest,
    "cosine": lambda rest: 0.5 * (1.0 + math.cos(math.pi * rest)),
    "wsd": lambda rest: min(1.0, (1.0 - rest) / 0.2),  # stable for four fifths, then down in a straight line
    "constant": lambda _: 1.0,
}


@dataclass(slots=True)
class Clock:
    """Seconds of training, across interruptions, and the progress they make with the steps.

    `earlier` and `lost` are those of the checkpoint that is resumed: all its seconds, and those that did nothing (loading,
    compiling, an attempt that ran out of memory). Lost seconds count for the budget and not for the schedule, which would
    otherwise skip its warm-up. `reserve` seconds are kept for the last checkpoint. `shared` lets several processes agree on one
    progress.
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

    def over(self, step: int) -> bool:
        return self.progress(step) >= 1.0

    def _by_time(self, step: int) -> float:
        """One answer for all processes; agreeing costs an exchange, so it is done every tenth step and held in between."""
        budget = 60.0 * (self.minutes or 0.0)
        seconds = self.elapsed() if self._running else self.earlier
        own = (seconds - self.lost) / max(budget - self.reserve - self.lost, 0.05 * budget)
        if self.shared is None:
            return own
        if self._agreed[0] != step // _AGREE_EVERY:
            self._agreed = (step // _AGREE_EVERY, self.shared(own))
        return self._agreed[1]


_AGREE_EVERY = 10


def _exact(number: float) -> Fraction:
    """0.1 as a tenth, not as the nearest binary fraction."""
    return Fraction(str(number))
