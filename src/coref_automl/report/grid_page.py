"""The page of a grid. In: a GridResult. Out: results.md and results.html, the chosen cell first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coref_automl.relation.grid import COLUMNS, GridCell, GridResult
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Cell, Page, Section, Table, Text, Tile, row
from coref_automl.report.relation_page import relation_sections
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.store import write_text


def write_grid_page(result: GridResult, *, lang: Lang = "ko") -> None:
    """results.md and results.html in the grid's folder."""
    page = _page(result, Say(lang))
    write_text(Path(result.out) / "results.md", render_markdown(page))
    write_text(Path(result.out) / "results.html", render_html(page))


def _page(result: GridResult, say: Say) -> Page:
    ranked, best = result.ranked, result.best
    columns = (*COLUMNS, "scheme", "spread", "val_micro_f1", "pieces", "unknown", "edges")
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
        sentence=_sentence(best, say),
        tiles=(
            Tile("micro-F1", f"{best.result.micro_f1:.2f}" if best and best.result else "-", split),
            Tile("AUPRC", f"{best.result.auprc:.2f}" if best and best.result else "-", split),
            Tile(say("실패한 칸", "failed cells"), str(failed)),
        ),
        cannot_tell=(
            say(
                "칸 사이의 작은 차이는 시드의 차이일 수 있습니다. spread와 비교하세요.",
                "Small differences between cells may be differences between seeds: read them beside the spread.",
            ),
        ),
        sections=(
            Section(
                "cells",
                say("모든 칸", "All cells"),
                (
                    Text(_about_columns(say), "quiet"),
                    Table((*columns, say("오류", "error")), tuple(lines), frozenset(range(1, 9)) | set(range(10, 15))),
                ),
            ),
            *(relation_sections(result.assessment, say) if result.assessment else ()),
        ),
        colophon=("coref-automl re grid",),
    )


def _about_columns(say: Say) -> str:
    return say(
        "pieces는 개체당 평균 토큰 수, unknown은 미등록 토큰이 있는 행의 비율, edges는 시작과 끝이 토큰 경계와 맞는 개체의 "
        "비율입니다. 토크나이저의 것이지 인코더의 것이 아닙니다.",
        "pieces: mean tokens per entity; unknown: share of rows with an unknown token; edges: share of entities that begin and "
        "end on token edges. They belong to the tokenizer, not to the encoder.",
    )


def _sentence(best: GridCell | None, say: Say) -> str:
    """Names the cell, because Markdown shows the sentence without the headline."""
    if best is None:
        return say("끝난 칸이 없습니다.", "No cell is finished.")
    return say(
        f"{best.name}: 떼어 둔 문장의 micro-F1 {best.validation:.2f}. 점수를 매긴 분할은 아무것도 고르지 않았습니다.",
        f"{best.name}: micro-F1 {best.validation:.2f} on the held-out sentences. The scored split chose nothing.",
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
