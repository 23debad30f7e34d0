"""Disentangled attention as one differentiable operation. In: queries, keys and values in one tensor, two position tables. Out:
contexts.

`forward` and `backward` have the kernels, `layout` the memory layout; this module launches them and connects them to autograd.
The backward pass needs the inputs and the output of the forward pass, and one number per query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from deberta_kernels import backward, forward
from deberta_kernels.builds import launch, rehearse
from deberta_kernels.layout import BLOCK, CLASS, Distances, DocumentBounds, band_of, geometry

_LOG2E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes and launch options of a kernel."""

    rows: int
    columns: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class KernelTiles:
    """Tiles of every kernel: queries x keys, queries x keys, keys x queries, and rows of a class x columns (twice)."""

    forward: Tiles
    query: Tiles
    key: Tiles
    band: Tiles
    sums: Tiles

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple({(tiles.rows, tiles.columns) for tiles in (self.forward, self.query, self.key)})


_HALF = KernelTiles(Tiles(64, 32, 4, 3), Tiles(64, 32, 4, 3), Tiles(64, 32, 4, 3), Tiles(64, 128, 8, 3), Tiles(64, 64, 4, 3))
_WIDE = KernelTiles(Tiles(64, 32, 4, 2), Tiles(64, 32, 4, 2), Tiles(64, 32, 4, 2), Tiles(64, 64, 4, 2), Tiles(64, 64, 4, 2))
_FLOAT = KernelTiles(Tiles(32, 32, 4, 1), Tiles(32, 32, 4, 1), Tiles(32, 32, 4, 1), Tiles(32, 64, 4, 1), Tiles(32, 32, 4, 1))
_INTERPRETED = KernelTiles(
    Tiles(16, 32, 1, 1), Tiles(32, 16, 1, 1), Tiles(16, 32, 1, 1), Tiles(16, 64, 1, 1), Tiles(16, 64, 1, 1)
)


def plan_for(dtype: torch.dtype, size: int, device: str) -> KernelTiles:
    """Return tiles that fit the registers and shared memory of Ampere and later GPUs; tuned on an H200."""
    if device == "cpu":
        return _INTERPRETED
    if dtype == torch.float32:
        return _FLOAT
    return _HALF if size <= 64 else _WIDE


def attend(
    states: Tensor,
    position_key: Tensor | None,
    position_query: Tensor | None,
    bounds: DocumentBounds,
    distances: Distances,
    *,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Return contexts (B, L, H, D) for `states` (B, L, 3, H, D): queries, keys and values. Position tables are (rows, H, D), or
    None."""
    if dropout >= 1:  # everything is dropped
        states, dropout = states * 0, 0.0
    batch, length, _, heads, size = states.shape
    draws = dropout_draws(states.device, 2, batch * heads, length) if dropout > 0 else bounds.segments
    tables = [states.new_empty(0) if x is None else x for x in (position_key, position_query)]
    c2p, p2c = (x is not None for x in (position_key, position_query))
    work = _launch((batch, length, heads, size), states.dtype, states.device, c2p, p2c, distances, scale, dropout)
    out: Tensor = _Attention.apply(work, *map(_with_unit_stride, (states, *tables)), *bounds.tensors(), draws)
    return out


def dropout_draws(device: torch.device, *shape: int) -> Tensor:
    """Sample the factors of `tiles.kept_by_dropout` from torch's generator of the device."""
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device=device)


def dropout_limit(rate: float) -> tuple[int, float]:
    """Return the least product of draws that is kept at a dropout rate, and the factor on what is kept."""
    return int(rate * 2**32) - 2**31 if rate else 0, 1 / (1 - rate)


class _Launch:
    """What the launches for one shape have in common: the band, distances on the device, compile-time options."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, c2p: bool, p2c: bool, distances: Distances,
        scale: float, dropout: float,
    ) -> None:  # fmt: skip
        self.batch, self.length, self.heads, self.size = shape
        self.c2p, self.p2c, self.scale, self.dropout = c2p, p2c, scale, dropout
        self.limit, self.boost = dropout_limit(dropout)
        reach = 2 * distances.longest + 2
        points = geometry(distances, reach, device)
        self.plan = plan_for(dtype, self.size, device.type)
        self.band = band_of(self.length, points.high, points.low, self.plan.pairs)
        needed = self.band.reach + max(self.plan.band.columns, self.plan.sums.columns) + CLASS
        self.points = points if needed <= reach else geometry(distances, -(-needed // 1024) * 1024, device)
        self.rows = 2 * distances.span
        self.far = self.length > min(points.high, points.low)
        self.precision = "ieee" if dtype == torch.float32 else "tf32"
        self.block_d = max(16, 1 << (self.size - 1).bit_length())
        self.rehearsed: set[bool] = set()

    def new_band(self, like: Tensor, has_term: bool) -> Tensor:
        return like.new_empty(self.batch * self.heads * self.band.size if has_term else 0)

    def by_distance(self, table: Tensor) -> Tensor:
        """Expand a position table to one row per distance."""
        return table.index_select(0, self.points.rows) if table.numel() else table[None, None]

    def bands(self, query: Tensor, key: Tensor, tables: tuple[Tensor, Tensor], bounds: list[Tensor]) -> tuple[Tensor, ...]:
        """Return both position terms as bands, and their values beyond both ends: c2p, p2c, of queries, of keys."""
        far = query.new_empty(2, 2 * self.batch * self.heads * self.length, dtype=torch.float32)
        terms = (self.new_band(query, self.c2p), self.new_band(key, self.p2c), far[0], far[1])
        if self.c2p or self.p2c:
            tiles = self.plan.band
            grid = (CLASS * -(-self.length // (CLASS * tiles.rows)), self.batch * self.heads, 2)
            launch(forward.bands_kernel, grid)(
                query, key, *tables, *bounds[4:], *terms, *_strides(query), *_strides(key),
                *(stride for table in tables for stride in (table.stride(1), table.stride(0))),
                self.length, self.heads, *self.band.words, self.band.size // CLASS, self.points.center, self.scale * _LOG2E,
                C2P=self.c2p, P2C=self.p2c, D=self.size, BLOCK_D=self.block_d, BLOCK_A=tiles.rows, BLOCK_U=tiles.columns,
                PRECISION=self.precision, num_warps=tiles.warps, num_stages=tiles.stages,
            )  # fmt: skip
        return terms

    def far_sums(self, outer: Tensor, x: Tensor) -> Tensor:
        """Return the sums (2, H, D) of `x` over all positions, weighted by the gradients beyond each end."""
        grid = (-(-self.length // 256), self.batch * self.heads)
        part = outer.new_empty(self.batch * grid[0], 2, self.heads, self.size)
        launch(backward.far_sums_kernel, grid)(
            outer, x, part, *_strides(x), self.length, self.heads, outer.stride(0), D=self.size, BLOCK_D=self.block_d, BLOCK=256
        )
        return part.sum(0)

    def options(self, tiles: Tiles, rows: str, columns: str) -> dict[str, Any]:
        """Return the compile-time options of an attention kernel; `rows` and `columns` name the sides of its tile."""
        return {
            "C2P": self.c2p, "P2C": self.p2c, "DROPOUT": self.dropout > 0, "D": self.size, "BLOCK_D": self.block_d,
            rows: tiles.rows, columns: tiles.columns, "EVEN": self.length % BLOCK == 0, "PRECISION": self.precision,
            "num_warps": tiles.warps, "num_stages": tiles.stages,
        }  # fmt: skip

    def numbers(self) -> tuple[Any, ...]:
        """Return the scalar arguments of every attention kernel, from `length` to `boost`."""
        band, points = self.band, self.points
        return (
            self.length, self.heads, *band.words[1:], band.size // CLASS, points.high, points.low, self.scale * _LOG2E,
            self.limit, self.boost,
        )  # fmt: skip


_launch = lru_cache(maxsize=256)(_Launch)


def _strides(x: Tensor) -> tuple[int, int, int]:
    """Return the strides of batch, head and row; the last one is 1."""
    return x.stride(0), x.stride(2), x.stride(1)


def _with_unit_stride(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _forward(
    work: _Launch, states: Tensor, position_key: Tensor, position_query: Tensor, bounds: list[Tensor], draws: Tensor
) -> tuple[Tensor, Tensor]:
    query, key, value = states.unbind(2)
    tables = work.by_distance(position_key), work.by_distance(position_query)
    terms = work.bands(query, key, tables, bounds)
    out = query.new_empty(query.shape)
    lse = query.new_empty(work.batch, work.heads, work.length, dtype=torch.float32)
    grid = (-(-work.length // work.plan.forward.rows), work.batch * work.heads)
    launch(forward.forward_kernel, grid)(
        query, key, value, *terms, *bounds[:4], out, lse, draws, *_strides(query), *_strides(key),
        *_strides(value), *_strides(out), *work.numbers(), **work.options(work.plan.forward, "BLOCK_M", "BLOCK_N"),
    )  # fmt: skip
    return out, lse


def _backward(
    work: _Launch, grad: Tensor, out: Tensor, lse: Tensor, states: Tensor, position_key: Tensor, position_query: Tensor,
    bounds: list[Tensor], draws: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grad = _with_unit_stride(grad)  # the gradient of a sum is an expanded scalar
    query, key, value = states.unbind(2)
    dstates = states.new_empty(states.shape)
    dquery, dkey, dvalue = dstates.unbind(2)
    key_table, query_table = work.by_distance(position_key), work.by_distance(position_query)
    terms = work.bands(query, key, (key_table, query_table), bounds)
    grid = (-(-work.length // work.plan.query.rows), work.batch * work.heads)
    delta, content = torch.empty_like(lse), lse.new_empty(*lse.shape, work.size)
    dband, outer = work.new_band(query, work.c2p), lse.new_empty(2, *lse.shape)
    launch(backward.query_gradients_kernel, grid)(
        query, key, value, *terms, *bounds[:4], out, grad, lse, draws, delta, content, dband, outer,
        *_strides(query), *_strides(key), *_strides(value), *_strides(out), *_strides(grad), *work.numbers(),
        **work.options(work.plan.query, "BLOCK_M", "BLOCK_N"),
    )  # fmt: skip
    high, low = work.points.high, work.points.low
    dposition_key = _input_and_table_gradients(
        work, query, key_table, bounds, dband, content, outer, 1, work.plan.query, (high, low), work.c2p, dquery
    )
    dband = work.new_band(key, work.p2c) if dband.numel() == 0 else dband
    grid = (-(-work.length // work.plan.key.rows), work.batch * work.heads)
    launch(backward.key_gradients_kernel, grid)(
        query, key, value, *terms, *bounds[:4], grad, lse, draws, delta, content, dvalue, dband,
        outer, *_strides(query), *_strides(key), *_strides(value), *_strides(grad), *_strides(dvalue), *work.numbers(),
        **work.options(work.plan.key, "BLOCK_N", "BLOCK_M"),
    )  # fmt: skip
    dposition_query = _input_and_table_gradients(
        work, key, query_table, bounds, dband, content, outer, -1, work.plan.key, (low, high), work.p2c, dkey
    )
    return dstates, dposition_key, dposition_query


def _input_and_table_gradients(
    work: _Launch, x: Tensor, table: Tensor, bounds: list[Tensor], dband: Tensor, content: Tensor, outer: Tensor,
    sign: int, tiles: Tiles, limits: tuple[int, int], has_term: bool, dx: Tensor,
) -> Tensor:  # fmt: skip
    """Write the gradients of queries or keys into `dx`, and return those of their position table, from the gradients of the band.

    The constant factor on all gradients of scores is applied here: the scale, and dropout's factor on what is kept.
    """
    scale = work.scale * work.boost
    if not has_term:
        dx.copy_(content.transpose(1, 2) * scale)
        return table.new_empty(0)
    band, points, sums = work.band, work.points, work.plan.sums
    shapes = {
        "D": work.size, "BLOCK_D": work.block_d, "BLOCK_A": sums.rows, "BLOCK_U": sums.columns, "ROW_BLOCK": tiles.rows,
        "COLUMN_BLOCK": tiles.columns, "PRECISION": work.precision, "num_warps": sums.warps, "num_stages": sums.stages,
    }  # fmt: skip
    grid: tuple[int, ...] = (CLASS * -(-work.length // (CLASS * sums.rows)), work.batch * work.heads)
    launch(backward.input_gradients_kernel, grid)(
        dband, table, *bounds[1:3], content, outer, dx, table.stride(1), table.stride(0), band.size // CLASS, *_strides(dx),
        work.length, work.heads, *band.words, points.center, *limits, scale,
        SIGN=sign, FAR=work.far, **shapes,
    )  # fmt: skip
    part = content.new_empty(CLASS, work.heads, 2 * band.reach, work.size)
    grid = (CLASS, -(-2 * band.reach // sums.columns), work.heads)
    launch(backward.table_gradients_kernel, grid)(
        dband, x, *bounds[1:3], part, band.size // CLASS, *_strides(x), work.length, work.batch, work.heads, *band.words,
        *limits, **shapes,
    )  # fmt: skip
    beyond = work.far_sums(outer, x) if work.far else outer
    dtable = table.new_empty(work.rows, work.heads, work.size)
    launch(backward.table_sums_kernel, (work.rows, work.heads))(
        part, points.starts, beyond, dtable, work.heads, band.reach, work.rows, scale, SIGN=sign, FAR=work.far,
        D=work.size, BLOCK_D=work.block_d, num_warps=1,
    )  # fmt: skip
    return dtable


def _rehearse(work: _Launch, training: bool, tensors: tuple[Tensor, Tensor, Tensor], bounds: list[Tensor], draws: Tensor) -> None:
    """Build the kernels in parallel, those of the backward pass first, as they take longest."""
    states = tensors[0]

    def passes() -> None:
        if training:
            out = states.new_empty(states[:, :, 0].shape)
            lse = states.new_empty(work.batch, work.heads, work.length, dtype=torch.float32)
            _backward(work, out, out, lse, *tensors, bounds, draws)
        _forward(work, *tensors, bounds, draws)

    options = work.options(work.plan.forward, "BLOCK_M", "BLOCK_N")
    rehearse(("attention", training, states.dtype, states.device, work.far, *options.values()), states.device, passes)
    work.rehearsed.add(training)


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """`inputs`: a `_Launch`; states and two position tables; six tensors of bounds; the draws of dropout."""
        work, states, position_key, position_query, *bounds, draws = inputs
        tensors, training = (states, position_key, position_query), any(ctx.needs_input_grad)
        if training not in work.rehearsed:
            _rehearse(work, training, tensors, bounds, draws)
        out, lse = _forward(work, *tensors, bounds, draws)
        ctx.save_for_backward(out, lse, *tensors, draws, *bounds)
        ctx.work = work
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        out, lse, states, position_key, position_query, draws, *bounds = ctx.saved_tensors
        tables = (states, position_key, position_query)
        return (None, *_backward(ctx.work, grad, out, lse, *tables, bounds, draws), *[None] * 7)
