"""The real command in real processes: killed, interrupted, and run to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coref_automl.base.store import read_json
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.study.run import run_experiment
from tests.extras.study.conftest import Bench
from tests.processes import WAIT, until


def finished(out: Path) -> dict[Path, int]:
    """Outcomes that say done, and when each was written."""
    found = {path: path.stat().st_mtime_ns for path in out.glob("steps/*/*/outcome.json")}
    return {path: at for path, at in found.items() if read_json(path)["done"]}


@pytest.mark.journey
def test_a_study_that_is_killed_and_then_interrupted_ends_as_one_that_was_not(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "study"
    path = bench.file(tmp_path / "study.yaml", out, seeds=2, jobs=2)
    command = [sys.executable, "-m", "coref_automl.cli", "study", "--recipe", str(path)]
    before: dict[Path, int] = {}
    for number, (by, status) in enumerate(((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)), 1):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        until(lambda number=number, process=process: len(finished(out)) >= 2 * number or process.poll() is not None, "an outcome")
        assert process.poll() is None
        if by is signal.SIGKILL:
            process.send_signal(by)
        else:
            os.killpg(process.pid, by)  # as a terminal does
        _, told = process.communicate(timeout=WAIT)
        assert process.returncode == status, told
        before |= finished(out)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    assert "train 4 of 4, evaluate 5 of 5" in done.stdout
    assert "entity 64: 2 of 2 seeds" in done.stdout
    after = finished(out)
    assert len(after) == 9
    assert {path: after[path] for path in before} == before
    assert (out / "archive").is_dir()


@pytest.mark.journey
@pytest.mark.usefixtures("ray_cluster")
def test_the_steps_of_a_study_run_as_tasks_of_ray(recipe: Callable[..., ExperimentRecipe]) -> None:
    wanted = recipe(engine="ray", jobs=2, seeds=1, methods={"mlm": {}})
    result = run_experiment(wanted)
    assert result.failures == ()
    assert result.finished == {"train": 1, "evaluate": 2}
