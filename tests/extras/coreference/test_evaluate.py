"""A run on other documents: its answers lie apart from those to its own, and are used again for the same text and model alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from coref_automl.cli.app import run as command
from coref_automl.extras.coreference.documents import CorefDocument, write_documents
from tests.extras.coreference.conftest import tale

OPENING = "옛날 일이다. "


def other_tale(number: int) -> CorefDocument:
    """A tale that no run of these tests has seen."""
    known = tale(number)
    moved = tuple(replace(m, start=m.start + len(OPENING), end=m.end + len(OPENING)) for m in known.mentions)
    return CorefDocument(f"other-{number}", OPENING + known.text, moved)


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("evaluated"))


def found_conll(run: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> float:
    assert command(["coref", "evaluate", str(run), "--data", str(data), "--device", "cpu", "--json"]) == 0
    return float(json.loads(capsys.readouterr().out)["estimates"]["found"]["conll"]["value"])


def evaluate(run: Path, data: Path) -> int:
    return command(["coref", "evaluate", str(run), "--data", str(data), "--device", "cpu"])


def train_again(run: Path) -> int:
    return command(["coref", "train", "--recipe", str(run / "recipe.yaml"), "--out", str(run)])


def test_documents_under_the_name_of_the_runs_own_leave_its_answers_alone(copied: Path, tmp_path: Path) -> None:
    data = tmp_path / "tales-test.jsonl"
    write_documents(data, [other_tale(number) for number in range(3)])
    answers = (copied / "seed-0" / "answers" / "tales-test.jsonl").read_bytes()
    result = json.loads((copied / "coref_results.json").read_text("utf-8"))
    assert evaluate(copied, data) == 0
    assert train_again(copied) == 0
    assert (copied / "seed-0" / "answers" / "tales-test.jsonl").read_bytes() == answers
    assert json.loads((copied / "coref_results.json").read_text("utf-8")) == {**result, "run": str(copied)}


def test_answers_to_other_documents_than_the_runs_own_are_refused(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "other.jsonl"
    write_documents(data, [other_tale(number) for number in range(2)])
    assert evaluate(copied, data) == 0
    (answers,) = (copied / "seed-0" / "evaluated").iterdir()
    shutil.copy(answers, copied / "seed-0" / "answers" / "tales-test.jsonl")
    result = (copied / "coref_results.json").read_bytes()
    assert train_again(copied) == 2
    assert f"remove {copied / 'seed-0'} and run the same command again" in capsys.readouterr().err
    assert (copied / "coref_results.json").read_bytes() == result


def test_stored_answers_are_for_the_same_text(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [other_tale(number) for number in range(2)]
    blurred = [replace(each, text="".join(c if c.isspace() else "가" for c in each.text)) for each in documents]
    for folder, texts in (("first", documents), ("second", blurred)):
        (tmp_path / folder).mkdir()
        write_documents(tmp_path / folder / "other.jsonl", texts)
    first = found_conll(copied, tmp_path / "first" / "other.jsonl", capsys)
    (answers,) = (copied / "seed-0" / "evaluated").iterdir()
    written = answers.stat().st_mtime_ns
    assert found_conll(copied, tmp_path / "second" / "other.jsonl", capsys) < first
    assert found_conll(copied, tmp_path / "first" / "other.jsonl", capsys) == first
    assert answers.stat().st_mtime_ns == written
    assert len(list(answers.parent.iterdir())) == 2


@pytest.mark.parametrize("name", ["head.safetensors", "model.safetensors"])
def test_stored_answers_are_of_the_same_weights(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    data = tmp_path / "other.jsonl"
    write_documents(data, [other_tale(number) for number in range(2)])
    original = found_conll(copied, data, capsys)
    weights = copied / "seed-0" / "model" / name
    save_file({key: torch.zeros_like(value) for key, value in load_file(weights).items()}, weights, {"format": "pt"})
    assert found_conll(copied, data, capsys) < original
