"""ModernBERT's attention through FlexAttention. In: a loaded model. Out: the same weights under a kernel that skips tiles.

Under SDPA a mask of pairs is written down and every score is computed, also those that a window of 128 or the end of a document
forbids. At 2,048 tokens a local layer needs one tile in eight of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from coref_automl.models.block_masks import document_blocks

LEAST_LENGTH = 512

NAME = "flex_documents"


def install(model: Any) -> None:
    """Switch a ModernBERT; the weights and the saved config are not touched."""
    AttentionInterface.register(NAME, attend)
    model.set_attn_implementation(NAME)


def installed(model: Any) -> bool:
    return bool(model.config._attn_implementation == NAME)


def takes(model: Any, segments: Tensor) -> bool:
    """Is this batch for the kernel? Short rows are not: they have few tiles to skip."""
    return installed(model) and segments.shape[1] >= LEAST_LENGTH


def masks(model: Any, segments: Tensor) -> dict[str, BlockMask]:
    """A mask for each kind of layer."""
    return {
        "full_attention": document_blocks(segments),
        "sliding_attention": document_blocks(segments, model.config.sliding_window),
    }


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float | None = None, **others: Any
) -> tuple[Tensor, None]:
    """The library's interface: (B, heads, L, d) in, (B, L, heads, d) out. What has no block mask goes to SDPA."""
    if not isinstance(attention_mask, BlockMask):
        others.pop("deterministic", None)
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)  # type: ignore[no-any-return]
    kernel = _compiled() if query.is_cuda and not torch.compiler.is_compiling() else flex_attention
    context: Tensor = kernel(query, key, value, block_mask=attention_mask, scale=scaling)
    return context.transpose(1, 2), None


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention)
