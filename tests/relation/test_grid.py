from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from coref_automl.config import read_recipe
from coref_automl.errors import EvaluationError, RecipeError
from coref_automl.relation import train as train_module
from coref_automl.relation.grid import COLUMNS, GridRecipe, cells_of, run_grid
from coref_automl.relation.recipe import RelationRecipe

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def grid(encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "models": (str(encoder_folder), str(tmp_path / "absent")),
        "train": str(relation_file),
        "dev": str(dev_file),
        "out": str(tmp_path / "grid"),
        "learning_rates": (1e-3, 3e-3),
        "batch_sizes": (16,),
        "epochs": (1,),
        "schemes": ("typed",),
        "settings": {"seeds": 1, "holdout": 0.2, "max_length": 64, "device": "cpu"},
    }


def test_one_cells_error_stops_no_other_and_the_best_alone_keeps_weights(grid: dict[str, Any], tmp_path: Path) -> None:
    result = run_grid(GridRecipe(**grid))
    assert [bool(cell.error) for cell in result.cells] == [False, False, True, True]
    assert result.best is not None
    kept = [path.parents[1].name for path in (tmp_path / "grid").glob("cells/*/seed-0/model")]
    assert kept == [result.best.name]
    with (tmp_path / "grid" / "results.csv").open(encoding="utf-8", newline="") as handle:
        lines = list(csv.DictReader(handle))
    assert tuple(lines[0])[: len(COLUMNS)] == COLUMNS
    assert float(lines[0]["val_micro_f1"]) >= float(lines[1]["val_micro_f1"])
    assert lines[2]["error"]
    assert lines[0]["split"] == "made_dev"
    for name in ("results.md", "results.html"):
        assert "3e-03" in (text := (tmp_path / "grid" / name).read_text("utf-8")) or "0.003" in text


def test_a_second_call_trains_only_what_failed(grid: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run_grid(GridRecipe(**grid))
    trained: list[str] = []
    true_train = train_module._train_seed

    def counted(work: Any, *rest: Any) -> None:
        trained.append(work.recipe.model)
        true_train(work, *rest)

    monkeypatch.setattr(train_module, "_train_seed", counted)
    again = run_grid(GridRecipe(**{**grid, "models": grid["models"][:1], "batch_sizes": (16, 8)}))
    assert len(again.cells) == 4
    assert len(trained) == 2


def test_a_grid_where_everything_fails_is_a_failure(grid: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="Every cell failed"):
        run_grid(GridRecipe(**{**grid, "models": (str(tmp_path / "absent"),)}))


def test_a_side_of_the_grid_cannot_also_be_a_setting(grid: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="'epochs' is a side of the grid"):
        cells_of(GridRecipe(**{**grid, "settings": {"epochs": 3}}))
    with pytest.raises(RecipeError, match="Did you mean 'patience'"):
        cells_of(GridRecipe(**{**grid, "settings": {"patiense": 3}}))
    with pytest.raises(RecipeError, match="empty"):
        GridRecipe(**{**grid, "models": ()})


def test_the_shipped_recipes_are_readable() -> None:
    cells = cells_of(read_recipe(RECIPES / "klue-re-grid.yaml", GridRecipe))
    assert len(cells) == 5 * 3 * 2 * 2
    assert read_recipe(RECIPES / "klue-re.yaml", RelationRecipe).seeds == 3


def test_the_commands_train_evaluate_and_predict(
    encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    options = ["--seeds", "1", "--epochs", "1", "--holdout", "0.2", "--lr", "1e-3", "--scheme", "punct", "--device", "cpu"]
    train = [
        "re",
        "train",
        "--model",
        str(encoder_folder),
        "--train",
        str(relation_file),
        "--output-dir",
        out,
        *options,
        "--json",
    ]
    assert run(train) == 0
    assert json.loads(capsys.readouterr().out)["split"] == "train-holdout"
    assert run(["re", "evaluate", out, "--data", str(dev_file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["split"] == "made_dev"
    assert {"micro_f1", "auprc", "accuracy", "n"} <= set(printed)
    assert run(["re", "evaluate", out, "--data", str(dev_file), "--labels"]) == 0
    assert "per:place_of_birth" in capsys.readouterr().out
    text = [
        "re",
        "predict",
        out,
        "--text",
        "이순신은 서울에 있다.",
        "--subject",
        "이순신",
        "--object",
        "서울",
        "--object-type",
        "LOC",
    ]
    assert run(text) == 0
    assert "[이순신](subject PER)" in capsys.readouterr().out
    assert run(["re", "predict", out, "--data", str(dev_file), "--out", str(tmp_path / "sub")]) == 0
    assert (tmp_path / "sub" / "submission.csv").is_file()
    assert run(["re", "predict", out]) == 2
    assert run(["re", "train", "--train", str(relation_file), "--out", out]) == 2
    assert "'model' is missing" in capsys.readouterr().err


def test_help_of_every_command_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explore", "train", "evaluate", "predict", "grid"):
        assert run(["re", command, "--help"]) == 0
        assert "Example: coref-automl re " in " ".join(capsys.readouterr().out.split())
