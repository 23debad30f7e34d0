"""Every kernel of disentangled attention is built for GPUs of two generations, on a machine that has none."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed; `make kernels` installs it"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter builds nothing"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
KERNELS = {
    "forward": ("bands_kernel", "forward_kernel"),
    "backward": ("query_slopes_kernel", "key_slopes_kernel"),
    "backward_tables": ("content_slopes_kernel", "table_slopes_kernel", "table_sums_kernel", "far_sums_kernel"),
    "residual": ("add_norm_kernel", "add_norm_slopes_kernel"),
}
SIZES = {"D": 64, "BLOCK_D": 64, "BLOCK_A": 32, "SIGN": 1, "BLOCK_W": 1024, "PRECISION": "tf32"}
TERMS = dict.fromkeys(("C2P", "P2C", "FAR", "DROPOUT", "EVEN", "WHOLE", "HALF"), True)
FLOATS = {"QUERY_FAR", "KEY_FAR", "LSE", "DELTA", "OUTER", "CONTENT", "PART", "FAR_SUMS", "DQ", "DK"} | {
    "R",
    "WEIGHT",
    "BIAS",
    "Y",
    "SUM",
    "STATS",
    "DY",
    "DR",
}
WHOLE = {"SEGMENTS", "FIRST", "LAST", "INNER", "BLOCK_FIRST", "BLOCK_LAST", "STARTS", "DRAWS"}


def kind_of(name: str) -> str:
    """The type of an argument by its name: tensors are in capitals, numbers are not."""
    if name in ("scale", "boost", "eps"):
        return "fp32"
    if not name.isupper() or name == "E":
        return "i32"
    return "*fp32" if name in FLOATS else "*i32" if name in WHOLE else "*bf16"


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in KERNELS.items() for name in names])
def test_a_kernel_is_built(module: str, name: str, capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel: Any = getattr(importlib.import_module(f"coref_automl.models.disentangled.{module}"), name)
    signature = {one.name: "constexpr" if one.is_constexpr else kind_of(one.name) for one in kernel.params}
    fixed = {(at,): (SIZES | TERMS).get(one.name, 64) for at, one in enumerate(kernel.params) if one.is_constexpr}
    built = triton.compile(ASTSource(kernel, signature=signature, constexprs=fixed), target=GPUTarget("cuda", capability, 32))
    assert built.asm["cubin"]


def test_no_kernel_is_left_out() -> None:
    for module, names in KERNELS.items():
        held = importlib.import_module(f"coref_automl.models.disentangled.{module}")
        assert {name for name in vars(held) if name.endswith("_kernel")} == set(names)
