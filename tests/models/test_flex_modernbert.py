"""ModernBERT through FlexAttention is the same function as under SDPA, forward and backward, window kept.

FlexAttention computes without its kernel on a CPU; its refusal to go backward there is a guard, not a lack, and is lifted here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention

from coref_automl.models import flex_modernbert
from coref_automl.models.attention import packed_masks, use_attention
from coref_automl.models.heads import encode
from tests.close import assert_same, assert_same_slopes
from tests.models.conftest import batch, build

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),  # torch's own tracing
]

SEGMENTS = torch.tensor([[1] * 90 + [2] * 45 + [3] * 65, [1] * 150 + [2] * 20 + [0] * 30])


@pytest.fixture(autouse=True)
def _every_length_and_backward_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex_modernbert, "LEAST_LENGTH", 1)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None, raising=False)


def result(model: Any, ids: torch.Tensor, mask: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    hidden = encode(model, ids, mask)[SEGMENTS > 0]
    hidden.pow(3).sum().backward()
    return hidden.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def long_model() -> Any:
    return build("modernbert", max_position_embeddings=256)


@pytest.mark.parametrize("padded", [True, False], ids=["padding", "packed"])
def test_outputs_and_gradients_equal_sdpa(padded: bool) -> None:
    model, ids = long_model(), batch(2, 200)
    use_attention(model, "sdpa")
    mask = (SEGMENTS > 0).long() if padded else packed_masks(model, SEGMENTS)
    usual, slopes = result(model, ids, mask)
    flex_modernbert.install(model)
    ours, found = result(model, ids, mask if padded else packed_masks(model, SEGMENTS))
    assert_same(ours, usual)
    assert_same_slopes(found, slopes)


def test_short_rows_stay_with_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = long_model(), batch(2, 200)
    use_attention(model, "sdpa")
    usual, _ = result(model, ids, packed_masks(model, SEGMENTS))
    flex_modernbert.install(model)
    monkeypatch.setattr(flex_modernbert, "LEAST_LENGTH", 512)
    monkeypatch.setattr(flex_modernbert, "flex_attention", None)
    for mask in (packed_masks(model, SEGMENTS), (SEGMENTS > 0).long()):
        assert torch.isfinite(encode(model, ids, mask)).all()
    ours, _ = result(model, ids, packed_masks(model, SEGMENTS))
    assert torch.equal(ours, usual)


def test_a_compiled_step_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training step is compiled as a whole; FlexAttention is part of that graph."""
    model, ids = long_model(), batch(2, 200)
    flex_modernbert.install(model)
    usual = encode(model, ids, packed_masks(model, SEGMENTS)).detach()
    step = torch.compile(encode, backend="eager")
    with torch.no_grad():
        for _ in range(2):
            assert_same(step(model, ids, packed_masks(model, SEGMENTS)), usual)


def test_the_choice_is_not_saved(tmp_path: Any) -> None:
    from transformers import AutoModelForMaskedLM

    model = long_model()
    flex_modernbert.install(model)
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert not flex_modernbert.installed(again)
