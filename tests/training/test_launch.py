"""Runs as processes of their own: interrupted by a person, and shared by two."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.records import Objective
from coref_automl.cli.app import run
from tests.close import assert_same
from tests.corpus.conftest import rows
from tests.evaluation.tiny import freeze_tiny, save_checkpoint


def options(dataset: Path, tokenizer_folder: Path, out: Path, **more: object) -> list[str]:
    values = {
        "model": "new:tiny",
        "tokenizer": tokenizer_folder,
        "dataset": dataset,
        "out": out,
        "device": "cpu",
        "log-every": 1,
        "learning-rate": 0.001,
        **more,
    }
    return ["train", *(part for name, value in values.items() for part in (f"--{name}", str(value)))]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}


def final_weights(run: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    newest = max(run.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return dict(load_file(newest / "model.safetensors"))


def step_losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "events.ndjson").read_text("utf-8").splitlines()]
    return [row["loss"] for row in rows if row["event"] == "step"]


@pytest.mark.journey
@pytest.mark.slow
def test_an_interrupted_run_ends_with_130_and_can_go_on(dataset: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    """Started with SIGINT ignored, as a shell starts the background jobs of a script."""
    from coref_automl.training.folder import resumable

    folder = tmp_path / "run"
    command = options(dataset, tokenizer_folder, folder, epochs=100_000, batch=4)
    process = subprocess.Popen(
        [sys.executable, "-m", "coref_automl.cli", *command],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    until = time.monotonic() + 120
    while resumable(folder) is None and time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "The same command resumes" in said
    assert "Traceback" not in said
    assert resumable(folder) is not None


@pytest.mark.journey
@pytest.mark.parametrize(("objective", "epochs"), [("combined", 2), ("copy+link", 1)])
def test_two_processes_follow_the_loss_of_one_with_twice_the_batch(
    dataset: Path, chained_dataset: Path, tokenizer_folder: Path, tmp_path: Path, objective: Objective, epochs: int
) -> None:
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    dataset = chained_dataset if objective == "copy+link" else dataset
    shared = {"epochs": epochs, "batch": 4, "objective": objective, "micro-batch": 2, "dropout": 0.0}
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
    command = [*launcher, "--mixed_precision", "no", "--dynamo_backend", "no", "-m", "coref_automl.cli"]
    done = subprocess.run(
        [*command, *options(dataset, tokenizer_folder, tmp_path / "two", **shared)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    train(
        TrainRecipe(
            model="new:tiny",
            tokenizer=str(tokenizer_folder),
            dataset=str(dataset),
            out=str(tmp_path / "one"),
            device="cpu",
            log_every=1,
            learning_rate=0.001,
            epochs=epochs,
            batch=4,
            micro_batch=4,
            objective=objective,
            dropout=0.0,
        )
    )
    one, two = step_losses(tmp_path / "one"), step_losses(tmp_path / "two")
    assert len(one) == len(two) == 6
    assert two == pytest.approx(one, rel=1e-4)
    ends = [final_weights(tmp_path / name) for name in ("one", "two")]
    assert ends[0].keys() == ends[1].keys()
    for name, weight in ends[0].items():
        assert_same(ends[1][name], weight)


IMPATIENT = """
import sys, time
from datetime import timedelta

import torch.distributed

from coref_automl.cli import main
from coref_automl.training import judge

begin, evaluate = torch.distributed.init_process_group, judge.evaluate


def slow(*arguments, **options):
    time.sleep(12)
    return evaluate(*arguments, **options)


torch.distributed.init_process_group = lambda *given, **options: begin(*given, **{**options, "timeout": timedelta(seconds=8)})
judge.evaluate = slow
main()
"""


@pytest.mark.journey
def test_scoring_may_take_longer_than_the_processes_wait_for_each_other(tmp_path: Path) -> None:
    """Collectives give up after 8 seconds here, and scoring the checkpoint takes 12."""
    freeze_tiny(tmp_path / "set")
    save_checkpoint(tmp_path / "model", seed=1)
    texts, script = tmp_path / "texts.jsonl", tmp_path / "impatient.py"
    texts.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(8)), "utf-8")
    script.write_text(IMPATIENT, "utf-8")
    shared = ["--model", str(tmp_path / "model")]
    source = ["--source", f"local:{texts}", "--exact-only", "--holdout", "0"]
    assert run(["prepare", "mlm", *source, *shared, "--seq-len", "64", "--out", str(tmp_path / "data")]) == 0
    options = ["--dataset", str(tmp_path / "data"), "--eval-set", str(tmp_path / "set"), "--out", str(tmp_path / "run")]
    training = ["train", *shared, *options, "--epochs", "1", "--save-every", "1", "--batch", "4", "--device", "cpu"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run([*launcher, *training], env=environment(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    scored = [json.loads(line) for line in (tmp_path / "run" / "events.ndjson").read_text("utf-8").splitlines()]
    assert [row["checkpoint"] for row in scored if row["event"] == "evaluation"] == [
        path.name for path in (tmp_path / "run").glob("checkpoint-*/")
    ]
    assert (tmp_path / "run" / "DONE").is_file()
