"""A grid. In: backbones x rates x batch sizes x epochs x schemes. Out: one run per cell, and a table of them.

Finished cells are not run again; the error of one cell is written down and does not stop the others; a later call tries it anew.
Cells are ranked on the slice of train that chose their epoch: the scored split chooses nothing. Only the best cell keeps weights,
unless all are asked for. manifest.json says what the folder was begun with; a call with something else is refused unwritten.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from coref_automl.config import from_mapping, to_mapping, to_yaml
from coref_automl.decoder import read_stored
from coref_automl.engine.binding import SAME, Binding, check_binding
from coref_automl.errors import CorefError, EvaluationError, FolderError, InputsChanged, RecipeError
from coref_automl.locks import claimed
from coref_automl.models.load import load_tokenizer
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.assessment import Assessment, assess
from coref_automl.relation.data import RelationData, RowCache, split_by_sentence
from coref_automl.relation.recipe import FREE, GridRecipe, RelationRecipe
from coref_automl.relation.results import RESULTS, RelationResult
from coref_automl.relation.row_groups import RowPieces, TokenizerColumns
from coref_automl.relation.scoring import rows_fingerprint
from coref_automl.relation.train import VALIDATION, train_relation
from coref_automl.store import MANIFEST, fingerprint, is_done, mark_done, remove, write_json, write_text

KIND = "relation grid"
SIDES = ("model", "train", "dev", "out", "learning_rate", "batch_size", "epochs", "scheme")
"""What of a relation recipe the grid itself sets, cell by cell."""
COLUMNS = ("model", "learning_rate", "epochs", "train_batch", "best_step", "micro_f1", "auprc", "accuracy", "val_loss")
"""The columns of the table that this grid answers; ours follow them. micro_f1, auprc and accuracy are points of 100."""
MORE = ("scheme", "split", "n", "seeds", "spread", "val_micro_f1", "pieces", "unknown", "edges", "error")
Corner = tuple[str, str, int, int, float]
"""Model, scheme, epochs, batch size, rate."""


@dataclass(frozen=True, slots=True)
class GridCell(Record):
    """One cell: its recipe's corner, and its result or its error. `tokenizer`: what the model's tokenizer makes of the rows."""

    name: str
    model: str
    learning_rate: float
    epochs: int
    batch_size: int
    scheme: str
    result: RelationResult | None = None
    error: str = ""
    tokenizer: TokenizerColumns | None = None

    @property
    def validation(self) -> float:
        """What ranks cells: the mean validation micro-F1 of the seeds."""
        return float(np.mean([seed.validation.micro_f1 for seed in self.result.seeds])) if self.result else -1.0

    def values(self) -> dict[str, Any]:
        """The cell as a row of the table."""
        line: dict[str, Any] = {
            "model": self.model,
            "learning_rate": self.learning_rate,
            "epochs": self.epochs,
            "train_batch": self.batch_size,
            "scheme": self.scheme,
            "error": self.error,
        }
        if (result := self.result) is not None:
            line |= {
                "best_step": round(float(np.mean([seed.best_step for seed in result.seeds]))),
                "micro_f1": round(result.micro_f1, 4),
                "auprc": round(result.auprc, 4),
                "accuracy": round(result.accuracy, 4),
                "val_loss": round(float(np.mean([seed.validation_loss for seed in result.seeds])), 6),
                "split": result.split,
                "n": result.n,
                "seeds": len(result.seeds),
                "spread": round(result.spread["micro_f1"], 4) if result.spread else "",
                "val_micro_f1": round(self.validation, 4),
            }
        if (read := self.tokenizer) is not None:
            line |= {"pieces": round(read.pieces, 3), "unknown": round(read.unknown, 4), "edges": round(read.edges, 4)}
        return line


@dataclass(frozen=True, slots=True)
class GridResult(Record):
    """`assessment` is what the predictions of all cells say together; None while the grid is under way."""

    out: str
    cells: tuple[GridCell, ...]
    assessment: Assessment | None = None

    @property
    def ranked(self) -> list[GridCell]:
        return sorted(self.cells, key=lambda cell: -cell.validation)

    @property
    def best(self) -> GridCell | None:
        done = [cell for cell in self.cells if cell.result is not None]
        return max(done, key=lambda cell: cell.validation) if done else None


Draw = Callable[[GridResult], None]
"""Draws a page of the grid as far as it has come."""


@dataclass(frozen=True, slots=True)
class Rows(Record):
    """A file of rows: the split it is called, and a fingerprint of what it held."""

    file: str = field(compare=False)
    split: str
    rows: str

    def __str__(self) -> str:
        return f"{self.file} (rows {self.rows[:8]})"


@dataclass(frozen=True, slots=True)
class Begun(Record):
    """What all cells share and what decides their numbers: settings by value, rows by their bytes."""

    settings: dict[str, Any]
    train: Rows
    dev: Rows | None

    @property
    def binding(self) -> Binding:
        """Without the rows that are scored: they may change, where cells kept their weights. A cell binds its own model."""
        return Binding(settings=self.settings, fingerprints={"train": self.train.rows})

    @classmethod
    def of(cls, recipe: GridRecipe, cache: RowCache) -> Begun:
        one = next(iter(cells_of(recipe).values()))
        settings = {key: value for key, value in to_mapping(one).items() if key not in (*FREE, *SIDES)}

        def rows(name: str, limit: int | None = None) -> Rows:
            data = cache.read(name, skip_bad=one.skip_bad, max_rows=limit)
            return Rows(name, data.split, rows_fingerprint(data.rows))

        dev = rows(one.dev) if one.dev else None
        return cls({**settings, "keep_weights": recipe.keep_weights}, rows(one.train, one.max_rows), dev)


def cells_of(recipe: GridRecipe) -> dict[str, RelationRecipe]:
    """Every cell's recipe under a name that a folder can have. A key of `settings` that the grid spans is refused."""
    if taken := sorted(set(SIDES) & set(recipe.settings)):
        raise RecipeError(f"settings: {taken[0]!r} is set by the grid; set it there.")
    sides = itertools.product(recipe.models, recipe.schemes, recipe.epochs, recipe.batch_sizes, recipe.learning_rates)
    found = {}
    for name, (model, scheme, epochs, batch, rate) in _names(list(dict.fromkeys(sides))).items():
        corner = {"model": model, "scheme": scheme, "epochs": epochs, "batch_size": batch, "learning_rate": rate}
        shared = {"train": recipe.train, "dev": recipe.dev, "out": str(Path(recipe.out) / "cells" / name)}
        found[name] = from_mapping(RelationRecipe, {**recipe.settings, **corner, **shared}, "settings")
    return found


def _names(corners: list[Corner]) -> dict[str, Corner]:
    """One folder name per corner. Names that would clash, also on a case-insensitive disk, end in a hash."""
    plain = []
    for model, scheme, epochs, batch, rate in corners:
        name = unicodedata.normalize("NFC", f"{model}-{scheme}-e{epochs}-b{batch}-lr{rate:g}")
        plain.append(re.sub(r"[^\w.-]+", "_", name).strip("_.-"))
    taken = Counter(name.casefold() for name in plain)
    return {
        name if taken[name.casefold()] == 1 else f"{name}-{fingerprint(list(corner))[:6]}": corner
        for name, corner in zip(plain, corners, strict=True)
    }


def run_grid(recipe: GridRecipe, *, progress: Progress | None = None, draw: Draw | None = None) -> GridResult:
    """Run what is not done yet. After every cell the table is written and `draw` called, so both can be read meanwhile."""
    out, progress, cache = Path(recipe.out), progress or quiet(), RowCache()
    recipes = cells_of(recipe)
    with claimed(out, KIND):
        return _run(recipe, recipes, out, cache, progress, draw)


def _run(
    recipe: GridRecipe, recipes: dict[str, RelationRecipe], out: Path, cache: RowCache, progress: Progress, draw: Draw | None
) -> GridResult:
    begun = _begin(recipe, cache)
    cells: dict[str, GridCell] = {}
    columns = _Columns(cache)
    with progress.stage("grid", len(recipes), "cells") as stage:
        for name, settings in recipes.items():
            cells[name] = _run_cell(name, settings, progress, cache)
            if cells[name].error and (before := _finished(settings, begun.dev)) is not None:
                why = cells[name].error
                progress.note(progress.say(f"{name}: 이전 결과를 유지합니다. {why}", f"{name} keeps its earlier result: {why}"))
                cells[name] = replace(cells[name], result=before, error="")
            cells[name] = replace(cells[name], tokenizer=columns.of(settings))
            result = GridResult(str(out), tuple(cells.values()))
            if not recipe.keep_weights:
                _keep_best_weights(result)
            _write_table(result, out)
            if draw is not None:
                draw(result)
            if cells[name].error:
                progress.note(progress.say(f"{name} 실패: {cells[name].error}", f"{name} failed: {cells[name].error}"))
            stage.advance()
    if all(cell.error for cell in cells.values()):
        raise EvaluationError(f"Every cell failed; the first says: {next(iter(cells.values())).error}")
    result = replace(result, assessment=_assessment(result, settings, cache, progress))
    _write_table(result, out)
    if draw is not None:
        draw(result)
    mark_done(out)
    return result


def _scored(one: RelationRecipe, cache: RowCache) -> RelationData:
    """The rows that cells are scored on: those of `dev`, or the slice of train that chooses the epoch."""
    if one.dev:
        return cache.read(one.dev, skip_bad=one.skip_bad)
    whole = cache.read(one.train, skip_bad=one.skip_bad, max_rows=one.max_rows)
    return RelationData(VALIDATION, split_by_sentence(whole.rows, one.holdout)[1])


class _Columns:
    """What each model's tokenizer makes of the scored rows, looked at once; None where either cannot be read.

    A cell says by its own error what is wrong with its model or its rows.
    """

    def __init__(self, cache: RowCache) -> None:
        self._cache = cache
        self._found: dict[str, TokenizerColumns | None] = {}

    def of(self, recipe: RelationRecipe) -> TokenizerColumns | None:
        if recipe.model not in self._found:
            self._found[recipe.model] = None
            with suppress(CorefError):
                rows = _scored(recipe, self._cache).rows
                self._found[recipe.model] = RowPieces.of(rows, load_tokenizer(recipe.model)).columns
        return self._found[recipe.model]


def _assessment(result: GridResult, one: RelationRecipe, cache: RowCache, progress: Progress) -> Assessment | None:
    """What the cells' predictions say together, the best cell first."""
    try:
        return assess([cell.result.run for cell in result.ranked if cell.result is not None], _scored(one, cache))
    except CorefError as error:  # rows that only some cells could mark: the table stands without it
        progress.note(
            progress.say(
                f"보고서에 표지와 토크나이저 절이 없습니다: {error}",
                f"The report has no section on markers and tokenizers: {error}",
            )
        )
        return None


def _begin(recipe: GridRecipe, cache: RowCache) -> Begun:
    """Write down what the grid is begun with, or refuse a folder whose finished cells do not go with it, before any writing."""
    out, now = Path(recipe.out), Begun.of(recipe, cache)
    if (held := _held(out)) is not None:
        check_binding(out, held.binding, now.binding)
        if held.dev != now.dev and (bare := _without_weights(out)):
            raise FolderError(
                f"{out} was begun with --dev {held.dev or 'none'} and this command has {now.dev or 'none'}, which cells without "
                f"weights ({bare.parent.name}) cannot score; {SAME}, with --keep-weights if more is to be scored later."
            )
    write_json(out / MANIFEST, {"kind": KIND, "begun": now.to_json()})
    write_text(out / "recipe.yaml", to_yaml(recipe))
    return now


class _GridManifest(TypedDict):
    begun: Begun


def _held(out: Path) -> Begun | None:
    """What the folder was begun with; None while no cell of it has come as far as its own manifest."""
    begun = any(out.glob(f"cells/*/{MANIFEST}"))
    return read_stored(out / MANIFEST, _GridManifest)["begun"] if begun else None


def _without_weights(out: Path) -> Path | None:
    """A finished seed of any cell that can score no new rows."""
    done = (mark.parent for mark in sorted(out.glob("cells/*/seed-*/DONE")))
    return next((seed for seed in done if not (seed / "model" / "relation.json").is_file()), None)


def _run_cell(name: str, recipe: RelationRecipe, progress: Progress, cache: RowCache) -> GridCell:
    result, error = None, ""
    try:
        result = train_relation(recipe, progress=progress, cache=cache)
    except InputsChanged:
        raise  # what the cell reached before is no result of these inputs
    except CorefError as problem:
        error = str(problem)
    except Exception as problem:  # a library's failure in one cell (memory, a damaged model) must not stop the others
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
    rate = recipe.learning_rate or 0.0
    return GridCell(name, recipe.model, rate, recipe.epochs, recipe.batch_size, recipe.scheme, result, error)


def _finished(recipe: RelationRecipe, dev: Rows | None) -> RelationResult | None:
    """What the cell reached on the same rows in an earlier call: it is kept, even if its model can no longer be loaded."""
    run = Path(recipe.out)
    if not is_done(run):
        return None
    result = read_stored(run / RESULTS, RelationResult)
    same = result.split == VALIDATION if dev is None else result.fingerprints.get("data") == dev.rows
    return result if same and len(result.seeds) == recipe.seeds else None


def _write_table(result: GridResult, out: Path) -> None:
    """results.csv and results.json."""
    table = io.StringIO()
    writer = csv.DictWriter(table, (*COLUMNS, *MORE), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell.values() for cell in result.ranked)
    write_text(out / "results.csv", table.getvalue())
    write_json(out / "results.json", result.to_json())


def _keep_best_weights(result: GridResult) -> None:
    best = result.best
    for cell in result.cells:
        if best is not None and cell.name != best.name and cell.result is not None:
            for weights in Path(cell.result.run).glob("seed-*/model"):
                remove(weights)
