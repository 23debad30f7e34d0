"""Names, lengths and fingerprints, without loading a model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from coref_automl.base.errors import ModelError
from coref_automl.models import model_files
from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint
from coref_automl.models.model_files import BUNDLED, detect_seq_len, folder_of, resolve, weight_shapes, weights_fingerprint
from tests.models.conftest import FAMILIES, LENGTH, build, tokenizer

Copied = Callable[[str], Path]


def test_a_folder_a_hub_id_and_nothing_else_resolve(tmp_path: Path) -> None:
    assert resolve(str(tmp_path)) == str(tmp_path)
    assert resolve("klue/roberta-base") == "klue/roberta-base"
    (tmp_path / "file").write_text("", "utf-8")
    for wrong in ("./nowhere", "/no/such/folder", "a/b/c", "", "bundled:none", str(tmp_path / "file")):
        with pytest.raises(ModelError):
            resolve(wrong)


def test_of_a_folder_of_checkpoints_the_newest_is_named(tmp_path: Path) -> None:
    for step in (7, 65, 131):
        (tmp_path / f"checkpoint-{step}").mkdir()
    with pytest.raises(ModelError, match=r"such as \S+checkpoint-131\."):
        folder_of(str(tmp_path))


@pytest.mark.skipif(not (model_files._ASSETS / "ko-mini").is_dir(), reason="the bundled encoder is not in this tree")
def test_bundled_models_are_folders() -> None:
    for name in BUNDLED:
        assert (Path(resolve(name)) / "config.json").is_file()


def test_a_bundled_model_that_is_not_installed_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model_files, "_ASSETS", tmp_path)
    with pytest.raises(ModelError, match="not part of this installation"):
        resolve("bundled:ko-mini")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_length_is_read_from_the_config_alone(name: str, checkpoint: Callable[[str], str]) -> None:
    assert detect_seq_len(checkpoint(name)) == LENGTH


def test_what_a_checkpoint_was_trained_at_wins_where_the_model_reads_that_much(copied: Copied) -> None:
    folder = copied("modernbert")
    (folder / "training.json").write_text(json.dumps({"seq_len": 16}), "utf-8")
    assert detect_seq_len(str(folder)) == 16
    (folder / "training.json").write_text(json.dumps({"seq_len": 4096}), "utf-8")
    assert detect_seq_len(str(folder)) == LENGTH
    (folder / "training.json").write_text("{", "utf-8")
    with pytest.raises(ModelError, match="not JSON"):
        detect_seq_len(str(folder))


def test_fingerprints_of_weights_name_bytes_not_folders(copied: Copied, checkpoint: Callable[[str], str]) -> None:
    folder = copied("bert")
    before = weights_fingerprint(checkpoint("bert"))
    assert weights_fingerprint(str(folder.rename(folder.with_name("renamed")))) == before
    build("bert", seed=1).save_pretrained(folder.with_name("renamed"))
    assert weights_fingerprint(str(folder.with_name("renamed"))) != before


def test_fingerprints_of_tokenizers_survive_a_reload_and_tell_vocabularies_apart(checkpoint: Callable[[str], str]) -> None:
    loaded = load_tokenizer(checkpoint("bert"))
    assert tokenizer_fingerprint(loaded) == tokenizer_fingerprint(tokenizer())
    assert tokenizer_fingerprint(tokenizer(words=96)) != tokenizer_fingerprint(loaded)
    before = tokenizer_fingerprint(loaded)
    loaded("말1 말2", truncation=True, max_length=3, padding="max_length")
    assert tokenizer_fingerprint(loaded) == before


def test_shapes_are_read_from_the_header(checkpoint: Callable[[str], str]) -> None:
    assert weight_shapes(Path(checkpoint("bert")))["bert.embeddings.word_embeddings.weight"] == (100, 32)


def test_names_and_lengths_need_neither_torch_nor_transformers(checkpoint: Callable[[str], str]) -> None:
    code = (
        "import sys; from coref_automl.models.model_files import *\n"
        "detect_seq_len(sys.argv[1]); weights_fingerprint(sys.argv[1]);"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, checkpoint("bert")], check=True)


class Hub:
    """A hub that answers from a folder, or with an error."""

    def __init__(self, answer: Path | type[Exception]) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []

    def __call__(self, name: str, *, allow_patterns: list[str]) -> str:
        self.asked.append(allow_patterns)
        if isinstance(self.answer, Path):
            return str(self.answer)
        raise self.answer.__new__(self.answer)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | type[Exception]], Hub]:
    def connect(answer: Path | type[Exception]) -> Hub:
        client = Hub(answer)
        monkeypatch.setattr("huggingface_hub.snapshot_download", client)
        return client

    return connect


def test_a_hub_id_becomes_a_folder_and_a_tokenizer_needs_no_weights(
    hub: Callable[..., Hub], checkpoint: Callable[[str], str]
) -> None:
    asked = hub(Path(checkpoint("bert"))).asked
    assert load_tokenizer("someone/encoder").mask_token == "[MASK]"
    assert not any("safetensors" in pattern for patterns in asked for pattern in patterns)
    assert weights_fingerprint("someone/encoder") == weights_fingerprint(checkpoint("bert"))
    assert any("safetensors" in pattern for patterns in asked for pattern in patterns)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GatedRepoError, "accept its terms"),
        (RepositoryNotFoundError, "check the name"),
        (LocalEntryNotFoundError, "cannot be reached"),
        (ConnectionResetError, "ConnectionResetError"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(error: type[Exception], words: str, hub: Callable[..., Hub]) -> None:
    hub(error)
    with pytest.raises(ModelError, match=words) as raised:
        load_tokenizer("someone/encoder")
    assert "\n" not in str(raised.value)
