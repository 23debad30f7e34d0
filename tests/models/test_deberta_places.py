"""The last layer at single places gives what the whole layer gives there. No kernel is needed, so this runs everywhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coref_automl.models.heads import _encode_deberta, encode
from tests.models.conftest import batch, build

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "shared projections": ("deberta", {}),
    "own projections": ("deberta-new-head", {}),
    "c2p alone": ("deberta-new-head", {"pos_att_type": ["c2p"]}),
    "p2c alone": ("deberta", {"pos_att_type": ["p2c"]}),
    "neither": ("deberta-new-head", {"pos_att_type": []}),
    "plain distances": ("deberta-no-buckets", {}),
    "convolution": ("deberta-conv", {}),
}


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_places_of_the_last_layer_are_those_of_the_whole_pass(name: str) -> None:
    kind, changes = MODELS[name]
    model = build(kind, num_hidden_layers=2, **changes).eval()
    ids, mask = batch(3, 24), torch.ones(3, 24, dtype=torch.long)
    mask[1, 15:] = 0
    rows, columns = torch.tensor([0, 1, 1, 2, 2]), torch.tensor([0, 3, 14, 23, 7])
    expected = encode(model, ids, mask)[rows, columns]
    states = _encode_deberta(model.base_model, ids, mask, None, (rows, columns))
    assert (states - expected).norm() <= 1e-5 * expected.norm()
