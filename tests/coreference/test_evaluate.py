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
from coref_automl.coreference.documents import CorefDocument, write_documents
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
    return shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("evaluated"))


def found_conll(run: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> float:
    assert command(["coref", "evaluate", str(run), "--data", str(data), "--device", "cpu", "--json"]) == 0
    return float(json.loads(capsys.readouterr().out)["estimates"]["found"]["conll"]["value"])


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
    assert train_again(own) == 2
    assert f"remove {own / 'seed-0'} and run the same command again" in capsys.readouterr().err
    assert (own / "coref_results.json").read_bytes() == before


def test_stored_answers_are_for_the_same_text(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [other_tale(number) for number in range(2)]
    blurred = [replace(each, text="".join(c if c.isspace() else "가" for c in each.text)) for each in documents]
    for folder, texts in (("first", documents), ("second", blurred)):
        (tmp_path / folder).mkdir()
        write_documents(tmp_path / folder / "other.jsonl", texts)
    clear = found_conll(own, tmp_path / "first" / "other.jsonl", capsys)
    (kept,) = (own / "seed-0" / "evaluated").iterdir()
    written = kept.stat().st_mtime_ns
    assert found_conll(own, tmp_path / "second" / "other.jsonl", capsys) < clear
    assert found_conll(own, tmp_path / "first" / "other.jsonl", capsys) == clear
    assert kept.stat().st_mtime_ns == written
    assert len(list(kept.parent.iterdir())) == 2


@pytest.mark.parametrize("name", ["head.safetensors", "model.safetensors"])
def test_stored_answers_are_of_the_same_weights(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data = tmp_path / "other.jsonl"
    write_documents(data, [other_tale(number) for number in range(2)])
    before = found_conll(own, data, capsys)
    weights = own / "seed-0" / "model" / name
    save_file({key: torch.zeros_like(value) for key, value in load_file(weights).items()}, weights, {"format": "pt"})
    assert found_conll(own, data, capsys) < before
