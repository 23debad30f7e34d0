"""Grades: what the last checkpoint is worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.base.records import ItemScore
from coref_automl.base.say import Say
from coref_automl.comparison.reader import open_results
from coref_automl.evaluation.metrics import halves
from coref_automl.extras.pages.sections import Subject, appendix, read_subject
from coref_automl.report.page import Points, Section, Table
from tests.comparison.conftest import Model, make_scores, write_evaluation


def scores(share: dict[str, float], documents: int) -> list[ItemScore]:
    """Items of which this share is hit in each half, the same ones first for every model."""
    drawn = make_scores(Model("any", 1, 0.0), documents=documents, tasks=("real",), own=0)
    out = []
    for half in ("select", "confirm"):
        in_half = [score for score, of in zip(drawn, halves(drawn), strict=True) if of == half]
        out += [replace(score, rank=1 if (at + 0.5) / len(in_half) < share[half] else 9) for at, score in enumerate(in_half)]
    return out


def stability(root: Path, peak: dict[str, float], last: dict[str, float], *, documents: int = 60) -> tuple[str, Section]:
    for step, share in ((100, peak), (200, last)):
        write_evaluation(root, Model("run", step, 0.0), scores(share, documents))
    section = appendix.rating(_study(root))
    assert section is not None
    table = section.blocks[0]
    assert isinstance(table, Table)
    column = table.head.index("stability")
    return table.rows[0][column].text[0], section


def _study(root: Path, lang: str = "en") -> Subject:
    return read_subject(open_results([str(root)]), Say(lang))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "last", "documents", "grade"),
    [
        ("a fall is shown", {"select": 0.5, "confirm": 0.2}, 60, "C"),
        ("the last is shown better", {"select": 0.5, "confirm": 0.9}, 60, "A"),
        ("the set could show nothing", {"select": 0.5, "confirm": 0.2}, 5, "B"),
        ("the set could show little", {"select": 0.5, "confirm": 0.58}, 30, "B"),
        ("a fall would have been seen", {"select": 0.895, "confirm": 0.602}, 3000, "A"),
    ],
)
def test_the_grade_of_stability_says_what_was_shown_and_what_could_be(
    tmp_path: Path, name: str, last: dict[str, float], documents: int, grade: str
) -> None:
    stable, section = stability(tmp_path, {"select": 0.9, "confirm": 0.6}, last, documents=documents)
    assert stable == grade, name
    rules = section.blocks[1]
    assert isinstance(rules, Points)
    assert any("is shown better" in rule and "B if the set cannot detect that" in rule for rule in rules.items)
