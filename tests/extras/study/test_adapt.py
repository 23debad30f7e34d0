"""The whole line on a tiny model: every stage runs, the second call redoes nothing, an interruption costs nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import CorefError, FolderError, RecipeError
from coref_automl.base.progress import Progress
from coref_automl.base.store import read_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.reader import find_runs
from coref_automl.corpus.sources import bundled_rows
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.coreference.documents import write_documents
from coref_automl.extras.study.adapt import Adapted, adapt, adapt_recipe
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.models.build import build_masked_lm, train_tokenizer
from coref_automl.report.printout import compare
from tests.extras.coreference.conftest import tale
from tests.printed import made_by, printed_in, wrong_with

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer((row["text"] for row in islice(bundled_rows("synthetic"), 20, 40)), vocab_size=1_200)
    build_masked_lm("tiny", tokenizer, seq_len=128, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def values(model: str, **changes: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "model": model,
        "lengths": [128],
        "texts": {"sources": ["bundled:synthetic"], "limit": 8, "near_duplicates": False},
        "methods": {"mlm": {}, "entity": {}},
        "train": {"batch": 16, "learning_rate": 1e-3, "epochs": 1},
        "evaluate": {"per_source": 12, "tasks": ["real"]},
        "relation": {"rows": 60, "settings": {"epochs": 1, "scheme": "typed"}},
    }
    return told | changes


Make = Callable[..., ExperimentRecipe]


@pytest.fixture
def recipe(model: str, tmp_path: Path) -> Make:
    return lambda **changes: adapt_recipe(None, {**values(model), "out": str(tmp_path / "line"), **changes})


def state(folder: Path) -> dict[str, bytes]:
    """The bytes of what was computed: weights and scores."""
    found = [*folder.rglob("model.safetensors"), *folder.rglob("items.jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.slow
def test_the_line_ends_with_a_recommendation_and_redoes_nothing(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = recipe()
    out = Path(wanted.out)
    result = adapt(wanted, progress=Progress())
    assert result.answer not in capsys.readouterr().err  # printed once, at the end
    assert Path(result.best_trained).is_dir()
    keep_the_base = result.answer.startswith(("Keep the base", "Undecided"))
    assert result.chosen == (wanted.model if keep_the_base else result.best_trained)
    assert (f"Chosen: the base {wanted.model}" in str(result)) == keep_the_base
    assert Path(result.report).read_text("utf-8").startswith("<!")
    assert {path.name for path in (out / "report").iterdir()} >= {"report.html", "report.md", "results.csv"}
    page = Path(result.report).read_text("utf-8")
    started = re.findall(r"coref-automl train --model (\S+)", page)
    assert len(set(started)) == len(started)
    assert result.checks["relation"]["n"] == 200
    assert json.loads((out / "result.json").read_text("utf-8"))["answer"] == result.answer
    shown = str(result)
    assert result.answer in shown
    assert "coref-automl compare" in shown
    assert "coref-automl adapt" not in shown
    assert command(["compare", str(out / "evaluations")]) == 0
    told = (shown, capsys.readouterr().out, (out / "report/report.md").read_text("utf-8"))
    printed = {line for text in told for line in printed_in(text)}
    assert {line.split()[1] for line in printed} >= {"compare", "fill", "report"}
    for line in printed:  # in whatever folder they are printed
        assert not wrong_with(line, made_by(printed)), line
    assert not (tmp_path / "evaluations").exists()  # nothing lies beside the folder
    before, stamps = state(out), {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    again = adapt(wanted)
    assert again == result
    assert state(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == stamps
    tables = [compare(out / "evaluations"), compare(out / "evaluations/mlm-128-s0")]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [compare(out / "evaluations"), compare(out / "evaluations/mlm-128-s0")] == tables
    assert {table.reference for table in tables} == {Path(wanted.model).name}


@pytest.mark.journey
@pytest.mark.slow
def test_annotated_texts_send_the_base_and_the_chosen_checkpoint_through_coreference(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "tales.jsonl", [tale(number) for number in range(4)])
    stages = values(model, methods={"entity": {}}, coreference={"data": "none.jsonl", "settings": {"epochs": 1}})
    stages = {key: value for key, value in stages.items() if key not in ("model", "relation")}
    (tmp_path / "line.yaml").write_text(json.dumps(stages), "utf-8")
    asked = ["adapt", "--recipe", "line.yaml", "--model", model, "--out", "line", "--lang", "en", "--json"]
    assert command(asked) == 2  # before anything is trained
    assert not Path("line/runs").exists()
    capsys.readouterr()
    assert command([*asked, "--coref", "tales.jsonl"]) == 0
    result = json.loads(capsys.readouterr().out)
    runs = {run.name: run for run in find_runs(["line/coreference"]).checks["coreference"]}
    (chosen,) = (run for name, run in runs.items() if name != "base")
    assert [run.seeds for run in (runs["base"], chosen)] == [[0, 1], [0, 1]]
    assert runs["base"].result.conditions["folds"] == 4  # as many as there are documents
    made = chosen.result.pretraining
    assert made is not None
    assert (made.objective, made.base_bytes) == ("entity", runs["base"].weights)
    asked_of = r"Does it carry over to coreference\? .*Coreference, CoNLL with gold mentions.*, checkpoint-2 - base"
    assert re.search(asked_of, result["answer"])
    page = Path("line/report/report.md").read_text("utf-8")
    assert "Does it carry over to coreference?" in page
    before = state(Path("line"))
    assert command([*asked, "--coref", "tales.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == result["answer"]
    assert state(Path("line")) == before


@pytest.mark.journey
@pytest.mark.slow
def test_an_interrupted_line_ends_with_the_same_numbers(recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> Adapted:
        return adapt(recipe(relation=None, out=str(tmp_path / name)))

    whole = run("whole")
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
        run("broken")
    monkeypatch.setattr(trainer.MaskedTrainer, "_save_checkpoint", saved)
    mended = run("broken")
    assert mended.answer == whole.answer
    weights = {name: data for name, data in state(tmp_path / "whole").items() if name.endswith("safetensors")}
    assert weights == {name: data for name, data in state(tmp_path / "broken").items() if name.endswith("safetensors")}


@pytest.mark.journey
def test_last_checkpoints_are_judged_on_all_documents_and_without_training_nothing_is_shown(
    recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training switched off: the runs end as the base began, so they are the same on every item."""
    monkeypatch.chdir(tmp_path)
    train = {"batch": 16, "learning_rate": 0.0, "epochs": 1, "save_every": 0}
    result = adapt(recipe(train=train, relation=None, lang="en"))
    assert result.answer.startswith("Keep the base: nothing here is shown to beat it.")
    assert "the same on every item" in result.answer
    assert result.chosen == recipe().model
    table = compare(tmp_path / "line" / "evaluations")
    assert table.half == "all"
    assert 0 < table.items <= len(EvalSet.open(tmp_path / "line" / "evalset").items["real"])
    page = Path(result.report).read_text("utf-8")
    assert '<h1 class="headline">Keep the base' in page


@pytest.mark.slow
def test_without_weights_it_ends_and_of_several_shares_of_the_rows_the_largest_is_told(recipe: Make) -> None:
    without = adapt(recipe(methods={"mlm": {}}, relation=None, keep_weights=False))
    assert not Path(without.best_trained).exists()
    assert without.checks == {}
    rows = {"rows": 60, "shares": [1.0, 0.5], "settings": {"epochs": 1, "scheme": "typed"}}
    of_shares = adapt(recipe(methods={"mlm": {}}, relation=rows, out=f"{recipe().out}-shares"))
    assert Path(of_shares.checks["relation"]["run"]).name.startswith("100pct-")


@pytest.mark.slow
def test_where_no_checkpoint_is_shown_to_beat_it_the_base_is_chosen_as_it_was_trained_from(recipe: Make, tmp_path: Path) -> None:
    """The base is a run, of which one checkpoint is meant; and its evaluation may be lost."""
    small = {"methods": {"mlm": {}}, "relation": None}
    first = adapt(recipe(**small))
    run = Path(first.best_trained).parent
    train = {"batch": 16, "learning_rate": 0.0, "epochs": 1, "save_every": 0}
    wanted = recipe(**small, model=str(run), train=train, first_seed=5, out=str(tmp_path / "second"))
    second = adapt(wanted)
    (base,) = (path for path in run.glob("checkpoint-*") if str(path) == second.chosen)
    assert f"--model {base} " in " ".join(second.next_steps)
    stored = find_evaluations([tmp_path / "second" / "evaluations"])
    shutil.rmtree(next(entry.folder for entry in stored if Path(entry.evaluation.path) == base))
    shutil.rmtree(tmp_path / "second" / "archive")
    third = adapt(wanted)
    assert read_json(tmp_path / "second" / "answer.json")["action"] == "no base"
    assert third.chosen == str(base)


@pytest.mark.journey
def test_another_choice_and_other_rows_are_tuned_beside_the_first(recipe: Make, tmp_path: Path) -> None:
    write_documents(tmp_path / "tales.jsonl", [tale(number) for number in range(4)])
    coref = {"data": str(tmp_path / "tales.jsonl"), "folds": 2, "seeds": 1, "settings": {"epochs": 1}}
    out = tmp_path / "line"
    first = adapt(recipe(methods={"mlm": {}}, coreference=coref))
    with pytest.raises(FolderError, match="was begun with"):
        adapt(recipe(methods={"mlm": {}}, coreference=coref, relation={"rows": 80, "settings": {"epochs": 1}}))
    wanted = recipe(methods={"entity": {}}, coreference=coref)
    second = adapt(wanted)
    starts = [f"{Path(result.best_trained).parent.name}-{Path(result.best_trained).name}" for result in (first, second)]
    assert {path.name for path in (out / "relation").iterdir() if path.is_dir()} >= {f"100pct-{name}" for name in starts}
    assert {path.name for path in (out / "coreference").iterdir() if path.is_dir()} == {"base", *starts}
    assert adapt(wanted) == second


def test_a_folder_that_holds_something_else_is_refused(recipe: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", "utf-8")
    with pytest.raises(FolderError, match="choose another --out"):
        adapt(recipe(out=str(tmp_path)))
    assert (tmp_path / "thesis.txt").read_text("utf-8") == "mine"


def test_a_model_that_cannot_be_read_leaves_nothing_behind(recipe: Make, tmp_path: Path) -> None:
    with pytest.raises(CorefError):
        adapt(recipe(model=str(tmp_path / "none"), out=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_options_win_over_the_file_and_what_is_missing_is_named(tmp_path: Path) -> None:
    smoke = ROOT / "recipes" / "smoke.yaml"
    chosen = adapt_recipe(smoke, {"model": "other", "lengths": [64], "out": "out"})
    assert (chosen.model, chosen.lengths) == ("other", (64,))
    assert chosen.texts
    assert chosen.texts.sources == ("bundled:synthetic",)
    assert (chosen.checks["relation"].start, chosen.checks["relation"].settings["batch_size"]) == ("chosen", 16)
    spoken = tmp_path / "spoken.yaml"
    spoken.write_text("model: m\nlang: en\nout: o\nfirst_seed: 5\ntexts: {sources: [local:a]}\n", "utf-8")
    kept, changed = adapt_recipe(spoken, {}), adapt_recipe(spoken, {"lang": "ko", "first_seed": 0})
    assert (kept.lang, kept.first_seed, changed.lang, changed.first_seed) == ("en", 5, "ko", 0)
    with pytest.raises(RecipeError, match="--model"):
        adapt_recipe(None, {"texts": {"sources": ["local:a"]}, "out": "o"})
    with pytest.raises(RecipeError, match="--source"):
        adapt_recipe(None, {"model": "m", "out": "o"})
    with pytest.raises(RecipeError, match="--out"):
        adapt_recipe(None, {"model": "m", "texts": {"sources": ["local:a"]}})


def test_an_option_of_a_stage_leaves_the_settings_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("model: m\nout: o\ntexts: {sources: [local:a]}\ncoreference: {data: d.jsonl, settings: {rank: 3}}\n", "utf-8")
    chosen = adapt_recipe(path, {"coreference": {"settings": {"skip_bad": True}}})
    assert chosen.checks["coreference"].settings == {"epochs": 8, "rank": 3, "skip_bad": True}


def test_rows_to_score_need_rows_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["adapt", "--model", "m", "--source", "local:a", "--out", str(tmp_path / "out")]
    assert command([*asked, "--re-dev", "dev.json"]) == 2
    assert "dev (--re-dev) needs rows to train on; name them with --re-train" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("model: m\nout: o\ntexts: {sources: [local:a], hold_out: 0.5}\n", "utf-8")
    with pytest.raises(RecipeError, match="holdout"):
        adapt_recipe(path, {})
