"""Triton kernels of the forward pass. In: queries, keys, values, position tables. Out: both position terms as bands; contexts."""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

import triton
import triton.language as tl

from deberta_kernels.tiles import (
    BEHIND,
    BLOCK,
    CLASS,
    VARYING,
    class_columns,
    far_term,
    kept_by_dropout,
    load_numbers,
    load_rows,
    solid_columns,
    store_rows,
    tile_scores,
    zone_limits,
    zones,
)


@triton.jit
def _write_band(
    X, T, BAND, FAR, bh, first, last, low, high, m, a, x_row, t_row, length, E, stride, offset, center, scale,
    SIGN: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_U: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write one position term of rows of one class as a band, and its values beyond both ends."""
    rows, d = a * CLASS + m, tl.arange(0, BLOCK_D)
    x = load_rows(X, x_row, rows, d, length, D, BLOCK_D)
    for end in tl.static_range(2):
        row = tl.load(T + end * 2 * center * t_row + d, mask=d < D, other=0.0)
        beyond = tl.sum(x.to(tl.float32) * row.to(tl.float32)[None, :], 1) * scale
        tl.store(FAR + (end * tl.num_programs(1) + bh).to(tl.int64) * length + rows, beyond, mask=rows < length)
    out = BAND + rows.to(tl.int64)[:, None] * stride + (a * CLASS)[:, None]
    words = tl.arange(0, BLOCK_U) // CLASS
    for start in range(low // BLOCK_U * BLOCK_U, high, BLOCK_U):
        start = tl.multiple_of(start, BLOCK_U)
        u = start + tl.arange(0, BLOCK_U)
        t = tl.load(T + (center + SIGN * (m + E - u))[:, None] * t_row + d[None, :], mask=(d < D)[None, :], other=0.0)
        value = tl.dot(x, tl.trans(t), input_precision=PRECISION)
        word = a[:, None] + (start // CLASS - E // CLASS + words)[None, :]
        keep = (word >= first[:, None]) & (word < last[:, None]) & (start // CLASS + words < 2 * E // CLASS)[None, :]
        tl.store(out + (offset - E + u)[None, :], value.to(BAND.dtype.element_ty), mask=keep)


@triton.jit(do_not_specialize=VARYING)
def bands_kernel(
    Q, K, KEY_TABLE, QUERY_TABLE, BLOCK_FIRST, BLOCK_LAST, C, P, QUERY_FAR, KEY_FAR,
    q_batch, q_head, q_row, k_batch, k_head, k_row, t_head, t_row, s_head, s_row,
    length, heads, E_words, stride_words, offset_words, band_words, center, scale,
    C2P: tl.constexpr, P2C: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_U: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Both position terms as bands (c2p: rows are queries; p2c: rows are keys), and their values beyond both ends.

    Every element that a tile of scores may read is written, so that none is NaN.
    """
    E, stride, offset, band_head = E_words * CLASS, stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    m = tl.program_id(0) % CLASS
    a = tl.program_id(0) // CLASS * BLOCK_A + tl.arange(0, BLOCK_A)
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    first, last, low, high = class_columns(BLOCK_FIRST, BLOCK_LAST, b, a * CLASS + m, length, E, BLOCK)
    begin, b = bh.to(tl.int64) * band_head, b.to(tl.int64)
    if tl.program_id(2) == 0:
        if C2P:
            _write_band(
                Q + b * q_batch + h * q_head, KEY_TABLE + h * t_head, C + begin, QUERY_FAR, bh, first, last, low, high, m, a,
                q_row, t_row, length, E, stride, offset, center, scale, 1, D, BLOCK_D, BLOCK_U, PRECISION,
            )  # fmt: skip
    else:
        if P2C:
            _write_band(
                K + b * k_batch + h * k_head, QUERY_TABLE + h * s_head, P + begin, KEY_FAR, bh, first, last, low, high, m, a,
                k_row, s_row, length, E, stride, offset, center, scale, -1, D, BLOCK_D, BLOCK_U, PRECISION,
            )  # fmt: skip


@triton.jit
def _forward_zone(
    acc, row_max, row_sum, low, high, q, rows, bh, draws, DRAWS, limit, nothing,
    K, V, k_row, v_row, length, stride, offset, band_head, scale,
    C, P, QUERY_FAR, KEY_FAR, row_segments, SEGMENTS, solid_low, solid_high,
    C2P: tl.constexpr, P2C: tl.constexpr, ZONE: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    far = far_term(QUERY_FAR, bh, rows, length, C2P, ZONE)
    for start in range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        columns = start + tl.arange(0, BLOCK_N)
        k = load_rows(K, k_row, columns, d, length, D, BLOCK_D, EVEN)
        scores = tile_scores(
            q, k, rows, columns, bh, length, stride, offset, band_head, scale, C, P, KEY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, C2P, P2C, ZONE, EVEN, PRECISION,
        )  # fmt: skip
        new_max = tl.maximum(row_max, tl.max(scores, 1) + far)
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        prob = tl.exp2(scores - (safe_max - far)[:, None])
        rescale = tl.exp2(row_max - safe_max)
        row_sum = row_sum * rescale + tl.sum(prob, 1)
        if DROPOUT:
            column_draws = load_numbers(DRAWS, columns, length, EVEN)
            prob = tl.where(kept_by_dropout(draws[:, None], column_draws[None, :], limit), prob, nothing)
        v = load_rows(V, v_row, columns, d, length, D, BLOCK_D, EVEN)
        acc = tl.dot(prob.to(v.dtype), v, acc * rescale[:, None], input_precision=PRECISION)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit(do_not_specialize=VARYING)
def forward_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, OUT, LSE, DRAWS,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, limit, boost,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Contexts of a block of queries, and the base-2 log-sum-exp of each query (0 for a query without keys)."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    if EVEN:
        length = length // BLOCK * BLOCK  # no change; it shows the compiler that rows are aligned
    begin = tl.program_id(0) * BLOCK_M
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    q = load_rows(Q + b * q_batch + h * q_head, q_row, rows, d, length, D, BLOCK_D)
    K, V, SEGMENTS = K + b * k_batch + h * k_head, V + b * v_batch + h * v_head, SEGMENTS + b * length
    row_segments = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    row_segments = tl.where(row_segments > 0, row_segments, -1)
    low, left, right, high = zones(FIRST, LAST, b, rows, length, begin, BLOCK_M, BLOCK_N, high_reach, low_reach)
    solid_low, solid_high = solid_columns(INNER, LAST, b, rows, length)
    DRAWS += bh.to(tl.int64) * length
    draws = tl.load(DRAWS + rows, mask=rows < length, other=0) if DROPOUT else 0
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == BEHIND else 0  # keys behind their query are far beyond the table's last row
        start, stop = zone_limits(low, left, right, high, zone)
        acc, row_max, row_sum = _forward_zone(
            acc, row_max, row_sum, start, stop, q, rows, bh, draws, DRAWS + far, limit, boost * 0.0, K, V, k_row, v_row, length,
            stride, offset, band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, row_segments, SEGMENTS, solid_low, solid_high,
            C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_N, EVEN, PRECISION,
        )  # fmt: skip
    row_sum = tl.where(row_sum > 0, row_sum, 1.0)
    acc = acc * (boost / row_sum)[:, None]
    store_rows(OUT + b * o_batch + h * o_head, o_row, rows, d, acc, length, D, BLOCK_D)
    tl.store(
        LSE + bh.to(tl.int64) * length + rows,
        tl.where(row_max == float("-inf"), 0.0, row_max + tl.log2(row_sum)),
        mask=rows < length,
    )
