"""The public functions, called in the wrong way: a string or a path will do everywhere, and the rest is an error of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coref_automl as ca
from coref_automl.base.errors import CorefError, ModelError, RecipeError
from tests.evaluation.tiny import freeze_tiny, save_checkpoint

NUMBER: Any = 5
NOTHING: Any = None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("misuse")
    freeze_tiny(folder / "set")
    for step in (1, 2):
        save_checkpoint(folder / f"run/checkpoint-{step}", seed=step)
    return folder


@pytest.mark.parametrize(
    "kind", [str, Path, lambda path: [str(path)], lambda path: (path,)], ids=["text", "path", "list", "tuple"]
)
def test_one_path_is_one_path_however_it_is_given(place: Path, tmp_path: Path, kind: Any) -> None:
    recipe = ca.EvaluateRecipe(eval_sets=kind(place / "set"), out=str(tmp_path / "out"), device="cpu")
    assert recipe.eval_sets == (place / "set",)
    done = ca.evaluate(kind(place / "run"), recipe)
    assert [item.checkpoint for item in done] == ["run/checkpoint-1", "run/checkpoint-2"]
    ca.compare(kind(tmp_path / "out"))
    ca.recommend(kind(tmp_path / "out"))
    ca.report(kind(tmp_path / "out"), out=str(tmp_path / "report"))
    assert (tmp_path / "report/report.html").is_file()


def test_recipes_take_paths_for_text_and_one_source_for_a_list(tmp_path: Path) -> None:
    result = ca.PrepareRecipe(mode="mlm", sources=f"local:{tmp_path}", model=tmp_path, eval_sets=tmp_path)  # type: ignore[arg-type]
    assert (result.sources, result.model, result.eval_sets) == ((f"local:{tmp_path}",), str(tmp_path), (str(tmp_path),))
    run = ca.TrainRecipe(tmp_path, tmp_path, tmp_path, seed=np.int64(3), report_to="wandb")  # type: ignore[arg-type]
    assert (run.model, run.seed, type(run.seed), run.report_to) == (str(tmp_path), 3, int, ("wandb",))
    assert ca.EvalRecipe(models="bundled:ko-mini", sources=["bundled:passages"]).sources == ("bundled:passages",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ca.evaluate(NUMBER), "paths should be a path or a list of paths, not 5"),
        (lambda: ca.evaluate([b"runs"]), "paths should be a path or a list of paths, not b'runs'"),
        (lambda: ca.evaluate("runs", "recipe.yaml"), "evaluate needs an EvaluateRecipe, not 'recipe.yaml'"),
        (lambda: ca.train("recipe.yaml"), "train needs a TrainRecipe, not 'recipe.yaml'"),
        (lambda: ca.train_relation({"model": "m"}), "train_relation needs a RelationRecipe"),
        (lambda: ca.train_coreference("x"), "train_coreference needs a CoreferenceRecipe, not 'x'"),
        (lambda: ca.fill(NOTHING), "A sentence is text, not None"),
        (lambda: ca.prepare("local:texts", "out"), "prepare needs a PrepareRecipe"),
        (lambda: ca.prepare_eval(NOTHING, "out"), "prepare_eval needs an EvalRecipe, not None"),
        (lambda: ca.prepare(ca.PrepareRecipe(mode="mlm", sources=("a",), model="m"), NUMBER), "out should be a path, not 5"),
        (lambda: ca.compare(NUMBER), "paths should be a path"),
        (lambda: ca.compare("runs", metric=NUMBER), "compare: metric should be text, not 5"),
        (lambda: ca.compare("runs", metrics="word"), "compare: unknown option 'metrics'. Did you mean 'metric'?"),
        (lambda: ca.recommend("runs", margin="much"), "recommend: margin should be a number, not 'much'"),
        (lambda: ca.report("runs", out=NUMBER), "report: out"),
        (lambda: ca.TrainRecipe("m", "d", "o", epochs="many"), "TrainRecipe: epochs should be a number, not 'many'"),
        (lambda: ca.TrainRecipe("m", "d", "o", seed=1.5), "TrainRecipe: seed should be a whole number, not 1.5"),
        (lambda: ca.TrainRecipe("m", "d", "o", objective="mml"), "cannot be 'mml'. Did you mean 'mlm'?"),
        (lambda: ca.TrainRecipe(NOTHING, "d", "o"), "TrainRecipe: model should be text, not None"),
        (lambda: ca.EvaluateRecipe(eval_sets=NUMBER), "EvaluateRecipe: eval_sets should be a list, not 5"),
        (lambda: ca.EvalRecipe(models=(NUMBER,)), "EvalRecipe: models: [0] should be text, not 5"),
        (lambda: ca.RelationRecipe("m", "t", "o", keep_weights="no"), "keep_weights should be true or false, not 'no'"),
    ],
)
def test_a_wrong_type_is_an_error_of_ours(call: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError) as caught:
        call()
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_not_there_is_named_whole(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=str(tmp_path / "none")):
        ca.evaluate(str(tmp_path / "none"), ca.EvaluateRecipe(device="cpu"))
    with pytest.raises(CorefError):
        ca.compare(tmp_path / "none")
