"""Recipes: what is filled, what is refused, what the files say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.base.errors import RecipeError
from coref_automl.cli.options import recipe_from
from coref_automl.training.recipe import TrainRecipe, check, recommended, settle

PLAIN = TrainRecipe("klue/roberta-base", "data", "runs/a")
RECIPES = Path(__file__).parents[2] / "recipes"


def test_open_settings_are_filled_by_length() -> None:
    at_1536, notes = settle(PLAIN, 1536)
    assert (at_1536.learning_rate, at_1536.warmup, at_1536.weight_decay) == (8e-5, 0.16, 0.045)
    assert (at_1536.min_prob, at_1536.max_prob, at_1536.batch, at_1536.epochs) == (0.118, 0.36, 128, 5)
    assert "1,536" in notes[0]
    assert settle(PLAIN, 2048)[0].learning_rate == 2.3e-5
    assert settle(replace(PLAIN, model="new:tiny", tokenizer="t"), 256)[0].learning_rate == 1e-3
    assert settle(replace(PLAIN, model="new:bert-tiny", tokenizer="t"), 256)[0].learning_rate == 1e-4  # post-norm
    assert settle(replace(PLAIN, model="new:bert-tiny", tokenizer="t", words_from="m"), 256)[0].learning_rate == 4e-4
    assert settle(replace(PLAIN, model="new:tiny", tokenizer="t", words_from="m"), 256)[0].learning_rate == 1e-3
    assert recommended(512).provenance


def test_every_given_value_stays_even_zero() -> None:
    given = replace(PLAIN, learning_rate=0.0, weight_decay=0.0, warmup=0.0, min_prob=0.0, max_prob=0.0, batch=1, max_minutes=3.0)
    settled, notes = settle(given, 1536)
    assert settled == replace(given, seq_len=1536)
    assert notes == []


@pytest.mark.parametrize(("given", "filled"), [({"max_prob": 0.05}, (0.05, 0.05)), ({"min_prob": 0.5}, (0.5, 0.5))])
def test_one_masking_rate_alone_keeps_the_range_in_order(given: dict[str, float], filled: tuple[float, float]) -> None:
    settled, _ = settle(replace(PLAIN, **given), 1536)  # type: ignore[arg-type]
    assert (settled.min_prob, settled.max_prob) == filled


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": -1.0}, "learning_rate should be"),
        ({"epochs": 0.0}, "epochs"),
        ({"max_prob": 1.5}, "max_prob should be"),
        ({"min_prob": 0.4, "max_prob": 0.2}, "swap them"),
        ({"model": "new:tiny"}, "--tokenizer"),
        ({"stop_when_flat": True}, "--eval-set"),
        ({"layer_decay": 1.2}, "layer_decay should be"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        check(replace(PLAIN, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mlm-1536", "mlm-2048", "combined-1536", "combined-2048", "entity-a", "entity-b", "entity-c"])
def test_the_published_runs_have_recipes(name: str) -> None:
    recipe = recipe_from(TrainRecipe, {}, "test", RECIPES / f"{name}.yaml")
    check(recipe)
    assert recipe.batch == 128
    assert recipe.objective == name.split("-")[0]
    assert recipe.seq_len == (2048 if name in ("mlm-2048", "combined-2048", "entity-c") else 1536)
