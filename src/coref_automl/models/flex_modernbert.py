"""ModernBERT's attention through FlexAttention. In: a loaded model. Out: the same weights under a kernel that skips tiles.

Under SDPA a mask of pairs is written down and every score is computed, also those that a window of 128 or the end of a document
forbids. At 2,048 tokens a local layer needs one tile in eight of them. The library's own way of finding those tiles asks every
pair of places. Documents follow one another, so the first and the last document of a tile's rows and columns already say
whether the tile holds a pair (compute it, and ask pair by pair), nothing else (compute it without asking) or none (skip it): no
tensor of pairs is made.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

TILE = 128
"""FlexAttention's default."""


@torch.compiler.disable  # type: ignore[untyped-decorator]
def document_blocks(segments: Tensor, window: int | None = None) -> BlockMask:
    """Places of one document see each other, `window` apart at most; padding (0, behind the documents) sees padding."""
    length = segments.shape[1]
    numbers = segments.to(torch.int32)

    def allowed(row: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = numbers[row, query] == numbers[row, key]
        return same if window is None else same & ((query - key).abs() <= window)

    some, whole = tiles(numbers, window)
    return BlockMask.from_kv_blocks(*_ordered(some & ~whole), *_ordered(whole), TILE, allowed, (length, length))


def tiles(segments: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
    """For every tile (B, rows, columns): may it hold an allowed pair, and is every pair in it allowed?"""
    behind = segments.amax(1, keepdim=True) + 1  # padding as the document after the last, so that numbers only rise
    rising = torch.where(segments > 0, segments, behind)
    missing = -segments.shape[1] % TILE
    rising = torch.cat([rising, rising[:, -1:].expand(-1, missing)], dim=1).unflatten(1, (-1, TILE))
    first, last = rising[:, :, 0], rising[:, :, -1]
    some = (first[:, :, None] <= last[:, None, :]) & (first[:, None, :] <= last[:, :, None])
    single = first == last
    whole = some & single[:, :, None] & single[:, None, :]
    if window is not None:
        place = torch.arange(first.shape[1], device=segments.device) * TILE
        apart = (place[:, None] - place[None, :]).abs()
        some = some & (apart - TILE < window)
        whole = whole & (apart + TILE <= window + 1)
    if missing:  # the last tiles reach beyond the row
        whole[:, -1] = whole[:, :, -1] = False
    return some, whole


def _ordered(wanted: Tensor) -> tuple[Tensor, Tensor]:
    """How many columns each row of tiles has, and the columns, wanted ones first: (B, 1, rows) and (B, 1, rows, columns)."""
    columns = torch.argsort(wanted.to(torch.int8), dim=-1, descending=True, stable=True)
    return wanted.sum(-1).to(torch.int32)[:, None], columns.to(torch.int32)[:, None]


LEAST_LENGTH = 512

NAME = "flex_documents"


def install(model: Any) -> None:
    """Switch a ModernBERT; the weights and the saved config are not touched."""
    AttentionInterface.register(NAME, attend)
    model.set_attn_implementation(NAME)


def installed(model: Any) -> bool:
    return bool(model.config._attn_implementation == NAME)


def takes(model: Any, segments: Tensor) -> bool:
    """Is this batch for the kernel? Short rows are not: they have few tiles to skip."""
    return installed(model) and segments.shape[1] >= LEAST_LENGTH


def masks(model: Any, segments: Tensor) -> dict[str, BlockMask]:
    """A mask for each kind of layer."""
    return {
        "full_attention": document_blocks(segments),
        "sliding_attention": document_blocks(segments, model.config.sliding_window),
    }


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float | None = None, **others: Any
) -> tuple[Tensor, None]:
    """The library's interface: (B, heads, L, d) in, (B, L, heads, d) out. What has no block mask goes to SDPA."""
    if not isinstance(attention_mask, BlockMask):
        others.pop("deterministic", None)
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)  # type: ignore[no-any-return]
    kernel = _compiled() if query.is_cuda and not torch.compiler.is_compiling() else flex_attention
    context: Tensor = kernel(query, key, value, block_mask=attention_mask, scale=scaling)
    return context.transpose(1, 2), None


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention)
