"""How exact products are. In: a device and a precision. Out: that precision, for as long as a block runs.

float32 on a GPU: torch has an old and a new way to allow TF32, and refuses to answer the old question once the new one was
answered; transformers answers the new one where torch has it. So do we. bfloat16 on a CPU: one without the instructions rounds
in software, with the same result; torch then warns at every product, and we say it once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from coref_automl.say import say

_FALLBACK = r".*failed, switching to (BLAS gemm|baddbmm)"
"""torch's warning where oneDNN has no bfloat16 product for this CPU; the product it makes instead is as good."""


@contextmanager
def products(*, tf32: bool) -> Iterator[None]:
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
def rounded(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Products in half precision (autocast); None leaves them as they are."""
    if dtype is None:
        yield
        return
    with software_rounding(), torch.autocast(torch.device(device).type, dtype):
        yield


def autocast(device: str, precision: str) -> AbstractContextManager[None]:
    """bfloat16 where it pays (CUDA) by default; weights and the loss stay in float32."""
    wanted = precision == "bfloat16" or (precision == "auto" and device.startswith("cuda"))
    return rounded(device, torch.bfloat16 if wanted else None)


@contextmanager
def software_rounding() -> Iterator[None]:
    """Half precision without a warning at every product of a CPU that has no instructions for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _FALLBACK, UserWarning)
        yield


def rounding_note(device: str, dtype: str) -> str | None:
    """What a person should know before bfloat16 runs on this device, if anything."""
    if dtype != "bfloat16" or torch.device(device).type != "cpu" or _cpu_has_bfloat16():
        return None
    return say(
        "이 CPU에는 bfloat16 명령이 없어 소프트웨어로 계산합니다. float32가 더 빠르고 정확합니다.",
        "This CPU has no bfloat16 instructions: bfloat16 is computed in software, and float32 is faster and more exact.",
    )


def _cpu_has_bfloat16() -> bool:
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
