"""DeBERTa-v2 through FlexAttention is the same function as the library's attention, forward and backward.

FlexAttention computes without its kernel on a CPU; its refusal to go backward there is a guard, not a lack, and is lifted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention

from coref_automl.errors import ModelError
from coref_automl.models import flex_deberta
from coref_automl.models.attention import packed_masks
from coref_automl.models.documents import Documents
from coref_automl.models.flex_deberta import install, installed, uninstall
from coref_automl.models.heads import encode
from tests.close import assert_same, assert_same_slopes
from tests.models.conftest import batch, build

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),  # torch's own tracing
]

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "shared keys": ("deberta", {}),
    "own keys": ("deberta-new-head", {}),
    "no buckets": ("deberta-no-buckets", {}),
    "clamped": ("deberta", {"max_relative_positions": 12}),
    "content to position alone": ("deberta-new-head", {"pos_att_type": ["c2p"]}),
    "position to content alone": ("deberta-new-head", {"pos_att_type": ["p2c"]}),
    "convolution": ("deberta-conv", {}),
    "absolute": ("deberta-new-head", {"relative_attention": False, "position_biased_input": True, "pos_att_type": []}),
}
SEGMENTS = torch.tensor([[1] * 9 + [2] * 15 + [3] * 6, [1] * 20 + [2] * 4 + [0] * 6])


@pytest.fixture(autouse=True)
def _every_length_and_backward_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex_deberta, "LEAST_LENGTH", 1)
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None, raising=False)


def result(
    model: Any, ids: torch.Tensor, mask: Any, segments: torch.Tensor = SEGMENTS
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    hidden = encode(model, ids, mask)[segments > 0]
    hidden.pow(3).sum().backward()
    return hidden.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("padded", [True, False], ids=["padding", "packed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_gradients_equal_eager(shape: str, padded: bool) -> None:
    name, changes = SHAPES[shape]
    model, ids = build(name, **changes), batch(2, 30)
    segments = (SEGMENTS > 0).long() if padded else SEGMENTS
    expected, slopes = result(model, ids, segments if padded else packed_masks(model, segments))
    install(model)
    mask = segments if padded else packed_masks(model, segments)
    assert padded or isinstance(mask, Documents)
    ours, our_slopes = result(model, ids, mask)
    assert_same(ours, expected)
    assert_same_slopes(our_slopes, slopes)


def test_the_library_s_own_forward_runs_through_it() -> None:
    model, ids = build("deberta"), batch(2, 30)
    mask = (SEGMENTS > 0).long()
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits
        install(model)
        ours = model(input_ids=ids, attention_mask=mask).logits
    assert_same(ours[SEGMENTS > 0], expected[SEGMENTS > 0])


def test_short_batches_stay_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex_deberta, "LEAST_LENGTH", 64)
    model, ids = build("deberta"), batch(2, 30)
    expected = encode(model, ids, packed_masks(model, SEGMENTS))
    install(model)
    monkeypatch.setattr(flex_deberta, "_attend", None)
    ours = encode(model, ids, packed_masks(model, SEGMENTS))
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def test_switching_keeps_weights_names_and_the_way_back() -> None:
    model = build("deberta")
    names, encoder = list(model.state_dict()), type(model.deberta.encoder)
    install(model)
    assert installed(model)
    assert list(model.state_dict()) == names
    uninstall(model)
    assert not installed(model)
    assert type(model.deberta.encoder) is encoder


def test_what_it_cannot_do_is_said() -> None:
    model = build("deberta")
    install(model)
    with pytest.raises(ModelError, match="eager"):
        model(input_ids=batch(1, 30), output_attentions=True)
    with pytest.raises(ModelError, match="16 numbers"):
        install(build("deberta", num_attention_heads=4))


def test_a_mask_of_pairs_goes_to_the_library() -> None:
    model, ids = build("deberta"), batch(2, 30)
    pairs = packed_masks(model, SEGMENTS)
    expected = encode(model, ids, pairs)
    install(model)
    torch.testing.assert_close(encode(model, ids, pairs), expected, rtol=0, atol=0)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled as on a GPU, up to the kernel itself."""
    monkeypatch.setattr(flex_deberta, "_attend", torch.compile(flex_deberta._attend, backend="aot_eager"))
    yield
    torch._dynamo.reset()


@pytest.mark.journey
@pytest.mark.slow
@pytest.mark.usefixtures("traced")
def test_compiled_it_follows_changing_lengths_and_gradient_checkpointing() -> None:
    model = build("deberta").train()
    for length in (30, 24):
        ids, segments = batch(2, length), SEGMENTS[:, :length]
        uninstall(model)
        model.gradient_checkpointing_disable()
        expected, slopes = result(model, ids, packed_masks(model, segments), segments)
        install(model)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        ours, our_slopes = result(model, ids, packed_masks(model, segments), segments)
        assert_same(ours, expected)
        assert_same_slopes(our_slopes, slopes)
