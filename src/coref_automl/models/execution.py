"""How a model is run. In: a model, a device, a precision. Out: its attention, how exact its products are, masks for `encode`.

Masks keep packed documents apart. Segments are (B, L) whole numbers: 1, 2, ... for the documents of a block, 0 for padding.

float32 on a GPU: torch has an old and a new way to allow TF32, and refuses to answer the old question once the new one was
answered; transformers answers the new one where torch has it. So do we. bfloat16 on a CPU: one without the instructions rounds
in software, with the same result; torch then warns at every product, and we say it once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from coref_automl.errors import ModelError
from coref_automl.models.disentangled.layout import Documents
from coref_automl.say import say

IMPLEMENTATIONS = ("auto", "sdpa", "eager", "fused")
ATTENTION_LABEL = {"ko": "어텐션", "en": "Attention"}
"""How the note begins that names the implementation."""
_FALLBACK = r".*failed, switching to (BLAS gemm|baddbmm)"
"""torch's warning where oneDNN has no bfloat16 product for this CPU; the product it makes instead is as good."""


def use_attention(model: Any, attention: str = "auto") -> list[str]:
    """Switch a model to an implementation; the note says which one it is, and why where that is not plain."""
    if attention not in IMPLEMENTATIONS:
        raise ModelError(f"Unknown attention {attention!r}; choose one of: {', '.join(IMPLEMENTATIONS)}.")
    if model.config.model_type == "deberta-v2":
        return _use_for_deberta(model, attention)
    if attention == "fused":
        raise ModelError(f"Fused attention is for DeBERTa-v2; a {model.config.model_type} model runs with sdpa or eager.")
    chosen = "sdpa" if attention == "auto" else attention
    model.set_attn_implementation(chosen)
    return [_told(chosen)]


def move(model: Any, device: str) -> Any:
    """Move a model with an `encoder` to a device, and give the encoder the attention that runs best there."""
    model.to(device)
    use_attention(model.encoder)
    return model


@contextmanager
def matmul_precision(*, tf32: bool) -> Iterator[None]:
    """TF32 rounds the inputs of a product to ten bits: faster, and float32 in name only."""
    settings = torch.backends.cuda.matmul
    new = hasattr(torch.backends, "fp32_precision")
    name, wanted = ("fp32_precision", "tf32" if tf32 else "ieee") if new else ("allow_tf32", tf32)
    before = getattr(settings, name)
    setattr(settings, name, wanted)
    try:
        yield
    finally:
        setattr(settings, name, before)


@contextmanager
def autocast_to(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Products in half precision (autocast); None leaves them as they are."""
    if dtype is None:
        yield
        return
    with without_bfloat16_warnings(), torch.autocast(torch.device(device).type, dtype):
        yield


def autocast(device: str, precision: str) -> AbstractContextManager[None]:
    """bfloat16 where it pays (CUDA) by default; weights and the loss stay in float32."""
    wanted = precision == "bfloat16" or (precision == "auto" and device.startswith("cuda"))
    return autocast_to(device, torch.bfloat16 if wanted else None)


@contextmanager
def without_bfloat16_warnings() -> Iterator[None]:
    """Half precision without a warning at every product of a CPU that has no instructions for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _FALLBACK, UserWarning)
        yield


def bfloat16_note(device: str, dtype: str) -> str | None:
    """What a person should know before bfloat16 runs on this device, if anything."""
    if dtype != "bfloat16" or torch.device(device).type != "cpu" or _cpu_has_bfloat16():
        return None
    return say(
        "이 CPU에는 bfloat16 명령이 없어 소프트웨어로 계산합니다. float32가 더 빠르고 정확합니다.",
        "This CPU has no bfloat16 instructions: bfloat16 is computed in software, and float32 is faster and more exact.",
    )


def _cpu_has_bfloat16() -> bool:
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def without_cudnn(length: int | None = None) -> Iterator[None]:
    """Training without cuDNN's attention where its gradients may be no numbers; others take its place at once.

    From torch 2.11 on, an H100 or H200 takes it for bfloat16. Under a mask, in rows of 64 tokens more than a multiple of 128, its
    backward pass overflows where all logits of a query are far below 0 (pytorch issue 196678). `length` None: rows of any length.
    """
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed and length is not None and length % 128 != 64)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)


def packed_masks(model: Any, segments: Tensor) -> Any:
    """What to pass to `encode` as `attention_mask` so that a token sees its own document alone; no document sees padding.

    A boolean mask of pairs (B, 1, L, L) under SDPA, numbers to add under eager; for ModernBERT one for each kind of layer,
    because a single mask of pairs would silently take its sliding window away.
    """
    name = model.config.model_type
    if name == "deberta-v2":
        from coref_automl.models.fused_deberta import installed

        return Documents(segments) if installed(model) else Documents(segments).pairs()
    same = segments[:, None, :, None] == segments[:, None, None, :]
    if name == "modernbert":
        place = torch.arange(segments.shape[1], device=segments.device)
        near = (place[:, None] - place[None, :]).abs() <= model.config.sliding_window
        return {"full_attention": _as_wanted(model, same), "sliding_attention": _as_wanted(model, same & near)}
    return _as_wanted(model, same)


def compiling_pays(model: Any) -> bool:
    """Does compiling a step of this model pay? Around fused kernels it takes half a minute and gains nothing."""
    if model.config.model_type != "deberta-v2":
        return True
    from coref_automl.models.fused_deberta import installed

    return not installed(model)


def _as_wanted(model: Any, allowed: Tensor) -> Tensor:
    """Padding sees padding here, so that no row is empty: an empty row is NaN under SDPA."""
    if model.config._attn_implementation != "eager":
        return allowed
    added = torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device)
    return added.masked_fill_(~allowed, torch.finfo(model.dtype).min)


def _use_for_deberta(model: Any, attention: str) -> list[str]:
    """Fused kernels where they run, else the library's own code."""
    from coref_automl.models import fused_deberta

    if attention == "sdpa":
        raise ModelError("DeBERTa-v2 has no sdpa attention; choose fused (on CUDA) or eager.")
    obstacle, reason = fused_deberta.why_not(model), ""
    if attention == "fused" and obstacle is not None:
        raise ModelError(f"Fused attention {obstacle}; choose eager here.")
    chosen = attention
    if attention == "auto":
        chosen = "fused" if obstacle is None else "eager"
        reason = f" (fused {obstacle})" if obstacle is not None and model.device.type == "cuda" else ""
    fused_deberta.install(model, fused=chosen == "fused")
    return [_told(chosen, reason)]


def _told(chosen: str, reason: str = "") -> str:
    return say(f"{ATTENTION_LABEL['ko']}: {chosen}{reason}.", f"{ATTENTION_LABEL['en']}: {chosen}{reason}.")
