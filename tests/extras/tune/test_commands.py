"""coref-automl tune from the command line: what is wrong is said in one sentence, with status 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from coref_automl.base.config import read_yaml, to_yaml
from coref_automl.cli.app import run
from coref_automl.extras.tune import run as engine
from coref_automl.extras.tune.recipe import TuneRecipe, TuneTexts
from coref_automl.extras.tune.run import StudyResult, read_tune_recipe
from coref_automl.extras.tune.space import read_space, refuse_idle
from coref_automl.tune import main

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture
def written(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> Callable[..., list[str]]:
    def write(**changes: Any) -> list[str]:
        path = tmp_path / "recipe.yaml"
        decided = changes.pop("settings", {})
        values = yaml.safe_load(to_yaml(recipe(**changes)))
        values["settings"] |= decided
        path.write_text(yaml.safe_dump(values), "utf-8")
        return ["tune", "--recipe", str(path)]

    return write


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"space": {"learning_rat": [1e-4]}}, [], "unknown name 'learning_rat'. Did you mean 'learning_rate'?"),
        ({"space": {"learning_rate": {"low": 1.0, "high": 0.1}}}, [], "is empty; low must be under high"),
        (
            {"space": {"learning_rate": {"low": 0.1, "high": float("inf")}}},
            [],
            "should be a finite number below 1.8e308, not inf",
        ),
        (
            {"space": {"learning_rate": {"low": 0.1, "high": 10**400}}},
            [],
            "should be a finite number below 1.8e308, not 1000",
        ),
        ({"space": {"batch": [float("inf")]}}, [], "batch should be a whole number, not inf"),
        ({"space": {"learning_rate": {"choices": 3}}}, [], "learning_rate: choices should be a list, not 3"),
        (
            {"space": {"ratio": {"low": 0.1, "high": 0.2, "when": ["objective"]}}},
            [],
            "ratio: when should hold `key: value`",
        ),
        (
            {"space": {"ratio": {"low": 0.1, "high": 0.2, "when": {"objective": [[]]}}}},
            [],
            "when.objective should be text, not [[]]",
        ),
        ({"space": {"policy": ["clamp", "rescale"]}}, [], "space: policy changes nothing in modernbert"),
        ({}, ["--seed", "-1"], "seed should be 0 or more"),
        ({}, ["--storage", "nonsense"], "The storage nonsense cannot be used"),
        ({}, ["--metric", "real11"], "Unknown metric 'real11'. Did you mean 'real1'?"),
        ({}, ["--metric", "lambada_top1"], "has no lambada items"),
        ({}, ["--dataset", "nowhere"], "The dataset nowhere does not exist"),
        (
            {"space": {"learning_rate": {"low": 0.5, "high": 2.0}}},
            [],
            "learning_rate should be from 0 to 1, not 2.",
        ),
        ({"settings": {"metric": "lambada1"}}, [], "settings: metric is set by the study; give it as metric: beside"),
        ({"settings": {"checkpoints": 3}}, [], "settings: checkpoints is set by the study; leave it out."),
        ({}, ["--trials", "0"], "trials should be 1 or more, not 0"),
        ({}, ["--score", "real1=.5,lambada_top1=.6"], "should be above 0 and sum to 1"),
        ({}, ["--score", "real1"], "should read NAME=NUMBER"),
        ({}, ["--score", "real1=1", "--metric", "real1"], "both say what to maximise"),
        ({}, ["--guard", "real_far1"], "should read METRIC>=POINTS"),
        ({}, ["--guard", "relation_f1>=x"], "has no number behind"),
        ({"checks": {"relation": {}}}, [], "no guard asks for relation"),
        ({"checks": {"relations": {}}, "guards": ["relation_f1>=-1"]}, [], "Did you mean 'relation'?"),
        ({}, ["--guard", "coreference_conll>=-1"], "checks: coreference"),
        ({}, ["--guard", "real_far1>=-0.5"], "has no real-far items"),
        ({}, ["--portfolio-only", "--no-portfolio"], "leave nothing to try"),
        ({"space": {"learning_rate": [1e-3]}}, [], "every dimension has one value"),
        ({}, ["--epochs", "0.2"], "and the smallest rung is a quarter of it; add texts"),
        ({}, ["--eval-set", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    written: Callable[..., list[str]],
    changes: dict[str, object],
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert run([*written(**changes), *options]) == 2
    assert not (tmp_path / "study").exists()
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("coref-automl:")]
    assert len(errors) == 1
    assert message in errors[0]


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"min_prob": 0.4, "max_prob": 0.3}}, "min_prob 0.4 is above max_prob 0.3"),
        ({"models": ("new:tiny", "bundled:ko-mini")}, "tune them in two studies"),
        ({"checks": {"relation": {"train": "nowhere.json"}}, "guards": ("relation_f1>=-1",)}, "nowhere.json"),
        ({"metric": "lambada_top1"}, "has no lambada items"),
        ({"space": {"learning_rate": {"low": 0.5, "high": 2.0}}}, "learning_rate should be from 0 to 1"),
    ],
)
def test_what_can_be_refused_at_once_is_refused_before_texts_are_prepared(
    written: Callable[..., list[str]],
    changes: dict[str, Any],
    message: str,
    how: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The texts are not there: whoever begins with them says so."""
    texts = TuneTexts((f"local:{tmp_path / 'gone.jsonl'}",))
    assert run([*written(**{"datasets": (), "texts": texts, "space": None, **changes}), *how]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("coref-automl:")]
    assert message in errors[0]
    assert not (tmp_path / "study").exists()


def test_a_study_needs_a_model_and_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "--out", "x"]) == 2
    assert "pass --model bundled:ko-mini" in capsys.readouterr().err
    assert run(["tune", "--model", "bundled:ko-mini"]) == 2
    assert "pass --out studies/first" in capsys.readouterr().err


def test_a_dry_run_shows_the_whole_recipe_with_its_space_and_writes_nothing(
    written: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*written(), "--dry-run", "--trials", "7"]) == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out, "utf-8")
    assert read_tune_recipe(shown, {}).trials == 7
    assert set(read_yaml(shown)["space"]) == {"learning_rate", "objective", "batch"}
    assert not (tmp_path / "study").exists()


def test_the_guides_command_fills_in_nothing_that_a_recipe_names(
    written: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, *recipe = written(trials=5)
    assert main([*recipe, "--dry-run", "--json", "--finalists", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["models"], shown["trials"], shown["finalists"], shown["texts"]) == (["new:tiny"], 5, 2, None)
    assert set(shown["space"]) == {"learning_rate", "objective", "batch"}
    assert main([*recipe, "--train-limit", "10"]) == 2  # of which texts?
    assert main([*recipe, "--dataset", "a", "--source", "local:b"]) == 2


def test_the_guides_command_takes_relation_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--task", "re", "--train", "bundled:relations", "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["task"], shown["train"], shown["models"]) == ("re", "bundled:relations", ["bundled:ko-mini"])


def test_a_dry_run_refuses_the_folder_that_the_study_would_refuse_in_the_same_words(
    written: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine", "utf-8")
    for out, status, said in (("other", 2, "holds something that is not ours"), ("other/notes.txt/study", 1, "Cannot write")):
        told = []
        for how in (["--dry-run"], []):
            assert run([*written(), "--out", str(tmp_path / out), *how]) == status
            told.append([line for line in capsys.readouterr().err.splitlines() if line.startswith("coref-automl:")])
        assert said in told[0][0]
        assert told[0] == told[1]


def test_options_override_the_recipe_and_json_is_the_result_alone(
    written: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes: list[TuneRecipe] = []

    def recorded(recipe: TuneRecipe, **_: object) -> StudyResult:
        recipes.append(recipe)
        return StudyResult("study", "real1", {"complete": 3}, ("It is noise.",))

    monkeypatch.setattr(engine, "run_study", recorded)
    assert run([*written(), "--model", "a", "--model", "b", "--seeds", "5", "--no-prune", "--json"]) == 0
    assert (recipes[0].models, recipes[0].seeds, recipes[0].prune) == (("a", "b"), 5, False)
    assert json.loads(capsys.readouterr().out)["told"] == ["It is noise."]


def test_the_module_calls_the_same_engine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from coref_automl import tune

    recipes: list[TuneRecipe] = []

    def recorded(recipe: TuneRecipe, **_: object) -> StudyResult:
        recipes.append(recipe)
        return StudyResult("study", "real1", {"complete": 3}, ("It is noise.",))

    monkeypatch.setattr(engine, "run_study", recorded)
    assert tune.main(["--model", "bundled:ko-mini", "--trials", "5", "--train-limit", "50", "--out", "o", "--workers", "2"]) == 0
    recipe = recipes[0]
    assert (recipe.models, recipe.trials, recipe.workers, recipe.out) == (("bundled:ko-mini",), 5, 2, "o")
    assert recipe.texts is not None
    assert (recipe.texts.limit, recipe.texts.seq_lens) == (50, (512,))
    assert "It is noise." in capsys.readouterr().out


@pytest.mark.parametrize("name", ["tune-smoke.yaml", "tune.yaml", "tune-entity-2048.yaml"])
def test_the_recipes_of_the_repository_read_and_hold_the_recommended_rate_in_their_space(name: str) -> None:
    recipe = read_tune_recipe(RECIPES / name, {"out": "study"})
    assert recipe.space is not None
    space = read_space(recipe.space, recipe.task)
    refuse_idle(space, {}, recipe)
    assert space.point({"learning_rate": 5e-5}, {})["learning_rate"] == 5e-5
