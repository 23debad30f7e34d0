"""Runs that share a name, checkpoints without a record, means of several seeds: each keeps to its own run and base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.comparison.bases import own_base
from coref_automl.comparison.reader import open_results
from coref_automl.report.subject import Subject, read_subject
from coref_automl.say import Say
from coref_automl.store import read_json, read_jsonl, write_json, write_jsonl
from tests.comparison.conftest import Model, make_scores, write_evaluation


def write(root: Path, *models: Model, weights: str = "", base: str = "base") -> None:
    for number, model in enumerate(models):
        path = write_evaluation(root, model, make_scores(model, documents=20, own=number)) / "result.json"
        held = read_json(path)
        held["fingerprints"]["weights"] += weights
        if model.step:
            held["provenance"]["base"] = base
        write_json(path, held)


def read_study(root: Path) -> Subject:
    return read_subject(open_results([str(root)]), Say("en"))


@pytest.mark.parametrize(
    ("share", "words", "judged"), [(0.05, True, "real_word"), (0.05, False, "real1_strict"), (0.3, True, "real1_strict")]
)
def test_strict_is_not_judged_where_it_can_reach_hardly_any_answer(
    tmp_path: Path, share: float, words: bool, judged: str
) -> None:
    write(tmp_path, Model("base", 0, -1.0), Model("entity", 100, 0.1), Model("entity", 200, 0.2))
    for path in tmp_path.rglob("result.json"):
        write_json(path, {**read_json(path), "single_entry_share": share})
        items = list(read_jsonl(path.with_name("items.jsonl")))
        write_jsonl(path.with_name("items.jsonl"), [item | ({} if words else {"word_rank": None}) for item in items])
    study = read_study(tmp_path)
    assert study.metric == judged
    assert any("strict has no room" in note for note in study.notes) == (judged == "real_word")


def test_two_runs_of_one_name_are_two_runs(tmp_path: Path) -> None:
    write(tmp_path / "x", Model("base", 0, -1.0), Model("entity", 100, 0.1), Model("entity", 200, 0.2))
    write(tmp_path / "y", Model("entity", 100, 0.8), Model("entity", 200, 0.9), weights="other")
    study = read_study(tmp_path)
    assert {run: [entry.name for entry in entries] for run, entries in study.runs().items()} == {
        "x-entity": ["x-entity/checkpoint-100", "x-entity/checkpoint-200"],
        "y-entity": ["y-entity/checkpoint-100", "y-entity/checkpoint-200"],
    }


@pytest.mark.parametrize("other", [{"seed": 1}, {"objective": "mlm"}, {"seq_len": 256}])
def test_runs_of_one_name_that_were_trained_differently_are_two_runs_even_without_a_common_step(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    write(tmp_path / "x", Model("base", 0, -1.0), Model("entity", 100, 0.1))
    write(tmp_path / "y", Model("entity", 200, 0.8, **other), Model("entity", 400, 0.9, **other))
    assert {run.split(" @")[0] for run in read_study(tmp_path).runs()} == {"x-entity", "y-entity"}


def test_a_run_that_moved_between_two_evaluations_stays_one(tmp_path: Path) -> None:
    write(tmp_path / "before", Model("base", 0, -1.0), Model("entity", 100, 0.1))
    write(tmp_path / "after", Model("entity", 200, 0.2))
    assert list(read_study(tmp_path).runs()) == ["entity"]


def test_a_checkpoint_without_a_record_is_taken_to_have_begun_from_the_studys_base(tmp_path: Path) -> None:
    write(tmp_path, Model("base", 0, -1.0), Model("entity", 100, 0.1), Model("entity", 200, 0.2))
    study = read_study(tmp_path)
    (first, *_) = study.runs()["entity"]
    without = replace(first, evaluation=replace(first.evaluation, provenance=None))
    assert study.base is not None
    assert own_base(study.entries, without, study.base) is study.base
