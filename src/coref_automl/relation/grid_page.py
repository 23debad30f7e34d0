"""A grid as files. In: a grid's cells. Out: results.csv, results.md, results.html and results.json, the chosen cell first."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coref_automl.comparison.page import Cell, Page, Say, Section, Table, Tile, row
from coref_automl.comparison.render import render_html, render_markdown
from coref_automl.comparison.sentences import Lang
from coref_automl.store import write_json, write_text

if TYPE_CHECKING:
    from coref_automl.relation.grid import GridCell, GridResult

COLUMNS = ("model", "learning_rate", "epochs", "train_batch", "best_step", "micro_f1", "auprc", "accuracy", "val_loss")
"""The columns of the table that this grid answers; ours follow them. micro_f1, auprc and accuracy are points of 100."""
MORE = ("scheme", "split", "n", "seeds", "spread", "val_micro_f1", "error")


def write_grid(result: GridResult, out: Path, *, lang: Lang = "ko") -> None:
    """results.csv, results.md, results.html and results.json."""
    table = io.StringIO()
    writer = csv.DictWriter(table, (*COLUMNS, *MORE), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_values(cell) for cell in _ranked(result))
    page = _page(result, Say(lang))
    write_text(out / "results.csv", table.getvalue())
    write_text(out / "results.md", render_markdown(page))
    write_text(out / "results.html", render_html(page))
    write_json(out / "results.json", result.to_json())


def _values(cell: GridCell) -> dict[str, Any]:
    """A cell as a line of the table."""
    line: dict[str, Any] = {
        "model": cell.model,
        "learning_rate": cell.learning_rate,
        "epochs": cell.epochs,
        "train_batch": cell.batch_size,
        "scheme": cell.scheme,
        "error": cell.error,
    }
    if (result := cell.result) is not None:
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
            "val_micro_f1": round(cell.validation, 4),
        }
    return line


def _ranked(result: GridResult) -> list[GridCell]:
    return sorted(result.cells, key=lambda cell: -cell.validation)


def _page(result: GridResult, say: Say) -> Page:
    ranked, best = _ranked(result), result.best
    columns = (*COLUMNS, "scheme", "spread", "val_micro_f1")
    lines = []
    for cell in ranked:
        values = _values(cell)
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
        sentence=_sentence(best, say),
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


def _sentence(best: GridCell | None, say: Say) -> str:
    """The cell by its name: Markdown shows the sentence and no headline."""
    if best is None:
        return say("끝난 칸이 없습니다.", "No cell is finished.")
    return say(
        f"{best.name}: 떼어 둔 문장의 micro-F1 {best.validation:.2f}. 점수를 매긴 분할은 아무것도 고르지 않았습니다.",
        f"{best.name}: micro-F1 {best.validation:.2f} on the held-out sentences. The scored split chose nothing.",
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
