"""`train` on the fused kernels of DeBERTa-v2, with dropout. They run in Triton's interpreter: `make kernels`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.setup import compiles, load_model, prepare_run
from tests.deberta_kernels.test_fused_deberta import INTERPRETED, pytestmark
from tests.models.conftest import build
from tests.training.test_run import Killed, killed_after, losses, same_weights, train

__all__ = ["killed_after", "pytestmark"]
Recipe = Callable[..., TrainRecipe]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose device has the kernels."""
    if not INTERPRETED:
        pytest.skip("runs of the interpreter alone are bit for bit the same")
    monkeypatch.setattr("deberta_kernels.fused_deberta.why_not", lambda _model: None)


@pytest.fixture
def base(tokenizer_folder: Path, tmp_path: Path) -> str:
    """One layer of one head of 16 numbers: the interpreter takes seconds a step."""
    build("deberta", num_hidden_layers=1, hidden_size=16, num_attention_heads=1, vocab_size=85).save_pretrained(tmp_path / "base")
    shutil.copytree(tokenizer_folder, tmp_path / "base", dirs_exist_ok=True)
    return str(tmp_path / "base")


def test_a_resumed_run_drops_what_an_unbroken_one_does(
    recipe: Recipe, base: str, make_dataset: Callable[..., Path], tmp_path: Path, killed_after: Callable[[int], None]
) -> None:
    settings = {"model": base, "tokenizer": None, "dataset": str(make_dataset(rows=3)), "dropout": 0.2, "attention": "fused"}
    settings |= {"batch": 1, "micro_batch": 1, "epochs": 1, "save_every": 0.4}
    unbroken = train(recipe(out=str(tmp_path / "unbroken"), **settings))
    killed_after(2)
    with pytest.raises(Killed):
        train(recipe(**settings))
    resumed = train(recipe(**settings))
    assert resumed.steps == unbroken.steps == 3
    assert losses(resumed.run)[-1] == losses(unbroken.run)[-1]
    assert same_weights(resumed.checkpoints[-1], unbroken.checkpoints[-1])
    other = train(recipe(out=str(tmp_path / "other"), **{**settings, "dropout": 0.0}))
    assert not same_weights(other.checkpoints[-1], unbroken.checkpoints[-1])


def test_compiling_is_left_out_and_a_line_says_so(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on an H200: about 30 s to start, and slower afterwards."""
    from coref_automl.training.loss import prepare_model

    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("compiled"))
    work = prepare_run(recipe(model="new:deberta-tiny", attention="fused", compile=True))
    loaded = load_model(work, None)
    assert compiles(work, loaded.model) == (False, ["--compile is ignored: fused kernels gain nothing."])
    prepare_model(loaded.model, compiled=True)
