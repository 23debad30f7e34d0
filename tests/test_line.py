"""The whole line on a tiny model: every stage runs, the second call redoes nothing, an interruption costs nothing."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run as command
from coref_automl.comparison.coreference_runs import find_coreference
from coref_automl.config import read_recipe
from coref_automl.coreference.data import write_documents
from coref_automl.corpus.synthetic.writer import documents
from coref_automl.errors import CorefError, FolderError, RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.line import (
    CoreferenceStage,
    EvaluateStage,
    LineRecipe,
    PrepareStage,
    RelationStage,
    TrainStage,
    line_recipe,
    run_line,
)
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.progress import Progress
from coref_automl.report.printout import compare
from tests.coreference.conftest import tale

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer((document.document.text for document in documents(20, 5)), vocab_size=1_200)
    build_masked_lm("tiny", tokenizer, seq_len=128, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def recipe(model: str) -> LineRecipe:
    return LineRecipe(
        model=model,
        prepare=PrepareStage(("bundled:synthetic",), seq_len=128, limit=8, near_duplicates=False),
        train=TrainStage(objectives=("mlm", "entity"), batch=16, learning_rate=1e-3),
        evaluate=EvaluateStage(words="none", per_source=12),
        relation=RelationStage(rows=60, epochs=1, scheme="typed"),
    )


def state(folder: Path) -> dict[str, bytes]:
    """The bytes of what was computed: weights and scores."""
    found = [*folder.rglob("model.safetensors"), *folder.rglob("items.jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.slow
def test_the_line_ends_with_a_recommendation_and_redoes_nothing(
    recipe: LineRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "line"
    result = run_line(recipe, out, progress=Progress())
    assert result.recommendation not in capsys.readouterr().err  # printed once, at the end
    assert Path(result.best_trained).is_dir()
    keep_the_base = "Nothing here is shown to beat the base model" in result.recommendation
    assert result.chosen == (recipe.model if keep_the_base else result.best_trained)
    assert (f"Chosen: the base {recipe.model}" in str(result)) == keep_the_base
    assert Path(result.report).read_text("utf-8").startswith("<!")
    assert {path.name for path in (out / "report").iterdir()} >= {"report.html", "report.md", "results.csv"}
    page = Path(result.report).read_text("utf-8")
    data = json.loads(page.split('id="page-data">')[1].split("</script>")[0])["explorer"]
    assert data["items"]
    assert all(item["text"] for item in data["items"])
    assert f"--eval-set {out / 'evalset'}" in page
    started = re.findall(r"coref-automl train --model (\S+)", page)
    assert len(set(started)) == len(started)
    assert result.relation is not None
    assert result.relation["n"] == 200
    assert json.loads((out / "result.json").read_text("utf-8"))["recommendation"] == result.recommendation
    shown = str(result)
    assert result.recommendation in shown
    assert "coref-automl compare" in shown
    assert "coref-automl adapt" not in shown
    for step in result.next_steps[-1].split(" && "):
        assert command(step.split()[1:]) == 0
    assert "-s1/checkpoint" in str(compare(out / "runs"))
    before, stamps = state(out), {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    again = run_line(recipe, out)
    assert again == result
    assert state(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == stamps


@pytest.mark.journey
@pytest.mark.slow
def test_annotated_texts_send_the_base_and_the_chosen_checkpoint_through_coreference(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "tales.jsonl", [tale(number) for number in range(4)])
    stages = {
        "prepare": {"sources": ["bundled:synthetic"], "seq_len": 128, "limit": 8, "near_duplicates": False},
        "train": {"objectives": ["entity"], "batch": 16, "learning_rate": 1e-3},
        "evaluate": {"words": "none", "per_source": 12},
        "coref": {"data": "none.jsonl", "epochs": 1},
    }
    (tmp_path / "line.yaml").write_text(json.dumps(stages), "utf-8")
    asked = ["adapt", "--recipe", "line.yaml", "--model", model, "--out", "line", "--lang", "en", "--json"]
    assert command(asked) == 2  # before anything is trained
    assert not Path("line/runs").exists()
    capsys.readouterr()
    assert command([*asked, "--coref", "tales.jsonl"]) == 0
    result = json.loads(capsys.readouterr().out)
    runs = {run.name: run for run in find_coreference(["line/coreference"])}
    assert [runs[name].seeds for name in ("base", "chosen")] == [[0, 1], [0, 1]]
    assert runs["base"].conditions["folds"] == 4  # as many as there are documents
    made = runs["chosen"].pretraining
    assert made is not None
    assert (made.objective, made.base_bytes) == ("entity", runs["base"].weights)
    assert result["coreference"].startswith("Outside check, coreference (gold-mention CoNLL, 4 documents): entity 128 - ")
    page = Path("line/report/report.md").read_text("utf-8")
    assert "Does the adaptation carry over to coreference?" in page
    assert result["coreference"] in page
    before = state(Path("line"))
    assert command([*asked, "--coref", "tales.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["coreference"] == result["coreference"]
    assert state(Path("line")) == before


@pytest.mark.journey
@pytest.mark.slow
def test_an_interrupted_line_ends_with_the_same_numbers(
    recipe: LineRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = dataclasses.replace(recipe, relation=None)
    whole = run_line(short, tmp_path / "whole")
    from coref_automl.training import trainer

    saved = trainer.MaskedTrainer._save_checkpoint
    seen: list[int] = []

    def interrupted(self: Any, *arguments: Any) -> None:
        saved(self, *arguments)
        seen.append(self.state.global_step)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer.MaskedTrainer, "_save_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_line(short, tmp_path / "broken")
    monkeypatch.setattr(trainer.MaskedTrainer, "_save_checkpoint", saved)
    mended = run_line(short, tmp_path / "broken")
    assert mended.recommendation == whole.recommendation
    weights = {name: data for name, data in state(tmp_path / "whole").items() if name.endswith("safetensors")}
    assert weights == {name: data for name, data in state(tmp_path / "broken").items() if name.endswith("safetensors")}


@pytest.mark.journey
def test_last_checkpoints_are_judged_on_all_documents_and_without_training_nothing_is_shown(
    recipe: LineRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training switched off: the runs end with the weights of the base, and the line says that nothing beats it."""
    monkeypatch.chdir(tmp_path)
    train = dataclasses.replace(recipe.train, learning_rate=0.0, save_every=0)
    off = dataclasses.replace(recipe, train=train, relation=None, lang="en")
    result = run_line(off, tmp_path / "line")
    assert result.recommendation.startswith("Nothing here is shown to beat the base model")
    assert result.recommendation.count("the same on every item") == 2
    table = compare(tmp_path / "line" / "runs")
    real = len(EvalSet.open(tmp_path / "line" / "evalset").items["real"])
    assert (table.half, table.items) == ("all", real)
    page = Path(result.report).read_text("utf-8")
    assert '<h1 class="headline">Keep the base: nothing here is shown to beat it</h1>' in page


@pytest.mark.slow
def test_other_relation_rows_are_refused_and_another_choice_is_tuned_beside_the_first(recipe: LineRecipe, tmp_path: Path) -> None:
    write_documents(tmp_path / "tales.jsonl", [tale(number) for number in range(4)])
    coref = CoreferenceStage(str(tmp_path / "tales.jsonl"), folds=2, seeds=1, epochs=1)
    out, shared = tmp_path / "line", dataclasses.replace(recipe, coref=coref)
    mlm, entity = (
        dataclasses.replace(shared, train=dataclasses.replace(recipe.train, objectives=(name,))) for name in ("mlm", "entity")
    )
    run_line(mlm, out)
    with pytest.raises(FolderError, match="relation was begun with train "):
        run_line(dataclasses.replace(mlm, relation=RelationStage(rows=80, epochs=1)), out)
    result = run_line(entity, out)
    step = Path(result.best_trained).name
    assert {path.name for path in out.glob("relation*")} == {"relation", f"relation-entity-{step}", "relation-rows"}
    assert {path.name for path in (out / "coreference").iterdir() if path.is_dir()} == {"base", "chosen", f"chosen-entity-{step}"}
    assert "mlm" not in str(result.coreference)
    assert run_line(entity, out) == result


@pytest.mark.slow
def test_random_weights_are_not_suggested_for_filling(recipe: LineRecipe, tmp_path: Path) -> None:
    train = dataclasses.replace(recipe.train, objectives=("mlm",))
    fresh = dataclasses.replace(recipe, model="new:tiny", tokenizer=recipe.model, train=train, relation=None)
    result = run_line(fresh, tmp_path / "line")
    (fill,) = (step for step in result.next_steps if "coref-automl fill" in step)
    assert fill.endswith(f'수도이다." --model {result.best_trained}')


def test_a_folder_that_holds_something_else_is_refused(recipe: LineRecipe, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", "utf-8")
    with pytest.raises(FolderError, match="choose another --out"):
        run_line(recipe, tmp_path)
    assert (tmp_path / "thesis.txt").read_text("utf-8") == "mine"


def test_a_model_that_cannot_be_read_leaves_nothing_behind(recipe: LineRecipe, tmp_path: Path) -> None:
    with pytest.raises(CorefError):
        run_line(dataclasses.replace(recipe, model=str(tmp_path / "none")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_options_win_over_the_file_and_what_is_missing_is_named(tmp_path: Path) -> None:
    smoke = ROOT / "recipes" / "smoke.yaml"
    chosen = line_recipe(smoke, {"model": "other", "prepare": {"seq_len": 64, "sources": None}})
    assert (chosen.model, chosen.prepare.seq_len) == ("other", 64)
    assert chosen.prepare.sources == ("bundled:synthetic",)
    spoken = tmp_path / "spoken.yaml"
    spoken.write_text("model: m\nlang: en\nseed: 5\nprepare: {sources: [local:a]}\n", "utf-8")
    kept, changed = line_recipe(spoken, {"lang": None, "seed": None}), line_recipe(spoken, {"lang": "ko", "seed": 0})
    assert (kept.lang, kept.seed, changed.lang, changed.seed) == ("en", 5, "ko", 0)
    with pytest.raises(RecipeError, match="--model"):
        line_recipe(None, {"prepare": {"sources": ["local:a"]}})
    with pytest.raises(RecipeError, match="--source"):
        line_recipe(None, {"model": "m"})


def test_rows_to_score_need_rows_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["adapt", "--model", "m", "--source", "local:a", "--out", str(tmp_path / "out")]
    assert command([*asked, "--re-dev", "dev.json"]) == 2
    assert "dev (--re-dev) needs rows to train on; name them with --re-train" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("model: m\nprepare: {sources: [local:a], seq_length: 5}\n", "utf-8")
    with pytest.raises(RecipeError, match="seq_len"):
        read_recipe(path, LineRecipe)
    path.write_text("modell: m\n", "utf-8")
    with pytest.raises(RecipeError, match="unknown key 'modell'"):
        line_recipe(path, {})
