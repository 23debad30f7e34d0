"""Checkpoints scored as they appear; stopping when longer training has stopped paying."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coref_automl.corpus.dataset import write_dataset
from coref_automl.errors import EvaluationError
from coref_automl.progress import Progress
from coref_automl.records import Estimate
from coref_automl.store import read_json
from coref_automl.training.crew import Crew
from coref_automl.training.recipe import TrainRecipe
from tests.evaluation.tiny import TEXTS, freeze_tiny, tokenizer_of

VALUE = Estimate(0.3, 0.2, 0.4, 100)


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
        blocks=blocks,
        count=len(read),
        seq_len=48,
        dtype=np.uint16,
        pieces=np.array([(row, 0, len(ids), row) for row, ids in enumerate(read)], np.int32),
        mentions=np.zeros((0, 4), np.int32),
        manifest={"pad_id": 0, "tokenizer": "tiny", "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer)},
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
        assert "| real1_strict | " in (checkpoint / "README.md").read_text("utf-8")
    assert scored.best is not None
    assert scored.best.is_dir()
    assert '"event": "evaluation"' in (scored.run / "events.ndjson").read_text("utf-8")
    plain = train(scored_recipe(eval_set=None, out=str(tmp_path / "plain")))
    left, right = (load_file(run.checkpoints[-1] / "model.safetensors") for run in (scored, plain))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_missing_evaluation_set_is_said_before_training(scored_recipe: Callable[..., TrainRecipe], tmp_path: Path) -> None:
    from coref_automl.errors import EvalSetError
    from coref_automl.training.run import train

    with pytest.raises(EvalSetError):
        train(scored_recipe(eval_set=str(tmp_path / "nowhere")))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A judge whose evaluations are given: which checkpoint the rule chooses, and whether it is sure."""
    from coref_automl.training import judge as module

    def make(
        steps: list[int],
        chosen: int,
        *,
        sure: bool = True,
        best: int | None = None,
        unscorable: tuple[int, ...] = (),
        **changes: Any,
    ) -> Any:
        run = tmp_path / "run"
        for step in steps:
            (run / f"checkpoint-{step}").mkdir(parents=True, exist_ok=True)
            (run / f"checkpoint-{step}" / "training.json").write_text("{}")
            (run / f"checkpoint-{step}" / "clock.json").write_text(json.dumps({"progress": step / 1000}))
        names = [f"run/checkpoint-{step}" for step in steps]
        scores = [
            SimpleNamespace(path=str(run / f"checkpoint-{step}"), evalset="set", estimates={"real1_strict": VALUE})
            for step in steps
        ]
        told = SimpleNamespace(
            candidates=[SimpleNamespace(name=name) for name in names],
            chosen=str(run / f"checkpoint-{chosen}"),
            name=f"run/checkpoint-{chosen}",
            best=f"run/checkpoint-{best or chosen}",
            metric="real1_strict",
            value=VALUE,
            margin=0.02,
            settled=sure,
        )

        def evaluate(*_: Any, on_result: Callable[[Any], None], **__: Any) -> None:
            for one in scores:
                if not one.path.endswith(tuple(f"checkpoint-{step}" for step in unscorable)):
                    on_result(one)
            if unscorable:
                raise EvaluationError(f"{len(unscorable)} of {len(steps)} checkpoints could not be scored.")

        monkeypatch.setattr(module, "evaluate", evaluate)
        monkeypatch.setattr(module, "recommend", lambda *_, **__: told)
        recipe = TrainRecipe("m", "d", str(run), eval_set="set", **changes)
        return module.Judge(
            recipe,
            run,
            Progress(shown=False, events=run / "events.ndjson"),
            SimpleNamespace(is_main_process=True, num_processes=1, device=SimpleNamespace(type="cpu")),
            Crew(1, "cpu"),
        )

    return make


@pytest.mark.parametrize(
    ("chosen", "sure", "stops"), [(65, True, True), (131, True, False), (196, True, False), (65, False, False)]
)
def test_training_stops_when_two_checkpoints_changed_nothing(
    judge: Callable[..., Any], chosen: int, sure: bool, stops: bool
) -> None:
    reason = judge([65, 131, 196], chosen, sure=sure, stop_when_flat=True).after_checkpoint()
    assert (reason is not None) is stops


def test_without_the_option_nothing_stops_and_the_choice_is_written(judge: Callable[..., Any], tmp_path: Path) -> None:
    assert judge([65, 131, 196], 65).after_checkpoint() is None
    assert read_json(tmp_path / "run" / "best.json")["checkpoint"] == "checkpoint-65"


def test_keeping_the_best_removes_what_is_neither_best_nor_newest(judge: Callable[..., Any], tmp_path: Path) -> None:
    judge([1, 2, 3, 4, 5], 2, best=3, keep_best=True).after_checkpoint()
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == [
        "checkpoint-2",
        "checkpoint-3",
        "checkpoint-5",
    ]


def told(run: Path) -> list[tuple[str, float]]:
    rows = [json.loads(line) for line in (run / "events.ndjson").read_text("utf-8").splitlines()]
    return [(row["checkpoint"], row["progress"]) for row in rows if row["event"] == "evaluation"]


def test_each_newly_scored_checkpoint_is_told_once_with_its_own_progress(judge: Callable[..., Any], tmp_path: Path) -> None:
    judge([125], 125).after_checkpoint()
    again = judge([125, 250, 375], 125)  # a new process: the one before was killed while it scored the second
    again.after_checkpoint()
    again.after_checkpoint()
    assert told(tmp_path / "run") == [("checkpoint-125", 0.125), ("checkpoint-250", 0.25), ("checkpoint-375", 0.375)]


def test_an_older_checkpoint_that_cannot_be_scored_does_not_stop_the_newest(judge: Callable[..., Any], tmp_path: Path) -> None:
    judge([125, 250], 250, unscorable=(125,)).after_checkpoint()
    assert told(tmp_path / "run") == [("checkpoint-250", 0.25)]
    assert read_json(tmp_path / "run" / "best.json")["checkpoint"] == "checkpoint-250"


def test_a_newest_checkpoint_that_cannot_be_scored_is_not_replaced_by_an_older_one(
    judge: Callable[..., Any], tmp_path: Path
) -> None:
    judge([125, 250], 250, unscorable=(250,)).after_checkpoint()
    assert told(tmp_path / "run") == []
    assert "could not be scored, training goes on" in (tmp_path / "run" / "events.ndjson").read_text("utf-8")


def test_a_removal_that_is_stopped_midway_leaves_nothing_that_looks_like_a_checkpoint(
    judge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.training import folder

    def stopped(*_: Any, **options: Any) -> None:
        if (tmp_path / "run" / ".removing" / "checkpoint-1").is_dir():
            raise KeyboardInterrupt

    monkeypatch.setattr(folder.shutil, "rmtree", stopped)
    made = judge([1, 2, 3], 2, keep_best=True)
    with pytest.raises(KeyboardInterrupt):
        made.after_checkpoint()
    assert [path.name for path in folder.checkpoints_of(tmp_path / "run")] == ["checkpoint-2", "checkpoint-3"]


@pytest.mark.parametrize("ruined", [False, True])
def test_a_run_killed_while_its_last_checkpoint_was_scored_is_scored_and_not_trained_further(
    scored_recipe: Callable[..., TrainRecipe], ruined: bool
) -> None:
    import shutil

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
    assert told(whole.run) == [("checkpoint-1", 0.3333), ("checkpoint-2", 0.6667), ("checkpoint-3", 1.0)]
    assert (whole.run / "DONE").exists()
