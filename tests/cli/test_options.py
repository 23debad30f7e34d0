"""Options made from recipes: one per field, only what was passed is given, and an option wins over the file."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from coref_automl.base.config import described
from coref_automl.base.errors import RecipeError
from coref_automl.cli.options import RecipeFile, options_from, recipe_from
from coref_automl.corpus import recipe as corpus
from coref_automl.evaluation.recipe import EvalRecipe
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.extras.coreference import recipe as coreference
from coref_automl.extras.relation import recipe as relation
from coref_automl.extras.tokenizer import recipe as tokenizer
from coref_automl.extras.tune import recipe as tuning
from coref_automl.training import recipe as training


@dataclass(frozen=True)
class Inner:
    length: int = 512
    names: tuple[str, ...] = ("a", "b")


@dataclass(frozen=True)
class Outer:
    model: str
    inner: Inner = field(default_factory=Inner)
    rates: tuple[float, ...] = ()
    kind: Literal["one", "two"] = "one"
    fast: bool = True
    limit: int | None = None


DESCRIBED = {
    "model": "A model.",
    "inner.length": "Tokens.",
    "inner.names": "Names.",
    "rates": "Rates.",
    "kind": "one or two.",
    "fast": "Fast.",
    "limit": "Most.",
}
app = typer.Typer(rich_markup_mode=None)


@app.command()
@options_from(Outer, DESCRIBED, {"inner.names": ("--name",), "fast": ("--fast/--slow",)})
def show(recipe: RecipeFile = None, *, twice: bool = False, **given: Any) -> None:
    print(given)
    print(recipe_from(Outer, given, "show", recipe), twice)


def shown(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_only_what_was_passed_is_given() -> None:
    assert shown("--model", "m")[0] == "{'model': 'm'}"
    arguments = ["--model", "m", "--slow", "--rates", "1e-4", "--rates", "2", "--length", "8", "--name", "x", "--twice"]
    first, second = shown(*arguments)
    assert first == "{'model': 'm', 'inner': {'length': 8, 'names': ['x']}, 'rates': [0.0001, 2.0], 'fast': False}"
    assert second.endswith("fast=False, limit=None) True")


def test_an_option_wins_over_the_file_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("model: m\nlimit: 3\ninner: {length: 4, names: [y]}\n", "utf-8")
    line = shown("--recipe", str(path), "--length", "5")[1]
    assert line == repr(Outer("m", Inner(5, ("y",)), limit=3)) + " False"


def test_a_value_where_settings_belong_is_refused_with_the_file_s_name(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("model: m\ninner: 5\n", "utf-8")
    with pytest.raises(RecipeError, match=r"recipe.yaml: inner"):
        CliRunner().invoke(app, ["--recipe", str(path), "--length", "5"], catch_exceptions=False)


def test_a_value_is_checked_as_the_recipe_checks_it() -> None:
    with pytest.raises(RecipeError, match="kind cannot be 'tow'"):
        CliRunner().invoke(app, ["--model", "m", "--kind", "tow"], catch_exceptions=False)
    with pytest.raises(RecipeError, match="'model' is missing"):
        CliRunner().invoke(app, [], catch_exceptions=False)


def test_help_shows_the_recipe_s_own_defaults() -> None:
    text = " ".join(" ".join(shown("--help")).split())
    for part in ("Tokens. [default: 512]", "Names. [default: a, b]", "one or two. [default: one]", "Fast. [default: fast]"):
        assert part in text
    assert "Most. [" not in text


@pytest.mark.parametrize(
    ("recipe", "left_out"),
    [
        (training.TrainRecipe, set()),
        (relation.RelationRecipe, set()),
        (relation.GridRecipe, {"settings"}),
        (coreference.CoreferenceRecipe, set()),
        (tuning.TuneRecipe, {"texts", "settings", "space", "checks"}),
        (corpus.PrepareRecipe, {"mode"}),
        (tokenizer.TokenizerRecipe, {"filters"}),
        (EvalRecipe, set()),
        (EvaluateRecipe, set()),
    ],
)
def test_what_a_recipe_can_say_the_command_line_can_say(recipe: Any, left_out: set[str]) -> None:
    assert {item.name for item in fields(recipe)} - left_out == set(described(recipe))
