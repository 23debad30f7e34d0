"""Coreference runs as outside checks: kept whole, named if damaged, archived without their text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coref_automl.comparison.archive import archive
from coref_automl.comparison.reader import find_runs
from coref_automl.comparison.runs import TaskRun
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.extras.coreference.train import train_coreference
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.extras.coreference.conftest import recipe


def cross_fit(data: Path, model: Path, out: Path) -> None:
    train_coreference(recipe(data, model, out, folds=2, learning_rate=1e-6, epochs=1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path, tales_file: Path) -> Path:
    """A folder with one run. Read only."""
    root = tmp_path_factory.mktemp("compared")
    cross_fit(tales_file, encoder_folder, root / "base")
    return root


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "coref")


def found_in(folder: Path) -> dict[str, TaskRun]:
    return {run.name: run for run in find_runs([str(folder)]).checks["coreference"]}


@pytest.mark.parametrize(("file", "text"), [("documents.npz", None), ("coref_results.json", "[1]")])
def test_a_damaged_run_is_named(copied: Path, file: str, text: str | None) -> None:
    damaged = copied / "base" / file
    damaged.write_text(text, "utf-8") if text else damaged.unlink()
    assert found_in(copied) == {}
    assert len(find_runs([str(copied)]).unread) == 1


def test_a_run_that_lost_a_file_is_whole_again_after_the_same_command(
    trained: Path, copied: Path, encoder_folder: Path, tales_file: Path
) -> None:
    run = copied / "base"
    (run / "documents.npz").unlink()
    stored = json.loads((run / "coref_results.json").read_text("utf-8"))
    old = {name: value for name, value in stored.items() if name not in ("conditions", "pretraining")}
    (run / "coref_results.json").write_text(json.dumps(old), "utf-8")
    models = {path: path.stat().st_mtime_ns for path in run.rglob("head.safetensors")}
    assert found_in(copied) == {}
    cross_fit(tales_file, encoder_folder, run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("head.safetensors")} == models
    restored, original = found_in(copied)["base"], found_in(trained)["base"]
    assert restored.result.conditions == original.result.conditions
    assert restored.facts.sums["gold"].tolist() == original.facts.sums["gold"].tolist()


def test_an_archive_keeps_no_text_and_a_run_beside_it_counts_once(
    trained: Path, tales: tuple[CorefDocument, ...], tmp_path: Path
) -> None:
    model = Model("base", 0, -1.0)
    write_evaluation(tmp_path / "runs", model, make_scores(model, documents=20))
    assert archive(tmp_path / "runs", trained, out=tmp_path / "kept").runs["coreference"] == 1
    for path in (tmp_path / "kept" / "coreference").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert str(trained.parent).encode() not in content
        assert not any(tale.id.encode() in content or tale.text[:8].encode() in content for tale in tales)
    both = find_runs([str(trained), str(tmp_path / "kept")])
    assert [run.name for run in both.checks["coreference"]] == ["base"]
    assert len(both.all[0].copies) == 1
