"""Recipes: every key known, every value of its type, every recipe of the project readable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from coref_automl.base.config import Setting, choose, from_mapping, read_yaml, to_yaml
from coref_automl.base.errors import RecipeError
from coref_automl.cli.options import recipe_from
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.training.recipe import TrainRecipe

RECIPES = Path(__file__).parents[2] / "recipes"


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1


@dataclass(frozen=True)
class Outer:
    name: str
    steps: int = 1
    kind: Literal["a", "b"] = "a"
    inner: Inner | None = None
    words: tuple[str, ...] = ()
    ratio: float | None = None


def test_values_are_read_with_their_types() -> None:
    read = from_mapping(Outer, {"name": "x", "inner": {"rate": "5e-5"}, "words": ["p", "q"], "ratio": 1}, "file")
    assert read == Outer("x", inner=Inner(5e-5), words=("p", "q"), ratio=1.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "x", "stps": 3}, "unknown key 'stps'. Did you mean 'steps'"),
        ({"name": "x", "steps": "three"}, "steps should be a whole number"),
        ({"name": "x", "steps": True}, "steps should be a whole number"),
        ({"name": "x", "kind": "c"}, "kind cannot be 'c'"),
        ({"name": "x", "inner": {"rte": 1}}, "Did you mean 'rate'"),
        ({"name": "x", "words": "pq"}, "words should be a list"),
        ({}, "the key 'name' is missing"),
    ],
)
def test_what_cannot_be_meant_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        from_mapping(Outer, data, "file")


def test_a_recipe_written_is_a_recipe_read(tmp_path: Path) -> None:
    recipe = Outer("이름", 3, "b", words=("가",), ratio=0.0)
    (tmp_path / "r.yaml").write_text(to_yaml(recipe), "utf-8")
    assert recipe_from(Outer, {}, "test", tmp_path / "r.yaml") == recipe


def test_a_file_that_is_no_recipe_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n", "utf-8")
    (tmp_path / "bad.yaml").write_text("a: [\n", "utf-8")
    for name, message in (("list.yaml", "key: value"), ("bad.yaml", "is not YAML"), ("none.yaml", "Cannot read")):
        with pytest.raises(RecipeError, match=message):
            recipe_from(Outer, {}, "test", tmp_path / name)


@pytest.mark.parametrize(
    "text", ["name: a\nsteps: 1\nname: b\n", "name: a\ninner:\n  rate: 1\n  rate: 2\n", "a: [{b: 1, b: 2}]\n"]
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text, "utf-8")
    with pytest.raises(RecipeError, match=r"recipe.yaml is not YAML: it names '(name|rate|b)' twice, keep one of them"):
        read_yaml(tmp_path / "recipe.yaml")


def test_an_unknown_name_in_a_registry_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"Unknown scheme 'typd'\. Did you mean 'typed'"):
        choose("typd", {"typed": 1, "plain": 2}, "scheme")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_of_the_project_loads(path: Path) -> None:
    data = read_yaml(path)
    if path.stem.startswith("tune"):
        from coref_automl.extras.tune.recipe import TuneRecipe

        assert from_mapping(TuneRecipe, {**data, "out": "study"}, str(path))
    elif path.stem == "klue-re-grid":
        from coref_automl.extras.relation.grid import GridRecipe

        assert recipe_from(GridRecipe, {}, "test", path)
    elif path.stem.endswith("-study"):
        from coref_automl.extras.study.recipe import ExperimentRecipe

        assert from_mapping(ExperimentRecipe, {**data, "out": "study"}, str(path)).methods
    elif path.stem.startswith("coref"):
        from coref_automl.extras.coreference.recipe import CoreferenceRecipe

        assert from_mapping(CoreferenceRecipe, data, str(path)).rank
    elif "texts" in data:
        from coref_automl.extras.study.adapt import adapt_recipe

        assert adapt_recipe(path, {"out": "smoke"}).texts
    elif "train" in data and "model" in data:
        assert from_mapping(RelationRecipe, data, str(path)).scheme
    else:
        assert from_mapping(TrainRecipe, data, str(path)).dataset


@pytest.mark.parametrize(
    ("setting", "value", "fault"),
    [
        (Setting("", 0, 1), 2, "should be from 0 to 1, not 2"),
        (Setting("", 0, 1), math.nan, "should be from 0 to 1, not nan"),
        (Setting("", 1), 0, "should be 1 or more, not 0"),
        (Setting("", above=0), 0, "should be above 0, not 0"),
        (Setting("", high=1, above=0), 1.5, "should be above 0 and at most 1, not 1.5"),
        (Setting("", high=1, above=0), 1, None),
    ],
)
def test_a_setting_says_what_its_range_is(setting: Setting, value: float, fault: str | None) -> None:
    assert setting.fault(value) == fault
