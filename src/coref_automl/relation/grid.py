"""A grid. In: backbones x rates x batch sizes x epochs x schemes. Out: a run a cell, and a table as CSV, Markdown and a page.

Finished cells are not run again; the error of one cell is written down and does not stop the others; a later call tries it anew.
Cells are ranked on the slice of train that chose their epoch: the scored split chooses nothing. Only the best cell keeps weights.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.comparison.page import Cell, Page, Say, Section, Table, Tile, row
from coref_automl.comparison.render import render_html, render_markdown
from coref_automl.comparison.sentences import Lang
from coref_automl.config import from_mapping, to_yaml
from coref_automl.errors import CorefError, EvaluationError, RecipeError
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.cache import RowCache
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.relation.results import RelationResult
from coref_automl.relation.train import train_relation
from coref_automl.store import claim_folder, mark_done, remove, write_json, write_text

KIND = "relation grid"
COLUMNS = ("model", "learning_rate", "epochs", "train_batch", "best_step", "micro_f1", "auprc", "accuracy", "val_loss")
"""The columns of the table that this grid answers; ours follow them. micro_f1, auprc and accuracy are points of 100."""
MORE = ("scheme", "split", "n", "seeds", "spread", "val_micro_f1", "error")


@dataclass(frozen=True, slots=True)
class GridRecipe:
    """Each list is one side of the grid; `settings` holds what all cells share, in the words of a relation recipe."""

    models: tuple[str, ...]
    train: str
    out: str
    dev: str | None = None
    learning_rates: tuple[float, ...] = (5e-5,)
    batch_sizes: tuple[int, ...] = (32,)
    epochs: tuple[int, ...] = (5,)
    schemes: tuple[str, ...] = ("typed",)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("models", "learning_rates", "batch_sizes", "epochs", "schemes"):
            if not getattr(self, name):
                raise RecipeError(f"The grid's {name} are empty; name at least one.")


@dataclass(frozen=True, slots=True)
class GridCell(Record):
    """One cell: its recipe's corner, and its result or its error."""

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
        """What ranks cells: the mean validation micro-F1 of the seeds."""
        return float(np.mean([seed.validation.micro_f1 for seed in self.result.seeds])) if self.result else -1.0

    def values(self) -> dict[str, Any]:
        """The cell as a line of the table."""
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
        return line


@dataclass(frozen=True, slots=True)
class GridResult(Record):
    out: str
    cells: tuple[GridCell, ...]

    @property
    def best(self) -> GridCell | None:
        done = [cell for cell in self.cells if cell.result is not None]
        return max(done, key=lambda cell: cell.validation) if done else None


def cells_of(recipe: GridRecipe) -> dict[str, RelationRecipe]:
    """Every cell's recipe under a name that a folder can have. A key of `settings` that the grid spans is refused."""
    taken = {"model", "train", "dev", "out", "learning_rate", "batch_size", "epochs", "scheme"} & set(recipe.settings)
    if taken:
        raise RecipeError(f"settings: {sorted(taken)[0]!r} is a side of the grid; set it there.")
    found = {}
    sides = itertools.product(recipe.models, recipe.schemes, recipe.epochs, recipe.batch_sizes, recipe.learning_rates)
    for model, scheme, epochs, batch, rate in sides:
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{model}-{scheme}-e{epochs}-b{batch}-lr{rate:g}").strip("_.")
        corner = {"model": model, "scheme": scheme, "epochs": epochs, "batch_size": batch, "learning_rate": rate}
        shared = {"train": recipe.train, "dev": recipe.dev, "out": str(Path(recipe.out) / "cells" / name)}
        found[name] = from_mapping(RelationRecipe, {**recipe.settings, **corner, **shared}, "settings")
    return found


def run_grid(recipe: GridRecipe, *, progress: Progress | None = None, lang: Lang = "ko") -> GridResult:
    """Run what is not done yet; the table is written after every cell, so that it can be read while the grid runs."""
    out, progress, cache = Path(recipe.out), progress or quiet(), RowCache()
    recipes = cells_of(recipe)
    claim_folder(out, KIND)
    write_text(out / "recipe.yaml", to_yaml(recipe))
    cells: dict[str, GridCell] = {}
    with progress.stage("grid", len(recipes), "cells") as stage:
        for name, settings in recipes.items():
            cells[name] = _run_cell(name, settings, progress, cache)
            result = GridResult(str(out), tuple(cells.values()))
            _keep_best_weights(result)
            write_grid(result, out, lang=lang)
            if cells[name].error:
                progress.note(f"{name} failed: {cells[name].error}")
            stage.advance()
    if all(cell.error for cell in cells.values()):
        raise EvaluationError(f"Every cell failed; the first says: {next(iter(cells.values())).error}")
    mark_done(out)
    return result


def _run_cell(name: str, recipe: RelationRecipe, progress: Progress, cache: RowCache) -> GridCell:
    result, error = None, ""
    try:
        result = train_relation(recipe, progress=progress, cache=cache)
    except CorefError as problem:
        error = str(problem)
    except Exception as problem:  # a library's failure in one cell (memory, a damaged model) must not stop the others
        error = f"{type(problem).__name__}: {problem}".splitlines()[0]
    rate = recipe.learning_rate or 0.0
    return GridCell(name, recipe.model, rate, recipe.epochs, recipe.batch_size, recipe.scheme, result, error)


def _keep_best_weights(result: GridResult) -> None:
    best = result.best
    for cell in result.cells:
        if best is not None and cell.name != best.name and cell.result is not None:
            for weights in Path(cell.result.run).glob("seed-*/model"):
                remove(weights)


def write_grid(result: GridResult, out: Path, *, lang: Lang = "ko") -> None:
    """results.csv, results.md, results.html and results.json."""
    table = io.StringIO()
    writer = csv.DictWriter(table, (*COLUMNS, *MORE), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell.values() for cell in _ranked(result))
    page = _page(result, Say(lang))
    write_text(out / "results.csv", table.getvalue())
    write_text(out / "results.md", render_markdown(page))
    write_text(out / "results.html", render_html(page))
    write_json(out / "results.json", result.to_json())


def _ranked(result: GridResult) -> list[GridCell]:
    return sorted(result.cells, key=lambda cell: -cell.validation)


def _page(result: GridResult, say: Say) -> Page:
    ranked, best = _ranked(result), result.best
    columns = (*COLUMNS, "scheme", "spread", "val_micro_f1")
    lines = []
    for cell in ranked:
        values = cell.values()
        cells = [Cell(_text(values.get(name, ""))) for name in columns]
        if best is not None and cell.name == best.name:
            cells[0] = Cell(cells[0].text, "strong")
        lines.append(row(*cells, Cell(cell.error, "bad") if cell.error else Cell("")))
    split = best.result.split if best and best.result else "-"
    failed = sum(bool(cell.error) for cell in ranked)
    return Page(
        lang=say.lang,
        title=say("관계 추출 격자 실험", "Relation extraction, the grid"),
        subtitle=say(f"{len(ranked)}칸, 분할 {split}", f"{len(ranked)} cells, split {split}"),
        lead=say("학습 자료에서 떼어 둔 문장으로 고른 칸", "The cell that held-out training sentences choose"),
        headline=best.name if best else "-",
        sentence=say("점수를 매긴 분할은 아무것도 고르지 않았습니다.", "The scored split chose nothing."),
        tiles=(
            Tile("micro-F1", f"{best.result.micro_f1:.2f}" if best and best.result else "-", split),
            Tile("AUPRC", f"{best.result.auprc:.2f}" if best and best.result else "-", split),
            Tile(say("실패한 칸", "failed cells"), str(failed)),
        ),
        cannot_tell=(
            say(
                "칸 사이의 작은 차이는 씨앗의 차이일 수 있습니다. spread와 견주어 보세요.",
                "Small differences between cells may be differences between seeds: read them beside the spread.",
            ),
        ),
        sections=(
            Section(
                "cells",
                say("모든 칸", "All cells"),
                (Table((*columns, say("오류", "error")), tuple(lines), frozenset(range(1, 9)) | {10, 11}),),
            ),
        ),
        colophon=("coref-automl re grid",),
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
