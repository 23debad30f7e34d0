from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.config import to_yaml
from coref_automl.base.errors import EvaluationError, FolderError, RecipeError, RelationDataError
from coref_automl.base.say import LANGUAGES
from coref_automl.cli.app import run
from coref_automl.cli.options import recipe_from
from coref_automl.extras.relation import train as train_module
from coref_automl.extras.relation.data import read_relations
from coref_automl.extras.relation.grid import COLUMNS, GridRecipe, cells_of, run_grid
from coref_automl.extras.relation.page import write_grid_page
from coref_automl.extras.relation.recipe import RelationRecipe

from .conftest import make_raw_rows

RECIPES = Path(__file__).parents[3] / "recipes"


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
    result = run_grid(GridRecipe(**grid), on_cell=write_grid_page)
    assert [bool(cell.error) for cell in result.cells] == [False, False, True, True]
    assert result.best is not None
    with_weights = [path.parents[1].name for path in (tmp_path / "grid").glob("cells/*/seed-0/model")]
    assert with_weights == [result.best.name]
    with (tmp_path / "grid" / "results.csv").open(encoding="utf-8", newline="") as handle:
        lines = list(csv.DictReader(handle))
    assert tuple(lines[0])[: len(COLUMNS)] == COLUMNS
    assert float(lines[0]["val_micro_f1"]) >= float(lines[1]["val_micro_f1"])
    assert lines[2]["error"]
    assert lines[0]["split"] == "made_dev"
    for name in ("results.md", "results.html"):
        assert "3e-03" in (text := (tmp_path / "grid" / name).read_text("utf-8")) or "0.003" in text


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_a_grid_with_a_failed_cell_says_so_in_its_status_and_still_writes_its_tables(
    grid: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    recipe = tmp_path / "grid.yaml"
    recipe.write_text(to_yaml(GridRecipe(**{**grid, "learning_rates": (1e-3,)})), "utf-8")
    assert run(["re", "grid", "--recipe", str(recipe), *how]) == 1
    printed = capsys.readouterr()
    assert "absent" in printed.out
    assert how or str(tmp_path / "grid" / "results.html") in printed.out
    for name in ("results.csv", "results.md", "results.html"):
        assert (tmp_path / "grid" / name).is_file()


def test_skipping_bad_rows_is_a_setting_of_the_grid(grid: dict[str, Any], tmp_path: Path) -> None:
    raw = make_raw_rows(90)
    raw[3]["label"] = "per:nothing"
    (tmp_path / "bad.json").write_text(json.dumps(raw), "utf-8")
    grid |= {"train": str(tmp_path / "bad.json"), "models": grid["models"][:1], "learning_rates": (1e-3,)}
    with pytest.raises(RelationDataError, match=r"settings: \{skip_bad: true\} in a recipe of re grid"):
        run_grid(GridRecipe(**grid))
    result = run_grid(GridRecipe(**{**grid, "settings": {**grid["settings"], "skip_bad": True}}))
    assert result.cells[0].result


def test_rows_that_do_not_fit_are_told_with_what_a_grid_can_do(
    grid: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = make_raw_rows(90)
    word = "조지 해리슨 " * 6 + "조지"
    raw[3]["sentence"] = f"{word}은 서울에 있다."
    raw[3]["subject_entity"] = {"word": word, "start_idx": 0, "end_idx": len(word) - 1, "type": "PER"}
    raw[3]["object_entity"] = {"word": "서울", "start_idx": len(word) + 2, "end_idx": len(word) + 3, "type": "LOC"}
    (tmp_path / "long.json").write_text(json.dumps(raw), "utf-8")
    grid |= {"train": str(tmp_path / "long.json"), "models": grid["models"][:1], "settings": {"max_length": 16}}
    recipe = tmp_path / "grid.yaml"
    recipe.write_text(to_yaml(GridRecipe(**grid)), "utf-8")
    assert run(["re", "grid", "--recipe", str(recipe)]) == 1
    message = capsys.readouterr().err
    assert "are left; raise max_length" in message
    assert "settings: {max_length: 512} in a recipe of re grid" in message
    assert run(["re", "grid", "--help"]) == 0
    assert "--max-length" not in capsys.readouterr().out


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
    with pytest.raises(RecipeError, match="'epochs' is set by the grid"):
        cells_of(GridRecipe(**{**grid, "settings": {"epochs": 3}}))
    with pytest.raises(RecipeError, match="Did you mean 'patience'"):
        cells_of(GridRecipe(**{**grid, "settings": {"patiense": 3}}))
    with pytest.raises(RecipeError, match="empty"):
        GridRecipe(**{**grid, "models": ()})


def test_cells_that_would_share_a_folder_get_names_of_their_own(grid: dict[str, Any]) -> None:
    models = ("모델/가", "모델/나", "a/b", "a_b", "A/b", "klue/bert-base")
    recipe = GridRecipe(**{**grid, "models": models, "learning_rates": (1e-3,)})
    cells = cells_of(recipe)
    assert [cell.model for cell in cells.values()] == list(models)
    assert len({cell.out.casefold() for cell in cells.values()}) == len(models)
    plain = [name for name in cells if name.endswith("-typed-e1-b16-lr0.001")]
    assert plain == [f"{start}-typed-e1-b16-lr0.001" for start in ("모델_가", "모델_나", "klue_bert-base")]
    assert list(cells_of(recipe)) == list(cells)
    close = cells_of(GridRecipe(**{**grid, "models": ("a",), "learning_rates": (1e-5, 1.00000001e-5, 1e-5)}))
    assert [cell.learning_rate for cell in close.values()] == [1e-5, 1.00000001e-5]


@pytest.fixture
def other_rows(tmp_path: Path) -> str:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(make_raw_rows(80, start=300), ensure_ascii=False), "utf-8")
    return str(path)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_folder_refuses_other_rows_or_settings_before_anything_is_written(
    grid: dict[str, Any], other_rows: str, tmp_path: Path, relation_file: Path
) -> None:
    grid = {**grid, "models": grid["models"][:1]}
    folder = tmp_path / "grid"
    run_grid(GridRecipe(**grid))
    files = _files(folder)
    for change, message in (
        ({"train": other_rows}, "was begun with other bytes of the training rows"),
        (
            {"settings": {**grid["settings"], "max_length": 48}},
            "was begun with max_length 64, and this command has",
        ),
        ({"dev": other_rows}, "begun with other bytes of the dev "),
        ({"dev": None}, "begun with other bytes of the dev "),
    ):
        with pytest.raises(FolderError, match=message) as error:
            run_grid(GridRecipe(**{**grid, **change}))
        assert "\n" not in str(error.value)
        assert _files(folder) == files
    moved = tmp_path / "elsewhere" / "renamed.json"
    moved.parent.mkdir()
    moved.write_bytes(relation_file.read_bytes())
    assert all(cell.result for cell in run_grid(GridRecipe(**{**grid, "train": str(moved)})).cells)


def test_a_grid_that_redraws_its_rows_is_bound_to_all_of_them(grid: dict[str, Any], relation_file: Path, tmp_path: Path) -> None:
    settings = {**grid["settings"], "redraw": True, "max_rows": 60}
    grid = {**grid, "models": grid["models"][:1], "learning_rates": (1e-3,), "settings": settings}
    run_grid(GridRecipe(**grid))
    files = _files(tmp_path / "grid")
    raw, fixed_rows = json.loads(relation_file.read_text("utf-8")), read_relations(str(relation_file), max_rows=60).rows
    next(row for row in raw if row["guid"] not in {row.guid for row in fixed_rows})["label"] = "per:title"
    (tmp_path / "changed.json").write_text(json.dumps(raw), "utf-8")
    with pytest.raises(FolderError, match="was begun with other bytes of the training rows"):
        run_grid(GridRecipe(**{**grid, "train": str(tmp_path / "changed.json")}))
    assert _files(tmp_path / "grid") == files


def test_a_folder_in_which_no_cell_began_takes_other_rows(grid: dict[str, Any], other_rows: str, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError):
        run_grid(GridRecipe(**{**grid, "models": (str(tmp_path / "absent"),)}))
    again = {**grid, "models": grid["models"][:1], "learning_rates": (1e-3,), "train": other_rows}
    assert run_grid(GridRecipe(**again)).cells[0].result


def test_both_pages_name_the_chosen_cell(grid: dict[str, Any], tmp_path: Path) -> None:
    for lang in ("ko", "en"):
        on_cell = partial(write_grid_page, lang=LANGUAGES[lang])
        result = run_grid(GridRecipe(**{**grid, "models": grid["models"][:1]}), on_cell=on_cell)
        assert result.best is not None
        for name in ("results.md", "results.html"):
            assert result.best.name in (tmp_path / "grid" / name).read_text("utf-8").replace("\\", "")
        said = next(line for line in (tmp_path / "grid" / "results.md").read_text("utf-8").splitlines() if line.startswith(">"))
        assert result.best.name in said.replace("\\", "")


def test_the_shipped_recipes_are_readable() -> None:
    cells = cells_of(recipe_from(GridRecipe, {}, "test", RECIPES / "klue-re-grid.yaml"))
    assert len(cells) == 5 * 3 * 2 * 2
    assert recipe_from(RelationRecipe, {}, "test", RECIPES / "klue-re.yaml").seeds == 3


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
    assert run(text) == 0  # this run's scheme reads no types
    assert "[이순신](subject)은 [서울](object LOC)에" in capsys.readouterr().out
    assert run(["re", "predict", out, "--data", str(dev_file), "--out", str(tmp_path / "sub")]) == 0
    assert (tmp_path / "sub" / "submission.csv").is_file()
    assert run(["re", "predict", out]) == 2
    assert run(["re", "train", "--train", str(relation_file), "--out", out]) == 2
    assert "Missing: --model" in capsys.readouterr().err


def test_help_of_every_command_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explore", "train", "evaluate", "predict", "grid"):
        assert run(["re", command, "--help"]) == 0
        assert "Example: coref-automl re " in " ".join(capsys.readouterr().out.split())
