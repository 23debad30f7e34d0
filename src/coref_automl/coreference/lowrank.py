"""A low-rank change of an encoder. In: an encoder and a rank. Out: the same encoder with two thin matrices beside each wide one.

Only the thin ones are trained and kept (LoRA); added to the weights they touch, they leave an ordinary encoder.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_WIDE = 2.0


class LowRank(nn.Module):  # type: ignore[misc]
    """A linear layer and its change; the change starts at zero."""

    def __init__(self, base: Any, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + _WIDE * nn.functional.linear(nn.functional.linear(inputs, self.down), self.up)


def make_low_rank(encoder: Any, rank: int) -> None:
    """Freeze the encoder and put a change beside each of its linear layers."""
    encoder.requires_grad_(False)
    for name, layer in list(encoder.named_modules()):
        if isinstance(layer, nn.Linear):
            parent, _, own = name.rpartition(".")
            setattr(encoder.get_submodule(parent), own, LowRank(layer, rank))


def changes(encoder: Any) -> dict[str, Any]:
    """The thin matrices by the name of their layer."""
    found = {}
    for name, layer in encoder.named_modules():
        if isinstance(layer, LowRank):
            found[f"{name}.down"], found[f"{name}.up"] = layer.down.detach(), layer.up.detach()
    return found


def add_changes(encoder: Any, kept: dict[str, Any]) -> None:
    """Add changes that were kept to a plain encoder's weights."""
    for name in sorted({name.rpartition(".")[0] for name in kept}):
        layer = encoder.get_submodule(name)
        layer.weight.data += _WIDE * (kept[f"{name}.up"].float() @ kept[f"{name}.down"].float()).to(layer.weight)
