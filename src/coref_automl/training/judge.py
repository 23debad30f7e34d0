"""Scores checkpoints as they appear. In: a run's folder and an evaluation set. Out: evaluations, the best, a reason to stop.

Only the `select` half decides here; `confirm` is left for the verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coref_automl.progress import Progress
from coref_automl.store import read_json
from coref_automl.training.recipe import TrainRecipe

BEST = "best.json"


class Judge:
    def __init__(self, recipe: TrainRecipe, run: Path, progress: Progress, accelerator: Any) -> None:
        self._recipe, self._run, self._progress, self._accelerator = recipe, run, progress, accelerator

    def catch_up(self) -> None:
        """Score what an interruption left unscored."""

    def after_checkpoint(self, step: int) -> str | None:  # noqa: ARG002
        return None

    def close(self) -> None:
        """The last word on the run."""


def best_of(run: Path) -> Path | None:
    """The checkpoint that the run's evaluations chose, if it was scored."""
    chosen = run / BEST
    return run / read_json(chosen)["checkpoint"] if chosen.is_file() else None
