"""A first step builds every kernel of disentangled attention for GPUs of two generations, on a machine that has none.

The driver here launches nothing, so what is computed is noise; what is built, where and how often is what a card would see.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deberta_kernels.layout import Distances, bounds_of

pytestmark = [
    pytest.mark.journey,  # a minute and a half; `make kernels` runs it
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed; `make kernels` installs it"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter builds nothing"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
MODULES = ("forward", "backward", "residual")
BATCH, LENGTH, HEADS, SIZE = 1, 640, 2, 64
"""Longer than the longest distance, so that nothing is left out."""


class Card:
    """A driver of Triton for a card that is not there."""

    def __init__(self, capability: int) -> None:
        self.capability, self.launched = capability, Counter[str]()
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (None, 1, 0, 0, 1024), get_device_properties=lambda _: {"max_shared_mem": 230_000}
        )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def launcher_cls(self, source: Any, _metadata: Any) -> Any:
        return lambda *_: self.launched.update([source.name])


def step(dropout: float = 0.1) -> None:
    """Attention, then the sum and the norm after it, forward and backward."""
    from deberta_kernels.operation import attend
    from deberta_kernels.residual import add_norm

    states, *tables = (
        torch.randn(shape, dtype=torch.bfloat16, requires_grad=True)
        for shape in ((BATCH, LENGTH, 3, HEADS, SIZE), (512, HEADS, SIZE), (512, HEADS, SIZE))
    )
    bounds = bounds_of(torch.ones(BATCH, LENGTH, dtype=torch.long))
    context = attend(states, *tables, bounds, Distances(256, 512), scale=0.1, dropout=dropout).flatten(2)
    residual, norm = torch.randn(context.shape, requires_grad=True), torch.nn.LayerNorm(HEADS * SIZE)
    whole, rounded = add_norm(context, residual, norm, dropout=dropout, half=torch.bfloat16)
    assert rounded is not None
    (whole.sum() + rounded.float().sum()).backward()


@pytest.mark.parametrize("capability", [80, 90])
def test_a_first_step_builds_every_kernel_side_by_side(capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton
    from triton.runtime import driver

    from deberta_kernels import builds, operation

    card, plan_for = Card(capability), operation.plan_for
    builds_seen: list[tuple[str, str]] = []
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(operation, "plan_for", lambda dtype, size, _device: plan_for(dtype, size, "cuda"))
    monkeypatch.setattr(
        triton.knobs.compilation, "listener", lambda src, **_: builds_seen.append((src.name, threading.current_thread().name))
    )
    kernels = {name: kernel for module in MODULES for name, kernel in kernels_of(module).items()}
    for kernel in kernels.values():
        kernel.device_caches.clear()  # another test's card
    operation._launch.cache_clear()
    monkeypatch.setattr(builds, "_rehearsed", set())
    monkeypatch.setattr(driver, "_active", card)
    step()
    first, launched = list(builds_seen), Counter(card.launched)
    step()
    operation._launch.cache_clear()
    assert set(launched) == {name for name, _ in first} == set(kernels)
    assert card.launched == launched + launched
    assert builds_seen == first  # nothing is built a second time, or for other arguments
    assert {name for name, thread in first if not thread.startswith("kernel-build")} == {"add_norm_kernel"}
    assert not builds._running


def kernels_of(module: str) -> dict[str, Any]:
    names = vars(importlib.import_module(f"deberta_kernels.{module}"))
    return {name: names[name] for name in names if name.endswith("_kernel")}
