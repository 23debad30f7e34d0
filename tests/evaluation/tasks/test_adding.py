"""A new task is one file in the tasks folder and one line of the table: prepare eval and evaluate know it by that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import coref_automl
from tests.evaluation.test_prepare import text_of, write

PACKAGE = Path(coref_automl.__file__).parent
EVALUATE = ("evaluate", "bundled:ko-mini", "--eval-set", "set", "--device", "cpu")

LAST_MENTION = '''
"""Last items. In: a parsed document. Out: the last occurrence of its first repeated noun, hidden."""

from coref_automl.corpus.chains import chains
from coref_automl.evaluation.tasks.task import ClozeTask, Found


def find(read, entry, choices):
    for first, *_, last in chains(read.mentions, cap=None):
        return Found([read.item("last-noun", last.span, first.span)])
    return Found()


TASK = ClozeTask(name="last-noun", label="Last noun", find=find)
'''

MARKED = '''
"""Marked items. In: rows with `text` and `word`. Out: the word's last place in its text, hidden."""

from dataclasses import dataclass

from coref_automl.evaluation.tasks.task import ClozeTask, Found, Rows, local_rows
from coref_automl.base.records import Document


@dataclass(frozen=True)
class Marked:
    document: Document
    word: str


def read(row, number, name):
    text, word = row.get("text"), row.get("word")
    return Marked(Document(f"{name}-{number}", name, text), word) if word in text else "the word is not in its text"


def find(read, entry, choices):
    start = read.text.rindex(entry.word)
    return Found([read.item("marked", (start, start + len(entry.word)))])


TASK = ClozeTask("marked", "Marked", find, rows=Rows(lambda name: local_rows(name, needs=("text", "word")), read))
'''


@pytest.fixture
def added(tmp_path: Path) -> Path:
    """The package with two more tasks: links to every file of it, and a copy of the tasks folder with two files and two lines."""
    package = tmp_path / "package" / "coref_automl"
    tasks = package / "evaluation" / "tasks"
    tasks.mkdir(parents=True)
    for folder in (Path(), Path("evaluation")):
        for path in (PACKAGE / folder).iterdir():
            if path.name not in ("evaluation", "tasks", "__pycache__"):
                (package / folder / path.name).symlink_to(path)
    for path in (PACKAGE / "evaluation" / "tasks").glob("*.py"):
        (tasks / path.name).write_text(path.read_text("utf-8"), "utf-8")
    (tasks / "last.py").write_text(LAST_MENTION, "utf-8")
    (tasks / "marked.py").write_text(MARKED, "utf-8")
    table = (tasks / "__init__.py").read_text("utf-8")
    assert '"lambada")' in table
    table = table.replace('"lambada")', '"lambada", "last", "marked")')
    (tasks / "__init__.py").write_text(table, "utf-8")
    return package.parent


def run(package: Path, *words: str | Path, at: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "coref_automl.cli", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(package), "CUDA_VISIBLE_DEVICES": "-1", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=at,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.journey
def test_a_new_task_goes_through_prepare_eval_and_evaluate(added: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "news.jsonl", [{"id": f"n{number}", "text": text_of(number)} for number in range(6)])
    marked = write(tmp_path / "marked.jsonl", [{"text": text_of(7), "word": "도서관"}, {"text": text_of(8), "word": "바다"}])
    tasks = ["--task", "last-noun", "--task", "marked"]
    inputs = ["--source", source, "--file", f"marked={marked}", "--all-documents"]
    shown = run(added, "prepare", "eval", "--model", "bundled:ko-mini", *tasks, *inputs, "--out", "set", at=tmp_path)
    assert "last-noun: 6 items" in shown
    assert "marked: 1 items" in shown
    assert "the word is not in its text 1" in shown
    told = run(added, *EVALUATE, "--lang", "en", at=tmp_path)
    assert "Last noun@1" in told
    assert "Marked@1" in told
    result = json.loads(run(added, *EVALUATE, "--json", at=tmp_path))
    assert set(result["estimates"]) <= {"last_noun1", "marked1"}
    assert result["counted"].keys() == {"last-noun", "marked"}
    assert result["estimates"]["last_noun1"]["n"] == round(6 * result["counted"]["last-noun"]) > 0
