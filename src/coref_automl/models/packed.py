"""Attention over packed documents without a mask. In: queries, keys and values of rows, and where documents start. Out: contexts.

Rows are laid end to end, without their padding, and attention runs over each document alone: on CUDA in torch's flash
kernels for sequences of different lengths, in half precision; on a CPU one document after the other. Scores between
documents are never computed, and ModernBERT's window is an argument. torch's `varlen_attn` is the same kernel
without dropout, so the operator below it is called. Where no starts are given, the library's SDPA runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

NAME = "packed"
"""The implementation's name in transformers' table of attention functions."""
LARGEST_HEAD = 128
LEAST_CAPABILITY = (8, 0)
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Extents:
    """The documents of a batch, laid end to end without the rows' padding.

    `kept` (T): the position of each token in the flattened rows; None if all are kept. `starts` (N + 1): the first
    token of each document, then T (int32; a repeated T is an empty document). None is longer than `longest`.
    """

    starts: Tensor
    longest: int
    kept: Tensor | None = None


def layout(segments: NDArray[np.int32], room: int = 1) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return `starts` and `kept` for rows of document numbers (B, L) in which no document interrupts another.

    Tokens are those of documents, then as much padding as brings them to `room`.
    """
    flat, length = segments.reshape(-1), segments.shape[1]
    real = np.flatnonzero(flat)
    kept = np.concatenate([real, np.flatnonzero(flat == 0)[: max(0, room - len(real))]])
    documents = flat[real].astype(np.int64) + (real // length << 32)
    first = np.flatnonzero(np.diff(documents)) + 1
    padding = np.arange(len(real), len(kept), length)
    return np.unique(np.concatenate([[0], first, padding, [len(kept)]])).astype(np.int32), kept


def rows_of(mask: Tensor) -> Extents:
    """Return the bounds of rows of one document each, from their mask of unpadded tokens (B, L)."""
    ends = mask.sum(1).cumsum(0).to(torch.int32)
    return Extents(functional.pad(ends, (1, 0)), mask.shape[1], mask.flatten().nonzero()[:, 0])


def why_not(model: Any, *, half: bool) -> str | None:
    """Return why this model, computing in `half` precision or not, cannot use it, as the end of a sentence; None if it can."""
    kind, config = model.device.type, model.config
    if kind == "cpu":
        return None
    if kind != "cuda" or not torch.backends.cuda.is_flash_attention_available():
        return "needs torch's flash kernels, which this device or this build of torch does not have"
    capability = torch.cuda.get_device_capability(model.device)
    if capability < LEAST_CAPABILITY:
        return f"needs compute capability 8.0 (Ampere) or later, and this card has {capability[0]}.{capability[1]}"
    width = config.hidden_size // config.num_attention_heads
    if width % 8 or width > LARGEST_HEAD:
        return f"takes heads of 8, 16, ... {LARGEST_HEAD} numbers, and this model's have {width}"
    return None if half else "computes in bfloat16 and float16, not in float32"


def install(model: Any) -> None:
    """Make it the model's attention."""
    _register()
    model.set_attn_implementation(NAME)


def applies(model: Any) -> bool:
    """Tell whether `encode` may be given Extents: now, as autocast and the weights' precision are."""
    if model.config._attn_implementation != NAME:
        return False
    if model.device.type == "cpu":
        return not _compiled(model)  # one call per document is no graph of fixed shapes
    kind = model.device.type
    return (torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else model.dtype) in HALF


def compile_layers(model: Any) -> None:
    """Compile the layers one by one: they share their code, so that one or a few are built, in seconds."""
    for layer in _layers(model):
        layer.compile(dynamic=False)


def attend(
    query: Tensor, key: Tensor, value: Tensor, bounds: Extents, *, scale: float | None = None, dropout: float = 0.0,
    window: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the contexts (T, H, D) of queries, keys and values (T, H, D); `window` is the largest distance attended to."""
    if not query.is_cuda:
        return _by_document(query, key, value, bounds, scale, dropout, window)
    context: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, bounds.starts, bounds.starts, bounds.longest, bounds.longest, dropout, False, False,
        scale=scale, window_size_left=window, window_size_right=window,
    )[0]  # fmt: skip
    return context


def _by_document(
    query: Tensor, key: Tensor, value: Tensor, bounds: Extents, scale: float | None, dropout: float, window: int | None
) -> Tensor:
    """The same, one document after the other."""
    sizes = [size for size in bounds.starts.diff().tolist() if size]
    contexts = []
    for parts in zip(*(states.split(sizes) for states in (query, key, value)), strict=True):
        position, mask = torch.arange(len(parts[0]), device=query.device), None
        if window is not None and len(position) > window + 1:
            mask = (position[:, None] - position).abs() <= window
        asked, keys, values = (states.transpose(0, 1)[None] for states in parts)
        context = functional.scaled_dot_product_attention(asked, keys, values, mask, dropout, scale=scale)
        contexts.append(context[0].transpose(0, 1))
    return torch.cat(contexts)


def _register() -> None:
    """Enter the attention, and SDPA's masks for where there are no bounds, in the library's tables."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME in ALL_ATTENTION_FUNCTIONS:
        return

    def forward(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
        scaling: float | None = None, starts: Tensor | None = None, longest: int = 0, **options: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        if starts is None:
            result: tuple[Tensor, None] = sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
            )
            return result
        rows, heads, length, width = query.shape
        asked, keys, values = (states.transpose(1, 2).reshape(-1, heads, width) for states in (query, key, value))
        sliding = options.get("sliding_window")  # one more than the largest distance
        window = None if sliding is None else sliding - 1
        bounds = Extents(starts, longest)
        context = attend(asked, keys, values, bounds, scale=scaling, dropout=dropout, window=window)
        return context.view(rows, length, heads, width), None

    ALL_ATTENTION_FUNCTIONS.register(NAME, forward)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def _layers(model: Any) -> Any:
    """Return the encoder's layers: the first list of modules in it, in every family."""
    return next(module for module in model.base_model.modules() if isinstance(module, torch.nn.ModuleList))


def _compiled(model: Any) -> bool:
    return _layers(model)[0]._compiled_call_impl is not None
