"""Scoring on a CPU takes another road to the same hidden states."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coref_automl.models import quick_deberta
from coref_automl.models.attention import packed_masks
from coref_automl.models.context import lengthen
from coref_automl.models.heads import encode
from tests.close import assert_same
from tests.models.conftest import batch, build

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


def both_ways(model: Any, ids: torch.Tensor, mask: Any) -> tuple[torch.Tensor, torch.Tensor]:
    library = encode(model, ids, mask).detach()  # with gradients on, the library's attention runs
    with torch.no_grad():
        return encode(model, ids, mask), library


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the quick road was taken."""
    calls: list[int] = []
    attend = quick_deberta.attend
    monkeypatch.setattr(quick_deberta, "attend", lambda *arguments: calls.append(1) or attend(*arguments))
    return calls


@pytest.mark.parametrize("padded", [True, False], ids=["padding", "packed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_hidden_states_equal_the_library_s(shape: str, padded: bool, taken: list[int]) -> None:
    name, changes = SHAPES[shape]
    model, ids = build(name, **changes), batch(2, 30)
    quick, library = both_ways(model, ids, (SEGMENTS > 0).long() if padded else packed_masks(model, SEGMENTS))
    assert len(taken) == 2
    assert_same(quick[SEGMENTS > 0], library[SEGMENTS > 0])


@pytest.mark.parametrize("length", [1, 2, 31, 80])
def test_every_length_agrees(length: int) -> None:
    model = build("deberta")
    lengthen(model, 80)
    ids = batch(2, length)
    quick, library = both_ways(model, ids, torch.ones_like(ids))
    assert_same(quick, library)


def test_training_keeps_the_library_s_attention(taken: list[int]) -> None:
    model, ids = build("deberta", attention_probs_dropout_prob=0.5), batch(2, 30)
    encode(model, ids, torch.ones_like(ids))
    with torch.no_grad():
        encode(model.train(), ids, torch.ones_like(ids))
    assert taken == []
