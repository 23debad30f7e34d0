"""Are two computations the same? In: numbers made in two ways. Out: an error where they differ by more than rounding does.

Every CPU adds in an order of its own, so the difference allowed follows from the largest number compared and its dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

STEPS = 512
"""Roundings of the largest number: what a few layers add up to. A wrong position or a lost mask differs by many thousands."""


def assert_same(ours: Any, theirs: Any, *, largest: float | None = None) -> None:
    """`largest`: the size of what both were summed from, where what is left of the sum is smaller."""
    ours, theirs = torch.as_tensor(ours).detach(), torch.as_tensor(theirs).detach()
    size = float(theirs.abs().max()) if largest is None else largest
    torch.testing.assert_close(ours, theirs, rtol=0, atol=STEPS * torch.finfo(theirs.dtype).eps * size)


def assert_same_slopes(ours: Mapping[Any, torch.Tensor | None], theirs: Mapping[Any, torch.Tensor | None]) -> None:
    """A slope that is zero in theory (a key's bias moves every score of a row alike) is the rounding of the others."""
    assert ours.keys() == theirs.keys()
    assert {name for name, slope in ours.items() if slope is None} == {name for name, slope in theirs.items() if slope is None}
    largest = max(float(slope.abs().max()) for slope in theirs.values() if slope is not None)
    for name, slope in theirs.items():
        if slope is not None:
            try:
                assert_same(ours[name], slope, largest=largest)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
