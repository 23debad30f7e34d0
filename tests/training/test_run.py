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


def weights(checkpoint: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(checkpoint / "model.safetensors"))


def same_weights(left: Path, right: Path) -> bool:
    import torch

    one, other = weights(left), weights(right)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Killed(BaseException):
    """As sudden as a signal: nothing of ours catches it."""


@pytest.fixture
def killed_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """End a run right after the given step, without any clean-up of ours."""
    from coref_automl.training.callbacks import RunCallback

    def arm(step: int) -> None:
        kept = RunCallback.on_step_begin

        def dies(self: Any, args: Any, state: Any, control: Any, **more: Any) -> Any:
            if state.global_step == step:
                monkeypatch.undo()
                raise Killed
            return kept(self, args, state, control, **more)

        monkeypatch.setattr(RunCallback, "on_step_begin", dies)

    return arm


@pytest.mark.parametrize("stop", [5, 7])
def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(
    recipe: Recipe, tmp_path: Path, killed_after: Callable[[int], None], stop: int
) -> None:
    """Dropout on; checkpoints at 1, 3, 4, 6, 7, 9: killed at 5 it goes on from 4 (mid-epoch), at 7 from 6 or 7."""
    settings = {"objective": "combined", "epochs": 3, "dropout": 0.2}
    unbroken = train(recipe(out=str(tmp_path / "unbroken"), **settings))
    killed_after(stop)
    with pytest.raises(Killed):
        train(recipe(**settings))
    resumed = train(recipe(**settings))
    assert resumed.steps == unbroken.steps == 9
    assert same_weights(resumed.checkpoints[-1], unbroken.checkpoints[-1])
    assert losses(resumed.run)[-2:] == losses(unbroken.run)[-2:]


def test_dropout_is_really_on_in_that_comparison(recipe: Recipe, tmp_path: Path) -> None:
    off = train(recipe(out=str(tmp_path / "off"), epochs=1, dropout=0.0))
    on = train(recipe(epochs=1, dropout=0.2))
    assert not same_weights(off.checkpoints[-1], on.checkpoints[-1])
