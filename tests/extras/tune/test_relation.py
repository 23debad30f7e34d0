"""The same engine tunes relation extraction: epochs are reports, dev is the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import RecipeError, RelationDataError
from coref_automl.base.progress import quiet
from coref_automl.cli.options import recipe_from
from coref_automl.extras.relation.data import read_relations
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.relation import open_relation
from coref_automl.extras.tune.run import run_study
from tests.extras.tune.conftest import World
from tests.extras.tune.inline import InlineLauncher


@pytest.fixture(scope="module")
def encoder(world: World, tmp_path_factory: pytest.TempPathFactory) -> str:
    from coref_automl.models.build import build_masked_lm
    from coref_automl.models.load import load_tokenizer

    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = load_tokenizer(str(world.tokenizer))
    build_masked_lm("tiny", tokenizer, seq_len=64).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


def study(encoder: str, out: Path, **changes: object) -> TuneRecipe:
    values: dict[str, object] = {
        "models": (encoder,),
        "out": str(out),
        "task": "re",
        "train": "bundled:relations",
        "dev": "bundled:relations-dev",
        "epochs": 2,
        "settings": {"max_rows": 60, "max_length": 64, "patience": 0},
        "space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "scheme": ["typed", "plain"]},
        "trials": 2,
        "finalists": 1,
        "seeds": 2,
        "device": "cpu",
        "lang": "en",
    }
    return TuneRecipe(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.journey
def test_a_study_of_relation_extraction_ends_with_a_recipe_that_trains(encoder: str, tmp_path: Path) -> None:
    launcher = InlineLauncher()
    result = run_study(study(encoder, tmp_path / "study"), launcher=launcher, wait=lambda: None)
    assert result.trials["complete"] + result.trials["pruned"] == 2
    assert result.final is not None
    assert "recommended settings" in result.sentence
    best = recipe_from(RelationRecipe, {}, "test", tmp_path / "study" / "best-recipe.yaml")
    assert best.seeds == 3
    assert best.learning_rate == result.final.best.params["learning_rate"]
    assert (tmp_path / "study" / "best-model" / "relation.json").is_file()
    table = (tmp_path / "study" / "trials.csv").read_text("utf-8").splitlines()
    assert table[0].startswith("trial,state,micro_f1,origin,name,learning_rate,scheme")


def test_bad_rows_can_be_skipped_in_a_study_as_in_a_run(encoder: str, tmp_path: Path) -> None:
    rows = [row.to_json() for row in read_relations("bundled:relations-dev", max_rows=40).rows]
    for name, wrong in (("train", 3), ("dev", 7)):
        held = [{**klue(row), "label": "per:nothing"} if number == wrong else klue(row) for number, row in enumerate(rows)]
        held[wrong + 4] = unmarkable(held[wrong + 4])
        (tmp_path / f"{name}.json").write_text(json.dumps(held, ensure_ascii=False), "utf-8")
    files = {"train": str(tmp_path / "train.json"), "dev": str(tmp_path / "dev.json")}
    small: dict[str, object] = {**files, "epochs": 1, "trials": 1, "seeds": 1}
    with pytest.raises(RelationDataError, match="in a recipe of re grid or tune"):
        open_relation(study(encoder, tmp_path / "s", **small), tmp_path / "s", quiet())
    settings = {"max_length": 64, "patience": 0, "skip_bad": True}
    recipe = study(encoder, tmp_path / "s", settings=settings, **small)
    result = run_study(recipe, launcher=InlineLauncher(), wait=lambda: None)
    assert result.final is not None
    problem = open_relation(recipe, tmp_path / "s", quiet())
    jobs = [problem.job(result.final.best.params, seed, confirm=True) for seed in result.final.judging]
    assert len(problem.judged.rows) == 39
    assert problem.paired(jobs, jobs, "confirm").items == 38  # one row could be read and not marked


def unmarkable(row: dict[str, Any]) -> dict[str, Any]:
    """A good row whose subject is longer than any window: it is read, and cannot be marked."""
    word = " ".join(["서울"] * 80)
    return {**row, "sentence": f"{word}는 서울에 있다.",
            "subject_entity": {"word": word, "start_idx": 0, "end_idx": len(word) - 1, "type": "ORG"},
            "object_entity": {"word": "서울", "start_idx": len(word) + 2, "end_idx": len(word) + 3, "type": "LOC"}}  # fmt: skip


def klue(row: dict[str, Any]) -> dict[str, Any]:
    """A row as KLUE writes it."""
    entities = {
        name: {"word": one["word"], "start_idx": one["start"], "end_idx": one["end"] - 1, "type": one["type"]}
        for name in ("subject", "object")
        for one in (row[name],)
    }
    return {"guid": row["guid"], "sentence": row["sentence"], "subject_entity": entities["subject"],
            "object_entity": entities["object"], "label": row["label"]}  # fmt: skip


def test_settings_that_relation_training_would_refuse_are_refused_at_once(encoder: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="Unknown scheme"):
        open_relation(study(encoder, tmp_path, space={"scheme": ["typed-punct", "typed-punkt"]}), tmp_path, quiet())
    with pytest.raises(RecipeError, match="label_smoothing should be from 0 to"):
        open_relation(study(encoder, tmp_path, space={"label_smoothing": {"low": 0.0, "high": 2.0}}), tmp_path, quiet())
    with pytest.raises(RecipeError, match="budget of a relation trial is in epochs"):
        study(encoder, tmp_path, max_tokens=100)


def test_a_trial_is_known_by_its_best_epoch_however_often_it_is_looked_at(encoder: str, tmp_path: Path) -> None:
    problem = open_relation(study(encoder, tmp_path, epochs=4), tmp_path, quiet())
    job = problem.job(problem.starts()[0].params, 0)
    epochs = [
        {"event": "epoch", "epoch": number, "epochs": 4, "micro_f1": score} for number, score in enumerate((30, 50, 45, 40), 1)
    ]
    polled = [report.value for epoch in epochs for report in problem.reports(job, iter([epoch]))]
    assert polled == [0.3, 0.5, 0.5, 0.5]
    assert [report.value for report in problem.reports(job, iter(epochs))] == polled
    lower = [{**epoch, "micro_f1": 20} for epoch in epochs]
    assert {report.value for report in problem.reports(job, iter(lower))} == {0.2}
