"""Building blocks of the attention kernels. In: pointers and positions. Out: rows, zones, and tiles of scores.

A score is query x key plus two position terms that depend on the distance d = q - k: c2p (query x position key) and p2c (key x
position query). Each term is first written as a *band*: c2p of (q, k) is at index `q * stride + k`, p2c at `k * stride + q`. In
this layout a tile of scores is an aligned tile of the band, so the attention kernels add it without a gather, and store the
gradients of scores the same way. To write a band in whole 16-byte words, rows that are eight apart are computed together: within
such a class the distance of a column does not depend on the row, so the band is a matrix product.

Beyond the last bucket all distances share one row of the table: tiles there need one number per query and one per key (`far`).
Documents are runs of equal segments; `first` and `last` bound the keys of each position, and tiles outside are skipped. Sums are
float32 and there are no atomics, so results are reproducible bit by bit. Logits are in base 2: `scale` includes log2(e) wherever
scores are computed.
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl

from deberta_kernels import layout

CLASS = tl.constexpr(layout.CLASS)
BLOCK = tl.constexpr(layout.BLOCK)
VARYING = [
    "length", "heads", "batch", "E", "E_words", "stride_words", "offset_words", "band_words", "center", "table_rows",
    "high_reach", "low_reach", "behind", "ahead", "limit",
]  # fmt: skip
"""Arguments that vary with the length of a batch: kernels are not specialized for their values."""
BEHIND = tl.constexpr(0)
IN_BAND = tl.constexpr(1)
AHEAD = tl.constexpr(2)
"""Zones of a block of rows: columns so far behind that all distances share a row of the table; the band; columns as far ahead."""
_SHIFT = tl.constexpr(1 << 20)
"""Added before an integer division and subtracted after it: Triton rounds towards zero, and positions may be negative here."""


@triton.jit
def load_rows(base, stride, rows, d, length, D: tl.constexpr, BLOCK_D: tl.constexpr, EVEN: tl.constexpr = False):
    """Load rows of `D` numbers; 0 beyond `length` and `D`. EVEN: the length is a multiple of the tile, so no row is beyond it."""
    at = base + rows.to(tl.int64)[:, None] * stride + d[None, :]
    if EVEN and D == BLOCK_D:
        value = tl.load(at)
    elif EVEN:
        value = tl.load(at, mask=(d < D)[None, :], other=0.0)
    elif D == BLOCK_D:
        value = tl.load(at, mask=(rows < length)[:, None], other=0.0)
    else:
        value = tl.load(at, mask=(rows < length)[:, None] & (d < D)[None, :], other=0.0)
    return value


@triton.jit
def load_numbers(base, places, length, EVEN: tl.constexpr):
    """Load one number per position; 0 beyond the length."""
    return tl.load(base + places) if EVEN else tl.load(base + places, mask=places < length, other=0)


@triton.jit
def store_rows(base, stride, rows, d, value, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    keep = (rows < length)[:, None]
    if D != BLOCK_D:
        keep = keep & (d < D)[None, :]
    tl.store(base + rows.to(tl.int64)[:, None] * stride + d[None, :], value.to(base.dtype.element_ty), mask=keep)


@triton.jit
def band_limits(start, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, behind, ahead):
    """Return two columns for rows [start, start + ROW_BLOCK): columns before the first are `behind` or more behind every row,
    columns from the second on are `ahead` or more ahead; both are multiples of COLUMN_BLOCK."""
    left = (start - behind + 1 + _SHIFT) // COLUMN_BLOCK * COLUMN_BLOCK - _SHIFT
    right = (start + ROW_BLOCK - 1 + ahead + COLUMN_BLOCK - 1 + _SHIFT) // COLUMN_BLOCK * COLUMN_BLOCK - _SHIFT
    return left, right


@triton.jit
def solid_columns(INNER, LAST, b, rows, length):
    """Return the bounds of the columns that every row of a block attends to, whose tiles need no mask; padding does not count."""
    inside = rows < length
    low = tl.max(tl.load(INNER + b * length + rows, mask=inside, other=0), 0)
    return low, tl.min(tl.load(LAST + b * length + rows, mask=inside, other=length), 0)


@triton.jit
def zones(FIRST, LAST, b, rows, length, start, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, behind, ahead):
    """Return the columns that a block of rows may attend to, in whole blocks: the four limits of three zones."""
    inside = rows < length
    first = tl.load(FIRST + b * length + rows, mask=inside, other=length)
    last = tl.load(LAST + b * length + rows, mask=inside, other=0)
    seen = last > first
    low = tl.min(tl.where(seen, first, length), 0) // COLUMN_BLOCK * COLUMN_BLOCK
    high = tl.max(tl.where(seen, last, 0), 0)
    high = tl.maximum((high + COLUMN_BLOCK - 1) // COLUMN_BLOCK * COLUMN_BLOCK, low)
    left, right = band_limits(start, ROW_BLOCK, COLUMN_BLOCK, behind, ahead)
    left = tl.minimum(tl.maximum(left, low), high)
    right = tl.minimum(tl.maximum(right, left), high)
    return low, left, right, high


@triton.jit
def zone_limits(low, left, right, high, ZONE: tl.constexpr):
    """Return the first column of a zone and the one after its last."""
    if ZONE == BEHIND:
        start, stop = low, left
    elif ZONE == IN_BAND:
        start, stop = left, right
    else:
        start, stop = right, high
    return start, stop


@triton.jit
def class_columns(FIRST, LAST, b, rows, length, E, SHARED: tl.constexpr):
    """Return, for rows of one class, their documents in words of eight and the columns (from E before each row's word) they span.

    SHARED: rows per entry of the bounds.
    """
    size = (length + SHARED - 1) // SHARED
    inside = rows < size * SHARED
    first = tl.load(FIRST + b * size + rows // SHARED, mask=inside, other=0)
    last = tl.load(LAST + b * size + rows // SHARED, mask=inside, other=0)
    word = rows // CLASS * CLASS
    seen = last > first
    low = tl.maximum(tl.min(tl.where(seen, first - word, E), 0) + E, 0)
    high = tl.minimum(tl.max(tl.where(seen, last - word, -E), 0) + E, 2 * E)
    return first // CLASS, (last + CLASS - 1) // CLASS, low, high


@triton.jit
def kept_by_dropout(first, second, limit):
    """Tell which elements dropout keeps: the product of a row's and a column's draw (both made odd, modulo 2^32) is >= `limit`.

    Along a row, and along a column, elements are independent as the draws are. A draw per element (Philox) would cost more than
    all else that a kernel does with a score; this is one multiplication, the same in every kernel and for every tile size.
    Dropped elements become a 0 that the compiler cannot see (`nothing`): a visible one is rounded and packed separately.
    """
    return (first | 1) * (second | 1) >= limit


@triton.jit
def identity(SIZE: tl.constexpr, DTYPE: tl.constexpr):
    return (tl.arange(0, SIZE)[:, None] == tl.arange(0, SIZE)[None, :]).to(DTYPE)


@triton.jit
def tile_scores(
    left, right, rows, columns, bh, length, stride, offset, band_head, scale,
    ROW_BAND, COLUMN_BAND, COLUMN_FAR, row_segments, SEGMENTS, solid_low, solid_high,
    ROW_TERM: tl.constexpr, COLUMN_TERM: tl.constexpr, ZONE: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the logits (base 2) of a tile with rows `left` and columns `right`; ROW_BAND is indexed by row.

    Outside the band the rows' own term is the same for all columns and is added by the caller.
    """
    value = tl.dot(left, tl.trans(right), input_precision=PRECISION)
    if ZONE == IN_BAND:
        base = bh.to(tl.int64) * band_head + offset
        if COLUMN_TERM:  # times the identity: tensor cores transpose a tile in place, in registers it is slow
            at = columns.to(tl.int64)[:, None] * stride + rows[None, :]
            other = tl.load(COLUMN_BAND + base + at)
            value = tl.dot(tl.trans(other), identity(columns.shape[0], other.dtype), value, input_precision=PRECISION)
        if ROW_TERM:
            at = rows.to(tl.int64)[:, None] * stride + columns[None, :]
            value += tl.load(ROW_BAND + base + at).to(tl.float32)
    value = value * scale
    if ZONE != IN_BAND and COLUMN_TERM:
        value += load_numbers(COLUMN_FAR + bh.to(tl.int64) * length, columns, length, EVEN)[None, :]
    start = tl.min(columns, 0)
    if (start < solid_low) | (start + columns.shape[0] > solid_high):
        segments = tl.load(SEGMENTS + columns, mask=columns < length, other=-2)
        value = tl.where(row_segments[:, None] == segments[None, :], value, float("-inf"))
    return value


@triton.jit
def far_term(FAR, bh, rows, length, TERM: tl.constexpr, ZONE: tl.constexpr):
    """Return the rows' own term beyond an end of the table; 0 within the band."""
    if TERM and ZONE != IN_BAND:
        far = tl.load(FAR + bh.to(tl.int64) * length + rows, mask=rows < length, other=0.0)
    else:
        far = tl.zeros(rows.shape, tl.float32)
    return far
