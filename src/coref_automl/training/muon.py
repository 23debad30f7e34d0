"""Muon for training from nothing. In: the groups of `training.optimizer`. Out: an optimizer that turns what it may of them.

The weight matrices inside the layers move along their momentum made orthogonal (Newton-Schulz, five steps), so that rare
directions learn as fast as frequent ones; everything else (embeddings, head, norms, biases) is AdamW's as before. The size of a
move is matched to AdamW's, so a rate that suits one suits the other. Matrices of one shape are made orthogonal together: dozens
of small products one by one would cost more than the step itself. Not for sharded weights (FSDP): a shard is not the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from coref_automl.training.optimizer import ADAM, Group, inside_layer

_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that pulls every singular value near 1 in five steps; near is enough."""

_STEPS = 5
_ADAM_SIZE = 0.2
"""The root mean square of AdamW's usual move, in units of the rate."""


class Muon(torch.optim.AdamW):  # type: ignore[misc]
    """Groups with `matrices` are turned; the others are AdamW's."""

    def __init__(self, groups: Iterable[Group], *, fused: bool) -> None:
        members = []
        for group in groups:
            inside = [inside_layer(name, parameter) for name, parameter in zip(group.names, group.parameters, strict=True)]
            for matrices in (True, False):
                chosen = [parameter for parameter, turned in zip(group.parameters, inside, strict=True) if turned is matrices]
                if chosen:
                    shared = {"lr": group.rate, "weight_decay": group.weight_decay, "matrices": matrices}
                    members.append({"params": chosen, **shared})
        super().__init__(members, fused=fused, **ADAM)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        whole: list[dict[str, Any]] = self.param_groups  # type: ignore[has-type]
        try:
            self.param_groups = [group for group in whole if not group["matrices"]]
            loss = super().step(closure)
        finally:
            self.param_groups = whole
        for group in whole:
            if group["matrices"]:
                self._turn(group)
        return loss

    def _turn(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters]
        momenta = [self._momentum(parameter) for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, _MOMENTUM)
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, orthogonal(ahead), alpha=-group["lr"] * _ADAM_SIZE)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())  # AdamW looks for it when a state is loaded
            state["momentum"] = torch.zeros_like(parameter)
        held: Tensor = state["momentum"]
        return held


def orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """Each matrix with its singular values near 1, times the root of its longer side: entries of mean square near 1.

    A tall matrix of stacked squares (query, key and value in one) is taken square by square.
    """
    cut = [_squares(matrix) for matrix in matrices]
    out: list[Tensor] = list(matrices)
    for shape in dict.fromkeys(part.shape[1:] for part in cut):
        members = [index for index, part in enumerate(cut) if part.shape[1:] == shape]
        turned = _newton_schulz(torch.cat([cut[index] for index in members])) * max(shape) ** 0.5
        for index, part in zip(members, turned.split([len(cut[index]) for index in members]), strict=True):
            out[index] = part.reshape(matrices[index].shape).to(matrices[index].dtype)
    return out


def _squares(matrix: Tensor) -> Tensor:
    rows, columns = matrix.shape
    return matrix.view(-1, columns, columns) if rows % columns == 0 else matrix[None]


def _newton_schulz(stack: Tensor) -> Tensor:
    a, b, c = _COEFFICIENTS
    x = stack.bfloat16() if stack.is_cuda else stack
    upright = x.shape[1] > x.shape[2]
    x = x.mT if upright else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if upright else x
