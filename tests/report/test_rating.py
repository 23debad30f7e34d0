"""Grades and equal training: what the last checkpoint is worth, and when two runs have been trained alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.scores import EQUAL
from coref_automl.evaluation.metrics import halves
from coref_automl.records import ItemScore
from coref_automl.report.language import Say
from coref_automl.report.page import Points, Section, Table, Text
from coref_automl.report.sections import equal_training, rating
from coref_automl.report.subject import Subject, subject_of
from tests.comparison.conftest import Model, make_scores, write_evaluation


def scores(share: dict[str, float], documents: int) -> list[ItemScore]:
    """Items of which this share is hit in each half, the same ones first for every model."""
    drawn = make_scores(Model("any", 1, 0.0), documents=documents, tasks=("real",), own=0)
    out = []
    for half in ("select", "confirm"):
        held = [one for one, of in zip(drawn, halves(drawn), strict=True) if of == half]
        out += [replace(one, strict_rank=1 if (at + 0.5) / len(held) < share[half] else 9) for at, one in enumerate(held)]
    return out


def stability(root: Path, peak: dict[str, float], last: dict[str, float], *, documents: int = 60) -> tuple[str, Section]:
    for step, share in ((100, peak), (200, last)):
        write_evaluation(root, Model("run", step, 0.0), scores(share, documents))
    section = rating.draw(_study(root))
    assert section is not None
    table = section.blocks[0]
    assert isinstance(table, Table)
    place = table.head.index("stability")
    return table.rows[0][place].text[0], section


def _study(root: Path, lang: str = "en") -> Subject:
    return subject_of(read_groups([str(root)])[0], say=Say(lang), margin=0.02, seed=0, target={})  # type: ignore[arg-type]


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
    found, section = stability(tmp_path, {"select": 0.9, "confirm": 0.6}, last, documents=documents)
    assert found == grade, name
    rules = section.blocks[1]
    assert isinstance(rules, Points)
    assert any("is shown better" in rule and "B if the set cannot detect that" in rule for rule in rules.items)


def near(root: Path, tokens: Sequence[int]) -> str | None:
    for number, count in enumerate(tokens):
        model = Model(f"run{number}", 100, 0.0, tokens=count)
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    section = equal_training.draw(_study(root))
    if section is None:
        return None
    assert isinstance(section.blocks[0], Text)
    return section.blocks[0].text


def test_equal_training_is_one_rule_and_the_page_says_it(tmp_path: Path) -> None:
    assert EQUAL == 0.05
    told = near(tmp_path / "three", (100_000, 104_000, 112_000))
    assert told is not None
    assert "Training is equal when tokens differ by at most 5%." in told
    assert told.endswith("No checkpoint comes that near in run2.")
    assert near(tmp_path / "two", (100_000, 112_000)) is None
