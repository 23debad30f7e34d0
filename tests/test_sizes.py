"""What a file or an option claims is checked before memory is asked for it; what is no regular file is not opened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.cli.app import run
from coref_automl.evaluation.evalset import bundled_eval_set
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.extras.coreference.recipe import BUNDLED, HEAD
from coref_automl.models.model_files import folder_of

MINI = "bundled:ko-mini"
SMALL = ["--source", "bundled:passages", "--model", MINI]
HUGE = "99999999999"

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one sentence of a command that exits 2."""

    def told(*arguments: str | Path) -> str:
        capsys.readouterr()
        assert run(list(map(str, arguments))) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("coref-automl: ")]
        assert len(lines) == 1
        assert len(lines[0]) < 600
        return lines[0]

    return told


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sizes") / "dataset"
    assert run(["prepare", "entity", *SMALL, "--limit", "30", "--seq-len", "64", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def dataset(prepared: Path, tmp_path: Path) -> Path:
    """A dataset of one's own, to damage."""
    return Path(shutil.copytree(prepared, tmp_path / "dataset"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The bundled model as a folder of one's own; its weights are a link."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in folder_of(MINI).iterdir():
        if path.suffix == ".safetensors":
            (folder / path.name).symlink_to(path)
        else:
            shutil.copy(path, folder)
    return folder


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def training(dataset: Path, tmp_path: Path) -> list[str]:
    shape = ["--model", "new:tiny", "--tokenizer", MINI, "--device", "cpu", "--epochs", "0.01", "--batch", "2"]
    return ["train", *shape, "--dataset", str(dataset), "--out", str(tmp_path / "run")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intermediate_size", 10**9),
        ("vocab_size", 10**12),
        ("hidden_size", 320 * 10**6),
        ("num_hidden_layers", 10**9),
        ("max_position_embeddings", 10**11),
    ],
)
def test_a_config_that_describes_more_than_its_weights_is_refused(model: Path, refused: Refused, name: str, value: int) -> None:
    edit(model / "config.json", **{name: value})
    text = refused("fill", "서울은 [MASK]이다.", "--model", model)
    assert f"{model / 'config.json'}" in text or "embedding" in text
    assert "correct" in text or "copy" in text
    assert f"{value:,}" in text or name in ("intermediate_size", "hidden_size")


def test_a_config_is_checked_for_the_encoder_alone_too(model: Path, tmp_path: Path, refused: Refused) -> None:
    edit(model / "config.json", intermediate_size=10**9)
    text = refused("re", "train", "--model", model, "--train", "bundled:relations", "--max-rows", "50", "--out", tmp_path / "run")
    assert "the weight files hold 11," in text


def test_an_id_far_beyond_the_vocabulary_is_refused(model: Path, tmp_path: Path, refused: Refused) -> None:
    rules = json.loads((model / "tokenizer.json").read_text("utf-8"))
    rules["added_tokens"][-1]["id"] = 2**31
    (model / "tokenizer.json").write_text(json.dumps(rules, ensure_ascii=False), "utf-8")
    for command in (["fill", "서울은 [MASK]이다."], ["prepare", "mlm", *SMALL[:2], "--out", tmp_path / "out"]):
        assert "the id 2,147,483,648; copy it again" in refused(*command, "--model", model)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["prepare", "mlm", *SMALL],
        ["adapt", *SMALL],
        ["evaluate", MINI],
        ["train", "--model", MINI, "--dataset", "nowhere"],
    ],
    ids=lambda command: command[0],
)
def test_a_length_that_cannot_be_meant_is_refused(command: list[str], tmp_path: Path, refused: Refused) -> None:
    text = refused(*command, "--seq-len", HUGE, "--out", tmp_path / "out")
    assert "seq_len should" in text
    assert "131,072" in text
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_that_cannot_be_meant_is_refused(tmp_path: Path, refused: Refused) -> None:
    text = refused("tokenizer", "learn", "--source", "bundled:passages", "--vocab-size", 10**12, "--out", tmp_path / "out")
    assert " should " in text
    assert "1,000,000,000,000" in text


def claiming(shape: tuple[int, ...], held: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as handle:
            np.lib.format.write_array_header_1_0(handle, {"descr": "<i4", "fortran_order": False, "shape": shape})
            handle.write(held)

    return write


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("name", ["tokens.npy", "blocks.npy", "mentions.npy"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (emptied, "the file is empty"),
        (claiming((10**6, 4), b"\0" * 64), "its header claims 16,000,000 bytes and 64 follow"),
        (claiming((10**12, 4), b"\0" * 64), "its header claims 16,000,000,000,000 bytes and 64 follow"),
    ],
    ids=["empty", "million", "billion"],
)
def test_an_array_that_holds_less_than_it_claims_is_refused(
    dataset: Path, tmp_path: Path, refused: Refused, name: str, damage: Callable[[Path], None], reason: str
) -> None:
    damage(dataset / name)
    text = refused(*training(dataset, tmp_path))
    assert f"is damaged ({name}: {reason}); prepare it again in another folder." in text


def test_a_noun_table_is_checked_the_same_way(tmp_path: Path, refused: Refused) -> None:
    evalset = Path(shutil.copytree(bundled_eval_set(), tmp_path / "set"))
    for damage, reason in ((emptied, "the file is empty"), (claiming((10**12,), b""), "header claims 4,000,000,000,000 bytes")):
        for table in evalset.glob("nouns-*.npy"):
            damage(table)
        text = refused("evaluate", MINI, "--eval-set", evalset, "--device", "cpu", "--out", tmp_path / "out")
        assert reason in text
        assert "delete it, and it is built again" in text


@pytest.mark.parametrize("name", ["tokens.npy", "blocks.npy", "mentions.npy"])
def test_an_edited_array_is_noticed_before_the_first_step(dataset: Path, tmp_path: Path, refused: Refused, name: str) -> None:
    array = np.load(dataset / name, mmap_mode="r+")
    array[1, 3] += 1
    array.flush()
    text = refused(*training(dataset, tmp_path))
    assert f"The arrays of {dataset} have changed since they were prepared: edited, or damaged; restore them" in text
    assert not (tmp_path / "run").exists()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text", [BOMB, MERGES, f"{BOMB}epochs: *i\n", "model: &a [*a]\n"], ids=["lists", "merges", "a field", "itself"]
)
@pytest.mark.parametrize("command", [["train"], ["tune"], ["adapt"]], ids=lambda command: command[0])
def test_aliases_are_refused(text: str, command: list[str], tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "recipe.yaml").write_text(text, "utf-8")
    message = refused(*command, "--recipe", tmp_path / "recipe.yaml", "--out", tmp_path / "out")
    assert "it has an alias (*name)" in message


def test_long_values_are_quoted_in_part(tmp_path: Path, refused: Refused) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"model: [{', '.join(['x'] * 5000)}]\n", "utf-8")
    assert "model should be text, not ['x', 'x'" in refused("train", "--recipe", recipe)
    recipe.write_bytes(b"# " + b"x" * (5 << 20) + b"\n")
    assert "is too large for a recipe" in refused("train", "--recipe", recipe)


@pytest.mark.parametrize("name", ["../elsewhere/model.safetensors", "/etc/model.safetensors"])
def test_an_index_that_names_a_file_outside_its_folder_is_refused(
    model: Path, tmp_path: Path, refused: Refused, name: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (model / "model.safetensors").rename(tmp_path / "elsewhere" / "model.safetensors")
    index = {"metadata": {}, "weight_map": {"model.embeddings.tok_embeddings.weight": name}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    text = refused("fill", "서울은 [MASK]이다.", "--model", model)
    assert f"names {name}, which lies outside its folder, and is not followed; copy the checkpoint again." in text


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "training.json"])
def test_a_pipe_in_a_models_folder_is_refused(model: Path, refused: Refused, name: str) -> None:
    (model / name).unlink(missing_ok=True)
    os.mkfifo(model / name)
    text = refused("fill", "서울은 [MASK]이다.", "--model", model)
    assert f"{model / name} is a pipe, a socket or a device" in text


def test_a_pipe_in_place_of_a_head_is_refused(tmp_path: Path, refused: Refused) -> None:
    head = tmp_path / "head"
    shutil.copytree(models_of(BUNDLED)[0], head)
    (head / HEAD).unlink()
    os.mkfifo(head / HEAD)
    assert f"{head / HEAD} is a pipe, a socket or a device" in refused("coref", "predict", "철수가 왔다.", "--model", head)


def test_epochs_without_end_are_refused(dataset: Path, tmp_path: Path, refused: Refused) -> None:
    assert "That is a budget of over" in refused(*training(dataset, tmp_path), "--epochs", "1e308")


@pytest.mark.parametrize("name", ["tokens.npy", "manifest.json"])
def test_a_pipe_in_a_dataset_is_refused(dataset: Path, tmp_path: Path, refused: Refused, name: str) -> None:
    (dataset / name).unlink()
    os.mkfifo(dataset / name)
    text = refused(*training(dataset, tmp_path))
    assert "is a pipe, a socket or a device" in text or "is not a prepared dataset" in text


def test_a_pipe_as_an_input_is_refused(tmp_path: Path, refused: Refused) -> None:
    pipe, out = tmp_path / "pipe.jsonl", ["--out", tmp_path / "out"]
    os.mkfifo(pipe)
    for command in (
        ["prepare", "mlm", "--source", f"local:{pipe}", "--model", MINI, *out],
        ["prepare", "eval", "--source", f"local:{pipe}", "--model", MINI, *out],
        ["train", "--recipe", pipe],
        ["tune", "--recipe", pipe, *out],
        ["re", "train", "--train", pipe, "--model", MINI, *out],
        ["re", "explore", pipe],
    ):
        assert "is a pipe, a socket or a device" in refused(*command)
    assert not (tmp_path / "out").exists()


def test_a_file_that_ends_too_early_is_not_called_an_interruption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.cli.app import COMMANDS, _parser, app

    _parser.cache_clear()
    monkeypatch.setitem(COMMANDS, "ends-early", ("coref_automl.cli.app", "A fault."))

    @app.command("ends-early", hidden=True)
    def ends_early() -> None:
        raise EOFError("No data left in file")

    try:
        assert run(["ends-early"]) == 1
        assert "A file ends too early (No data left in file)" in capsys.readouterr().err
    finally:
        app.registered_commands[:] = [command for command in app.registered_commands if command.name != "ends-early"]
        _parser.cache_clear()
