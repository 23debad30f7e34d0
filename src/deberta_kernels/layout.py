"""The memory layout of disentangled attention. In: settings of a model, a length, segments. Out: rows of position tables by
distance, the shape of a band, documents and their bounds. It imports no kernel, so it runs without Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from deberta_kernels.errors import KernelError

CLASS = 8
"""Distance between rows of a class: eight two-byte numbers are a 16-byte word."""
BLOCK = 64
"""Most rows and columns of a tile of scores; bands and the bounds of documents are rounded to it."""
NEVER = 1 << 19
"""A distance longer than any row."""


@dataclass(frozen=True, slots=True)
class Distances:
    """The map from distances to rows of the position tables (settings of `DebertaV2Config`)."""

    buckets: int
    longest: int

    @property
    def span(self) -> int:
        return self.buckets if self.buckets > 0 else self.longest

    @property
    def ordered(self) -> bool:
        """Whether rows never decrease with distance; with logarithmic buckets they do if these end before they begin."""
        return self.buckets <= 0 or (self.buckets > 1 and self.longest - 1 > self.buckets // 2)

    def rows(self, reach: int, device: torch.device) -> Tensor:
        """Return the row of every distance from -reach to reach."""
        distances = torch.arange(-reach, reach + 1, device=device)
        if self.buckets > 0:
            from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

            distances = make_log_bucket_position(distances, self.buckets, self.longest)
        return torch.clamp(distances.long() + self.span, 0, 2 * self.span - 1).to(torch.int32)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Distances on a device. Distances from `high` up share the last row, those from `-low` down the first.

    `rows`: the row of each distance from `-center` to `center`. `starts`: the first distance of each row, and the last one's end.
    """

    rows: Tensor
    starts: Tensor
    center: int
    high: int
    low: int


@dataclass(frozen=True, slots=True)
class Band:
    """The index of the term of (row, column): row * stride + column + offset. Columns are within `reach` of the row's word."""

    reach: int
    stride: int
    offset: int
    size: int

    @property
    def words(self) -> tuple[int, int, int]:
        """Reach, stride and offset in words of eight, which show the kernels' compiler that rows are aligned."""
        return self.reach // CLASS, self.stride // CLASS, self.offset // CLASS


@lru_cache(maxsize=64)
def geometry(distances: Distances, reach: int, device: torch.device) -> Geometry:
    """Compute distances from -reach to reach; `distances` must be `ordered`."""
    rows = distances.rows(reach, device)
    row_of, last = rows.cpu(), 2 * distances.span - 1
    in_first, in_last = (row_of == 0).nonzero(), (row_of == last).nonzero()
    high = int(in_last[0]) - reach if len(in_last) else NEVER
    low = reach - int(in_first[-1]) if len(in_first) else NEVER
    starts = torch.searchsorted(row_of, torch.arange(last + 2, dtype=row_of.dtype)) - reach
    return Geometry(rows, starts.to(torch.int32).to(device), reach, high, low)


@lru_cache(maxsize=256)
def band_of(length: int, high: int, low: int, tiles: tuple[tuple[int, int], ...]) -> Band:
    """Return the narrowest band with every tile that is not entirely beyond the last bucket, or all columns if they are fewer.

    `tiles`: (rows, columns) of the kernels' tiles.
    """
    padded = -(-length // BLOCK) * BLOCK
    reach = 0
    for row_block, column_block in tiles:
        for behind, ahead in ((high, low), (low, high)):
            for start in range(0, 2 * BLOCK, row_block):
                left = (start - behind + 1) // column_block * column_block
                right = -(-(start + row_block - 1 + ahead) // column_block) * column_block
                reach = max(reach, start + row_block - left, right - start)
    reach = -(-(reach + CLASS) // CLASS) * CLASS
    if 2 * reach >= padded:
        return Band(padded, padded, 0, padded * (padded + CLASS))
    return Band(reach, 2 * reach, reach, padded * (2 * reach + 1) + 2 * reach)


@dataclass(frozen=True, slots=True)
class DocumentBounds:
    """Bounds of documents. `first`, `last` (B, L): the first position of each position's document and the one after its last;
    both 0 on padding. `inner` (B, L): from there to `last` no mask is needed; L on padding and in a document that others
    interrupt. `block_first`, `block_last` (B, blocks): the span of the documents of each block of positions."""

    segments: Tensor
    first: Tensor
    last: Tensor
    inner: Tensor
    block_first: Tensor
    block_last: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.segments, self.first, self.last, self.inner, self.block_first, self.block_last]


def bounds_of(segments: Tensor) -> DocumentBounds:
    """Compute the bounds from (B, L) document numbers: 1, 2, ...; 0 is padding."""
    segments = segments.to(torch.int32).contiguous()
    rows, length = segments.shape
    index = segments.long().clamp(0, length)
    positions = torch.arange(length, device=segments.device).expand(rows, -1)
    zeros = torch.zeros(rows, length + 1, dtype=torch.long, device=segments.device)
    first = (zeros + length).scatter_reduce(1, index, positions, "amin").gather(1, index)
    last = zeros.scatter_reduce(1, index, positions + 1, "amax").gather(1, index)
    count = zeros.scatter_add(1, index, torch.ones_like(index)).gather(1, index)
    real = index > 0
    inner = torch.where(real & (count == last - first), first, length)
    padding = -length % BLOCK
    lows = torch.nn.functional.pad(torch.where(real, first, length), (0, padding), value=length)
    highs = torch.nn.functional.pad(torch.where(real, last, 0), (0, padding), value=0)
    low = lows.unflatten(1, (-1, BLOCK)).amin(2) // BLOCK * BLOCK
    high = (highs.unflatten(1, (-1, BLOCK)).amax(2) + BLOCK - 1) // BLOCK * BLOCK
    bounds = (torch.where(real, first, 0), torch.where(real, last, 0), inner, torch.minimum(low, high), high)
    return DocumentBounds(segments, *(x.int().contiguous() for x in bounds))


@dataclass(frozen=True, slots=True)
class Documents:
    """The document of each position of a batch; a position attends to its own document alone."""

    segments: Tensor

    @classmethod
    def of(cls, attention_mask: object) -> Documents | None:
        """Convert a mask of `encode`: documents, or a (B, L) mask of unpadded tokens; None for a pairwise mask."""
        if isinstance(attention_mask, Documents):
            return attention_mask
        if not isinstance(attention_mask, Tensor) or attention_mask.dim() not in (2, 3, 4):
            form = f"{attention_mask.dim()} dimensions" if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
            raise KernelError(f"DeBERTa-v2 takes no mask of this form ({form}); pass a (B, L) mask, or Documents.")
        return cls((attention_mask > 0).to(torch.int32)) if attention_mask.dim() == 2 else None

    def real(self) -> Tensor:
        """Return the (B, L) mask of unpadded tokens."""
        return (self.segments > 0).to(torch.long)

    def pairs(self) -> Tensor:
        """Return the pairwise mask (B, 1, L, L)."""
        same = self.segments[:, None, :, None] == self.segments[:, None, None, :]
        return same & (self.segments > 0)[:, None, None, :]
