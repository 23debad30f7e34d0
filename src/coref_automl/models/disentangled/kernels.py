"""Triton kernels of disentangled attention. In: queries, keys, values, position tables. Out: contexts, and every gradient.

A score is query x key plus two position terms that depend on the distance d = q - k: c2p (query x position key) and p2c (key x
position query). Each term is first written as a *band*: c2p of (q, k) lies at `q * stride + k`, p2c at `k * stride + q`. In this
layout a tile of scores is an aligned tile of the band, so the attention kernels add it without a gather, and store the gradients
of scores the same way. To write a band in whole 16-byte words, rows that are eight apart are computed together: within such a
class the distance of a column does not depend on the row, so the band is a matrix product.

Beyond the last bucket all distances share one row of the table: tiles out there take one number per query and one per key
(`far`). Documents are runs of equal segments; `first` and `last` bound the keys of each position, and tiles outside are skipped.
Sums are float32 and there are no atomics, so results repeat bit by bit. Logits are in base 2: `scale` includes log2(e) wherever
scores are computed.
"""

# mypy: ignore-errors
# ruff: noqa: N803, N806

from __future__ import annotations

import triton
import triton.language as tl

from coref_automl.models.disentangled import layout

CLASS = tl.constexpr(layout.CLASS)
BLOCK = tl.constexpr(layout.BLOCK)
_VARYING = [
    "length", "heads", "batch", "E", "E_words", "stride_words", "offset_words", "band_words", "center", "table_rows",
    "high_reach", "low_reach", "behind", "ahead",
]  # fmt: skip
"""Numbers that change with the length of a batch: no kernel is built anew for them."""
_BEHIND = tl.constexpr(0)
_BAND = tl.constexpr(1)
_AHEAD = tl.constexpr(2)
"""Zones of a block of rows: columns so far behind that all distances share a row of the table, the band, columns as far ahead."""
_SHIFT = tl.constexpr(1 << 20)
"""Added before an integer division and taken off after it: Triton rounds towards zero, and positions may be negative here."""


@triton.jit
def _load_rows(base, stride, rows, d, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of `D` numbers; 0 beyond `length` and `D`."""
    keep = (rows < length)[:, None]
    if D != BLOCK_D:
        keep = keep & (d < D)[None, :]
    return tl.load(base + rows.to(tl.int64)[:, None] * stride + d[None, :], mask=keep, other=0.0)


@triton.jit
def _store_rows(base, stride, rows, d, value, length, D: tl.constexpr, BLOCK_D: tl.constexpr):
    keep = (rows < length)[:, None]
    if D != BLOCK_D:
        keep = keep & (d < D)[None, :]
    tl.store(base + rows.to(tl.int64)[:, None] * stride + d[None, :], value.to(base.dtype.element_ty), mask=keep)


@triton.jit
def _band_limits(start, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, behind, ahead):
    """For rows [start, start + ROW_BLOCK): columns before the first number are all `behind` or more behind every row, and
    columns from the second on all `ahead` or more ahead; both are multiples of COLUMN_BLOCK."""
    left = (start - behind + 1 + _SHIFT) // COLUMN_BLOCK * COLUMN_BLOCK - _SHIFT
    right = (start + ROW_BLOCK - 1 + ahead + COLUMN_BLOCK - 1 + _SHIFT) // COLUMN_BLOCK * COLUMN_BLOCK - _SHIFT
    return left, right


@triton.jit
def _solid(INNER, LAST, b, rows, length):
    """The columns that every row of a block sees, so that tiles within need no mask; rows beyond the length do not count."""
    inside = rows < length
    low = tl.max(tl.load(INNER + b * length + rows, mask=inside, other=0), 0)
    return low, tl.min(tl.load(LAST + b * length + rows, mask=inside, other=length), 0)


@triton.jit
def _zones(FIRST, LAST, b, rows, length, start, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, behind, ahead):
    """The columns that a block of rows may see, in whole blocks: the four limits of three zones."""
    inside = rows < length
    first = tl.load(FIRST + b * length + rows, mask=inside, other=length)
    last = tl.load(LAST + b * length + rows, mask=inside, other=0)
    seen = last > first
    low = tl.min(tl.where(seen, first, length), 0) // COLUMN_BLOCK * COLUMN_BLOCK
    high = tl.max(tl.where(seen, last, 0), 0)
    high = tl.maximum((high + COLUMN_BLOCK - 1) // COLUMN_BLOCK * COLUMN_BLOCK, low)
    left, right = _band_limits(start, ROW_BLOCK, COLUMN_BLOCK, behind, ahead)
    left = tl.minimum(tl.maximum(left, low), high)
    right = tl.minimum(tl.maximum(right, left), high)
    return low, left, right, high


@triton.jit
def _limits(low, left, right, high, ZONE: tl.constexpr):
    """First column of a zone, and the one after its last."""
    if ZONE == _BEHIND:
        start, stop = low, left
    elif ZONE == _BAND:
        start, stop = left, right
    else:
        start, stop = right, high
    return start, stop


@triton.jit
def _class_columns(FIRST, LAST, b, rows, length, E, SHARED: tl.constexpr):
    """For rows of one class: their documents in words of eight, and the columns (from E before each row's word) they span.

    SHARED: bounds are those of the rows' blocks of so many.
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
def _write_band(
    X, T, BAND, FAR, bh, first, last, low, high, m, a, x_row, t_row, length, E, stride, offset, center, scale,
    SIGN: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_U: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One position term of rows of one class, and its values beyond both ends."""
    rows, d = a * CLASS + m, tl.arange(0, BLOCK_D)
    x = _load_rows(X, x_row, rows, d, length, D, BLOCK_D)
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


@triton.jit(do_not_specialize=_VARYING)
def bands_kernel(
    Q, K, KEY_TABLE, QUERY_TABLE, BLOCK_FIRST, BLOCK_LAST, C, P, QUERY_FAR, KEY_FAR,
    q_batch, q_head, q_row, k_batch, k_head, k_row, t_head, t_row, s_head, s_row,
    length, heads, E_words, stride_words, offset_words, band_words, center, scale,
    C2P: tl.constexpr, P2C: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_U: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Both position terms as bands (c2p: rows are queries; p2c: rows are keys), and their values beyond both ends.

    Every place that a tile of scores may touch is written, so that none holds NaN.
    """
    E, stride, offset, band_head = E_words * CLASS, stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    m = tl.program_id(0) % CLASS
    a = tl.program_id(0) // CLASS * BLOCK_A + tl.arange(0, BLOCK_A)
    bh = tl.program_id(1)
    b, h = bh // heads, bh % heads
    first, last, low, high = _class_columns(BLOCK_FIRST, BLOCK_LAST, b, a * CLASS + m, length, E, BLOCK)
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
def _kept(seed, bh, q, k, length, share):
    """Which of the probabilities of (q, k) dropout keeps: the same in every kernel."""
    draw = tl.rand(seed + bh, q * length + k)
    return draw >= share


@triton.jit
def _identity(SIZE: tl.constexpr, DTYPE: tl.constexpr):
    return (tl.arange(0, SIZE)[:, None] == tl.arange(0, SIZE)[None, :]).to(DTYPE)


@triton.jit
def _scores(
    left, right, rows, columns, bh, length, stride, offset, band_head, scale,
    ROW_BAND, COLUMN_BAND, COLUMN_FAR, row_segments, SEGMENTS, solid_low, solid_high,
    ROW_TERM: tl.constexpr, COLUMN_TERM: tl.constexpr, ZONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Logits (base 2) of a tile whose rows are `left` and whose columns are `right`; ROW_BAND lies along the rows.

    Outside the band the rows' own term is one number for all columns and is left to the caller.
    """
    value = tl.dot(left, tl.trans(right), input_precision=PRECISION)
    if ZONE == _BAND:
        base = bh.to(tl.int64) * band_head + offset
        if COLUMN_TERM:  # times the identity: tensor cores transpose a tile where it lies, which registers do slowly
            at = columns.to(tl.int64)[:, None] * stride + rows[None, :]
            other = tl.load(COLUMN_BAND + base + at)
            value = tl.dot(tl.trans(other), _identity(columns.shape[0], other.dtype), value, input_precision=PRECISION)
        if ROW_TERM:
            at = rows.to(tl.int64)[:, None] * stride + columns[None, :]
            value += tl.load(ROW_BAND + base + at).to(tl.float32)
    value = value * scale
    if ZONE != _BAND and COLUMN_TERM:
        value += tl.load(COLUMN_FAR + bh.to(tl.int64) * length + columns, mask=columns < length, other=0.0)[None, :]
    start = tl.min(columns, 0)
    if (start < solid_low) | (start + columns.shape[0] > solid_high):
        segments = tl.load(SEGMENTS + columns, mask=columns < length, other=-2)
        value = tl.where(row_segments[:, None] == segments[None, :], value, float("-inf"))
    return value


@triton.jit
def _far_of(FAR, bh, rows, length, TERM: tl.constexpr, ZONE: tl.constexpr):
    """The rows' own term beyond an end of the table; 0 within the band."""
    if TERM and ZONE != _BAND:
        far = tl.load(FAR + bh.to(tl.int64) * length + rows, mask=rows < length, other=0.0)
    else:
        far = tl.zeros(rows.shape, tl.float32)
    return far


@triton.jit
def _forward_zone(
    total, top, weight, low, high, q, rows, bh, seed, share,
    K, V, k_row, v_row, length, stride, offset, band_head, scale,
    C, P, QUERY_FAR, KEY_FAR, row_segments, SEGMENTS, solid_low, solid_high,
    C2P: tl.constexpr, P2C: tl.constexpr, ZONE: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    far = _far_of(QUERY_FAR, bh, rows, length, C2P, ZONE)
    for start in range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        columns = start + tl.arange(0, BLOCK_N)
        k = _load_rows(K, k_row, columns, d, length, D, BLOCK_D)
        scores = _scores(
            q, k, rows, columns, bh, length, stride, offset, band_head, scale, C, P, KEY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, C2P, P2C, ZONE, PRECISION,
        )  # fmt: skip
        new = tl.maximum(top, tl.max(scores, 1) + far)
        safe = tl.where(new == float("-inf"), 0.0, new)
        share_of = tl.exp2(scores - (safe - far)[:, None])
        fade = tl.exp2(top - safe)
        weight = weight * fade + tl.sum(share_of, 1)
        if DROPOUT:
            keep = _kept(seed, bh, rows[:, None], columns[None, :], length, share)
            share_of = tl.where(keep, share_of / (1.0 - share), 0.0)
        v = _load_rows(V, v_row, columns, d, length, D, BLOCK_D)
        total = tl.dot(share_of.to(v.dtype), v, total * fade[:, None], input_precision=PRECISION)
        top = new
    return total, top, weight


@triton.jit(do_not_specialize=_VARYING)
def forward_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, OUT, LSE, SEED,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, share,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Contexts of a block of queries, and the base-2 logarithm of each query's sum."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    begin = tl.program_id(0) * BLOCK_M
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    q = _load_rows(Q + b * q_batch + h * q_head, q_row, rows, d, length, D, BLOCK_D)
    K, V, SEGMENTS = K + b * k_batch + h * k_head, V + b * v_batch + h * v_head, SEGMENTS + b * length
    own = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    own = tl.where(own > 0, own, -1)
    low, left, right, high = _zones(FIRST, LAST, b, rows, length, begin, BLOCK_M, BLOCK_N, high_reach, low_reach)
    solid_low, solid_high = _solid(INNER, LAST, b, rows, length)
    seed = tl.load(SEED) if DROPOUT else 0
    total = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    weight = tl.zeros([BLOCK_M], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == _BEHIND else 0  # keys behind their query are far beyond the table's last row
        start, stop = _limits(low, left, right, high, zone)
        total, top, weight = _forward_zone(
            total, top, weight, start, stop, q, rows, bh, seed, share, K, V, k_row, v_row, length, stride, offset, band_head,
            scale, C, P, QUERY_FAR + end, KEY_FAR + end, own, SEGMENTS, solid_low, solid_high,
            C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_N, PRECISION,
        )  # fmt: skip
    total = total / tl.where(weight > 0, weight, 1.0)[:, None]
    _store_rows(OUT + b * o_batch + h * o_head, o_row, rows, d, total, length, D, BLOCK_D)
    tl.store(LSE + bh.to(tl.int64) * length + rows, top + tl.log2(weight), mask=rows < length)


@triton.jit
def _query_zone(
    total, low, high, q, slope, delta, lse, rows, bh, seed, share,
    K, V, k_row, v_row, length, stride, offset, band_head, scale,
    C, P, QUERY_FAR, KEY_FAR, DC, row_segments, SEGMENTS, solid_low, solid_high,
    C2P: tl.constexpr, P2C: tl.constexpr, ZONE: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    base = lse - _far_of(QUERY_FAR, bh, rows, length, C2P, ZONE)
    outer = tl.zeros(rows.shape, tl.float32)
    for start in range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        columns = start + tl.arange(0, BLOCK_N)
        k = _load_rows(K, k_row, columns, d, length, D, BLOCK_D)
        v = _load_rows(V, v_row, columns, d, length, D, BLOCK_D)
        scores = _scores(
            q, k, rows, columns, bh, length, stride, offset, band_head, scale, C, P, KEY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, C2P, P2C, ZONE, PRECISION,
        )  # fmt: skip
        share_of = tl.exp2(scores - base[:, None])
        gain = tl.dot(slope, tl.trans(v), input_precision=PRECISION)
        if DROPOUT:
            keep = _kept(seed, bh, rows[:, None], columns[None, :], length, share)
            gain = tl.where(keep, gain / (1.0 - share), 0.0)
        ds = share_of * (gain - delta[:, None])
        small = ds.to(k.dtype)
        total = tl.dot(small, k, total, input_precision=PRECISION)
        if C2P:
            if ZONE == _BAND:
                at = rows.to(tl.int64)[:, None] * stride + columns[None, :] + offset
                tl.store(DC + bh.to(tl.int64) * band_head + at, small, mask=(rows < length)[:, None])
            else:
                outer += tl.sum(ds, 1)
    return total, outer


@triton.jit(do_not_specialize=_VARYING)
def query_slopes_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, OUT, DOUT, LSE, SEED, DELTA, DQ, DC, OUTER,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row, g_batch, g_head, g_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, share,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of queries: the content part of dQ (unscaled), the gradients of its scores as a band, their sums far out."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    begin = tl.program_id(0) * BLOCK_M
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    place = bh.to(tl.int64) * length + rows
    q = _load_rows(Q + b * q_batch + h * q_head, q_row, rows, d, length, D, BLOCK_D)
    out = _load_rows(OUT + b * o_batch + h * o_head, o_row, rows, d, length, D, BLOCK_D)
    slope = _load_rows(DOUT + b * g_batch + h * g_head, g_row, rows, d, length, D, BLOCK_D)
    delta = tl.sum(out.to(tl.float32) * slope.to(tl.float32), 1)
    tl.store(DELTA + place, delta, mask=rows < length)
    lse = tl.load(LSE + place, mask=rows < length, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    K, V, SEGMENTS = K + b * k_batch + h * k_head, V + b * v_batch + h * v_head, SEGMENTS + b * length
    own = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    own = tl.where(own > 0, own, -1)
    low, left, right, high = _zones(FIRST, LAST, b, rows, length, begin, BLOCK_M, BLOCK_N, high_reach, low_reach)
    solid_low, solid_high = _solid(INNER, LAST, b, rows, length)
    seed = tl.load(SEED) if DROPOUT else 0
    total = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == _BEHIND else 0
        start, stop = _limits(low, left, right, high, zone)
        total, outer = _query_zone(
            total, start, stop, q, slope, delta, lse, rows, bh, seed, share, K, V, k_row, v_row, length, stride, offset,
            band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, DC, own, SEGMENTS, solid_low, solid_high,
            C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_N, PRECISION,
        )  # fmt: skip
        if C2P and zone != _BAND:
            tl.store(OUTER + end + place, outer, mask=rows < length)
    keep = (rows < length)[:, None] & (d < D)[None, :]
    tl.store(DQ + place[:, None] * D + d[None, :], total, mask=keep)


@triton.jit
def _key_zone(
    total, gained, low, high, k, v, rows, bh, seed, share,
    Q, DOUT, LSE, DELTA, q_row, g_row, length, stride, offset, band_head, scale,
    C, P, QUERY_FAR, KEY_FAR, DP, row_segments, SEGMENTS, solid_low, solid_high,
    C2P: tl.constexpr, P2C: tl.constexpr, ZONE: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    far = _far_of(KEY_FAR, bh, rows, length, P2C, ZONE)
    outer = tl.zeros(rows.shape, tl.float32)
    for start in range(low, high, BLOCK_M):
        start = tl.multiple_of(start, BLOCK_M)
        columns = start + tl.arange(0, BLOCK_M)
        q = _load_rows(Q, q_row, columns, d, length, D, BLOCK_D)
        slope = _load_rows(DOUT, g_row, columns, d, length, D, BLOCK_D)
        lse = tl.load(LSE + columns, mask=columns < length, other=0.0)
        lse = tl.where(lse == float("-inf"), 0.0, lse)
        delta = tl.load(DELTA + columns, mask=columns < length, other=0.0)
        scores = _scores(
            k, q, rows, columns, bh, length, stride, offset, band_head, scale, P, C, QUERY_FAR, row_segments, SEGMENTS,
            solid_low, solid_high, P2C, C2P, ZONE, PRECISION,
        )  # fmt: skip
        share_of = tl.exp2(scores - lse[None, :] + far[:, None] if P2C and ZONE != _BAND else scores - lse[None, :])
        gain = tl.dot(v, tl.trans(slope), input_precision=PRECISION)
        dropped = share_of
        if DROPOUT:
            keep = _kept(seed, bh, columns[None, :], rows[:, None], length, share)
            gain = tl.where(keep, gain / (1.0 - share), 0.0)
            dropped = tl.where(keep, share_of / (1.0 - share), 0.0)
        gained = tl.dot(dropped.to(slope.dtype), slope, gained, input_precision=PRECISION)
        ds = share_of * (gain - delta[None, :])
        small = ds.to(q.dtype)
        total = tl.dot(small, q, total, input_precision=PRECISION)
        if P2C:
            if ZONE == _BAND:
                at = rows.to(tl.int64)[:, None] * stride + columns[None, :] + offset
                tl.store(DP + bh.to(tl.int64) * band_head + at, small, mask=(rows < length)[:, None])
            else:
                outer += tl.sum(ds, 1)
    return total, gained, outer


@triton.jit(do_not_specialize=_VARYING)
def key_slopes_kernel(
    Q, K, V, C, P, QUERY_FAR, KEY_FAR, SEGMENTS, FIRST, LAST, INNER, DOUT, LSE, SEED, DELTA, DK, DV, DP, OUTER,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, g_batch, g_head, g_row, w_batch, w_head, w_row,
    length, heads, stride_words, offset_words, band_words, high_reach, low_reach, scale, share,
    C2P: tl.constexpr, P2C: tl.constexpr, DROPOUT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For a block of keys: dV, the content part of dK (unscaled), the gradients of its scores as a band, their sums far out."""
    stride, offset, band_head = stride_words * CLASS, offset_words * CLASS, band_words.to(tl.int64) * CLASS
    begin = tl.program_id(0) * BLOCK_N
    bh = tl.program_id(1)
    b, h = (bh // heads).to(tl.int64), bh % heads
    far = tl.num_programs(1).to(tl.int64) * length
    rows, d = begin + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    place = bh.to(tl.int64) * length + rows
    k = _load_rows(K + b * k_batch + h * k_head, k_row, rows, d, length, D, BLOCK_D)
    v = _load_rows(V + b * v_batch + h * v_head, v_row, rows, d, length, D, BLOCK_D)
    Q, DOUT, SEGMENTS = Q + b * q_batch + h * q_head, DOUT + b * g_batch + h * g_head, SEGMENTS + b * length
    LSE, DELTA = LSE + bh.to(tl.int64) * length, DELTA + bh.to(tl.int64) * length
    own = tl.load(SEGMENTS + rows, mask=rows < length, other=0)
    own = tl.where(own > 0, own, -1)
    low, left, right, high = _zones(FIRST, LAST, b, rows, length, begin, BLOCK_N, BLOCK_M, low_reach, high_reach)
    solid_low, solid_high = _solid(INNER, LAST, b, rows, length)
    seed = tl.load(SEED) if DROPOUT else 0
    total = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    gained = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for zone in tl.static_range(3):
        end = far if zone == _AHEAD else 0  # queries ahead of their key are far beyond the table's last row
        start, stop = _limits(low, left, right, high, zone)
        total, gained, outer = _key_zone(
            total, gained, start, stop, k, v, rows, bh, seed, share, Q, DOUT, LSE, DELTA, q_row, g_row, length, stride, offset,
            band_head, scale, C, P, QUERY_FAR + end, KEY_FAR + end, DP, own, SEGMENTS, solid_low, solid_high,
            C2P, P2C, zone, DROPOUT, D, BLOCK_D, BLOCK_M, PRECISION,
        )  # fmt: skip
        if P2C and zone != _BAND:
            tl.store(OUTER + end + place, outer, mask=rows < length)
    keep = (rows < length)[:, None] & (d < D)[None, :]
    tl.store(DK + place[:, None] * D + d[None, :], total, mask=keep)
    _store_rows(DV + b * w_batch + h * w_head, w_row, rows, d, gained, length, D, BLOCK_D)


@triton.jit
def _band_tile(
    DBAND, first, last, a, rows, start, length, stride, offset, E, behind, ahead,
    BLOCK_U: tl.constexpr, ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the scores of one class of rows; 0 where no tile of the band was stored."""
    words = tl.arange(0, BLOCK_U) // CLASS
    left, right = _band_limits(rows // ROW_BLOCK * ROW_BLOCK, ROW_BLOCK, COLUMN_BLOCK, behind, ahead)
    low = tl.maximum(first, tl.maximum(left, 0) // CLASS)
    high = tl.minimum(last, tl.maximum(right, 0) // CLASS)
    word = a[:, None] + (start // CLASS - E // CLASS + words)[None, :]
    keep = (word >= low[:, None]) & (word < high[:, None]) & (rows < length)[:, None]
    keep = keep & (start // CLASS + words < 2 * E // CLASS)[None, :]
    at = rows.to(tl.int64)[:, None] * stride + (a * CLASS)[:, None] + (offset - E + start + tl.arange(0, BLOCK_U))[None, :]
    return tl.load(DBAND + at, mask=keep, other=0.0)


@triton.jit(do_not_specialize=_VARYING)
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
    first, last, low, high = _class_columns(FIRST, LAST, b, rows, length, E, 1)
    for start in range(low // BLOCK_U * BLOCK_U, high, BLOCK_U):
        start = tl.multiple_of(start, BLOCK_U)
        u = start + tl.arange(0, BLOCK_U)
        ds = _band_tile(
            DBAND + bh.to(tl.int64) * band_head, first, last, a, rows, start, length, stride, offset, E, behind, ahead,
            BLOCK_U, ROW_BLOCK, COLUMN_BLOCK,
        )  # fmt: skip
        t = tl.load(table + (center + SIGN * (m + E - u))[:, None] * t_row + d[None, :], mask=(d < D)[None, :], other=0.0)
        total = tl.dot(ds, t, total, input_precision=PRECISION)
    _store_rows(DX + b.to(tl.int64) * x_batch + h * x_head, x_row, rows, d, total * scale, length, D, BLOCK_D)


@triton.jit(do_not_specialize=_VARYING)
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
        x = _load_rows(X + x_batch.to(tl.int64) * b + h * x_head, x_row, rows, d, length, D, BLOCK_D)
        total = tl.dot(tl.trans(ds), x, total, input_precision=PRECISION)
    place = ((m * heads + h) * 2 * E + u).to(tl.int64)
    tl.store(PART + place[:, None] * D + d[None, :], total, mask=(u < 2 * E)[:, None] & (d < D)[None, :])


@triton.jit(do_not_specialize=_VARYING)
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


@triton.jit(do_not_specialize=_VARYING)
def far_sums_kernel(
    OUTER, X, PART,
    x_batch, x_head, x_row,
    length, heads, ends,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums of X weighted by both rows of OUTER, over one stretch of positions: PART is (stretch, end, head, D)."""
    b, h = (tl.program_id(1) // heads).to(tl.int64), tl.program_id(1) % heads
    rows, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_D)
    x = _load_rows(X + b * x_batch + h * x_head, x_row, rows, d, length, D, BLOCK_D).to(tl.float32)
    stretch = b * tl.num_programs(0) + tl.program_id(0)
    for end in tl.static_range(2):
        weight = tl.load(OUTER + end * ends + tl.program_id(1).to(tl.int64) * length + rows, mask=rows < length, other=0.0)
        at = ((stretch * 2 + end) * heads + h) * D + d
        tl.store(PART + at, tl.sum(x * weight[:, None], 0), mask=d < D)
