"""How a model is run. In: a model, a device, a precision. Out: its attention and dropout, numeric precision, masks for `encode`.

What keeps packed documents apart: their bounds where attention runs over each alone (`models.packed`, or the fused kernels), else
a mask. Segments are (B, L) integers: 1, 2, ... for the documents of a block, 0 for padding.

float32 on a GPU: torch has an old and a new setting for TF32, and raises when the old one is read after the new one was set;
transformers sets the new one where torch has it, and so do we. bfloat16 on a CPU: without the instructions it is computed in
software, with the same result; torch then warns at every product, and we say it once.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from coref_automl.base.errors import ModelError
from coref_automl.base.say import say
from coref_automl.models import packed
from deberta_kernels.errors import KernelError
from deberta_kernels.layout import Documents

IMPLEMENTATIONS = ("auto", packed.NAME, "sdpa", "eager", "fused")
ATTENTION_LABEL = {"ko": "어텐션", "en": "Attention"}
"""First word of the note that names the implementation."""
_FALLBACK = r".*failed, switching to (BLAS gemm|baddbmm)"
"""torch's warning if oneDNN has no bfloat16 product for this CPU; the fallback gives the same result."""
_DROPOUT_SETTINGS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "embedding_dropout", "mlp_dropout", "dropout",
    "pooler_dropout",
)  # fmt: skip


def use_attention(model: Any, attention: str = "auto", *, half: bool = True) -> list[str]:
    """Switch a model to an implementation; the note names it, and says why if `auto` did not choose the fastest.

    `half`: whether the model will compute in half precision on a GPU.
    """
    if attention not in IMPLEMENTATIONS:
        raise ModelError(f"Unknown attention {attention!r}; choose one of: {', '.join(IMPLEMENTATIONS)}.")
    if model.config.model_type == "deberta-v2":
        return _use_for_deberta(model, attention)
    if attention == "fused":
        family = model.config.model_type
        raise ModelError(f"Fused attention is for DeBERTa-v2; a {family} model runs with {packed.NAME}, sdpa or eager.")
    obstacle = packed.why_not(model, half=half)
    if attention == packed.NAME and obstacle is not None:
        raise ModelError(f"Packed attention {obstacle}; choose sdpa here.")
    if attention in ("auto", packed.NAME) and obstacle is None:
        packed.install(model)
        return [_note(packed.NAME)]
    chosen = "sdpa" if attention == "auto" else attention
    model.set_attn_implementation(chosen)
    return [_note(chosen, f" ({packed.NAME} {obstacle})" if attention == "auto" else "")]


def move(model: Any, device: str) -> Any:
    """Move a model with an `encoder` to a device, and switch the encoder to the fastest attention there."""
    model.to(device)
    use_attention(model.encoder)
    return model


@contextmanager
def matmul_precision(*, tf32: bool) -> Iterator[None]:
    """Allow or forbid TF32, which rounds the inputs of a float32 product to ten bits: faster, and less exact."""
    settings = torch.backends.cuda.matmul
    new = hasattr(torch.backends, "fp32_precision")
    name, value = ("fp32_precision", "tf32" if tf32 else "ieee") if new else ("allow_tf32", tf32)
    previous = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, previous)


@contextmanager
def autocast_to(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast to a dtype; None changes nothing."""
    if dtype is None:
        yield
        return
    with without_bfloat16_warnings(), torch.autocast(torch.device(device).type, dtype):
        yield


def autocast(device: str, precision: str) -> AbstractContextManager[None]:
    """Autocast for a recipe's precision; `auto` is bfloat16 on CUDA. Weights and the loss stay in float32."""
    bfloat16 = precision == "bfloat16" or (precision == "auto" and device.startswith("cuda"))
    return autocast_to(device, torch.bfloat16 if bfloat16 else None)


@contextmanager
def without_bfloat16_warnings() -> Iterator[None]:
    """Silence torch's warning at every bfloat16 product on a CPU without the instructions."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _FALLBACK, UserWarning)
        yield


def bfloat16_note(device: str, dtype: str) -> str | None:
    """Return a warning if bfloat16 is slow on this device."""
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
    """Train without cuDNN's attention where its gradients may be NaN; torch then uses another kernel.

    torch 2.11 and later use it for bfloat16 on an H100 or H200. With a mask, and rows of 64 tokens more than a multiple of 128,
    its backward pass overflows if all logits of a query are far below 0 (pytorch issue 196678). `length` None: any length.
    """
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed and length is not None and length % 128 != 64)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)


def packed_masks(model: Any, segments: Tensor, starts: Tensor | None = None, kept: Tensor | None = None) -> Any:
    """Build the `attention_mask` of `encode` with which a token attends to its own document alone, and never to padding.

    Under packed attention the bounds of documents, from `packed.layout` (on a CPU it need not be given); a boolean mask
    (B, 1, L, L) under SDPA, an additive one under eager; for ModernBERT one per kind of layer, because a single pairwise mask
    would silently disable its sliding window.
    """
    name = model.config.model_type
    if name == "deberta-v2":
        from deberta_kernels.fused_deberta import installed

        return Documents(segments) if installed(model) else Documents(segments).pairs()
    if packed.applies(model) and (starts is not None or segments.device.type == "cpu"):
        if starts is None:
            starts, kept = map(torch.from_numpy, packed.layout(segments.numpy()))
        return packed.Extents(starts, segments.shape[1], kept)
    same = segments[:, None, :, None] == segments[:, None, None, :]
    if name == "modernbert":
        position = torch.arange(segments.shape[1], device=segments.device)
        near = (position[:, None] - position[None, :]).abs() <= model.config.sliding_window
        return {"full_attention": _mask_for(model, same), "sliding_attention": _mask_for(model, same & near)}
    return _mask_for(model, same)


@contextmanager
def kernel_errors() -> Iterator[None]:
    """Raise what the kernels refuse as an error of this package."""
    try:
        yield
    except KernelError as error:
        raise ModelError(str(error)) from error


def compiling_pays(model: Any) -> bool:
    """Tell whether to compile a step of this model: around fused kernels it costs half a minute and gains nothing."""
    if model.config.model_type != "deberta-v2":
        return True
    from deberta_kernels.fused_deberta import installed

    return not installed(model)


def dropout_of(config: dict[str, Any]) -> dict[str, float]:
    """Return the dropout settings of a config.json, by name."""
    return {name: config[name] for name in _DROPOUT_SETTINGS if isinstance(config.get(name), int | float)}


def with_dropout(model: Any, dropout: float) -> Any:
    """Return the same weights in a model with this dropout everywhere.

    It is built anew from the changed config: families build no module for a dropout of 0, so no later setting would have effect.
    """
    config = copy.deepcopy(model.config)
    for name in dropout_of(config.to_dict()):
        setattr(config, name, dropout)
    options = {"add_pooling_layer": False} if getattr(model, "pooler", model) is None else {}
    with torch.random.fork_rng(devices=[]):
        changed = type(model)(config, **options)
    changed.load_state_dict(model.state_dict())
    return changed.to(device=model.device, dtype=model.dtype)


def _mask_for(model: Any, allowed: Tensor) -> Tensor:
    """Convert to the form of the implementation. Padding may attend to padding: a row without any key is NaN under SDPA."""
    if model.config._attn_implementation != "eager":
        return allowed
    additive = torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device)
    return additive.masked_fill_(~allowed, torch.finfo(model.dtype).min)


def _use_for_deberta(model: Any, attention: str) -> list[str]:
    """Switch to the fused kernels if they run here, else to the library's own code."""
    from deberta_kernels import fused_deberta

    if attention == "sdpa":
        raise ModelError("DeBERTa-v2 has no sdpa attention; choose fused (on CUDA) or eager.")
    if attention == packed.NAME:
        raise ModelError("DeBERTa-v2 keeps documents apart in its fused attention; choose fused (on CUDA) or eager.")
    obstacle, reason = fused_deberta.why_not(model), ""
    if attention == "fused" and obstacle is not None:
        raise ModelError(f"Fused attention {obstacle}; choose eager here.")
    chosen = attention
    if attention == "auto":
        chosen = "fused" if obstacle is None else "eager"
        reason = f" (fused {obstacle})" if obstacle is not None and model.device.type == "cuda" else ""
    fused_deberta.install(model, fused=chosen == "fused")
    return [_note(chosen, reason)]


def _note(chosen: str, reason: str = "") -> str:
    return say(f"{ATTENTION_LABEL['ko']}: {chosen}{reason}.", f"{ATTENTION_LABEL['en']}: {chosen}{reason}.")
