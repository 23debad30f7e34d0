"""What a run was compared with does not depend on the folder one stands in, nor on what lies there by its name."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.next_step import train_command
from coref_automl.comparison.reader import open_results
from coref_automl.evaluation import results
from coref_automl.evaluation.answers import save_table, table_path
from coref_automl.evaluation.evalset import bundled_eval_set
from coref_automl.evaluation.results import find_evaluations
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from coref_automl.evaluation.targets import BASES
from coref_automl.report.printout import compare
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.run import train
from tests.extras.test_matrix import CHANGES


@pytest.fixture(scope="module")
def trained(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a run was trained from `model` and evaluated with its base, by relative paths. Copied, never changed."""
    root: Path = tmp_path_factory.mktemp("trained") / "A"
    shutil.copytree(home, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        train(TrainRecipe("model", "dataset", "runs/x", epochs=1, batch=8, checkpoints=2, device="cpu"))
        score("runs/x", Path("evalset"))
    return root


def score(path: Path | str, evalset: Path, **options: Any) -> None:
    evaluate([path], EvaluateRecipe(eval_sets=(evalset,), device="cpu", dtype="float32", **options))


def verdict(path: Path) -> list[Any]:
    table = compare(path)
    return [table.reference, *((row.name, row.comparison) for row in table.rows)]


def test_the_base_is_found_from_any_folder_and_after_a_move(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "A")
    monkeypatch.chdir(tmp_path / "A")
    first = verdict(Path("runs/x"))
    assert first[0] == "model"
    (tmp_path / "B").mkdir()
    shutil.copytree(trained / "model", tmp_path / "B/model")
    CHANGES["weights"](tmp_path / "B")  # another model of that name
    monkeypatch.chdir(tmp_path / "B")
    assert verdict(tmp_path / "A/runs/x") == first
    score(tmp_path / "A/runs/x", tmp_path / "A/evalset")
    assert verdict(tmp_path / "A/runs/x") == first
    shutil.move(tmp_path / "A/runs", tmp_path / "moved")
    shutil.rmtree(tmp_path / "A/model")
    assert verdict(tmp_path / "moved/x") == first
    assert command(["compare", str(tmp_path / "moved")]) == 0
    assert not (tmp_path / "B/evaluations").exists()


@pytest.mark.parametrize("apart", [False, True], ids=["in the run", "in a folder of evaluations"])
def test_the_command_that_trains_again_runs_from_any_folder_after_a_move(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], apart: bool
) -> None:
    study, moved = tmp_path / "study", tmp_path / "옮긴 폴더" / "연구 1"
    shutil.copytree(trained, study)
    monkeypatch.chdir(tmp_path)
    if apart:
        shutil.rmtree("study/runs/x/evaluations")
        score("study/runs/x", Path("study/evalset"), out=Path("study/evaluations"))
    moved.parent.mkdir()
    study.rename(moved)
    (tmp_path / "elsewhere").mkdir()
    for folder, root in ((tmp_path, moved.relative_to(tmp_path)), (tmp_path / "elsewhere", moved)):
        monkeypatch.chdir(folder)
        (group,) = read_groups(open_results([str(root / ("evaluations" if apart else "runs"))]))
        top = next(entry for entry in group.entries if entry.trained)
        assert Path(top.evaluation.path).parent == root / "runs/x"
        assert Path(top.evaluation.evalset_path) in (root / "evalset", trained / "evalset")
        for line in (train_command(top, seed=1), train_command(top, tokens=4_000), train_command(top)):
            assert command([*shlex.split(line)[1:], "--dry-run", "--json"]) == 0, line
            recipe = json.loads(capsys.readouterr().out)["recipe"]
            assert (recipe["model"], recipe["dataset"]) == (str(root / "model"), str(root / "dataset"))


def test_a_command_names_no_other_model_or_dataset_of_the_name(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained / "runs", tmp_path / "A/runs")
    for name in ("model", "dataset"):
        shutil.copytree(trained / name, tmp_path / name)
    CHANGES["weights"](tmp_path)
    manifest = read_json(tmp_path / "dataset/manifest.json")
    write_json(tmp_path / "dataset/manifest.json", {**manifest, "fingerprint": "another"})
    monkeypatch.chdir(tmp_path)
    (group,) = read_groups(open_results(["A/runs"]))
    top = next(entry for entry in group.entries if entry.trained)
    words = shlex.split(train_command(top, seed=1))
    assert "--model" not in words
    assert "--dataset" not in words
    (tmp_path / "A/runs/x/recipe.yaml").unlink()
    words = shlex.split(train_command(top, seed=1))
    assert words[words.index("--model") + 1] == str(trained / "model")
    assert words[words.index("--dataset") + 1] == "dataset"  # as its record has it


def test_a_run_that_is_made_longer_is_not_ended_by_its_minutes_and_an_average_is_made_by_its_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained / "runs", tmp_path / "A/runs")
    monkeypatch.chdir(tmp_path)
    recipe = Path("A/runs/x/recipe.yaml")
    recipe.write_text(recipe.read_text("utf-8").replace("max_minutes: null", "max_minutes: 3"), "utf-8")
    (group,) = read_groups(open_results(["A/runs"]))
    top = next(entry for entry in group.entries if entry.trained)
    assert top.evaluation.provenance
    words = shlex.split(train_command(top, tokens=5 * top.evaluation.provenance.tokens))
    assert words[words.index("--max-minutes") + 1] == "30"
    average = replace(top, evaluation=replace(top.evaluation, path="A/runs/x/average/checkpoint-9"))
    assert train_command(average) == train_command(top)


def test_the_base_is_scored_from_within_the_run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained, tmp_path / "A")
    shutil.rmtree(tmp_path / "A/runs/x" / BASES)
    monkeypatch.chdir(tmp_path / "A/runs/x")
    score(".", Path("../../evalset"))
    assert verdict(Path())[0] == "model"


def test_a_base_named_beside_its_runs_is_found_with_them(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    assert compare("runs/x", "model").rows == compare("runs/x").rows
    assert not Path("evaluations").exists()


def test_a_relative_base_of_an_older_record_is_never_another_model_of_that_name(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "A")
    shutil.rmtree(tmp_path / "A/runs/x" / BASES)
    for path in (tmp_path / "A/runs/x").glob("checkpoint-*/training.json"):
        write_json(path, {**read_json(path), "base": "model"})  # as version 0.2 wrote it
    shutil.copytree(trained / "model", tmp_path / "B/model")
    CHANGES["weights"](tmp_path / "B")
    monkeypatch.chdir(tmp_path / "B")
    call = [
        "evaluate",
        str(tmp_path / "A/runs/x"),
        "--eval-set",
        str(tmp_path / "A/evalset"),
        "--device",
        "cpu",
    ]
    assert command(call) == 0
    assert "The base model model is left out of the tables: its weights have changed" in capsys.readouterr().err
    assert not find_evaluations([tmp_path / "A/runs/x" / BASES])
    assert all(entry.trained for group in read_groups(open_results([str(tmp_path / "A/runs/x")])) for entry in group.entries)


def test_a_base_that_changed_in_place_is_named_and_its_scores_stay(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "A")
    monkeypatch.chdir(tmp_path / "A")
    for path in Path("runs/x").glob("checkpoint-*/training.json"):
        write_json(path, {**read_json(path), "base": str(tmp_path / "A/model")})
    first = verdict(Path("runs/x"))
    CHANGES["weights"](tmp_path / "A")
    call = ["evaluate", "runs/x", "--eval-set", "evalset", "--device", "cpu"]
    assert command([*call, "model"]) == 0  # what is in its place now is another model
    assert verdict(Path("runs/x")) == first
    capsys.readouterr()
    assert command([*call, "--seq-len", "12"]) == 0  # nothing is known of the base there
    assert "its weights have changed since x began from it" in capsys.readouterr().err
    shutil.copyfile(trained / "model/model.safetensors", "model/model.safetensors")
    CHANGES["config"](tmp_path / "A")
    assert command([*call, "--seq-len", "12"]) == 0
    assert "its config or tokenizer settings have changed since x began from it" in capsys.readouterr().err


def test_a_comparison_says_which_checkpoints_have_changed_since_they_were_scored(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    assert not any("evaluate it again" in note for note in compare(tmp_path / "runs").notes)  # younger files of the same bytes
    first, second = (path for path in sorted((tmp_path / "runs/x").glob("checkpoint-*")) if path.is_dir())
    for checkpoint, change in ((first, "config"), (second, "weights")):
        checkpoint.rename(tmp_path / "model")
        CHANGES[change](tmp_path)
        later = time.time() + 60
        for path in (tmp_path / "model").iterdir():
            os.utime(path, (later, later))
        (tmp_path / "model").rename(checkpoint)
    notes = compare(tmp_path / "runs").notes
    assert f"x/{first.name} has other config or tokenizer settings now than when it was scored; evaluate it again." in notes
    assert f"x/{second.name} has other weights now than when it was scored; evaluate it again." in notes


def test_a_model_beside_its_runs_is_scored_once(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coref_automl.evaluation.scorer import Scorer

    shutil.copytree(trained, tmp_path / "A")
    shutil.rmtree(tmp_path / "A/runs/x" / BASES)
    monkeypatch.chdir(tmp_path / "A")
    for path in Path("runs/x").glob("checkpoint-*/training.json"):
        write_json(path, {**read_json(path), "base": str(tmp_path / "A/model")})
    batches: list[int] = []
    score_items = Scorer.score
    monkeypatch.setattr(
        Scorer,
        "score",
        lambda self, todo, *more, **options: batches.append(len(todo)) or score_items(self, todo, *more, **options),
    )
    score("model", Path("evalset"), seq_len=16)
    score("runs/x", Path("evalset"))
    assert [count for count in batches if count] == [40]
    assert len(find_evaluations([Path("runs/x") / BASES])) == 1


def closed(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """As the system refuses a folder to an ordinary user."""
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(os.fsdecode(path)).resolve() == folder.resolve():
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(path)

    patch.setattr(os, "scandir", refuse)


def test_a_whole_disk_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        (tmp_path / f"{number}").mkdir()
    monkeypatch.setattr(results, "_MOST_FOLDERS", 10)
    assert command(["compare", str(tmp_path)]) == 2
    assert f"{tmp_path} holds over 10 folders; pass the folder of the runs." in capsys.readouterr().err


def test_what_cannot_be_read_is_named_in_comparisons(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    shutil.copytree(trained / "runs/x", tmp_path / "runs/y")
    shutil.copytree(trained / "runs/x", tmp_path / "elsewhere")
    (tmp_path / "runs/z").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs/latest").symlink_to(tmp_path / "runs/x")
    closed(monkeypatch, tmp_path / "runs/y/evaluations")
    notes = compare(tmp_path / "runs").notes
    assert sum(f"{tmp_path / 'runs/y/evaluations'} cannot be read (Permission denied)" in note for note in notes) == 1
    assert sum(f"{tmp_path / 'runs/z'} is a link to outside" in note for note in notes) == 1
    assert not any("latest" in note for note in notes)
    capsys.readouterr()
    assert command(["compare", str(tmp_path / "runs"), "--json"]) == 0
    assert "cannot be read (Permission denied)" in capsys.readouterr().out
    assert command(["compare", str(tmp_path / "runs/y")]) == 2
    assert "cannot be read (Permission denied)" in capsys.readouterr().err


def test_an_evaluation_does_not_fail_for_a_neighbour_that_cannot_be_read(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").mkdir()
    is_file = Path.is_file

    def refuse(path: Path) -> bool:
        if path.parent == tmp_path / "private":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    score(trained / "model", trained / "evalset", out=tmp_path / "evals")
    assert len(find_evaluations([tmp_path / "evals"])) == 1


def test_noun_tables_of_other_tokenizers_do_not_go_into_the_package() -> None:
    before = sorted(bundled_eval_set().iterdir())
    save_table(bundled_eval_set(), "another", np.ones(3, bool))
    assert sorted(bundled_eval_set().iterdir()) == before
    assert table_path(bundled_eval_set(), "another").is_file()
