"""Triton kernels of the backward pass through scores. In: what the forward pass kept. Out: dV, dQ and dK by content, bands."""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

import triton
import triton.language as tl

from coref_automl.models.disentangled.tiles import (
    AHEAD,
    BEHIND,
    BLOCK,
    CLASS,
    IN_BAND,
    VARYING,
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
    total, low, high, q, slope, delta, lse, rows, bh, draws, DRAWS, limit,
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
        share_of = tl.exp2(scores - base[:, None])
        gain = tl.dot(slope, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            others = load_numbers(DRAWS, columns, length, EVEN)
            gain = tl.where(kept_by_dropout(draws[:, None], others[None, :], limit), gain, 0.0)
        ds = share_of * (gain - delta[:, None])
        small = ds.to(k.dtype)
        total = tl.dot(small, k, total, input_precision=PRECISION)
        if C2P:
            if ZONE == IN_BAND:
                at = rows.to(tl.int64)[:, None] * stride + columns[None, :] + offset
                at = DC + bh.to(tl.int64) * band_head + at
                if EVEN:
                    tl.store(at, small)
                else:
                    tl.store(at, small, mask=(rows < length)[:, None])
            else:
                outer += tl.sum(ds, 1)
    return total, outer


@triton.jit(do_not_specialize=VARYING)
def query_slopes_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, OUT, DOUT, LSE, DRAWS, DELTA, DQ, DC, OUTER,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row, g_batch, g_head, g_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, limit, boost,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of queries: the content part of dQ (unscaled), the gradients of its scores as a band, their sums far out."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    if EVEN:
        length = length // BLOCK * BLOCK  # as it is; so the compiler sees that rows of numbers are aligned
    begin = tl.program_id(0) * BLOCK_M
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    place = bh.to(tl.int64) * length + rows
    q = load_rows(Q + b * q_batch + h * q_head, q_row, rows, d, length, D, BLOCK_D)
    out = load_rows(OUT + b * o_batch + h * o_head, o_row, rows, d, length, D, BLOCK_D)
    slope = load_rows(DOUT + b * g_batch + h * g_head, g_row, rows, d, length, D, BLOCK_D)
    delta = tl.sum(out.to(tl.float32) * slope.to(tl.float32), 1) / boost
    tl.store(DELTA + place, delta, mask=rows < length)
    lse = tl.load(LSE + place, mask=rows < length, other=0.0)
    K, V, SEGMENTS = K + b * k_batch + h * k_head, V + b * v_batch + h * v_head, SEGMENTS + b * length
    own = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    own = tl.where(own > 0, own, -1)
    low, left, right, high = zones(FIRST, LAST, b, rows, length, begin, BLOCK_M, BLOCK_N, high_reach, low_reach)
    solid_low, solid_high = solid_columns(INNER, LAST, b, rows, length)
    DRAWS += bh.to(tl.int64) * length
    draws = tl.load(DRAWS + rows, mask=rows < length, other=0) if DROPOUT else 0
    total = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == BEHIND else 0
        start, stop = zone_limits(low, left, right, high, zone)
        total, outer = _query_zone(
            total, start, stop, q, slope, delta, lse, rows, bh, draws, DRAWS + far, limit, K, V, k_row, v_row, length, stride,
            offset, band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, DC, own, SEGMENTS, solid_low, solid_high,
            C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_N, EVEN, PRECISION,
        )  # fmt: skip
        if C2P and zone != IN_BAND:
            tl.store(OUTER + end + place, outer, mask=rows < length)
    keep = (rows < length)[:, None] & (d < D)[None, :]
    tl.store(DQ + place[:, None] * D + d[None, :], total, mask=keep)


@triton.jit
def _key_zone(
    total, gained, low, high, k, v, rows, bh, draws, DRAWS, limit, nothing,
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
        slope = load_rows(DOUT, g_row, columns, d, length, D, BLOCK_D, EVEN)
        lse = load_numbers(LSE, columns, length, EVEN)
        delta = load_numbers(DELTA, columns, length, EVEN)
        scores = tile_scores(
            k, q, rows, columns, bh, length, stride, offset, band_head, scale, P, C, QUERY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, P2C, C2P, ZONE, EVEN, PRECISION,
        )  # fmt: skip
        share_of = tl.exp2(scores - lse[None, :] + far[:, None] if P2C and ZONE != IN_BAND else scores - lse[None, :])
        gain = tl.dot(v, tl.trans(slope), input_precision=PRECISION)
        dropped = share_of
        if DROPOUT:
            others = load_numbers(DRAWS, columns, length, EVEN)
            keep = kept_by_dropout(draws[:, None], others[None, :], limit)
            gain = tl.where(keep, gain, 0.0)
            dropped = tl.where(keep, share_of, nothing)
        gained = tl.dot(dropped.to(slope.dtype), slope, gained, input_precision=PRECISION)
        ds = share_of * (gain - delta[None, :])
        small = ds.to(q.dtype)
        total = tl.dot(small, q, total, input_precision=PRECISION)
        if P2C:
            if ZONE == IN_BAND:
                at = rows.to(tl.int64)[:, None] * stride + columns[None, :] + offset
                at = DP + bh.to(tl.int64) * band_head + at
                if EVEN:
                    tl.store(at, small)
                else:
                    tl.store(at, small, mask=(rows < length)[:, None])
            else:
                outer += tl.sum(ds, 1)
    return total, gained, outer


@triton.jit(do_not_specialize=VARYING)
def key_slopes_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, DOUT, LSE, DRAWS, DELTA, DK, DV, DP, OUTER,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, g_batch, g_head, g_row, w_batch, w_head, w_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, limit, boost,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of keys: dV, the content part of dK (unscaled), the gradients of its scores as a band, their sums far out."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    if EVEN:
        length = length // BLOCK * BLOCK  # as it is; so the compiler sees that rows of numbers are aligned
    begin = tl.program_id(0) * BLOCK_N
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    place = bh.to(tl.int64) * length + rows
    k = load_rows(K + b * k_batch + h * k_head, k_row, rows, d, length, D, BLOCK_D)
    v = load_rows(V + b * v_batch + h * v_head, v_row, rows, d, length, D, BLOCK_D)
    Q, DOUT, SEGMENTS = Q + b * q_batch + h * q_head, DOUT + b * g_batch + h * g_head, SEGMENTS + b * length
    LSE, DELTA = LSE + bh.to(tl.int64) * length, DELTA + bh.to(tl.int64) * length
    own = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    own = tl.where(own > 0, own, -1)
    low, left, right, high = zones(FIRST, LAST, b, rows, length, begin, BLOCK_N, BLOCK_M, low_reach, high_reach)
    solid_low, solid_high = solid_columns(INNER, LAST, b, rows, length)
    DRAWS += bh.to(tl.int64) * length
    draws = tl.load(DRAWS + far + rows, mask=rows < length, other=0) if DROPOUT else 0
    total = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    gained = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == AHEAD else 0  # queries ahead of their key are far beyond the table's last row
        start, stop = zone_limits(low, left, right, high, zone)
        total, gained, outer = _key_zone(
            total, gained, start, stop, k, v, rows, bh, draws, DRAWS, limit, boost * 0.0, Q, DOUT, LSE, DELTA, q_row, g_row,
            length, stride, offset, band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, DP, own, SEGMENTS, solid_low,
            solid_high, C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_M, EVEN, PRECISION,
        )  # fmt: skip
        if P2C and zone != IN_BAND:
            tl.store(OUTER + end + place, outer, mask=rows < length)
    keep = (rows < length)[:, None] & (d < D)[None, :]
    tl.store(DK + place[:, None] * D + d[None, :], total, mask=keep)
    store_rows(DV + b * w_batch + h * w_head, w_row, rows, d, gained * boost, length, D, BLOCK_D)
