"""Triton kernels of the backward pass through bands. In: gradients of scores as bands. Out: dQ, dK, tables."""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

import triton
import triton.language as tl

from coref_automl.models.disentangled.tiles import CLASS, VARYING, band_limits, class_columns, load_rows, store_rows


@triton.jit
def _band_tile(
    DBAND, first, last, a, rows, start, length, stride, offset, E, behind, ahead,
    BLOCK_U: tl.constexpr, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the scores of one class of rows; 0 where no tile of the band was stored."""
    words = tl.arange(0, BLOCK_U) // CLASS
    left, right = band_limits(rows // ROW_BLOCK * ROW_BLOCK, ROW_BLOCK, COLUMN_BLOCK, behind, ahead)
    low = tl.maximum(first, tl.maximum(left, 0) // CLASS)
    high = tl.minimum(last, tl.maximum(right, 0) // CLASS)
    word = a[:, None] + (start // CLASS - E // CLASS + words)[None, :]
    keep = (word >= low[:, None]) & (word < high[:, None]) & (rows < length)[:, None]
    keep = keep & (start // CLASS + words < 2 * E // CLASS)[None, :]
    at = rows.to(tl.int64)[:, None] * stride + (a * CLASS)[:, None] + (offset - E + start + tl.arange(0, BLOCK_U))[None, :]
    return tl.load(DBAND + at, mask=keep, other=0.0)


@triton.jit(do_not_specialize=VARYING)
def content_slopes_kernel(
    DBAND, T, FIRST, LAST, CONTENT, OUTER, DX,
    t_head, t_row, band_words, x_batch, x_head, x_row,
    length, heads, E_words, stride_words, offset_words, center, behind, ahead, scale,
    SIGN: tl.constexpr, FAR: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_U: tl.constexpr,
    ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ (or dK): the content part, plus the gradients of the band times the position table."""
    E, stride, offset, band_head = E_words * CLASS, stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    m = tl.program_id(0) % CLASS
    a = tl.program_id(0) // CLASS * BLOCK_A + tl.arange(0, BLOCK_A)
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    rows, d = a * CLASS + m, tl.arange(0, BLOCK_D)
    place = bh.to(tl.int64) * length + rows
    table = T + h * t_head
    total = tl.load(CONTENT + place[:, None] * D + d[None, :], mask=(rows < length)[:, None] & (d < D)[None, :], other=0.0)
    if FAR:
        for end in tl.static_range(2):
            row = tl.load(table + end * 2 * center * t_row + d, mask=d < D, other=0.0).to(tl.float32)
            sums = tl.load(OUTER + end * tl.num_programs(1).to(tl.int64) * length + place, mask=rows < length, other=0.0)
            total += sums[:, None] * row[None, :]
    first, last, low, high = class_columns(FIRST, LAST, b, rows, length, E, 1)
    for start in range(low // BLOCK_U * BLOCK_U, high, BLOCK_U):
        start = tl.multiple_of(start, BLOCK_U)
        u = start + tl.arange(0, BLOCK_U)
        ds = _band_tile(
            DBAND + bh.to(tl.int64) * band_head, first, last, a, rows, start, length, stride, offset, E, behind, ahead,
            BLOCK_U, ROW_BLOCK, COLUMN_BLOCK,
        )  # fmt: skip
        t = tl.load(table + (center + SIGN * (m + E - u))[:, None] * t_row + d[None, :], mask=(d < D)[None, :], other=0.0)
        total = tl.dot(ds, t, total, input_precision=PRECISION)
    store_rows(DX + b.to(tl.int64) * x_batch + h * x_head, x_row, rows, d, total * scale, length, D, BLOCK_D)


@triton.jit(do_not_specialize=VARYING)
def table_slopes_kernel(
    DBAND, X, FIRST, LAST, PART,
    band_words, x_batch, x_head, x_row,
    length, batch, heads, E_words, stride_words, offset_words, behind, ahead,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_U: tl.constexpr,
    ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of a position table by class and column, summed over all rows of the batch: PART is (class, head, column, D)."""
    E, stride, offset, band_head = E_words * CLASS, stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    m, h = tl.program_id(0), tl.program_id(2)
    start = tl.program_id(1) * BLOCK_U
    u, d = start + tl.arange(0, BLOCK_U), tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_U, BLOCK_D], tl.float32)
    blocks = (length + CLASS * BLOCK_A - 1) // (CLASS * BLOCK_A)
    for step in range(batch * blocks):
        b = step // blocks
        a = step % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
        rows = a * CLASS + m
        inside = rows < length
        first = tl.load(FIRST + b * length + rows, mask=inside, other=0) // CLASS
        last = (tl.load(LAST + b * length + rows, mask=inside, other=0) + CLASS - 1) // CLASS
        ds = _band_tile(
            DBAND + (b * heads + h).to(tl.int64) * band_head, first, last, a, rows, start, length, stride, offset, E, behind,
            ahead, BLOCK_U, ROW_BLOCK, COLUMN_BLOCK,
        )  # fmt: skip
        x = load_rows(X + x_batch.to(tl.int64) * b + h * x_head, x_row, rows, d, length, D, BLOCK_D)
        total = tl.dot(tl.trans(ds), x, total, input_precision=PRECISION)
    place = ((m * heads + h) * 2 * E + u).to(tl.int64)
    tl.store(PART + place[:, None] * D + d[None, :], total, mask=(u < 2 * E)[:, None] & (d < D)[None, :])


@triton.jit(do_not_specialize=VARYING)
def table_sums_kernel(
    PART, STARTS, FAR_SUMS, DT,
    heads, E, table_rows, scale,
    SIGN: tl.constexpr, FAR: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row of a position table: the sum of PART over the distances that share it, and what lies beyond its ends."""
    r, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_D], tl.float32)
    end = tl.minimum(tl.load(STARTS + r + 1), E + CLASS + 1)
    for start in range(tl.maximum(tl.load(STARTS + r), -E - CLASS), end, 4):
        distance = start + tl.arange(0, 4 * CLASS) // CLASS
        m = tl.arange(0, 4 * CLASS) % CLASS
        u = m + E - SIGN * distance
        keep = ((distance < end) & (u >= 0) & (u < 2 * E))[:, None] & (d < D)[None, :]
        at = ((m * heads + h) * 2 * E + u).to(tl.int64)
        total += tl.sum(tl.load(PART + at[:, None] * D + d[None, :], mask=keep, other=0.0), 0)
    if FAR:
        if r == 0:
            total += tl.load(FAR_SUMS + h * D + d, mask=d < D, other=0.0)
        if r == table_rows - 1:
            total += tl.load(FAR_SUMS + (heads + h) * D + d, mask=d < D, other=0.0)
    at = (r * heads + h) * D + d
    tl.store(DT + at, (total * scale).to(DT.dtype.element_ty), mask=d < D)


@triton.jit(do_not_specialize=VARYING)
def far_sums_kernel(
    OUTER, X, PART,
    x_batch, x_head, x_row,
    length, heads, ends,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums of X weighted by both rows of OUTER, over one stretch of positions: PART is (stretch, end, head, D)."""
    b, h = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    rows, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
    x = load_rows(X + b * x_batch + h * x_head, x_row, rows, d, length, D, BLOCK_D).to(tl.float32)
    stretch = b * tl.num_programs(0) + tl.program_id(0)
    for end in tl.static_range(2):
        weight = tl.load(OUTER + end * ends + tl.program_id(1).to(tl.int64) * length + rows, mask=rows < length, other=0.0)
        at = ((stretch * 2 + end) * heads + h) * D + d
        tl.store(PART + at, tl.sum(x * weight[:, None], 0), mask=d < D)
