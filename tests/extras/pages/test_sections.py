"""A section is one function and one line in the table: nothing is drawn that the table does not list, and none is forgotten."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from coref_automl.base.say import Lang, Say
from coref_automl.comparison.reader import open_results
from coref_automl.extras.pages import charts, sections
from coref_automl.extras.pages.checkpoint_report import SECTIONS, draw_sections
from coref_automl.extras.pages.sections import Subject, read_subject
from tests.comparison.conftest import Maker, Model
from tests.report.tables import silent_tables


@pytest.fixture
def study(study_source: Path) -> Subject:
    return read_subject(open_results([str(study_source)]), Say("en"))


def test_every_section_module_is_in_the_table() -> None:
    names = {path.stem for path in Path(sections.__file__).parent.glob("*.py")} - {"__init__"}
    modules = {name: getattr(sections, name) for name in names}
    assert all(isinstance(module, ModuleType) for module in modules.values())
    assert {draw.__module__.rpartition(".")[2] for draw in SECTIONS} == names
    assert len(set(SECTIONS)) == len(SECTIONS)


def test_every_question_of_the_answer_is_a_section_that_leads_with_its_claim(study: Subject) -> None:
    drawn = {section.id: section for section in draw_sections(study)}
    assert {"arms", "checkpoints", "data", "reading"} <= set(drawn)
    for question in study.answer.questions:
        verdict = drawn[question.id].verdict
        assert verdict is not None
        assert verdict.badge
        assert question.tested
        assert verdict.estimate == question.lead.difference


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_every_table_says_which_documents_it_shows(study_source: Path, lang: Lang) -> None:
    """With targets: every section that a folder of evaluations can have."""
    subject = read_subject(open_results([str(study_source)]), Say(lang), target={"real1": 0.5, "real5": 0.6})
    drawn = draw_sections(subject)
    assert len(drawn) > 10
    assert silent_tables(drawn) == []


def test_parts_follow_each_other_and_evidence_comes_first(study: Subject) -> None:
    parts = [section.part for section in draw_sections(study)]
    assert list(dict.fromkeys(parts)) == ["evidence", "questions", "appendix"]
    assert parts == sorted(parts, key=["evidence", "questions", "appendix"].index)


def test_a_single_checkpoint_raises_no_question_of_choice(evaluated: Maker) -> None:
    root = evaluated([Model("base", 0, -1.0), Model("entity_a", 100, 0.5)])
    alone = read_subject(open_results([str(root)]), Say("en"))
    answered = {section.id for section in draw_sections(alone) if section.answer}
    assert answered <= {"base", "lambada", "sources"}


def test_the_drawing_library_is_bundled_once_and_not_read_from_a_file_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    monkeypatch.setenv("COREF_AUTOML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "bundled </script>")
    bundled = charts.runtime.__wrapped__
    assert bundled() == "bundled <\\/script>"
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text("kept", "utf-8")
    assert bundled() == "kept"
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    assert bundled() == "bundled <\\/script>"
    monkeypatch.setenv("COREF_AUTOML_CACHE", str(kept / "no folder"))
    assert bundled() == "bundled <\\/script>"
