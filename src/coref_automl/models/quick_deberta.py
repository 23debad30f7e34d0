"""DeBERTa-v2's attention for scoring on a CPU. In: hidden states and a mask. Out: the context that the library's attention gives.

The library gathers both relative terms from (B, H, L, 2 x span) tables, pair by pair, and a CPU spends most of its time so. Here
the rows of the relative table are laid out by distance first, so that the terms of all pairs are a product of two matrices read
along its diagonals, which is a view; and one head of one text is finished before the next is begun, which keeps its scores in the
cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from coref_automl.models.disentangled.layout import Distances


def suits(base: Any, attention_mask: Any) -> bool:
    """Only where nothing is learned and nothing is dropped."""
    on_cpu = isinstance(attention_mask, Tensor) and attention_mask.device.type == "cpu"
    return on_cpu and not torch.is_grad_enabled() and not base.training


def layer_runner(encoder: Any, states: Tensor, attention_mask: Tensor, table: Tensor | None) -> Callable[[Any, Tensor], Any]:
    """What runs a layer of the encoder around this attention; padding comes out otherwise, and nobody reads it."""
    allowed = attention_mask[:, 0].bool() if attention_mask.dim() == 4 else attention_mask[:, None, :].bool()
    rows = _rows_by_distance(encoder, states.shape[1])

    def run(layer: Any, hidden: Tensor) -> Any:
        attended = layer.attention.output(attend(layer.attention.self, hidden, allowed, rows, table), hidden)
        return layer.output(layer.intermediate(attended), attended)

    return run


def _rows_by_distance(encoder: Any, length: int) -> Tensor | None:
    """Row of the relative table for the distances -(L-1) ... L-1."""
    if not encoder.relative_attention:
        return None
    buckets, longest = encoder.position_buckets, encoder.max_relative_positions
    return Distances(buckets, longest).rows(length - 1, torch.device("cpu")).long()


def attend(module: Any, hidden: Tensor, allowed: Tensor, rows: Any, table: Tensor | None) -> Tensor:
    """`module` is the library's attention, whose weights are used; `allowed` is (B, 1 or L, L), True where a query may look."""
    heads, size = module.num_attention_heads, module.attention_head_size
    batch, length, _ = hidden.shape
    kinds = module.pos_att_type if rows is not None else []
    scale = 1.0 / math.sqrt(size * (1 + ("c2p" in module.pos_att_type) + ("p2c" in module.pos_att_type)))
    query = (module.query_proj(hidden) * scale).view(batch, length, heads, size).transpose(1, 2)
    key, value = (p(hidden).view(batch, length, heads, size).transpose(1, 2) for p in (module.key_proj, module.value_proj))
    to_query = to_key = None
    if "c2p" in kinds:
        to_key = _laid_out((module.key_proj if module.share_att_key else module.pos_key_proj)(table), rows.flip(0), heads)
    if "p2c" in kinds:
        to_query = _laid_out((module.query_proj if module.share_att_key else module.pos_query_proj)(table) * scale, rows, heads)
    hidden_from = None if bool(allowed.all()) else ~allowed
    least = torch.finfo(query.dtype).min
    context = torch.empty(batch, length, heads, size, dtype=hidden.dtype)
    for text in range(batch):
        for head in range(heads):
            scores = query[text, head] @ key[text, head].T
            if to_key is not None:
                scores += _diagonals(query[text, head] @ to_key[head])
            if to_query is not None:
                scores += _diagonals(key[text, head] @ to_query[head]).T
            if hidden_from is not None:
                scores.masked_fill_(hidden_from[text], least)
            context[text, :, head] = scores.softmax(-1) @ value[text, head]
    return context.flatten(2)


def _laid_out(states: Tensor, rows: Tensor | None, heads: int) -> Tensor:
    """(2 x span, H x d) -> (H, d, 2L-1): a column a distance."""
    return states.unflatten(-1, (heads, -1)).permute(1, 2, 0)[:, :, rows].contiguous()


def _diagonals(product: Tensor) -> Tensor:
    """(L, 2L-1) -> (L, L), out[i, j] = product[i, j - i + L - 1], as a view."""
    length = product.shape[0]
    return product.as_strided((length, length), (2 * length - 2, 1), length - 1)
