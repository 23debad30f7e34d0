"""Disentangled attention (DeBERTa) as Triton kernels: documents packed in rows, dropout, every gradient, no atomics.

    from deberta_kernels import install

    install(model)  # any DeBERTa-v2 or DeBERTa-v3 of transformers, on a CUDA device

README.md has the rest. The names below are imported on first use, since they import torch and transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deberta_kernels.errors import KernelError as KernelError
    from deberta_kernels.fused_deberta import install as install
    from deberta_kernels.fused_deberta import installed as installed
    from deberta_kernels.fused_deberta import why_not as why_not
    from deberta_kernels.layout import Documents as Documents

_HOMES = {
    "Documents": "layout", "KernelError": "errors", "install": "fused_deberta", "installed": "fused_deberta",
    "why_not": "fused_deberta",
}  # fmt: skip
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
