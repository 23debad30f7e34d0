"""Dropout, residual sum and layer norm as one kernel per pass. In: a layer's output and the residual. Out: normalized states.

Under autocast a linear layer reads its input in half precision while the residual stream is float32: both are written at once.
The backward pass reads the saved sum, and computes the dropout mask again from its draws (`tiles.kept_by_dropout`).
"""

# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from deberta_kernels.builds import launch, rehearse
from deberta_kernels.operation import dropout_draws, dropout_limit
from deberta_kernels.tiles import kept_by_dropout

_PROGRAMS = 1024
"""Programs of the backward pass; each sums the gradients of weight and bias over its rows, to be added in a fixed order."""


@triton.jit
def add_norm_kernel(
    X, R, WEIGHT, BIAS, DRAWS, Y, SMALL, SUM, STATS,
    rows, width, eps, limit, boost,
    DROPOUT: tl.constexpr, HALF: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """One row: SUM = dropout(X) + R, Y = norm(SUM), SMALL = Y in half precision."""
    row, w = tl.program_id(0), tl.arange(0, BLOCK_W)
    inside, at = w < width, row.to(tl.int64) * width + w
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    if DROPOUT:
        keep = kept_by_dropout(tl.load(DRAWS + row), tl.load(DRAWS + rows + w, mask=inside, other=0), limit)
        x = tl.where(keep, x * boost, 0.0)
    x += tl.load(R + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / width
    centered = tl.where(inside, x - mean, 0.0)
    inverse_std = 1.0 / tl.sqrt(tl.sum(centered * centered, 0) / width + eps)
    weight, bias = tl.load(WEIGHT + w, mask=inside, other=0.0), tl.load(BIAS + w, mask=inside, other=0.0)
    y = centered * inverse_std * weight + bias
    tl.store(Y + at, y, mask=inside)
    if HALF:
        tl.store(SMALL + at, y.to(SMALL.dtype.element_ty), mask=inside)
    tl.store(SUM + at, x, mask=inside)
    tl.store(STATS + row, mean)
    tl.store(STATS + rows + row, inverse_std)


@triton.jit
def add_norm_gradients_kernel(
    DY, DSMALL, WEIGHT, DRAWS, SUM, STATS, DX, DR, PART,
    rows, width, limit, boost,
    DROPOUT: tl.constexpr, WHOLE: tl.constexpr, HALF: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Gradients of X and R for every n-th row of n programs, and the sums of these rows for the gradients of weight and bias.

    WHOLE, HALF: which of the two outputs has a gradient.
    """
    program, w = tl.program_id(0), tl.arange(0, BLOCK_W)
    inside = w < width
    weight = tl.load(WEIGHT + w, mask=inside, other=0.0)
    column_draws = tl.load(DRAWS + rows + w, mask=inside, other=0) if DROPOUT else 0
    dweight, dbias = tl.zeros([BLOCK_W], tl.float32), tl.zeros([BLOCK_W], tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * width + w
        grad = tl.zeros([BLOCK_W], tl.float32)
        if WHOLE:
            grad += tl.load(DY + at, mask=inside, other=0.0)
        if HALF:
            grad += tl.load(DSMALL + at, mask=inside, other=0.0).to(tl.float32)
        mean, inverse_std = tl.load(STATS + row), tl.load(STATS + rows + row)
        normed = tl.where(inside, (tl.load(SUM + at, mask=inside, other=0.0) - mean) * inverse_std, 0.0)
        dweight += grad * normed
        dbias += grad
        grad *= weight
        grad = (grad - tl.sum(grad, 0) / width - normed * (tl.sum(grad * normed, 0) / width)) * inverse_std
        tl.store(DR + at, grad, mask=inside)
        if DROPOUT:
            grad = tl.where(kept_by_dropout(tl.load(DRAWS + row), column_draws, limit), grad * boost, 0.0)
        tl.store(DX + at, grad.to(DX.dtype.element_ty), mask=inside)
    tl.store(PART + program * width + w, dweight, mask=inside)
    tl.store(PART + (tl.num_programs(0) + program) * width + w, dbias, mask=inside)


def add_norm(
    x: Tensor, residual: Tensor, norm: Any, *, dropout: float = 0.0, half: torch.dtype | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return norm(dropout(x) + residual) in float32, and the same in `half`."""
    if dropout >= 1:  # everything is dropped
        x, dropout = x * 0, 0.0
    return _AddNorm.apply(x, residual, norm.weight, norm.bias, norm.eps, dropout, half)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps, dropout, half):
        ctx.set_materialize_grads(False)
        x, residual = x.contiguous(), residual.contiguous()
        width, rows = x.shape[-1], x.numel() // x.shape[-1]
        y, total = torch.empty_like(residual), torch.empty_like(residual)
        small = torch.empty_like(residual, dtype=half) if half is not None else None
        stats = residual.new_empty(2, rows)
        draws = dropout_draws(x.device, rows + width) if dropout else stats
        launch(add_norm_kernel, (rows,))(
            x, residual, weight, bias, draws, y, y if small is None else small, total, stats,
            rows, width, eps, *dropout_limit(dropout),
            DROPOUT=dropout > 0, HALF=half is not None, BLOCK_W=triton.next_power_of_2(width),
        )  # fmt: skip
        ctx.save_for_backward(weight, draws, total, stats)
        if any(ctx.needs_input_grad):
            saved = (x.dtype, dropout, weight, draws, total, stats)
            grads = [(y, small), (y, None)] if half is not None else [(y, None)]
            key = ("norm", x.dtype, half, x.device, width, rows % 16 == 0, dropout > 0)
            rehearse(key, x.device, lambda: [_gradients(*pair, *saved) for pair in grads])
        ctx.dropout, ctx.dtype = dropout, x.dtype
        return y, small

    @staticmethod
    def backward(ctx, grad, small_grad):
        whole, half = (None if x is None else x.contiguous() for x in (grad, small_grad))
        return (*_gradients(whole, half, ctx.dtype, ctx.dropout, *ctx.saved_tensors), None, None, None)


def _gradients(whole, half, dtype, dropout, weight, draws, total, stats):
    """Return the gradients of input, residual, weight and bias; `whole` and `half` are those of the two outputs, or None."""
    width, rows = total.shape[-1], stats.shape[1]
    programs = min(_PROGRAMS, rows)
    dresidual, part = torch.empty_like(total), total.new_empty(2, programs, width)
    same = not dropout and dtype == total.dtype
    dx = dresidual if same else torch.empty_like(total, dtype=dtype)
    launch(add_norm_gradients_kernel, (programs,))(
        total if whole is None else whole, total if half is None else half, weight, draws, total, stats, dx, dresidual, part,
        rows, width, *dropout_limit(dropout),
        DROPOUT=dropout > 0, WHOLE=whole is not None, HALF=half is not None, BLOCK_W=triton.next_power_of_2(width),
    )  # fmt: skip
    return dx, dresidual, *part.sum(1).to(weight.dtype).unbind(0)
