"""A LoRA adapter is applied whole, or refused: an encoder that is adapted in part would answer without a word."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from coref_automl.base.errors import ModelError
from coref_automl.base.store import read_json, write_json
from coref_automl.extras.coreference.lora import add_lora, check_adapter, lora_weights, merge_lora
from coref_automl.extras.coreference.model import CoreferenceModel, load_for_training, load_model
from coref_automl.extras.coreference.train import train_coreference
from coref_automl.models.load import load_encoder
from tests.extras.coreference.conftest import recipe

RANK = 4
Weights = dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tales_file: Path, encoder_folder: Path, split_file: Path) -> Path:
    out = tmp_path_factory.mktemp("lora") / "run"
    train_coreference(recipe(tales_file, encoder_folder, out, split=str(split_file), rank=RANK, epochs=1))
    return out / "seed-0" / "model"


def for_inference(folder: Path) -> CoreferenceModel:
    return load_model(folder)


def for_training(folder: Path) -> CoreferenceModel:
    return load_for_training(folder, None, dropout=0.0, seed=0)


def of_encoder(weights: Weights) -> list[str]:
    return sorted(name for name in weights if name.startswith("encoder."))


def without_all(weights: Weights) -> Weights:
    return {name: value for name, value in weights.items() if not name.startswith("encoder.")}


def without_a_layer(weights: Weights) -> Weights:
    layer = of_encoder(weights)[0].rpartition(".")[0]
    return {name: value for name, value in weights.items() if not name.startswith(layer + ".")}


def without_a_matrix(part: str) -> Callable[[Weights], Weights]:
    def damage(weights: Weights) -> Weights:
        lost = next(name for name in of_encoder(weights) if name.endswith(part))
        return {name: value for name, value in weights.items() if name != lost}

    return damage


def with_a_wrong_shape(weights: Weights) -> Weights:
    name = of_encoder(weights)[0]
    return weights | {name: weights[name][:, 1:].contiguous()}


def with_a_layer_too_many(weights: Weights) -> Weights:
    return weights | {"encoder.embeddings.down": torch.zeros(RANK, 2), "encoder.embeddings.up": torch.zeros(2, RANK)}


@pytest.mark.parametrize("load", [for_inference, for_training])
@pytest.mark.parametrize(
    "damage",
    [without_all, without_a_layer, without_a_matrix(".up"), without_a_matrix(".down"), with_a_wrong_shape, with_a_layer_too_many],
    ids=["none", "no layer", "no up", "no down", "shape", "too many"],
)
def test_a_damaged_adapter_is_refused(
    trained: Path, tmp_path: Path, load: Callable[[Path], CoreferenceModel], damage: Callable[[Weights], Weights]
) -> None:
    folder = shutil.copytree(trained, tmp_path / "model")
    save_file(damage(load_file(trained / "head.safetensors")), folder / "head.safetensors")
    with pytest.raises(ModelError, match=r"head\.safetensors is damaged, or coreference\.json was edited; train it again\."):
        load(folder)


@pytest.mark.parametrize("load", [for_inference, for_training])
@pytest.mark.parametrize(
    "edit", [{"rank": RANK - 1}, {"rank": 10**15}, {"window": 10**6}, {"window": 2}, {"window": -1}], ids=str
)
def test_settings_that_the_weights_do_not_fit_are_refused(
    trained: Path, tmp_path: Path, load: Callable[[Path], CoreferenceModel], edit: dict[str, int]
) -> None:
    folder = shutil.copytree(trained, tmp_path / "model")
    write_json(folder / "coreference.json", read_json(folder / "coreference.json") | edit)
    with pytest.raises(ModelError, match=r"head\.safetensors is damaged, or coreference\.json was edited"):
        load(folder)


def test_an_adapter_answers_alike_beside_its_encoder_and_merged_into_it(encoder_folder: Path) -> None:
    (apart, _), (merged, _) = (load_encoder(str(encoder_folder)) for _ in range(2))
    add_lora(apart, RANK)
    adapter = {name: torch.randn_like(value) / 10 for name, value in lora_weights(apart).items()}
    check_adapter(merged, adapter, RANK)
    with pytest.raises(ValueError, match="not an adapter of rank 0"):
        check_adapter(merged, adapter, 0)
    apart.load_state_dict(adapter, strict=False)
    ids = torch.arange(20).view(1, -1)
    with torch.no_grad():
        plain = merged.eval()(input_ids=ids).last_hidden_state
        merge_lora(merged, adapter)
        states = [encoder.eval()(input_ids=ids).last_hidden_state for encoder in (apart, merged)]
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(states[0], plain, atol=1e-2)
