"""Rates by layer index, and what is not decayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def model(shape: str, tokenizer_folder: Path) -> Any:
    from coref_automl.models.build import build_masked_lm
    from coref_automl.models.load import load_tokenizer

    return build_masked_lm(shape, load_tokenizer(str(tokenizer_folder)), seq_len=32)


SHAPES = ["tiny", "deberta-tiny", "bert-tiny", "roberta-tiny", "electra-tiny"]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_layer_has_the_rate_of_its_depth(shape: str, tokenizer_folder: Path) -> None:
    from coref_automl.training.optimizer import parameter_groups

    network = model(shape, tokenizer_folder)
    groups = parameter_groups(network, learning_rate=1.0, weight_decay=0.1, layer_decay=0.5)
    rates = {name: group.learning_rate for group in groups for name in group.names}
    assert rates.keys() == dict(network.named_parameters()).keys()
    for name, rate in rates.items():
        expected = (
            0.5**2 if "layer.0." in name or "layers.0." in name else 0.5 if "layer.1." in name or "layers.1." in name else None
        )
        if expected is not None:
            assert rate == expected, name
        elif "embeddings.word" in name or "tok_embeddings" in name or "rel_embeddings" in name:
            assert rate == 0.5**3, name
    head = [rate for name, rate in rates.items() if not name.startswith(network.base_model_prefix + ".")]
    assert head
    assert set(head) == {1.0}


@pytest.mark.parametrize("shape", SHAPES)
def test_vectors_are_not_decayed_and_matrices_are(shape: str, tokenizer_folder: Path) -> None:
    from coref_automl.training.optimizer import parameter_groups

    groups = parameter_groups(model(shape, tokenizer_folder), learning_rate=1.0, weight_decay=0.1)
    decays = {parameter.ndim: group.weight_decay for group in groups for parameter in group.parameters}
    assert decays == {1: 0.0, 2: 0.1}
    assert {group.learning_rate for group in groups} == {1.0}


def test_the_optimizer_moves_lower_layers_less(tokenizer_folder: Path) -> None:
    """The old fault: decay by parameter count, under which the encoder stood still."""
    import torch

    from coref_automl.training.optimizer import adamw, parameter_groups

    network = model("tiny", tokenizer_folder)
    groups = parameter_groups(network, learning_rate=1e-2, weight_decay=0.0, layer_decay=0.5)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    network(input_ids=torch.arange(5, 25)[None], labels=torch.arange(5, 25)[None]).loss.backward()
    adamw(groups, fused=False).step()
    moved = {name: float((value.detach() - before[name]).abs().max()) for name, value in network.named_parameters()}
    low, high = moved["model.layers.0.mlp.Wi.weight"], moved["model.layers.1.mlp.Wi.weight"]
    assert 0 < low < high
    assert high == pytest.approx(2 * low, rel=0.2)
