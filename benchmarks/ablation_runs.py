"""The runs of an ablation: variants of recipes, trained side by side. In: recipes, seeds, a time limit, workers. Out: runs.

Seeds are the outer loop: when time runs out, all variants have about the same number of seeds. Finished runs are not repeated,
and one failing run does not stop the others. `ablation_table` compares the finished runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from coref_automl.base.config import from_mapping, to_mapping
from coref_automl.base.errors import EvaluationError, InputError
from coref_automl.base.folders import is_done
from coref_automl.base.machine import usable_cores
from coref_automl.base.pool import Call, Returned, run_calls
from coref_automl.base.progress import Progress, quiet
from coref_automl.extras.relation.data import RowCache
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.relation.train import train_relation

VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"scheme": "none"},
    "plain": {"scheme": "plain"},
    "typed": {"scheme": "typed"},
    "punct": {"scheme": "punct"},
    "typed-punct": {"scheme": "typed-punct"},
    "typed-punct-question": {"scheme": "typed-punct-question"},
    "head-cls": {"head": "cls"},
    "head-starts": {"head": "starts"},
    "mask-hard": {"label_mask": "hard"},
    "mask-soft": {"label_mask": "soft"},
    "hard-negatives": {"hard_negatives": 0.2},
    "smoothing": {"label_smoothing": 0.1},
    "layer-decay": {"layer_decay": 0.9},
    "distance": {"distance": True},
    "encoder-dropout": {"encoder_dropout": 0.1},
    "longer": {"epochs": 8, "patience": 0},
    "rate-6e-4": {"learning_rate": 6e-4},
    "mask-rate-6e-4": {"label_mask": "soft", "learning_rate": 6e-4},
}
"""What each variant changes in the base recipe."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Finished seeds per recipe, the errors of failed runs, and how many runs there was no time for."""

    seeds: dict[str, int]
    failed: dict[str, str]
    left: int


def run_variants(
    recipes: dict[str, RelationRecipe],
    *,
    seeds: int,
    seconds: float | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Ran:
    """Train what is missing, seed by seed across all recipes, while time lasts.

    `workers` processes share one device: a small encoder leaves a GPU idle between kernels, and other runs can use that time.
    A run is dealt to one worker only; a worker begins none that would not end in time, judging by its longest so far.
    """
    progress = progress or quiet()
    until = None if seconds is None else time.time() + seconds
    runs = {
        f"{name}, seed {seed}": replace(recipe, out=str(Path(recipe.out) / f"run-{seed}"), seeds=1, first_seed=seed)
        for seed in range(seeds)
        for name, recipe in recipes.items()
    }
    jobs = [
        Call(name, f"{__name__}:train_in_time", {"recipe": to_mapping(recipe), "until": until})
        for name, recipe in runs.items()
        if not is_done(Path(recipe.out))
    ]
    failed: dict[str, str] = {}
    left = 0

    def hear(outcome: Returned) -> None:
        nonlocal left
        if outcome.error is not None:
            failed[outcome.call.name] = str(outcome.error)
        left += outcome.error is None and outcome.value is None
        if outcome.error or outcome.value:
            progress.note(f"{outcome.call.name}: {outcome.error or outcome.value}")

    _worker.cache_clear()
    if jobs:
        _share_cores(workers)
        run_calls(jobs, workers=workers, on_return=hear)
    if left:
        progress.note(f"Time was up before {left} runs; the same command resumes there.")
    if failed and len(failed) == len(jobs):
        raise EvaluationError(f"Every run failed; the first: {next(iter(failed.values()))}")
    done = {name: sum(1 for _ in Path(recipe.out).glob("run-*/DONE")) for name, recipe in recipes.items()}
    return Ran(done, failed, left)


def _share_cores(workers: int) -> None:
    """Threads of a worker's libraries, which read this as they start: together no more than there are cores."""
    if workers > 1:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
            os.environ.setdefault(name, str(max(1, usable_cores() // workers)))


@dataclass(slots=True)
class _Worker:
    """What a process keeps between its runs."""

    rows: RowCache = field(default_factory=RowCache)
    longest: float = 0.0


@cache
def _worker() -> _Worker:
    return _Worker()


def train_in_time(recipe: dict[str, Any], until: float | None) -> str | None:
    """One run, in a worker; what it reached, or None when it would not have ended in time."""
    worker, began = _worker(), time.time()
    if until is not None and began + 1.2 * worker.longest > until:
        return None
    (done,) = train_relation(from_mapping(RelationRecipe, recipe, "ablation"), cache=worker.rows).seeds
    worker.longest = max(worker.longest, done.seconds)
    took = time.time() - began
    return (
        f"validation micro-F1 {done.validation.micro_f1:.2f}, epoch {done.best_epoch}, {took:.1f} s, trained {done.seconds:.1f} s"
    )


def variants_of(base: RelationRecipe, names: Sequence[str], out: Path) -> dict[str, RelationRecipe]:
    """Recipes by name: the base with one thing changed, each in its own folder."""
    unknown = [name for name in names if name not in VARIANTS and name != "base"]
    if unknown:
        raise InputError(f"There is no variant {unknown[0]!r}; known: base, {', '.join(VARIANTS)}.")
    return {name: replace(base, **VARIANTS.get(name, {}), out=str(out / name)) for name in names}
