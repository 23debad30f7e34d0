"""A model loads whole or not at all; what is wrong is named in one sentence with the next step."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, ElectraConfig, ElectraForPreTraining

from coref_automl.base.errors import ModelError
from coref_automl.models.load import load_encoder, load_masked_lm, load_tokenizer
from tests.close import assert_same
from tests.models.conftest import FAMILIES, LENGTH, batch, build, tokenizer, write

Copied = Callable[[str], Path]


def refused(model: str | Path, *, encoder: bool = False, **options: Any) -> str:
    """The sentence with which a model is refused."""
    with pytest.raises(ModelError) as error:
        load_encoder(str(model)) if encoder else load_masked_lm(str(model), **options)
    text = str(error.value)
    assert "\n" not in text
    return text


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    """Rewrite the weights of a checkpoint."""
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def configure(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_a_checkpoint_loads_as_it_was_saved_and_without_a_word(
    name: str, checkpoint: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(name)
    capfd.readouterr()
    loaded = load_masked_lm(folder)
    assert capfd.readouterr() == ("", "")
    assert loaded.seq_len == LENGTH
    assert loaded.notes in (("Attention: packed.",), ("Attention: eager.",))
    assert not loaded.model.training
    with torch.no_grad():
        ids = batch()
        expected = build(name)(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        ours = loaded.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    assert_same(ours, expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_encoder_alone_loads_from_a_masked_language_model(name: str, checkpoint: Callable[[str], str]) -> None:
    encoder, _ = load_encoder(checkpoint(name))
    ids = batch()
    with torch.no_grad():
        hidden = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        expected = build(name).base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    assert_same(hidden, expected)
    assert not any("pooler" in weight for weight in encoder.state_dict())


def test_weights_in_bfloat16_load_as_float32(tmp_path: Path) -> None:
    folder = write(build("modernbert").to(torch.bfloat16), tmp_path)
    assert load_masked_lm(folder).model.dtype == torch.float32
    assert load_encoder(folder)[0].dtype == torch.float32


def test_a_deberta_without_the_legacy_key_is_told_by_its_weights(copied: Copied) -> None:
    folder = copied("deberta-new-head")
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    del config["legacy"], config["tie_word_embeddings"]
    path.write_text(json.dumps(config), "utf-8")
    loaded = load_masked_lm(str(folder))
    assert not loaded.model.legacy
    loaded.model.save_pretrained(folder / "again")
    AutoModelForMaskedLM.from_pretrained(folder / "again")


def test_a_missing_mask_head_is_named_and_allowed_on_request(copied: Copied) -> None:
    folder = copied("bert")
    change(folder, lambda weights: [weights.pop(key) for key in list(weights) if key.startswith("cls.")])
    text = refused(folder, new_head=False)
    assert "no trained mask head" in text
    assert "cls.predictions." in text
    assert text.endswith("Pass a checkpoint with one, or --new-head.")
    assert refused(folder).endswith("Pass a checkpoint with one.")
    first, second = (load_masked_lm(str(folder), new_head=True) for _ in range(2))
    assert any("mask head is new" in note for note in first.notes)
    assert torch.equal(first.model.cls.predictions.transform.dense.weight, second.model.cls.predictions.transform.dense.weight)


def test_a_saved_encoder_has_no_mask_head(tmp_path: Path) -> None:
    for name in ("deberta", "modernbert", "roberta"):
        model = build(name)
        folder = write(model, tmp_path / name)
        model.base_model.save_pretrained(folder)
        assert "no trained mask head" in refused(folder)
        assert load_masked_lm(folder, new_head=True).model is not None


def test_a_missing_weight_of_the_encoder_is_an_error_even_with_a_new_head(copied: Copied) -> None:
    name = "deberta.encoder.layer.1.attention.self.query_proj.weight"
    folder = change(copied("deberta"), lambda weights: weights.pop(name))
    assert name in refused(folder)
    assert name in refused(folder, new_head=True)
    assert "encoder.layer.1.attention.self.query_proj.weight" in refused(folder, encoder=True)


def test_a_weight_of_another_shape_is_named_with_both_shapes(copied: Copied) -> None:
    folder = configure(copied("bert"), max_position_embeddings=48)
    text = refused(folder)
    assert "position_embeddings.weight is 32 x 32 in the file and 48 x 32 in the model" in text
    assert "position_embeddings.weight" in refused(folder, encoder=True)


def test_a_resized_relative_table_is_an_error(copied: Copied) -> None:
    folder = change(copied("deberta"), lambda w: w.update({"deberta.encoder.rel_embeddings.weight": torch.zeros(64, 32)}))
    assert "rel_embeddings.weight is 64 x 32 in the file and 16 x 32" in refused(folder)


def test_a_pooler_and_a_next_sentence_head_are_listed(copied: Copied) -> None:
    extra = {"bert.pooler.dense.weight": torch.zeros(32, 32), "cls.seq_relationship.weight": torch.zeros(2, 32)}
    folder = change(copied("bert"), lambda weights: weights.update(extra))
    notes = load_masked_lm(str(folder)).notes
    assert any("bert.pooler.dense.weight, cls.seq_relationship.weight" in note for note in notes)
    assert load_encoder(str(folder))


@pytest.mark.parametrize(
    ("name", "layers"), [("bert", "num_hidden_layers"), ("modernbert", "num_hidden_layers"), ("distilbert", "n_layers")]
)
def test_weights_of_the_encoder_without_a_place_are_an_error(name: str, layers: str, copied: Copied) -> None:
    folder = copied(name)
    configure(folder, **{layers: 1})
    if name == "modernbert":
        configure(folder, layer_types=["full_attention"])
    assert "has no place for" in refused(folder)
    assert "has no place for" in refused(folder, encoder=True)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_part_of_a_safetensors_file_is_called_damaged(share: float, copied: Copied) -> None:
    path = copied("roberta") / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    text = refused(path.parent)
    assert str(path) in text
    assert "damaged" in text


def test_a_lost_shard_is_named(copied: Copied, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    build("bert").save_pretrained(folder, max_shard_size="20KB")
    tokenizer().save_pretrained(folder)
    assert load_masked_lm(str(folder)).model is not None
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    assert shard.name in refused(folder)
    (folder / "model.safetensors.index.json").write_text("{}", "utf-8")
    assert "names no weights" in refused(folder)


def test_a_discriminator_has_no_mask_head_but_is_an_encoder(tmp_path: Path) -> None:
    config = ElectraConfig(
        vocab_size=100, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    folder = write(ElectraForPreTraining(config), tmp_path)
    text = refused(folder, new_head=False)
    assert "discriminator" in text
    assert text.endswith("pass its generator, or --new-head.")
    assert refused(folder).endswith("pass its generator.")
    assert load_masked_lm(folder, new_head=True).family == "electra"
    encoder, _ = load_encoder(folder)
    assert type(encoder) is type(AutoModel.from_config(config))


@pytest.mark.parametrize("encoder", [True, False])
def test_a_tokenizer_that_does_not_match_the_embedding_is_refused(encoder: bool, copied: Copied) -> None:
    folder = copied("bert")
    tokenizer(words=200).save_pretrained(folder)
    text = refused(folder, encoder=encoder)
    assert "205 entries" in text
    assert "100 rows" in text


def test_a_much_smaller_tokenizer_is_another_model_s(tmp_path: Path) -> None:
    folder = write(build("bert", vocab_size=4000), tmp_path)
    assert "4,000 rows" in refused(folder)
    assert load_masked_lm(write(build("bert", vocab_size=128), tmp_path / "padded")).model is not None


def test_roberta_counts_positions_from_the_tokenizer_s_padding(copied: Copied) -> None:
    folder = copied("roberta")
    tokenizer(pad=0).save_pretrained(folder)
    assert "pads with 0" in refused(folder)


def test_a_tokenizer_without_a_mask_token_is_refused(copied: Copied) -> None:
    folder = copied("bert")
    tokenizer(mask=False).save_pretrained(folder)
    assert "no mask token" in refused(folder)
    assert load_encoder(str(folder))


def test_a_folder_without_a_tokenizer_or_with_half_of_one_is_refused(copied: Copied) -> None:
    path = copied("bert") / "tokenizer.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "tokenizer" in refused(path.parent)
    path.unlink()
    assert "has no tokenizer" in refused(path.parent)


def test_a_folder_that_is_no_checkpoint_is_refused_with_what_to_pass(copied: Copied, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is not a checkpoint" in refused(tmp_path / "empty")
    run = copied("bert").rename(tmp_path / "checkpoint-65").parent
    assert "checkpoint-65" in refused(run)
    (run / "checkpoint-65" / "config.json").write_text("[]", "utf-8")
    assert "model_type" in refused(run / "checkpoint-65")
    (run / "checkpoint-65" / "config.json").write_text("{", "utf-8")
    assert "not JSON" in refused(run / "checkpoint-65")
    (run / "checkpoint-65" / "model.safetensors").unlink()
    assert "has no weights" in refused(run / "checkpoint-65")


def test_an_old_bin_file_loads_as_plain_weights(copied: Copied) -> None:
    folder = copied("bert")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    expected = load_masked_lm(str(folder)).model.state_dict()
    (folder / "model.safetensors").unlink()
    ours = load_masked_lm(str(folder)).model.state_dict()
    assert all(torch.equal(ours[name], weight) for name, weight in expected.items())


class Trap:
    """A pickle that leaves a trace when it is run."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def test_code_inside_a_bin_file_is_never_run(copied: Copied, tmp_path: Path) -> None:
    folder = copied("bert")
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Trap(tmp_path / "trace")}, folder / "pytorch_model.bin")
    assert "plain weights" in refused(folder)
    with (folder / "pytorch_model.bin").open("wb") as handle:
        pickle.dump(Trap(tmp_path / "trace"), handle)
    assert "plain weights" in refused(folder)
    assert not (tmp_path / "trace").exists()


def test_code_beside_a_model_is_never_run(copied: Copied, tmp_path: Path) -> None:
    folder = copied("bert")
    (folder / "theirs.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'trace')!r})\n", "utf-8")
    remote = {"AutoConfig": "theirs.Config", "AutoModelForMaskedLM": "theirs.Model", "AutoModel": "theirs.Model"}
    configure(folder, auto_map=remote)
    assert load_masked_lm(str(folder)).family == "bert"
    configure(folder, model_type="theirs")
    assert "'theirs', which is not supported" in refused(folder)
    assert not (tmp_path / "trace").exists()


def test_a_hub_that_cannot_be_reached_is_one_sentence_with_the_next_step() -> None:
    for call in (load_masked_lm, load_tokenizer, load_encoder):
        with pytest.raises(ModelError, match="not a folder here, and the hub cannot be reached") as error:
            call("someone/some-encoder")
        assert "\n" not in str(error.value)


def test_a_device_that_is_not_there_is_refused(checkpoint: Callable[[str], str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    assert "--device cpu" in refused(checkpoint("bert"), device="cuda")
    assert "choose cpu" in refused(checkpoint("bert"), device="gpu")
    assert load_masked_lm(checkpoint("bert"), device="auto").model.device.type == "cpu"


def test_a_length_of_nothing_is_refused(checkpoint: Callable[[str], str]) -> None:
    assert "--seq-len" in refused(checkpoint("bert"), seq_len=0)


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta"])
def test_an_untied_head_of_an_earlier_version_has_the_bias_of_its_decoder(tmp_path: Path, name: str) -> None:
    model = build(name, tie_word_embeddings=False)
    folder = tmp_path / name
    write(model, folder)
    with torch.no_grad():
        parameters = dict(model.named_parameters())
        bias = next(key for key in parameters if key.endswith("decoder.bias"))
        parameters[bias].copy_(parameters[bias.removesuffix("decoder.bias") + "bias"].normal_())
    weights = {key: value.clone() for key, value in model.state_dict().items() if key != bias}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = dict(load_masked_lm(str(folder)).model.named_parameters())
    assert torch.equal(loaded[bias], parameters[bias])


def test_the_second_table_of_deberta_v3_is_not_used(tmp_path: Path) -> None:
    model = build("deberta-new-head")
    write(model, tmp_path / "m")
    twins = {f"deberta.embeddings.{kind}_embeddings._weight": torch.zeros(4, 4) for kind in ("word", "position")}
    change(tmp_path / "m", lambda weights: weights.update(twins))
    assert any("word_embeddings._weight" in note for note in load_masked_lm(str(tmp_path / "m")).notes)
    load_encoder(str(tmp_path / "m"))
