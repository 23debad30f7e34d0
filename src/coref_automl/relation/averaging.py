"""Weights moved little by little, in two senses. In: a model in training. Out: a running average of it, or a push on its words.

`Average` holds the exponential moving average of all weights: it is scored and kept in place of the last step's. `pushed` is one
adversarial step (FGM): the word embeddings go a little way up the gradient of the loss, and come back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Average:
    """The moving average of a model's weights. Early on it follows faster, or the first weights would stay in it too long."""

    def __init__(self, model: Any, decay: float) -> None:
        self._weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._decay = decay
        self.held = [weight.detach().clone() for weight in self._weights]

    def follow(self, step: int) -> None:
        """After the optimizer's step with this number, from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.held, [weight.detach() for weight in self._weights], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with its average; its own weights come back afterwards."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for weight, average in zip(self._weights, self.held, strict=True):
            own = weight.detach().clone()
            weight.detach().copy_(average)
            average.copy_(own)

    def load(self, held: list[Any]) -> None:
        for average, value in zip(self.held, held, strict=True):
            average.copy_(value)


@contextmanager
def pushed(table: Any, epsilon: float) -> Iterator[None]:
    """The word embeddings `epsilon` up the gradient that a backward pass left on them; a second pass adds to all gradients."""
    before = table.detach().clone()
    with torch.no_grad():
        table.add_(table.grad * (epsilon / (table.grad.norm() + 1e-12)))
    try:
        yield
    finally:
        with torch.no_grad():
            table.copy_(before)
