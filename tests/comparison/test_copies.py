"""What is found twice counts once: a run beside its archive or its copy. Runs that only score alike stay two."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.superseded import drop_superseded
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.pages import charts
from tests.comparison.conftest import Maker, Model, make_scores, write_evaluation

MODELS = [
    Model("base", 0, -1.0),
    *(Model(f"mlm-s{seed}", 100, 0.0, objective="mlm", seed=seed) for seed in (0, 1)),
    *(Model(f"entity-s{seed}", 100, 0.5, seed=seed) for seed in (0, 1)),
]


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert command(["compare", *map(str, arguments), "--json"]) == 0
    table: dict[str, Any] = json.loads(capsys.readouterr().out)
    return table


def without_places(table: dict[str, Any]) -> str:
    """Rows and answer, whatever folders they name."""
    rows = [{name: value for name, value in row.items() if name != "path"} for row in table["rows"]]
    answer = {name: table["answer"][name] for name in ("action", "method", "highest", "questions", "power")}
    return json.dumps([rows, answer], sort_keys=True)


@pytest.fixture
def beside(evaluated: Maker, tmp_path: Path) -> Path:
    """Runs, and beside them their archive."""
    root = evaluated(MODELS)
    assert command(["archive", str(root), "--out", str(root / "kept")]) == 0
    folder = tmp_path.parent / f"{tmp_path.name}-both"
    shutil.copytree(root, folder / "runs", ignore=shutil.ignore_patterns("kept"))
    shutil.copytree(root / "kept", folder / "archive")
    return folder


def test_a_run_beside_its_archive_counts_once_and_compare_says_so(
    beside: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "runtime", lambda: None)
    capsys.readouterr()
    alone, both = compared(capsys, beside / "runs"), compared(capsys, beside)
    assert without_places(both) == without_places(alone)
    assert alone["notes"] == []
    assert [note for note in both["notes"] if note.startswith("Left out: 5 results that were found twice, such as ")]
    assert all(f"{beside}/archive" not in row["path"] for row in both["rows"])
    assert without_places(compared(capsys, beside / "archive", beside / "runs")) == without_places(alone)
    assert command(["report", str(beside), "--out", str(tmp_path / "page")]) == 0
    assert "5 results that were found twice" in (tmp_path / "page/report.md").read_text("utf-8")
    capsys.readouterr()
    assert command(["archive", str(beside), "--out", str(tmp_path / "again")]) == 0
    assert "5 evaluations" in capsys.readouterr().out


def test_the_archive_of_a_study_is_not_read_beside_the_study(beside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(beside / "runs" / "mlm-s0")  # what the study has no longer is in its archive alone
    (beside / ".coref-automl").write_text("experiment", "utf-8")
    capsys.readouterr()
    alone, study = compared(capsys, beside / "runs"), compared(capsys, beside)
    assert without_places(study) == without_places(alone)
    assert study["notes"] == []
    assert len(compared(capsys, beside / "archive")["rows"]) == len(MODELS)


def test_a_copied_run_given_beside_the_original_counts_once(
    evaluated: Maker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = evaluated(MODELS)
    copy = shutil.copytree(root / "entity-s0", tmp_path.parent / f"{tmp_path.name}-copy" / "entity-s0")
    alone, both = compared(capsys, root), compared(capsys, root, copy)
    assert without_places(both) == without_places(alone)
    inside = Path("entity-s0/evaluations/a-128/checkpoint-100")
    assert both["notes"] == [f"Left out: {copy.parent / inside} repeats {root / inside}"]


def test_runs_that_only_score_alike_stay_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Same weights and the same ranks: under another name, from another seed, or from another objective."""
    base, first = Model("base", 0, -1.0), Model("run", 100, 0.2)
    scores = make_scores(first, documents=40, own=1)
    for model in (base, first):
        write_evaluation(tmp_path / "x", model, scores if model is first else make_scores(base, documents=40, own=0))
    others = [Model("run", 100, 0.2, seed=1), Model("run", 100, 0.2, objective="mlm")]
    for number, model in enumerate(others):
        write_evaluation(tmp_path / f"y{number}", model, scores)
    named = shutil.copytree(tmp_path / "x" / "run", tmp_path / "x" / "named")
    table = compared(capsys, tmp_path)
    assert len(table["rows"]) == 2 + len(others) + 1
    assert not [note for note in table["notes"] if "repeats" in note or "twice" in note]
    assert named.is_dir()


def test_a_copy_of_an_evaluation_whose_weights_were_replaced_still_counts(evaluated: Maker, tmp_path: Path) -> None:
    """In an archive nothing can be replaced: what is said to be left out is what is left out."""
    (stored,) = [stored for stored in find_evaluations([evaluated(MODELS[:2])]) if stored.evaluation.provenance]
    evaluation, folder = stored.evaluation, stored.folder
    old = replace(stored, evaluation=replace(evaluation, fingerprints={**evaluation.fingerprints, "weights": "old"}))
    later = replace(
        evaluation, fingerprints={**evaluation.fingerprints, "weights": "new"}, evaluated_at="2099-01-01T00:00:00+00:00"
    )
    new = replace(stored, folder=folder.parents[1] / "other" / folder.name, evaluation=later)
    copy = replace(old, folder=tmp_path / "kept" / "set" / folder.name)
    kept, reasons = drop_superseded([old, new, copy])
    assert kept == [new, copy]
    assert [reason.startswith(str(folder)) for reason in reasons] == [True]


def test_an_evaluation_under_an_earlier_noun_table_is_left_out_and_named(
    evaluated: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another version of Kiwi tells other words to be nouns; then ranks cannot be compared."""
    root = evaluated(MODELS)
    for file in root.rglob("result.json"):
        result, is_earlier = read_json(file), "mlm-s0" in str(file)
        result["fingerprints"] |= {"nouns": "earlier" if is_earlier else "now"}
        write_json(file, result | {"evaluated_at": f"2026-01-0{2 - is_earlier}T00:00:00+00:00"})
    table = compared(capsys, root)
    assert "mlm-s0" not in json.dumps(table["rows"])
    assert any("mlm-s0" in note and "under an earlier noun table" in note for note in table["notes"])
