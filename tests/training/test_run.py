"""A run, its checkpoints, its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coref_automl.training.recipe import TrainRecipe

Recipe = Callable[..., TrainRecipe]


def train(recipe: TrainRecipe) -> Any:
    from coref_automl.training.run import train as run_it

    return run_it(recipe)


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "events.ndjson").read_text("utf-8").splitlines()]
    return [row["loss"] for row in rows if row["event"] == "step"]


@pytest.mark.parametrize("objective", ["mlm", "entity", "combined"])
def test_a_run_leaves_a_checkpoint_each_half_epoch(recipe: Recipe, objective: str) -> None:
    result = train(recipe(objective=objective))
    assert [path.name for path in result.checkpoints] == ["checkpoint-1", "checkpoint-3", "checkpoint-4", "checkpoint-6"]
    assert result.steps == 6
    assert result.epochs == 2.0
