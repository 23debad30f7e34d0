"""A grid. In: backbones x learning rates x batch sizes x epochs x schemes. Out: one run per cell, and a table of them.

Cells are steps of the engine: finished ones are not run again; an error is recorded, does not stop the others, and the cell is
retried by the next call. Cells are ranked on the part of train that selected their epoch, never on the scored split. Only the
best cell keeps weights. A folder with other rows or settings is refused before anything is written.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.binding import Binding, check_binding, stored_binding
from coref_automl.base.config import from_mapping, to_mapping, to_yaml
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import EvaluationError, InputsChanged, RecipeError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import MANIFEST, mark_done, remove
from coref_automl.base.job import Job
from coref_automl.base.launch import InProcessLauncher
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.schedule import Attempt, run_steps
from coref_automl.base.store import write_json, write_text
from coref_automl.extras.relation.data import RowCache
from coref_automl.extras.relation.recipe import FREE, GridRecipe, RelationRecipe
from coref_automl.extras.relation.results import RELATION_FILES, RelationResult
from coref_automl.extras.relation.scoring import rows_fingerprint
from coref_automl.extras.relation.train import train_relation

KIND = "relation grid"
TASK = "coref_automl.extras.relation.grid:train_cell"
SET_BY_GRID = ("model", "train", "dev", "out", "learning_rate", "batch_size", "epochs", "scheme")
"""Fields of a relation recipe that the grid sets, cell by cell."""
COLUMNS = ("model", "learning_rate", "epochs", "train_batch", "best_step", "micro_f1", "auprc", "accuracy", "val_loss")
"""The columns of the table that this grid reproduces; ours follow. micro_f1, auprc and accuracy are points of 100."""
EXTRA_COLUMNS = ("scheme", "split", "n", "seeds", "spread", "val_micro_f1", "error")


@dataclass(frozen=True, slots=True)
class GridCell(Record):
    name: str
    model: str
    learning_rate: float
    epochs: int
    batch_size: int
    scheme: str
    result: RelationResult | None = None
    error: str = ""

    @property
    def validation(self) -> float:
        """The mean validation micro-F1 of the seeds, which ranks cells."""
        return float(np.mean([seed.validation.micro_f1 for seed in self.result.seeds])) if self.result else -1.0

    def values(self) -> dict[str, Any]:
        row: dict[str, Any] = {name: getattr(self, name) for name in ("model", "learning_rate", "epochs", "scheme", "error")}
        row["train_batch"] = self.batch_size
        if (result := self.result) is not None:
            row |= {
                "best_step": round(float(np.mean([seed.best_step for seed in result.seeds]))),
                **{name: round(getattr(result, name), 4) for name in ("micro_f1", "auprc", "accuracy")},
                "val_loss": round(float(np.mean([seed.validation_loss for seed in result.seeds])), 6),
                "split": result.split,
                "n": result.n,
                "seeds": len(result.seeds),
                "spread": round(result.spread["micro_f1"], 4) if result.spread else "",
                "val_micro_f1": round(self.validation, 4),
            }
        return row


@dataclass(frozen=True, slots=True)
class GridResult(Record):
    out: str
    cells: tuple[GridCell, ...]

    @property
    def ranked(self) -> list[GridCell]:
        return sorted(self.cells, key=lambda cell: -cell.validation)

    @property
    def best(self) -> GridCell | None:
        return next((cell for cell in self.ranked if cell.result is not None), None)


OnCell = Callable[[GridResult], None]
"""Called with the cells so far after each of them."""


def cells_of(recipe: GridRecipe) -> dict[str, RelationRecipe]:
    """Name each cell's folder and build its recipe. A key of `settings` that the grid spans is refused."""
    if refused := sorted(set(SET_BY_GRID) & set(recipe.settings)):
        raise RecipeError(f"settings: {refused[0]!r} is set by the grid; set it there.")
    axes = (recipe.models, recipe.schemes, recipe.epochs, recipe.batch_sizes, recipe.learning_rates)
    points = list(dict.fromkeys(itertools.product(*axes)))
    names = []
    for model, scheme, epochs, batch, rate in points:
        name = unicodedata.normalize("NFC", f"{model}-{scheme}-e{epochs}-b{batch}-lr{rate:g}")
        names.append(re.sub(r"[^\w.-]+", "_", name).strip("_.-"))
    count = Counter(name.casefold() for name in names)
    cells = {}
    for plain, point in zip(names, points, strict=True):
        # names that clash, also on a case-insensitive disk, end in a hash
        name = plain if count[plain.casefold()] == 1 else f"{plain}-{fingerprint(list(point))[:6]}"
        values = dict(zip(("model", "scheme", "epochs", "batch_size", "learning_rate"), point, strict=True))
        shared = {"train": recipe.train, "dev": recipe.dev, "out": str(Path(recipe.out) / "cells" / name)}
        cells[name] = from_mapping(RelationRecipe, {**recipe.settings, **values, **shared}, "settings")
    return cells


def run_grid(recipe: GridRecipe, *, progress: Progress | None = None, on_cell: OnCell | None = None) -> GridResult:
    """Run the unfinished cells. The table is written and `on_cell` called after each, so that both can be read meanwhile."""
    out, progress, rows = Path(recipe.out), progress or quiet(), RowCache()
    recipes, cells = cells_of(recipe), list[GridCell]()
    with claimed(out, KIND), progress.stage("grid", len(recipes), "cells") as stage:
        _begin(recipe, next(iter(recipes.values())), rows)

        def on_end(end: Attempt[str]) -> bool:
            cells.append(_cell(end, recipes[end.step], progress))
            result = GridResult(str(out), tuple(cells))
            _keep_best_weights(result)
            _write_table(result)
            if on_cell is not None:
                on_cell(result)
            stage.advance()
            return True

        launcher = InProcessLauncher(InputsChanged, partial(train_cell, progress=progress, cache=rows))
        jobs = {name: Job(TASK, name, str(out / "steps" / name), to_mapping(cell)) for name, cell in recipes.items()}
        run_steps(list(recipes), launcher, jobs.__getitem__, on_end)
        if all(cell.error for cell in cells):
            raise EvaluationError(f"Every cell failed; the first says: {cells[0].error}")
        mark_done(out)
    return GridResult(str(out), tuple(cells))


def train_cell(job: Job, progress: Progress | None = None, cache: RowCache | None = None) -> None:
    train_relation(from_mapping(RelationRecipe, job.recipe, "cell"), progress=progress, cache=cache)


def _begin(recipe: GridRecipe, first: RelationRecipe, rows: RowCache) -> None:
    """Record what decides the scores of all cells, or refuse a folder with other cells. Each cell binds its own model."""
    out = Path(recipe.out)
    settings = {key: value for key, value in to_mapping(first).items() if key not in (*FREE, *SET_BY_GRID)}
    train = rows.read(first.train, skip_bad=first.skip_bad, max_rows=None if first.redraw else first.max_rows)
    dev = rows_fingerprint(rows.read(first.dev, skip_bad=first.skip_bad).rows) if first.dev else ""
    fingerprints = {"train": rows_fingerprint(train.rows), "dev": dev}
    binding = Binding(settings=settings, fingerprints=fingerprints)
    if any(out.glob(f"cells/*/{MANIFEST}")):
        check_binding(out, stored_binding(out), binding)
    write_json(out / MANIFEST, {"kind": KIND, "binding": binding})
    write_text(out / "recipe.yaml", to_yaml(recipe))


def _cell(end: Attempt[str], recipe: RelationRecipe, progress: Progress) -> GridCell:
    name, error = end.step, "" if end.done else end.reason
    if error:
        progress.note(f"{name} 실패: {error}", f"{name} failed: {error}")
    result = read_stored(Path(recipe.out) / RELATION_FILES.results, RelationResult) if end.done else None
    rate = recipe.learning_rate or 0.0
    return GridCell(name, recipe.model, rate, recipe.epochs, recipe.batch_size, recipe.scheme, result, error)


def _write_table(result: GridResult) -> None:
    out, table = Path(result.out), io.StringIO()
    writer = csv.DictWriter(table, (*COLUMNS, *EXTRA_COLUMNS), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell.values() for cell in result.ranked)
    write_text(out / "results.csv", table.getvalue())
    write_json(out / "results.json", result.to_json())


def _keep_best_weights(result: GridResult) -> None:
    for cell in result.cells:
        if cell.result is not None and cell is not result.best:
            for weights in Path(cell.result.run).glob("seed-*/model"):
                remove(weights)
