"""Low-rank updates (LoRA). In: an encoder. Out: the same encoder with trainable updates, or with saved ones merged into it.

A saved update, an adapter, has two matrices for every linear layer: `NAME.down` (rank, inputs) and `NAME.up` (outputs, rank).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_SCALE = 2.0
"""LoRA's scale (alpha / rank), the usual one: with it, the learning rate does not depend on the rank."""


class LoRALinear(nn.Module):  # type: ignore[misc]
    """A frozen linear layer plus a low-rank update that starts at zero."""

    def __init__(self, base: Any, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, inputs: Any) -> Any:
        return self.base(inputs) + _SCALE * nn.functional.linear(nn.functional.linear(inputs, self.down), self.up)


def add_lora(encoder: Any, rank: int) -> None:
    """Freeze the encoder and wrap each of its linear layers in a LoRALinear."""
    encoder.requires_grad_(False)
    for name, layer in _layers(encoder, nn.Linear).items():
        parent, _, attribute = name.rpartition(".")
        setattr(encoder.get_submodule(parent), attribute, LoRALinear(layer, rank))


def lora_weights(encoder: Any) -> dict[str, Any]:
    """The adapter of an encoder with LoRA; `load_state_dict` copies it back."""
    layers = _layers(encoder, LoRALinear)
    return {f"{name}.{part}": getattr(layer, part).detach() for name, layer in layers.items() for part in ("down", "up")}


def check_adapter(encoder: Any, adapter: dict[str, Any], rank: int) -> None:
    """Raise a ValueError unless an adapter has exactly the matrices of this rank for a plain encoder; rank 0 has none."""
    expected = dict[str, tuple[int, ...]]()
    for name, layer in _layers(encoder, nn.Linear).items() if rank else ():
        expected |= {f"{name}.down": (rank, layer.in_features), f"{name}.up": (layer.out_features, rank)}
    if {name: tuple(value.shape) for name, value in adapter.items()} != expected:
        raise ValueError(f"not an adapter of rank {rank} for this encoder")


def merge_lora(encoder: Any, adapter: dict[str, Any]) -> None:
    """Add an adapter to the weights of a plain encoder, which stays an ordinary one."""
    for name, layer in _layers(encoder, nn.Linear).items():
        update = adapter[f"{name}.up"].float() @ adapter[f"{name}.down"].float()
        layer.weight.data += _SCALE * update.to(layer.weight)


def _layers(encoder: Any, kind: type) -> dict[str, Any]:
    return {name: layer for name, layer in encoder.named_modules() if isinstance(layer, kind)}
