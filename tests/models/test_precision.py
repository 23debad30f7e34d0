"""float32 products are exact where we say so, in a process whose settings were made by the Trainer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from coref_automl.models.execution import matmul_precision

pytestmark = pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has the old settings alone")


@pytest.fixture
def as_the_trainer_leaves_it() -> Iterator[None]:
    everywhere, products_alone = torch.backends.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    torch.backends.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.fp32_precision, torch.backends.cuda.matmul.fp32_precision = everywhere, products_alone


@pytest.mark.usefixtures("as_the_trainer_leaves_it")
def test_products_are_exact_inside_and_as_before_outside() -> None:
    with matmul_precision(tf32=False):
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        with matmul_precision(tf32=True):
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


@pytest.mark.usefixtures("as_the_trainer_leaves_it")
def test_settings_come_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), matmul_precision(tf32=False):
        raise ValueError("inside")
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
