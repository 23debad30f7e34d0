"""What another machine lacks, hidden on this one. COREF_TEST_MASK=bfloat16,affinity,programs hides it from the whole suite.

bfloat16   the CPU's instructions: oneDNN stops at AVX2, and every product warns as torch does on aarch64
affinity   os.sched_getaffinity, which macOS does not have
programs   Chromium, jq, PostgreSQL
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

KNOWN = {"bfloat16", "affinity", "programs"}
MASKED = {name for name in os.environ.get("COREF_TEST_MASK", "").split(",") if name}
WARNING = "mkldnn_matmul failed, switching to BLAS gemm: mkldnn_matmul: mkldnn_matmul bf16 path needs a cpu with bf16 support"


def hide(patch: pytest.MonkeyPatch) -> None:
    """Hide what COREF_TEST_MASK names, from this process and from those it starts; before torch is imported."""
    if unknown := MASKED - KNOWN:
        raise pytest.UsageError(f"COREF_TEST_MASK has an unknown name: {', '.join(unknown)}. Known: {', '.join(sorted(KNOWN))}.")
    if "bfloat16" in MASKED:
        patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
        without_bfloat16(patch)
    if "affinity" in MASKED:
        without_affinity(patch)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # its sitecustomize hides it from children


def without_affinity(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(os, "sched_getaffinity", raising=False)


def without_bfloat16(patch: pytest.MonkeyPatch) -> None:
    """Warn at every product in bfloat16, as torch does on an aarch64 CPU without the instructions (on x86-64 it never does)."""
    import torch

    usual = torch.nn.functional.linear

    def warning(values: Any, weight: Any, bias: Any = None) -> Any:
        if values.dtype == torch.bfloat16 or (values.device.type == "cpu" and torch.is_autocast_enabled("cpu")):
            warnings.warn(WARNING, UserWarning, stacklevel=2)
        return usual(values, weight, bias)

    patch.setattr(torch.nn.functional, "linear", warning)


def program(name: str) -> str | None:
    """An optional program, where it is installed and not hidden."""
    return None if "programs" in MASKED else shutil.which(name)


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's newest server programs, as Debian installs them."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found and "programs" not in MASKED else None
