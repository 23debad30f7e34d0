"""Triton kernels of the backward pass. In: what the forward pass saved. Out: dQ, dK, dV and gradients of the position tables.

query_gradients_kernel    content part of dQ, gradients of the scores as the c2p band
key_gradients_kernel      dV, content part of dK, gradients of the scores as the p2c band
input_gradients_kernel    dQ or dK: the content part plus band times position table
table_gradients_kernel, far_sums_kernel, table_sums_kernel
                          a position table: by class and column; beyond both ends; both summed per row of the table
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

import triton
import triton.language as tl

from deberta_kernels.tiles import (
    AHEAD,
    BEHIND,
    BLOCK,
    CLASS,
    IN_BAND,
    VARYING,
    band_limits,
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
def _query_zone(
    acc, low, high, q, grad, delta, lse, rows, bh, draws, DRAWS, limit,
    K, V, k_row, v_row, length, stride, offset, band_head, scale,
    C, P, QUERY_FAR, KEY_FAR, DC, row_segments, SEGMENTS, solid_low, solid_high,
    C2P: tl.constexpr, P2C: tl.constexpr, ZONE: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    base = lse - far_term(QUERY_FAR, bh, rows, length, C2P, ZONE)
    outer = tl.zeros(rows.shape, tl.float32)
    for start in range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        columns = start + tl.arange(0, BLOCK_N)
        k = load_rows(K, k_row, columns, d, length, D, BLOCK_D, EVEN)
        v = load_rows(V, v_row, columns, d, length, D, BLOCK_D, EVEN)
        scores = tile_scores(
            q, k, rows, columns, bh, length, stride, offset, band_head, scale, C, P, KEY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, C2P, P2C, ZONE, EVEN, PRECISION,
        )  # fmt: skip
        prob = tl.exp2(scores - base[:, None])
        dprob = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            column_draws = load_numbers(DRAWS, columns, length, EVEN)
            dprob = tl.where(kept_by_dropout(draws[:, None], column_draws[None, :], limit), dprob, 0.0)
        ds = prob * (dprob - delta[:, None])
        ds_half = ds.to(k.dtype)
        acc = tl.dot(ds_half, k, acc, input_precision=PRECISION)
        if C2P:
            if ZONE == IN_BAND:
                at = rows.to(tl.int64)[:, None] * stride + columns[None, :] + offset
                at = DC + bh.to(tl.int64) * band_head + at
                if EVEN:
                    tl.store(at, ds_half)
                else:
                    tl.store(at, ds_half, mask=(rows < length)[:, None])
            else:
                outer += tl.sum(ds, 1)
    return acc, outer


@triton.jit(do_not_specialize=VARYING)
def query_gradients_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, OUT, DOUT, LSE, DRAWS, DELTA, DQ, DC, OUTER,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row, g_batch, g_head, g_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, limit, boost,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of queries: the content part of dQ (unscaled), gradients of its scores as a band, their sums beyond it."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    if EVEN:
        length = length // BLOCK * BLOCK  # no change; it shows the compiler that rows are aligned
    begin = tl.program_id(0) * BLOCK_M
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    index = bh.to(tl.int64) * length + rows
    q = load_rows(Q + b * q_batch + h * q_head, q_row, rows, d, length, D, BLOCK_D)
    out = load_rows(OUT + b * o_batch + h * o_head, o_row, rows, d, length, D, BLOCK_D)
    grad = load_rows(DOUT + b * g_batch + h * g_head, g_row, rows, d, length, D, BLOCK_D)
    delta = tl.sum(out.to(tl.float32) * grad.to(tl.float32), 1) / boost
    tl.store(DELTA + index, delta, mask=rows < length)
    lse = tl.load(LSE + index, mask=rows < length, other=0.0)
    K, V, SEGMENTS = K + b * k_batch + h * k_head, V + b * v_batch + h * v_head, SEGMENTS + b * length
    row_segments = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    row_segments = tl.where(row_segments > 0, row_segments, -1)
    low, left, right, high = zones(FIRST, LAST, b, rows, length, begin, BLOCK_M, BLOCK_N, high_reach, low_reach)
    solid_low, solid_high = solid_columns(INNER, LAST, b, rows, length)
    DRAWS += bh.to(tl.int64) * length
    draws = tl.load(DRAWS + rows, mask=rows < length, other=0) if DROPOUT else 0
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == BEHIND else 0
        start, stop = zone_limits(low, left, right, high, zone)
        acc, outer = _query_zone(
            acc, start, stop, q, grad, delta, lse, rows, bh, draws, DRAWS + far, limit, K, V, k_row, v_row, length, stride,
            offset, band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, DC, row_segments, SEGMENTS, solid_low, solid_high,
            C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_N, EVEN, PRECISION,
        )  # fmt: skip
        if C2P and zone != IN_BAND:
            tl.store(OUTER + end + index, outer, mask=rows < length)
    keep = (rows < length)[:, None] & (d < D)[None, :]
    tl.store(DQ + index[:, None] * D + d[None, :], acc, mask=keep)


@triton.jit
def _key_zone(
    acc, dv, low, high, k, v, rows, bh, draws, DRAWS, limit, nothing,
    Q, DOUT, LSE, DELTA, q_row, g_row, length, stride, offset, band_head, scale,
    C, P, QUERY_FAR, KEY_FAR, DP, row_segments, SEGMENTS, solid_low, solid_high,
    C2P: tl.constexpr, P2C: tl.constexpr, ZONE: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    far = far_term(KEY_FAR, bh, rows, length, P2C, ZONE)
    outer = tl.zeros(rows.shape, tl.float32)
    for start in range(low, high, BLOCK_M):
        start = tl.multiple_of(start, BLOCK_M)
        columns = start + tl.arange(0, BLOCK_M)
        q = load_rows(Q, q_row, columns, d, length, D, BLOCK_D, EVEN)
        grad = load_rows(DOUT, g_row, columns, d, length, D, BLOCK_D, EVEN)
        lse = load_numbers(LSE, columns, length, EVEN)
        delta = load_numbers(DELTA, columns, length, EVEN)
        scores = tile_scores(
            k, q, rows, columns, bh, length, stride, offset, band_head, scale, P, C, QUERY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, P2C, C2P, ZONE, EVEN, PRECISION,
        )  # fmt: skip
        prob = tl.exp2(scores - lse[None, :] + far[:, None] if P2C and ZONE != IN_BAND else scores - lse[None, :])
        dprob = tl.dot(v, tl.trans(grad), input_precision=PRECISION)
        dropped_prob = prob
        if DROPOUT:
            column_draws = load_numbers(DRAWS, columns, length, EVEN)
            keep = kept_by_dropout(draws[:, None], column_draws[None, :], limit)
            dprob = tl.where(keep, dprob, 0.0)
            dropped_prob = tl.where(keep, prob, nothing)
        dv = tl.dot(dropped_prob.to(grad.dtype), grad, dv, input_precision=PRECISION)
        ds = prob * (dprob - delta[None, :])
        ds_half = ds.to(q.dtype)
        acc = tl.dot(ds_half, q, acc, input_precision=PRECISION)
        if P2C:
            if ZONE == IN_BAND:
                at = rows.to(tl.int64)[:, None] * stride + columns[None, :] + offset
                at = DP + bh.to(tl.int64) * band_head + at
                if EVEN:
                    tl.store(at, ds_half)
                else:
                    tl.store(at, ds_half, mask=(rows < length)[:, None])
            else:
                outer += tl.sum(ds, 1)
    return acc, dv, outer


@triton.jit(do_not_specialize=VARYING)
def key_gradients_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, DOUT, LSE, DRAWS, DELTA, DK, DV, DP, OUTER,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, g_batch, g_head, g_row, w_batch, w_head, w_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, limit, boost,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of keys: dV, content part of dK (unscaled), gradients of its scores as a band, their sums beyond it."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    if EVEN:
        length = length // BLOCK * BLOCK  # no change; it shows the compiler that rows are aligned
    begin = tl.program_id(0) * BLOCK_N
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    index = bh.to(tl.int64) * length + rows
    k = load_rows(K + b * k_batch + h * k_head, k_row, rows, d, length, D, BLOCK_D)
    v = load_rows(V + b * v_batch + h * v_head, v_row, rows, d, length, D, BLOCK_D)
    Q, DOUT, SEGMENTS = Q + b * q_batch + h * q_head, DOUT + b * g_batch + h * g_head, SEGMENTS + b * length
    LSE, DELTA = LSE + bh.to(tl.int64) * length, DELTA + bh.to(tl.int64) * length
    row_segments = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    row_segments = tl.where(row_segments > 0, row_segments, -1)
    low, left, right, high = zones(FIRST, LAST, b, rows, length, begin, BLOCK_N, BLOCK_M, low_reach, high_reach)
    solid_low, solid_high = solid_columns(INNER, LAST, b, rows, length)
    DRAWS += bh.to(tl.int64) * length
    draws = tl.load(DRAWS + far + rows, mask=rows < length, other=0) if DROPOUT else 0
    acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == AHEAD else 0  # queries ahead of their key are far beyond the table's last row
        start, stop = zone_limits(low, left, right, high, zone)
        acc, dv, outer = _key_zone(
            acc, dv, start, stop, k, v, rows, bh, draws, DRAWS, limit, boost * 0.0, Q, DOUT, LSE, DELTA, q_row, g_row,
            length, stride, offset, band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, DP, row_segments, SEGMENTS, solid_low,
            solid_high, C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_M, EVEN, PRECISION,
        )  # fmt: skip
        if P2C and zone != IN_BAND:
            tl.store(OUTER + end + index, outer, mask=rows < length)
    keep = (rows < length)[:, None] & (d < D)[None, :]
    tl.store(DK + index[:, None] * D + d[None, :], acc, mask=keep)
    store_rows(DV + b * w_batch + h * w_head, w_row, rows, d, dv * boost, length, D, BLOCK_D)


@triton.jit
def _band_tile(
    DBAND, first, last, a, rows, start, length, stride, offset, E, behind, ahead,
    BLOCK_U: tl.constexpr, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr,
):  # fmt: skip
    """Load the gradients of the scores of one class of rows; 0 where no tile of the band was stored."""
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
def input_gradients_kernel(
    DBAND, T, FIRST, LAST, CONTENT, OUTER, DX,
    t_head, t_row, band_words, x_batch, x_head, x_row,
    length, heads, E_words, stride_words, offset_words, center, behind, ahead, scale,
    SIGN: tl.constexpr, FAR: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_U: tl.constexpr,
    ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ (or dK): the content part plus the gradients of the band times the position table."""
    E, stride, offset, band_head = E_words * CLASS, stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    m = tl.program_id(0) % CLASS
    a = tl.program_id(0) // CLASS * BLOCK_A + tl.arange(0, BLOCK_A)
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    rows, d = a * CLASS + m, tl.arange(0, BLOCK_D)
    index = bh.to(tl.int64) * length + rows
    table = T + h * t_head
    acc = tl.load(CONTENT + index[:, None] * D + d[None, :], mask=(rows < length)[:, None] & (d < D)[None, :], other=0.0)
    if FAR:
        for end in tl.static_range(2):
            row = tl.load(table + end * 2 * center * t_row + d, mask=d < D, other=0.0).to(tl.float32)
            sums = tl.load(OUTER + end * tl.num_programs(1).to(tl.int64) * length + index, mask=rows < length, other=0.0)
            acc += sums[:, None] * row[None, :]
    first, last, low, high = class_columns(FIRST, LAST, b, rows, length, E, 1)
    for start in range(low // BLOCK_U * BLOCK_U, high, BLOCK_U):
        start = tl.multiple_of(start, BLOCK_U)
        u = start + tl.arange(0, BLOCK_U)
        ds = _band_tile(
            DBAND + bh.to(tl.int64) * band_head, first, last, a, rows, start, length, stride, offset, E, behind, ahead,
            BLOCK_U, ROW_BLOCK, COLUMN_BLOCK,
        )  # fmt: skip
        t = tl.load(table + (center + SIGN * (m + E - u))[:, None] * t_row + d[None, :], mask=(d < D)[None, :], other=0.0)
        acc = tl.dot(ds, t, acc, input_precision=PRECISION)
    store_rows(DX + b.to(tl.int64) * x_batch + h * x_head, x_row, rows, d, acc * scale, length, D, BLOCK_D)


@triton.jit(do_not_specialize=VARYING)
def table_gradients_kernel(
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
    acc = tl.zeros([BLOCK_U, BLOCK_D], tl.float32)
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
        acc = tl.dot(tl.trans(ds), x, acc, input_precision=PRECISION)
    index = ((m * heads + h) * 2 * E + u).to(tl.int64)
    tl.store(PART + index[:, None] * D + d[None, :], acc, mask=(u < 2 * E)[:, None] & (d < D)[None, :])


@triton.jit(do_not_specialize=VARYING)
def table_sums_kernel(
    PART, STARTS, FAR_SUMS, DT,
    heads, E, table_rows, scale,
    SIGN: tl.constexpr, FAR: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row of a position table: the sum of PART over the distances that share it, and what lies beyond its ends."""
    r, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    acc = tl.zeros([BLOCK_D], tl.float32)
    end = tl.minimum(tl.load(STARTS + r + 1), E + CLASS + 1)
    for start in range(tl.maximum(tl.load(STARTS + r), -E - CLASS), end, 4):
        distance = start + tl.arange(0, 4 * CLASS) // CLASS
        m = tl.arange(0, 4 * CLASS) % CLASS
        u = m + E - SIGN * distance
        keep = ((distance < end) & (u >= 0) & (u < 2 * E))[:, None] & (d < D)[None, :]
        at = ((m * heads + h) * 2 * E + u).to(tl.int64)
        acc += tl.sum(tl.load(PART + at[:, None] * D + d[None, :], mask=keep, other=0.0), 0)
    if FAR:
        if r == 0:
            acc += tl.load(FAR_SUMS + h * D + d, mask=d < D, other=0.0)
        if r == table_rows - 1:
            acc += tl.load(FAR_SUMS + (heads + h) * D + d, mask=d < D, other=0.0)
    at = (r * heads + h) * D + d
    tl.store(DT + at, (acc * scale).to(DT.dtype.element_ty), mask=d < D)


@triton.jit(do_not_specialize=VARYING)
def far_sums_kernel(
    OUTER, X, PART,
    x_batch, x_head, x_row,
    length, heads, ends,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums of X weighted by both rows of OUTER, over one block of positions: PART is (block, end, head, D)."""
    b, h = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    rows, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
    x = load_rows(X + b * x_batch + h * x_head, x_row, rows, d, length, D, BLOCK_D).to(tl.float32)
    stretch = b * tl.num_programs(0) + tl.program_id(0)
    for end in tl.static_range(2):
        weight = tl.load(OUTER + end * ends + tl.program_id(1).to(tl.int64) * length + rows, mask=rows < length, other=0.0)
        at = ((stretch * 2 + end) * heads + h) * D + d
        tl.store(PART + at, tl.sum(x * weight[:, None], 0), mask=d < D)
