"""The report of relation runs. In: an Assessment. Out: relation.html, relation.md and relation.json, and lines for a terminal."""

from __future__ import annotations

from pathlib import Path

from coref_automl.locks import claimed
from coref_automl.relation.assessment import Assessment
from coref_automl.report.language import Lang, Say, interval, percent
from coref_automl.report.page import Page, Points, Section, Table, Text, Tile
from coref_automl.report.relation_sections import relation_sections
from coref_automl.report.rendering import render_html, render_markdown
from coref_automl.store import write_json, write_text
from coref_automl.tabular import align


def write_assessment(found: Assessment, out: Path, *, lang: Lang = "ko") -> Path:
    """relation.html, relation.md and relation.json in a folder; returns the page's path."""
    with claimed(out, "relation report"):
        page = assessment_page(found, Say(lang))
        write_json(out / "relation.json", found.to_json())
        write_text(out / "relation.md", render_markdown(page))
        write_text(out / "relation.html", render_html(page))
    return out / "relation.html"


def assessment_lines(found: Assessment, lang: Lang) -> list[str]:
    """The same sections for a terminal."""
    shown = [line for section in relation_sections(found, Say(lang)) for line in _lines(section)]
    return [*shown, *found.notes]


def assessment_page(found: Assessment, say: Say) -> Page:
    best, count = max(found.variants, key=lambda one: one.micro_f1.value), len(found.variants)
    sections = relation_sections(found, say)
    return Page(
        lang=say.lang,
        title=say("관계 추출 실행 보고서", "Relation extraction, the report"),
        subtitle=say(f"{found.split}, {found.rows:,}행", f"{found.split}, {found.rows:,} rows"),
        lead=say("한눈에", "At a glance"),
        headline=say(f"변형 {count}가지", f"{count} variants")
        if count > 1
        else f"{best.variant}: micro-F1 {percent(best.micro_f1)}",
        sentence=next((one.answer for one in sections if one.answer), ""),
        tiles=tuple(Tile(one.variant, f"{100 * one.micro_f1.value:.1f}", interval(one.micro_f1)) for one in found.variants[:8]),
        cannot_tell=(
            say(
                f"이 표로 변형을 고르면 {found.split}은 더 이상 시험이 아닙니다 (가장 높은 것: {best.variant}).",
                f"Choosing a variant from this table makes {found.split} development data (highest: {best.variant}).",
            ),
        )
        if count > 1
        else (),
        sections=tuple(sections),
        colophon=("coref-automl re report",),
        notes=found.notes,
    )


def _lines(section: Section) -> list[str]:
    shown = ["", section.title, "=" * 40]
    for block in section.blocks:
        if isinstance(block, Table):
            cells = [block.head, *(tuple(cell.text for cell in line) for line in block.rows)]
            shown += ["", *([block.caption] if block.caption else []), *align(cells)]
        elif isinstance(block, Text):
            shown += ["", block.text]
        elif isinstance(block, Points):
            shown += ["", *block.items]
    return shown
