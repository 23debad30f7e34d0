"""DeBERTa-v2 on the fused kernels. In: a loaded model on a CUDA device. Out: the same weights in layers that use the kernels.

The library's attention writes several (B, H, L, L) tensors per layer. Here queries, keys and values are one product, which is the
input of `operation.attend`, and the bounds of documents are computed once for all layers. Dropout, residual sum and
layer norm are one kernel (`residual`).
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder, DebertaV2Layer

from deberta_kernels.errors import KernelError
from deberta_kernels.layout import Distances, DocumentBounds, Documents, bounds_of, geometry

LARGEST_HEAD = 128
LEAST_CAPABILITY = (8, 0)
PAIRS_AT_ONCE = 65_536
"""Pairs of a query and a key per step when the last layer runs at single positions; bounds its memory."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class FusedLayer(DebertaV2Layer):  # type: ignore[misc]
    """Runs the kernels if the mask is the bounds of documents; with a pairwise mask, the library's own code."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if not isinstance(attention_mask, DocumentBounds):
            return super().forward(  # type: ignore[no-any-return]
                hidden_states, attention_mask, query_states, relative_pos, rel_embeddings, output_attentions
            )
        if output_attentions or query_states is not None:
            raise KernelError("Fused attention keeps no attention weights; call install(model, fused=False) to get them.")
        first, second = self.attention.output, self.output
        joint, *weights = _half_weights(self)
        context = attention_of(self.attention.self, hidden_states, attention_mask, rel_embeddings, joint)
        attended = _add_norm(first, _linear(first.dense, context, weights[0]), hidden_states)
        inner = _linear(self.intermediate.dense, _in_half(attended), weights[1])
        states = _linear(second.dense, self.intermediate.intermediate_act_fn(inner), weights[2])
        return _add_norm(second, states, attended), None


class FusedEncoder(DebertaV2Encoder):  # type: ignore[misc]
    """Computes the bounds of documents once per forward pass. On the CPU, the library's code runs."""

    def get_attention_mask(self, attention_mask: Any) -> Any:
        documents = Documents.of(attention_mask)
        if documents is None:
            return super().get_attention_mask(attention_mask)
        on_kernels = documents.segments.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"  # interpreted, on a CPU too
        return bounds_of(documents.segments) if on_kernels else documents.pairs()

    def get_rel_pos(self, _states: Tensor, _query_states: Tensor | None = None, relative_pos: Tensor | None = None) -> Any:
        """Return no table of distances: the kernels need none, and the library's layers build their own."""
        return relative_pos


Weights = tuple[Tensor, Tensor]
"""Weight and bias of a linear layer in half precision; queries, keys and values are one layer."""


class _ToHalf(torch.autograd.Function):  # type: ignore[misc]
    """Convert weights to half precision, concatenated by group: one launch for all of them, and one for their gradients."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, groups: tuple[int, ...], *weights: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(weights)
        ctx.rows = [[len(next(remaining)) for _ in range(count)] for count in groups]
        firsts = (weights[sum(groups[:group])] for group in range(len(groups)))
        joined = tuple(w.new_empty((sum(rows), *w.shape[1:]), dtype=dtype) for w, rows in zip(firsts, ctx.rows, strict=True))
        torch._foreach_copy_(_split(joined, ctx.rows), list(weights))
        return joined

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        parts = _split(grads, ctx.rows)
        full = [torch.empty_like(part, dtype=torch.float32, memory_format=torch.contiguous_format) for part in parts]
        torch._foreach_copy_(full, parts)
        return None, None, *full


def _split(joined: tuple[Tensor, ...], rows: list[list[int]]) -> list[Tensor]:
    return [part for group, counts in zip(joined, rows, strict=True) for part in group.split(counts)]


def _half_weights(layer: Any) -> list[Weights] | list[None]:
    """Convert the weights of a layer's four products: queries, keys and values as one; attention output; intermediate; output.

    None without autocast, or if a product has a LoRA update: each product then converts its own weights.
    """
    module = layer.attention.self
    parts = [module.query_proj, module.key_proj, module.value_proj]
    parts += [layer.attention.output.dense, layer.intermediate.dense, layer.output.dense]
    kind = parts[0].weight.device.type
    plain = all(type(part) is nn.Linear and part.weight.dtype == torch.float32 for part in parts)
    if not plain or not torch.is_autocast_enabled(kind):
        return [None] * 4
    weights = [part.weight for part in parts] + [part.bias for part in parts]
    half = _ToHalf.apply(torch.get_autocast_dtype(kind), (3, 1, 1, 1) * 2, *weights)
    return list(zip(half[:4], half[4:], strict=True))


def _linear(dense: Any, states: Tensor, weights: Weights | None) -> Tensor:
    result: Tensor = dense(states) if weights is None else nn.functional.linear(states, *weights)
    return result


def attention_of(
    module: Any, states: Tensor, bounds: DocumentBounds, table: Tensor | None, joint: Weights | None = None
) -> Tensor:
    """Return the contexts (B, L, W) of one layer's attention, from its hidden states."""
    from deberta_kernels.operation import attend

    project = _joint_projection(module, joint)
    context = attend(
        project(_in_half(states)), *_position_tables(module, table, project), bounds,
        _distances(module) if module.relative_attention and module.pos_att_type else Distances(-1, 1),
        scale=_scale(module), dropout=module.dropout.p if module.training else 0.0,
    )  # fmt: skip
    return context.flatten(2)


def _add_norm(module: Any, states: Tensor, residual: Tensor) -> Tensor:
    """Apply dropout, residual sum and layer norm, as one kernel if the residual stream is float32."""
    if residual.dtype != torch.float32 or module.LayerNorm.weight.dtype != torch.float32:
        result: Tensor = module.LayerNorm(module.dropout(states) + residual)
        return result
    from deberta_kernels.residual import add_norm

    dtype = states.dtype if states.dtype != torch.float32 else None
    normed, half = add_norm(states, residual, module.LayerNorm, dropout=module.dropout.p if module.training else 0.0, half=dtype)
    if half is not None:
        normed.in_half = half
    return normed


def can_encode_at(model: Any, attention_mask: Any) -> bool:
    """Tell whether the last layer may run at single positions: only for inference, and not if a convolution follows it."""
    on_device = isinstance(attention_mask, Tensor) and attention_mask.dim() == 2 and attention_mask.is_cuda
    training = torch.is_grad_enabled() or model.training
    return on_device and not training and installed(model) and len(model.base_model.encoder.layer) > 1


def run_layer_at(layer: Any, hidden: Tensor, real: Tensor, rows: Tensor, columns: Tensor, table: Tensor | None) -> Tensor:
    """Return one layer's output (N, H) at the positions (rows[i], columns[i]); the unpadded tokens of a row are one document."""
    module = layer.attention.self
    states, targets = _in_half(hidden), hidden[rows, columns]
    query, key, value = _heads(module, module.query_proj(targets)), module.key_proj(states), module.value_proj(states)
    key, value = _heads(module, key), _heads(module, value)
    tables = _position_tables(module, table, _joint_projection(module))
    step = max(1, PAIRS_AT_ONCE // hidden.shape[1])
    context = torch.cat(
        [
            _attend_at(module, query[part], key, value, tables, real, rows[part], columns[part])
            for part in (slice(low, low + step) for low in range(0, len(rows), step))
        ]
    )
    attended = layer.attention.output(context.to(key.dtype).flatten(1), targets)
    result: Tensor = layer.output(layer.intermediate(attended), attended)
    return result


def _attend_at(
    module: Any, query: Tensor, key: Tensor, value: Tensor, tables: tuple[Tensor | None, Tensor | None], real: Tensor,
    rows: Tensor, columns: Tensor,
) -> Tensor:  # fmt: skip
    """Return the contexts (N, H, D) of single queries, each over the keys of its row, with scores in float32."""
    length = key.shape[1]
    position_key, position_query = tables
    factor = query.float()[:, None]
    distances = columns[:, None] - torch.arange(length, device=key.device)[None, :]
    if position_key is not None or position_query is not None:
        points = geometry(_distances(module), -(-length // 1024) * 1024, key.device)
        index = points.rows[distances + points.center]
    if position_query is not None:
        factor = factor + position_query[index].float()  # content and p2c in one product with the keys
    scores = (factor * key[rows].float()).sum(-1).transpose(1, 2)
    if position_key is not None:
        terms = torch.einsum("nhd,rhd->nhr", query.float(), position_key.float())
        scores = scores + terms.gather(2, index[:, None, :].expand(-1, terms.shape[1], -1).long())
    weights = (scores * _scale(module)).masked_fill(~real[rows][:, None, :], -torch.inf).softmax(-1)
    return torch.einsum("nhl,nlhd->nhd", weights.to(value.dtype), value[rows]).float()


def why_not(model: Any) -> str | None:
    """Return why this model cannot use the fused kernels, as the end of a sentence; None if it can."""
    if model.device.type != "cuda":
        return "needs a CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "needs Triton, which is not installed"
    capability = torch.cuda.get_device_capability(model.device)
    if capability < LEAST_CAPABILITY:
        needed, own = (f"{major}.{minor}" for major, minor in (LEAST_CAPABILITY, capability))
        return f"needs compute capability {needed} (Ampere) or later, and this card has {own}"
    if model.dtype not in DTYPES:
        return f"does not compute in {str(model.dtype).removeprefix('torch.')}"
    attention = model.base_model.encoder.layer[0].attention.self
    if attention.attention_head_size > LARGEST_HEAD:
        return f"takes heads of at most {LARGEST_HEAD} numbers, and this model's have {attention.attention_head_size}"
    if attention.relative_attention and not _distances(attention).ordered:
        return f"needs fewer position buckets than {attention.position_buckets} over {attention.max_relative_positions} positions"
    return None


def install(model: Any, *, fused: bool = True) -> None:
    """Switch a DeBERTa-v2 in place to the fused classes, or back to the library's; parameters and their names stay."""
    encoder = model.base_model.encoder
    encoder.__class__ = FusedEncoder if fused else DebertaV2Encoder
    for layer in encoder.layer:
        layer.__class__ = FusedLayer if fused else DebertaV2Layer


def installed(model: Any) -> bool:
    return isinstance(model.base_model.encoder, FusedEncoder)


def _heads(module: Any, states: Tensor) -> Tensor:
    return states.unflatten(-1, (module.num_attention_heads, module.attention_head_size))


def _joint_projection(module: Any, joint: Weights | None = None) -> Callable[[Tensor], Tensor]:
    """Return the projection of states (..., W) to queries, keys and values (..., 3, H, D): one product, except with LoRA."""
    shape = (3, module.num_attention_heads, module.attention_head_size)
    if joint is not None:
        return lambda states: nn.functional.linear(states, *joint).unflatten(-1, shape)
    parts = (module.query_proj, module.key_proj, module.value_proj)
    if any(type(part) is not nn.Linear for part in parts):  # with LoRA
        return lambda states: torch.stack([_heads(module, part(states)) for part in parts], -3)
    weight, bias = _in_half(torch.cat([part.weight for part in parts])), torch.cat([part.bias for part in parts])
    return lambda states: nn.functional.linear(states, weight, bias).unflatten(-1, shape)


def _position_tables(
    module: Any, table: Tensor | None, project: Callable[[Tensor], Tensor]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the projected position tables (rows, H, D) of c2p and p2c; None for a term that this model does not have."""
    kinds = module.pos_att_type if module.relative_attention else []
    if not kinds:
        return None, None
    table = _in_half(module.pos_dropout(table)[: 2 * module.pos_ebd_size])
    if module.share_att_key:
        query, key, _ = project(table).unbind(-3)
        return (key if "c2p" in kinds else None), (query if "p2c" in kinds else None)
    key = _heads(module, module.pos_key_proj(table)) if "c2p" in kinds else None
    return key, _heads(module, module.pos_query_proj(table)) if "p2c" in kinds else None


def _scale(module: Any) -> float:
    return 1.0 / math.sqrt(module.attention_head_size * (1 + ("c2p" in module.pos_att_type) + ("p2c" in module.pos_att_type)))


def _in_half(states: Tensor) -> Tensor:
    """Convert to autocast's dtype once for several products; `_add_norm` has often written it already."""
    kind = states.device.type
    if not torch.is_autocast_enabled(kind):
        return states
    half = getattr(states, "in_half", None)
    return states.to(torch.get_autocast_dtype(kind)) if half is None else half


def _distances(attention: Any) -> Distances:
    return Distances(attention.position_buckets, attention.max_relative_positions)
