"""What is wrong with a model or a set is said in one sentence before an item is scored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from coref_automl.base.errors import CorefError, EvalSetError, ModelError
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from tests.evaluation.tiny import freeze_tiny, save_checkpoint, tokenizer_of


def scored(folder: Path, **settings: object) -> None:
    recipe = EvaluateRecipe(eval_sets=(folder / "evalset",), out=folder / "out", device="cpu", dtype="float32", **settings)  # type: ignore[arg-type]
    evaluate([folder / "checkpoint-1"], recipe)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    freeze_tiny(tmp_path / "evalset")
    save_checkpoint(tmp_path / "checkpoint-1")
    return tmp_path


def refused(folder: Path, error: type[CorefError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        scored(folder)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_new_mask_head_is_refused_unless_asked_for(folder: Path) -> None:
    weights = folder / "checkpoint-1/model.safetensors"
    kept = {name: value for name, value in load_file(weights).items() if not name.startswith("cls.")}
    save_file(kept, weights, metadata={"format": "pt"})
    refused(folder, ModelError, "--new-head")
    scored(folder, new_head=True)


def test_half_a_file_is_refused(folder: Path) -> None:
    weights = folder / "checkpoint-1/model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    refused(folder, ModelError, "damaged")


def test_a_discriminator_is_refused(folder: Path) -> None:
    from transformers import ElectraForPreTraining
    from transformers.models.electra import ElectraConfig

    size = len(tokenizer_of("wordpiece"))
    config = ElectraConfig(
        vocab_size=size, hidden_size=32, embedding_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    ElectraForPreTraining(config).save_pretrained(folder / "checkpoint-1")
    refused(folder, ModelError, "generator")


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    tokenizer_of("bytes").save_pretrained(folder / "checkpoint-1")
    refused(folder, ModelError, "tokenizer")


def test_edited_items_are_refused(folder: Path) -> None:
    path = folder / "evalset/items-real.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    rows[0]["tag"] = "NNP"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    refused(folder, EvalSetError, "edited")


def test_a_set_without_this_tokenizers_nouns_names_the_command_where_kiwi_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in (folder / "evalset").glob("nouns-*.npy"):
        table.unlink()
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    refused(folder, EvalSetError, "coref-automl prepare eval")


def test_a_set_without_this_tokenizers_nouns_gets_them_on_the_spot(folder: Path) -> None:
    for table in (folder / "evalset").glob("nouns-*.npy"):
        table.unlink()
    scored(folder)
    assert len(list((folder / "evalset").glob("nouns-*.npy"))) == 1
