"""Checkpoints scored as they appear; stopping when longer training has stopped paying."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coref_automl.corpus.dataset import write_dataset
from coref_automl.progress import Progress
from coref_automl.records import Estimate
from coref_automl.store import read_json
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

    def make(steps: list[int], chosen: int, *, sure: bool = True, best: int | None = None, **changes: Any) -> Any:
        run = tmp_path / "run"
        for step in steps:
            (run / f"checkpoint-{step}").mkdir(parents=True)
            (run / f"checkpoint-{step}" / "training.json").write_text("{}")
        names = [f"run/checkpoint-{step}" for step in steps]
        newest = SimpleNamespace(path=str(run / f"checkpoint-{steps[-1]}"), evalset="set", estimates={"real1_strict": VALUE})
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
        monkeypatch.setattr(module, "evaluate", lambda *_, **__: [newest])
        monkeypatch.setattr(module, "recommend", lambda *_, **__: told)
        recipe = TrainRecipe("m", "d", str(run), eval_set="set", **changes)
        return module.Judge(
            recipe,
            run,
            Progress(shown=False),
            SimpleNamespace(is_main_process=True, num_processes=1, device=SimpleNamespace(type="cpu")),
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
