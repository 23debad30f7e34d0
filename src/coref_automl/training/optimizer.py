"""AdamW with layer-wise decay. In: a model, a rate, a decay. Out: groups that share a rate and a weight decay.

Layer-wise decay goes by layer index: the head and everything after the last layer have the full rate, layer i of n has
decay^(n - i), the embeddings decay^(n + 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
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
    layers = model.config.num_hidden_layers
    prefix = model.base_model_prefix
    found: dict[tuple[int, bool], list[tuple[str, nn.Parameter]]] = {}
    by_depth = layer_decay != 1.0
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
