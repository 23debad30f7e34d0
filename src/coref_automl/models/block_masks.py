"""Which tiles of attention are worth computing. In: the documents of packed rows, perhaps a window. Out: FlexAttention's mask.

The library's own way asks every pair of places. Documents stand one after the other, so the first and the last document of a
tile's rows and columns already say whether the tile holds a pair (compute it, and ask pair by pair), holds nothing else (compute
it without asking) or holds none (skip it): no tensor of pairs is made.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

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
