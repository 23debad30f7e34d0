"""A run on other documents: its answers lie apart from those to its own, and are used again for the same text and model alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from coref_automl.cli.app import run as command
from coref_automl.coreference.data import CorefDocument, write_documents
from tests.coreference.conftest import tale

OPENING = "옛날 일이다. "


def other_tale(number: int) -> CorefDocument:
    """A tale that no run of these tests has seen."""
    known = tale(number)
    moved = tuple(replace(m, start=m.start + len(OPENING), end=m.end + len(OPENING)) for m in known.mentions)
    return CorefDocument(f"other-{number}", OPENING + known.text, moved)


@pytest.fixture
def own(run: Path, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return shutil.copytree(run, tmp_path / "run")


def evaluate(run: Path, data: Path) -> int:
    return command(["coref", "evaluate", str(run), "--data", str(data), "--device", "cpu"])


def train_again(run: Path) -> int:
    return command(["coref", "train", "--recipe", str(run / "recipe.yaml"), "--out", str(run)])


def test_documents_under_the_name_of_the_runs_own_leave_its_answers_alone(own: Path, tmp_path: Path) -> None:
    data = tmp_path / "tales-test.jsonl"
    write_documents(data, [other_tale(number) for number in range(3)])
    answers = (own / "seed-0" / "answers" / "tales-test.jsonl").read_bytes()
    before = json.loads((own / "coref_results.json").read_text("utf-8"))
    assert evaluate(own, data) == 0
    assert command(["coref", "compare", str(own)]) == 0
    assert train_again(own) == 0
    assert (own / "seed-0" / "answers" / "tales-test.jsonl").read_bytes() == answers
    assert json.loads((own / "coref_results.json").read_text("utf-8")) == {**before, "run": str(own)}


def test_answers_to_other_documents_than_the_runs_own_are_refused(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "other.jsonl"
    write_documents(data, [other_tale(number) for number in range(2)])
    assert evaluate(own, data) == 0
    (kept,) = (own / "seed-0" / "evaluated").iterdir()
    shutil.copy(kept, own / "seed-0" / "answers" / "tales-test.jsonl")
    before = (own / "coref_results.json").read_bytes()
    assert command(["coref", "compare", str(own)]) == 2
    assert "answers to different documents" in capsys.readouterr().err
    assert train_again(own) == 2
    assert f"remove {own / 'seed-0'} and run the same command again" in capsys.readouterr().err
    assert (own / "coref_results.json").read_bytes() == before
