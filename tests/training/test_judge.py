"""Checkpoints scored as they appear; stopping when longer training has stopped paying."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coref_automl.base.errors import EvaluationError
from coref_automl.base.progress import Progress
from coref_automl.base.store import read_json
from coref_automl.corpus.dataset import write_dataset
from coref_automl.evaluation.results import find_evaluations
from coref_automl.training.judge import ProcessGroup
from coref_automl.training.recipe import TrainRecipe
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.evaluation.tiny import TEXTS, freeze_tiny, save_checkpoint, tokenizer_of


@pytest.fixture
def scored_recipe(tmp_path: Path) -> Callable[..., TrainRecipe]:
    """A recipe over the texts of a frozen evaluation set, with its tokenizer."""
    from coref_automl.models.load import tokenizer_fingerprint

    tokenizer = tokenizer_of("wordpiece")
    tokenizer.save_pretrained(str(tmp_path / "tokenizer"))
    freeze_tiny(tmp_path / "set")
    read = [tokenizer(text, truncation=True, max_length=48)["input_ids"] for text in TEXTS * 2]
    blocks = np.zeros((len(read), 48), np.uint16)
    for row, ids in enumerate(read):
        blocks[row, : len(ids)] = ids
    write_dataset(
        tmp_path / "dataset",
        [(blocks, np.array([(row, 0, len(ids), row) for row, ids in enumerate(read)], np.int32), np.zeros((0, 4), np.int32))],
        seq_len=48,
        dtype=np.uint16,
        manifest=lambda _: {"pad_id": 0, "tokenizer": "tiny", "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer)},
    )

    def make(**changes: Any) -> TrainRecipe:
        values = {
            "model": "new:bert-tiny",
            "tokenizer": str(tmp_path / "tokenizer"),
            "dataset": str(tmp_path / "dataset"),
            "out": str(tmp_path / "run"),
            "eval_set": str(tmp_path / "set"),
            "epochs": 1,
            "batch": 4,
            "device": "cpu",
            "dropout": 0.1,
        }
        return TrainRecipe(**{**values, **changes})

    return make


def test_every_checkpoint_is_scored_and_scoring_changes_nothing_that_is_learned(
    scored_recipe: Callable[..., TrainRecipe], tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    from coref_automl.training.run import train

    scored = train(scored_recipe())
    assert [path.name for path in scored.checkpoints] == ["checkpoint-1", "checkpoint-2"]
    for checkpoint in scored.checkpoints:
        assert (scored.run / f"{checkpoint.name}_eval_results.json").is_file()
        assert list((scored.run / "evaluations").glob(f"*/{checkpoint.name}/DONE"))
    assert scored.best is not None
    assert scored.best.is_dir()
    assert '"event": "evaluation"' in (scored.run / "events.ndjson").read_text("utf-8")
    plain = train(scored_recipe(eval_set=None, out=str(tmp_path / "plain")))
    left, right = (load_file(run.checkpoints[-1] / "model.safetensors") for run in (scored, plain))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_missing_evaluation_set_is_said_before_training(scored_recipe: Callable[..., TrainRecipe], tmp_path: Path) -> None:
    from coref_automl.base.errors import EvalSetError
    from coref_automl.training.run import train

    with pytest.raises(EvalSetError):
        train(scored_recipe(eval_set=str(tmp_path / "nowhere")))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A judge of checkpoints whose scores are drawn, not computed; everything after the scoring is the product's own."""
    from coref_automl.training import judge as module

    def make(
        skills: dict[int, float], *, documents: int = 60, luck: bool = False, unscorable: tuple[int, ...] = (), **changes: Any
    ) -> Any:
        root = tmp_path / "run"
        for step, skill in skills.items():
            model = Model("run", step, skill)
            write_evaluation(tmp_path, model, make_scores(model, documents=documents, own=step if luck else 0))
            (root / f"checkpoint-{step}" / "training.json").write_text("{}")
            (root / f"checkpoint-{step}" / "clock.json").write_text(json.dumps({"progress": step / 1000}))

        def evaluate(paths: list[Path], *_: Any, on_result: Callable[[Any], None], **__: Any) -> None:
            for path in paths:
                if not str(path).endswith(tuple(f"checkpoint-{step}" for step in unscorable)):
                    on_result(next(one.evaluation for one in find_evaluations([path]) if one.evaluation.seq_len == 128))
            if unscorable:
                raise EvaluationError(f"{len(unscorable)} of {len(paths)} checkpoints could not be scored.")

        monkeypatch.setattr(module, "evaluate", evaluate)
        recipe = TrainRecipe("m", "d", str(root), eval_set="set", metric="real1", **changes)
        return module.Judge(
            recipe,
            root,
            Progress(shown=False, events=root / "events.ndjson"),
            SimpleNamespace(is_main_process=True, num_processes=1, device=SimpleNamespace(type="cpu")),
            ProcessGroup(1, "cpu"),
        )

    return make


FLAT, LATE, RISING, UNSURE = (
    {65: 1.0, 131: 1.0, 196: 1.0}, {65: -1.0, 131: 1.0, 196: 1.0}, {65: -1.0, 131: 0.0, 196: 1.0}, {65: 1.6, 131: 1.0, 196: 0.8},
)  # fmt: skip


@pytest.mark.parametrize(
    ("skills", "documents", "chosen", "stops"),
    [(FLAT, 60, 65, True), (LATE, 60, 131, False), (RISING, 60, 196, False), (UNSURE, 12, 65, False)],
)
def test_training_stops_when_two_checkpoints_changed_nothing(
    judge: Callable[..., Any], tmp_path: Path, skills: dict[int, float], documents: int, chosen: int, stops: bool
) -> None:
    reason = judge(skills, documents=documents, luck=skills is UNSURE, stop_when_flat=True).after_checkpoint()
    best = read_json(tmp_path / "run" / "best.json")
    assert (best["checkpoint"], best["sure"]) == (f"checkpoint-{chosen}", skills is not UNSURE)
    assert (reason is not None) is stops


def test_without_the_option_nothing_stops_and_the_choice_is_written(judge: Callable[..., Any], tmp_path: Path) -> None:
    assert judge(FLAT).after_checkpoint() is None
    assert read_json(tmp_path / "run" / "best.json")["checkpoint"] == "checkpoint-65"


def test_an_evaluation_at_another_length_has_no_say(judge: Callable[..., Any], tmp_path: Path) -> None:
    for step, skill in ((1, -1.0), (2, 2.0)):
        model = Model("run", step, skill, seq_len=64)
        write_evaluation(tmp_path, model, make_scores(model, documents=60, own=0))
    made = judge({1: 1.0, 2: -1.0})
    made.after_checkpoint()
    assert read_json(tmp_path / "run" / "best.json")["checkpoint"] == "checkpoint-1"


def test_a_checkpoint_that_was_removed_is_not_chosen_later(judge: Callable[..., Any], tmp_path: Path) -> None:
    """By later evidence the first would have done. Its weights are gone, so another is chosen; patience counts it still."""
    judge({1: -1.0, 2: 1.0, 3: 0.5}).after_checkpoint()
    shutil.rmtree(tmp_path / "run" / "evaluations")
    for step in (1, 2, 3):  # evaluated anew, all are alike
        model = Model("run", step, 1.0)
        write_evaluation(tmp_path, model, make_scores(model, documents=60, own=0))
    shutil.rmtree(tmp_path / "run" / "checkpoint-1")  # the fixture made the folder of its name anew
    reason = judge({4: 1.0}, stop_when_flat=True).after_checkpoint()
    best = read_json(tmp_path / "run" / "best.json")["checkpoint"]
    assert best == "checkpoint-2"
    assert (tmp_path / "run" / best).is_dir()
    assert reason is not None
    assert "2 further checkpoints" in reason


def reported(run: Path) -> list[tuple[str, float]]:
    rows = [json.loads(line) for line in (run / "events.ndjson").read_text("utf-8").splitlines()]
    return [(row["checkpoint"], row["progress"]) for row in rows if row["event"] == "evaluation"]


def test_each_newly_scored_checkpoint_is_told_once_with_its_own_progress(judge: Callable[..., Any], tmp_path: Path) -> None:
    judge({125: 1.0}).after_checkpoint()
    again = judge({125: 1.0, 250: 1.0, 375: 1.0})  # a new process: the one before was killed while it scored the second
    again.after_checkpoint()
    again.after_checkpoint()
    assert reported(tmp_path / "run") == [("checkpoint-125", 0.125), ("checkpoint-250", 0.25), ("checkpoint-375", 0.375)]


def test_an_older_checkpoint_that_cannot_be_scored_does_not_stop_the_newest(judge: Callable[..., Any], tmp_path: Path) -> None:
    judge({125: 0.0, 250: 1.0}, unscorable=(125,)).after_checkpoint()
    assert reported(tmp_path / "run") == [("checkpoint-250", 0.25)]
    assert read_json(tmp_path / "run" / "best.json")["checkpoint"] == "checkpoint-250"


def test_a_newest_checkpoint_that_cannot_be_scored_is_not_replaced_by_an_older_one(
    judge: Callable[..., Any], tmp_path: Path
) -> None:
    judge({125: 0.0, 250: 1.0}, unscorable=(250,)).after_checkpoint()
    assert reported(tmp_path / "run") == []
    assert "could not be scored, training continues" in (tmp_path / "run" / "events.ndjson").read_text("utf-8")


def test_a_removal_that_is_stopped_midway_leaves_nothing_that_looks_like_a_checkpoint(
    judge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.training import folder

    judge({1: -1.0, 2: 1.0, 3: 0.0})

    def stopped(*_: Any, **options: Any) -> None:
        if (tmp_path / "run" / ".removing" / "checkpoint-1").is_dir():
            raise KeyboardInterrupt

    monkeypatch.setattr(folder.shutil, "rmtree", stopped)
    with pytest.raises(KeyboardInterrupt):
        folder.remove_checkpoint(tmp_path / "run" / "checkpoint-1")
    assert [path.name for path in folder.checkpoints_of(tmp_path / "run")] == ["checkpoint-2", "checkpoint-3"]


@pytest.mark.parametrize("ruined", [False, True])
def test_a_run_killed_while_its_last_checkpoint_was_scored_is_scored_and_not_trained_further(
    scored_recipe: Callable[..., TrainRecipe], ruined: bool
) -> None:
    from coref_automl.training.run import train

    whole = train(scored_recipe(epochs=1.5))
    events = whole.run / "events.ndjson"
    rows = events.read_text("utf-8").splitlines(keepends=True)
    last = max(at for at, row in enumerate(rows) if '"event": "evaluation"' in row)
    events.write_text("".join(rows[:last]), "utf-8")
    (whole.run / "DONE").unlink()
    for folder in whole.run.glob("evaluations/*/checkpoint-3"):
        shutil.rmtree(folder)
    if ruined:  # an older one without weights is no reason to leave the last one unscored
        (whole.run / "checkpoint-1" / "model.safetensors").unlink()
    again = train(scored_recipe(epochs=1.5))
    assert again.steps == whole.steps == 3
    assert [path.name for path in again.checkpoints] == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert reported(whole.run) == [("checkpoint-1", 0.3333), ("checkpoint-2", 0.6667), ("checkpoint-3", 1.0)]
    assert (whole.run / "DONE").exists()


def test_a_run_that_goes_on_in_a_renamed_folder_is_one_run(scored_recipe: Callable[..., TrainRecipe], tmp_path: Path) -> None:
    """No checkpoint is better than another here, so the first is the best of all of them."""
    from coref_automl.training.run import train

    whole = train(scored_recipe(epochs=1.5, keep_states=True, learning_rate=0.0))
    (whole.run / "DONE").unlink()
    shutil.rmtree(whole.run / "checkpoint-3")
    shutil.rmtree(next(whole.run.glob("evaluations/*/checkpoint-3")))
    whole.run.rename(tmp_path / "renamed")
    again = train(scored_recipe(epochs=1.5, keep_states=True, learning_rate=0.0, out=str(tmp_path / "renamed")))
    assert {read_json(path / "training.json")["run"] for path in again.checkpoints} == {"run"}
    assert (len(again.checkpoints), read_json(again.run / "best.json")["checkpoint"]) == (3, "checkpoint-1")


def test_the_base_is_known_by_its_bytes_wherever_it_moved(
    scored_recipe: Callable[..., TrainRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained from models/enc; that folder then holds other weights, and the base stands elsewhere under another name."""
    from coref_automl.cli.app import run as command
    from coref_automl.training.run import train

    monkeypatch.chdir(tmp_path)
    save_checkpoint(tmp_path / "models/enc", seed=1, seq_len=48)
    train(scored_recipe(model="models/enc", tokenizer=None, epochs=0.5))
    (tmp_path / "models/enc").rename(tmp_path / "moved")
    save_checkpoint(tmp_path / "models/enc", seed=2, seq_len=48)
    assert command(["evaluate", "run", "models/enc", "moved", "--eval-set", "set", "--device", "cpu"]) == 0
    for paths in (["run", "models/enc", "moved"], ["kept"]):
        capsys.readouterr()
        assert command(["compare", *paths, "--json"]) == 0
        rows = {row["name"]: row["comparison"] for row in json.loads(capsys.readouterr().out)["rows"]}
        assert set(rows) == {"checkpoint-1", "enc", "moved"}
        assert rows["checkpoint-1"]["reference"] == "moved"
        if paths != ["kept"]:
            assert command(["archive", *paths, "--out", "kept"]) == 0
