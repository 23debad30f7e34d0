"""Where things lie for the kernels of disentangled attention. In: settings of a model, a length, segments. Out: rows of position
tables by distance, the shape of a band, documents and their bounds. No kernel is imported here, so this runs without Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from coref_automl.errors import ModelError

CLASS = 8
"""Rows of one class are this far apart: eight numbers of two bytes make a 16-byte word."""
BLOCK = 64
"""No tile of scores has more rows or columns; bands and the bounds of documents are rounded to it."""
NEVER = 1 << 19
"""A distance that no row reaches."""


@dataclass(frozen=True, slots=True)
class Distances:
    """How distances become rows of the position tables (`DebertaV2Config`'s settings)."""

    buckets: int
    longest: int

    @property
    def span(self) -> int:
        return self.buckets if self.buckets > 0 else self.longest

    @property
    def ordered(self) -> bool:
        """Does a longer distance never take an earlier row? Logarithmic buckets turn back where they end before they begin."""
        return self.buckets <= 0 or (self.buckets > 1 and self.longest - 1 > self.buckets // 2)

    def rows(self, reach: int, device: torch.device) -> Tensor:
        """The row of every distance from -reach to reach."""
        distances = torch.arange(-reach, reach + 1, device=device)
        if self.buckets > 0:
            from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

            distances = make_log_bucket_position(distances, self.buckets, self.longest)
        return torch.clamp(distances.long() + self.span, 0, 2 * self.span - 1).to(torch.int32)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Distances on a device. From `high` on and from `-low` down all distances share the last and the first row.

    `rows`: the row of each distance from `-center` to `center`. `starts`: the first distance of each row, and one end more.
    """

    rows: Tensor
    starts: Tensor
    center: int
    high: int
    low: int


@dataclass(frozen=True, slots=True)
class Band:
    """Where the term of (row, column) lies: row * stride + column + offset. Columns lie within `reach` of the row's word."""

    reach: int
    stride: int
    offset: int
    size: int

    @property
    def words(self) -> tuple[int, int, int]:
        """Reach, stride and offset in words of eight, as kernels take them: so they see that rows are aligned."""
        return self.reach // CLASS, self.stride // CLASS, self.offset // CLASS


@lru_cache(maxsize=64)
def geometry(distances: Distances, reach: int, device: torch.device) -> Geometry:
    """Distances from -reach to reach; `distances` must be `ordered`."""
    rows = distances.rows(reach, device)
    known, last = rows.cpu(), 2 * distances.span - 1
    middle = int((known == last).nonzero()[0]) if bool((known == last).any()) else None
    high = middle - reach if middle is not None else NEVER
    firsts = (known == 0).nonzero()
    low = reach - int(firsts[-1]) if len(firsts) else NEVER
    starts = torch.searchsorted(known, torch.arange(last + 2, dtype=known.dtype)) - reach
    return Geometry(rows, starts.to(torch.int32).to(device), reach, high, low)


@lru_cache(maxsize=256)
def band_of(length: int, high: int, low: int, tiles: tuple[tuple[int, int], ...]) -> Band:
    """The narrowest band that holds every tile which is not wholly beyond the last bucket; all columns where that is no wider.

    `tiles`: (rows, columns) of the kernels' tiles.
    """
    whole = -(-length // BLOCK) * BLOCK
    reach = 0
    for row_block, column_block in tiles:
        for behind, ahead in ((high, low), (low, high)):
            for start in range(0, 2 * BLOCK, row_block):
                left = (start - behind + 1) // column_block * column_block
                right = -(-(start + row_block - 1 + ahead) // column_block) * column_block
                reach = max(reach, start + row_block - left, right - start)
    reach = -(-(reach + CLASS) // CLASS) * CLASS
    if 2 * reach >= whole:
        return Band(whole, whole, 0, whole * (whole + CLASS))
    return Band(reach, 2 * reach, reach, whole * (2 * reach + 1) + 2 * reach)


@dataclass(frozen=True, slots=True)
class DocumentBounds:
    """Where documents begin and end. `first`, `last` (B, L): the first position of each position's document and the one after its
    last; both 0 on padding. `inner` (B, L): the position from which on `last` needs no mask; L on padding and in a document that
    others interrupt. `block_first`, `block_last` (B, blocks): the span of the documents of each block of positions."""

    segments: Tensor
    first: Tensor
    last: Tensor
    inner: Tensor
    block_first: Tensor
    block_last: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.segments, self.first, self.last, self.inner, self.block_first, self.block_last]


def bounds_of(segments: Tensor) -> DocumentBounds:
    """`segments`: (B, L) numbers of documents from 1 on; 0 is padding."""
    segments = segments.to(torch.int32).contiguous()
    rows, length = segments.shape
    index = segments.long().clamp(0, length)
    places = torch.arange(length, device=segments.device).expand(rows, -1)
    none = torch.zeros(rows, length + 1, dtype=torch.long, device=segments.device)
    first = (none + length).scatter_reduce(1, index, places, "amin").gather(1, index)
    last = none.scatter_reduce(1, index, places + 1, "amax").gather(1, index)
    count = none.scatter_add(1, index, torch.ones_like(index)).gather(1, index)
    real = index > 0
    inner = torch.where(real & (count == last - first), first, length)
    missing = -length % BLOCK
    lows = torch.nn.functional.pad(torch.where(real, first, length), (0, missing), value=length)
    highs = torch.nn.functional.pad(torch.where(real, last, 0), (0, missing), value=0)
    low = lows.unflatten(1, (-1, BLOCK)).amin(2) // BLOCK * BLOCK
    high = (highs.unflatten(1, (-1, BLOCK)).amax(2) + BLOCK - 1) // BLOCK * BLOCK
    found = (torch.where(real, first, 0), torch.where(real, last, 0), inner, torch.minimum(low, high), high)
    return DocumentBounds(segments, *(x.int().contiguous() for x in found))


@dataclass(frozen=True, slots=True)
class Documents:
    """Which document each position of a batch belongs to; a position attends to its own document alone."""

    segments: Tensor

    @classmethod
    def of(cls, attention_mask: object) -> Documents | None:
        """From what `encode` takes as a mask: documents, or a (B, L) mask of real tokens; None for a mask of pairs."""
        if isinstance(attention_mask, Documents):
            return attention_mask
        if not isinstance(attention_mask, Tensor) or attention_mask.dim() not in (2, 3, 4):
            form = f"{attention_mask.dim()} dimensions" if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
            raise ModelError(f"DeBERTa-v2 takes no mask of this form ({form}); pass a (B, L) mask or what packed_masks makes.")
        return cls((attention_mask > 0).to(torch.int32)) if attention_mask.dim() == 2 else None

    def real(self) -> Tensor:
        """The (B, L) mask of real tokens."""
        return (self.segments > 0).to(torch.long)

    def pairs(self) -> Tensor:
        """The same as a mask of pairs (B, 1, L, L)."""
        same = self.segments[:, None, :, None] == self.segments[:, None, None, :]
        return same & (self.segments > 0)[:, None, None, :]
