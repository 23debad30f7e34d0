"""The train command, and the guide's fine-tuning script."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from coref_automl.base.config import to_yaml
from coref_automl.cli.app import run as command_line
from coref_automl.training.recipe import TrainRecipe

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_entity_coref_finetune_v2.py"


@pytest.fixture
def recipe_file(recipe: Callable[..., TrainRecipe], tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(recipe(epochs=1)), "utf-8")
    return path


def test_options_override_the_recipe(recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = command_line(
        ["train", "--recipe", str(recipe_file), "--dry-run", "--json", "--weight-decay", "0", "--objective", "entity"]
    )
    shown = json.loads(capsys.readouterr().out)
    assert status == 0
    assert shown["recipe"]["weight_decay"] == 0.0
    assert shown["recipe"]["objective"] == "entity"
    assert shown["recipe"]["batch"] == 4
    assert shown["plan"]["checkpoints"] == [1, 3]
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_what_would_be_done(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["train", "--recipe", str(recipe_file), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "3 steps per epoch, until 3 steps" in out
    assert "checkpoints after steps 1, 3" in out


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_refuses_the_folder_that_the_run_would_refuse_in_the_same_words(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine", "utf-8")
    (tmp_path / "file").write_text("mine", "utf-8")
    assert command_line(["train", "--recipe", str(recipe_file)]) == 0
    before = files(tmp_path)
    for options, said in (
        (["--out", str(tmp_path / "other")], "holds something that is not ours"),
        (["--out", str(tmp_path / "file")], "is a file"),
        (["--out", str(tmp_path / "file" / "sub" / "run")], "Cannot write"),
        (["--seed", "1"], "was begun with seed 0, and this command has seed 1"),
    ):
        messages = []
        for how in (["--dry-run"], ["--dry-run", "--json"], []):
            capsys.readouterr()
            assert command_line(["train", "--recipe", str(recipe_file), *options, *how]) == (1 if said == "Cannot write" else 2)
            shown = capsys.readouterr()
            assert shown.out == ""
            messages.append(shown.err)
        assert said in messages[0]
        assert len(set(messages)) == 1
    assert files(tmp_path) == before


def test_a_dry_run_says_what_stands_in_the_folder_and_writes_nothing(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, look = tmp_path / "run", ["train", "--recipe", str(recipe_file), "--dry-run"]
    assert command_line(look) == 0
    assert "Resuming" not in capsys.readouterr().out
    assert command_line(look[:-1]) == 0
    for stop, said, finished, resume in (
        (False, f"{run} is finished; nothing to do.", True, None),
        (True, "Resuming from checkpoint-3.", False, str(run / "checkpoint-3")),
    ):
        if stop:
            (run / "DONE").unlink()
        before = files(tmp_path)
        capsys.readouterr()
        assert command_line(look) == 0
        shown = capsys.readouterr().out.splitlines()
        assert said in shown
        assert any("until 3 steps" in line for line in shown) != finished
        assert command_line([*look, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["finished"], result["resume"]) == (finished, resume)
        assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "m", "--dataset", "d", "--out", "o", "--objective", "entitty"], "Did you mean 'entity'?"),
        (["--model", "m"], "Missing: --dataset, --out."),
        (["--model", "m", "--dataset", "nowhere", "--out", "o"], "does not exist"),
    ],
)
def test_wrong_options_are_one_sentence_and_status_2(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["train", *options]) == 2
    assert said in capsys.readouterr().err


def test_the_result_is_the_only_output_as_json(recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["train", "--recipe", str(recipe_file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["steps"] == 3
    assert shown["checkpoints"][-1].endswith("checkpoint-3")


def test_the_guides_command_is_entity_training(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = runpy.run_path(str(SCRIPT))["arguments"]
    given = ["--checkpoint", "runs/a/checkpoint-655", "--dataset", "d", "--epochs", "5", "--output-dir", "runs/b"]
    assert arguments(given) == ["train", "--objective", "entity", "--model", *given[1:]]
