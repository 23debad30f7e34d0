"""Encoding and predicting apart is what the model does in one piece."""

from __future__ import annotations

import pytest
import torch

from coref_automl.models.heads import encode, predict
from tests.close import assert_same, assert_same_slopes
from tests.models.conftest import TINY, batch, build


@pytest.mark.parametrize("name", TINY)
def test_encode_then_predict_equals_the_model_itself(name: str) -> None:
    model = build(name)
    ids, mask = batch(), torch.ones(2, 20, dtype=torch.long)
    ids[1, 15:], mask[1, 15:] = model.config.pad_token_id, 0
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask).logits
        hidden = encode(model, ids, mask)
        ours = predict(model, hidden[mask.bool()])
    assert_same(ours, whole[mask.bool()])


@pytest.mark.parametrize("name", TINY)
def test_the_head_runs_at_the_wanted_positions_alone(name: str) -> None:
    model = build(name)
    ids, mask = batch(), torch.ones(2, 20, dtype=torch.long)
    with torch.no_grad():
        hidden = encode(model, ids, mask)
        chosen = predict(model, hidden[[0, 1], [3, 7]])
        whole = model(input_ids=ids, attention_mask=mask).logits
    assert chosen.shape == (2, 100)
    assert_same(chosen, whole[[0, 1], [3, 7]])


@pytest.mark.parametrize("name", TINY)
def test_positions_count_from_zero_in_every_family(name: str) -> None:
    model = build(name)
    ids, mask = batch(), torch.ones(2, 20, dtype=torch.long)
    with torch.no_grad():
        left_out = encode(model, ids, mask)
        given = encode(model, ids, mask, torch.arange(20).expand(2, -1))
    assert_same(given, left_out)


def test_gradients_reach_the_encoder_through_both_halves() -> None:
    model = build("deberta-new-head")
    predict(model, encode(model, batch(), torch.ones(2, 20, dtype=torch.long))[:, 3]).sum().backward()
    assert model.deberta.encoder.layer[0].attention.self.query_proj.weight.grad.abs().sum() > 0
    assert model.deberta.embeddings.word_embeddings.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["deberta", "modernbert", "bert"])
def test_gradient_checkpointing_changes_no_gradient(name: str) -> None:
    model, ids = build(name).train(), batch()

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        predict(model, encode(model, ids, torch.ones_like(ids))[:, 3]).logsumexp(-1).sum().backward()
        return {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}

    expected = gradients()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    again = gradients()
    assert_same_slopes(again, expected)
