"""Which attention a model runs, and masks that keep packed documents apart. In: a model and segment numbers. Out: masks for `encode`.

Segments are (B, L) whole numbers: 1, 2, ... for the documents of a block, 0 for padding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coref_automl.errors import ModelError
from coref_automl.models.families import family

IMPLEMENTATIONS = ("auto", "sdpa", "eager")


def choose_attention(name: str, device: str) -> str:
    """The fastest implementation of a family on a device."""
    return "sdpa" if family(name).sdpa else "eager"


def use_attention(model: Any, attention: str = "auto") -> list[str]:
    """Switch a model to an implementation; the note says which one it is."""
    name = model.config.model_type
    if attention not in IMPLEMENTATIONS:
        raise ModelError(f"There is no attention {attention!r}; choose one of: {', '.join(IMPLEMENTATIONS)}.")
    chosen = choose_attention(name, model.device.type) if attention == "auto" else attention
    model.set_attn_implementation(chosen)
    return [f"Attention: {chosen}."]


def packed_masks(model: Any, segments: Tensor) -> Any:
    """What to pass as `attention_mask` so that a token sees its own document alone; padding is seen by no document.

    A boolean mask of pairs (B, 1, L, L) under SDPA, numbers to add under eager; for ModernBERT one for each kind of layer, because a
    single mask of pairs would silently take its sliding window away.
    """
    name = model.config.model_type
    same = segments[:, None, :, None] == segments[:, None, None, :]
    if name == "deberta-v2":
        return same & (segments > 0)[:, None, None, :]
    if name == "modernbert":
        place = torch.arange(segments.shape[1], device=segments.device)
        near = (place[:, None] - place[None, :]).abs() <= model.config.sliding_window
        return {"full_attention": _as_wanted(model, same), "sliding_attention": _as_wanted(model, same & near)}
    return _as_wanted(model, same)


def _as_wanted(model: Any, allowed: Tensor) -> Tensor:
    """Padding sees padding, so that no row is empty: an empty row is not a number under SDPA."""
    if model.config._attn_implementation != "eager":
        return allowed
    least = torch.finfo(model.dtype).min
    return torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device).masked_fill_(~allowed, least)
