"""How exact a GPU's float32 products are. In: whether TF32 may round their inputs. Out: that, for as long as a block runs.

torch has an old and a new way to say so, and refuses to answer the old question once the new one was answered; transformers
answers the new one where torch has it. So do we.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
