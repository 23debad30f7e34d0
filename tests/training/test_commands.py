"""The train and watch commands, and the guide's fine-tuning script."""

from __future__ import annotations

import json
import os
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.config import to_yaml
from coref_automl.base.errors import InputError
from coref_automl.base.folders import HOLDER
from coref_automl.base.locks import locked
from coref_automl.cli.app import run as command_line
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.watch import spark, status_of

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


def test_the_result_is_the_only_output_as_json_and_watch_reads_the_run(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["train", "--recipe", str(recipe_file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["steps"] == 3
    assert shown["checkpoints"][-1].endswith("checkpoint-3")
    assert command_line(["watch", str(tmp_path / "run"), "--json"]) == 0
    seen: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (seen["state"], seen["step"], seen["epoch"]) == ("finished", 3, 1.0)
    assert len(seen["losses"]) == 3
    assert command_line(["watch", str(tmp_path / "run"), "--once"]) == 0
    assert "finished, step 3" in capsys.readouterr().out


def test_watching_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run"):
        status_of(tmp_path)


def test_a_run_that_was_stopped_is_seen_as_stopped(tmp_path: Path) -> None:
    rows = [
        {"time": 1.0, "event": "start", "stage": "train"},
        {"time": 2.0, "event": "evaluation", "checkpoint": "checkpoint-65", "metric": "real1", "text": "31%"},
        {"time": 3.0, "event": "stopped", "stage": "train"},
    ]
    (tmp_path / "events.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"time": 4', "utf-8")
    status = status_of(tmp_path)
    assert status.state == "stopped"
    assert "checkpoint-65" in status.lines()[-1]


def test_an_evaluation_is_told_once_and_a_line_cut_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    rows = [
        '{"time": 1.0, "event": "sta{"time": 2.0, "event": "start", "stage": "train"}',
        '{"time": 3.0, "event": "evaluation", "checkpoint": "checkpoint-65", "metric": "real1", "text": "31%"}',
        '{"time": 4.0, "event": "note", "text": "checkpoint-65: real1 31%"}',
    ]
    (tmp_path / "events.ndjson").write_text("\n".join(rows) + "\n", "utf-8")
    assert [line for line in status_of(tmp_path).lines() if "31%" in line] == ["last evaluation: checkpoint-65 real1 31%"]


def test_sparks_follow_the_values() -> None:
    assert spark((3.0, 2.0, 1.0)) == "█▅▁"
    assert spark(()) == ""
    assert len(spark(tuple(map(float, range(500))))) == 40


def test_the_guides_command_is_entity_training(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = runpy.run_path(str(SCRIPT))["arguments"]
    given = ["--checkpoint", "runs/a/checkpoint-655", "--dataset", "d", "--epochs", "5", "--output-dir", "runs/b"]
    assert arguments(given) == ["train", "--objective", "entity", "--model", *given[1:]]


def test_a_slow_step_is_not_silence_and_a_run_without_a_process_has_stopped(tmp_path: Path) -> None:
    long_ago = time.time() - 600
    row = {"event": "step", "time": long_ago, "stage": "train", "step": 1, "loss": 2.0}
    (tmp_path / "events.ndjson").write_text(json.dumps(row) + "\n", "utf-8")
    assert status_of(tmp_path).state == "stopped"  # nobody works on it
    with locked(tmp_path):
        status = status_of(tmp_path)
        assert (status.state, status.quiet > 500) == ("training", True)
        os.utime(tmp_path / HOLDER, (long_ago, long_ago))
        assert status_of(tmp_path).state == "silent"
