"""A section is one module and one line in the table: nothing is drawn that the table does not list, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from coref_automl.comparison.groups import read_groups
from coref_automl.report import sections
from coref_automl.report.language import Lang, Say
from coref_automl.report.page import Section, Text
from coref_automl.report.sections import SECTIONS, draw_sections
from coref_automl.report.subject import Subject, subject_of
from tests.comparison.conftest import Maker, Model
from tests.report.tables import silent_tables


@pytest.fixture
def study(study_source: Path) -> Subject:
    return subject_of(read_groups([str(study_source)])[0], say=Say("en"), margin=0.02, seed=0, target={})


def test_every_section_module_is_one_line_of_the_table() -> None:
    names = {path.stem for path in Path(sections.__file__).parent.glob("*.py")} - {"__init__"}
    modules = {name: getattr(sections, name) for name in names}
    assert all(isinstance(module, ModuleType) for module in modules.values())
    listed = list(SECTIONS.values())
    assert {draw.__module__.rpartition(".")[2] for draw in listed} == names
    assert len(listed) == len(names)


def test_sections_are_drawn_in_the_tables_order_under_the_tables_ids(study: Subject) -> None:
    drawn = [section.id for section in draw_sections(study)]
    assert drawn == [name for name in SECTIONS if name in drawn]
    assert {"arms", "recommended", "differences", "checkpoints", "data", "reading"} <= set(drawn)


def test_a_new_line_in_the_table_is_a_new_section_with_its_answer(study: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    added: Callable[[Subject], Section] = lambda _: Section("added", "Added?", (Text("So it is."),), answer="So it is.")  # noqa: E731
    monkeypatch.setitem(SECTIONS, "added", added)
    assert draw_sections(study)[-1].id == "added"


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_every_table_says_which_documents_it_shows(study_source: Path, lang: Lang) -> None:
    """With targets, and with a second set beside the first: every section that a folder of evaluations can have."""
    first, *_ = groups = read_groups([str(study_source)])
    made = subject_of(first, say=Say(lang), margin=0.02, seed=0, target={"real1": 0.5, "real5": 0.6})
    drawn = draw_sections(replace(made, others=(*groups[1:], replace(first, evalset="other"))))
    assert len(drawn) > 12
    assert "other-sets" in {section.id for section in drawn}
    assert silent_tables(drawn) == []


def test_parts_follow_each_other_and_evidence_comes_first(study: Subject) -> None:
    parts = [section.part for section in draw_sections(study)]
    assert list(dict.fromkeys(parts)) == ["evidence", "next", "questions", "appendix"]
    assert parts == sorted(parts, key=["evidence", "next", "questions", "appendix"].index)


def test_a_single_checkpoint_raises_no_question_of_choice(evaluated: Maker) -> None:
    root = evaluated([Model("base", 0, -1.0), Model("entity_a", 100, 0.5)])
    alone = subject_of(read_groups([str(root)])[0], say=Say("en"), margin=0.02, seed=0, target={})
    assert alone.alone
    assert [section.id for section in draw_sections(alone) if section.answer] == ["base"]
