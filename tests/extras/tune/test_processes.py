"""Real processes: a killed study takes its trials with it, a killed trial runs again, and the count is right at the end."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children, get_context
from pathlib import Path

import pytest

from coref_automl.base import pool
from coref_automl.base.config import to_yaml
from coref_automl.base.errors import ModelError, NotFinite, RecipeError
from coref_automl.base.folders import DONE
from coref_automl.base.job import FAILED, Job, Outcome, failure, read_outcome
from coref_automl.base.launch import LocalLauncher, RayLauncher, launcher_of, run_in_process
from coref_automl.base.machine import CORES, usable_cores
from coref_automl.base.progress import quiet
from coref_automl.extras.tune.choosing import JobRunner
from coref_automl.extras.tune.masked import open_masked
from coref_automl.extras.tune.problem import run_folder
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.run import run_study
from coref_automl.training.setup import spare_workers
from tests.extras.tune.conftest import World
from tests.extras.tune.inline import InlineLauncher
from tests.processes import alive, until


@pytest.mark.journey
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are watched through /proc")
def test_a_killed_study_leaves_no_process_behind_and_goes_on(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> None:
    wanted = recipe(epochs=20, trials=2, seeds=1, prune=False)
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(wanted), "utf-8")
    command = [sys.executable, "-m", "coref_automl.cli", "tune", "--recipe", str(path)]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    out = Path(wanted.out)
    until(lambda: bool(list(out.glob("trials/*/run-*/checkpoint-*/training.json"))), "a first checkpoint")
    children = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _descends(int(p.name), parent.pid)]
    assert children
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not any(map(alive, children)), "the end of the trials")
    result = run_study(wanted, launcher=InlineLauncher(), wait=lambda: None)
    assert result.trials == {"complete": 2, "pruned": 0, "failed": 0, "running": 0}
    text = "".join(log.read_text() for log in out.glob("trials/*/run-*/events.ndjson"))
    assert "Resuming from checkpoint-" in text


@pytest.mark.journey
def test_a_killed_trial_is_noticed_and_tried_again(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> None:
    wanted = recipe(epochs=20)
    problem = open_masked(wanted, tmp_path / "study", quiet())
    job = problem.job(problem.starts()[0].params, 0)
    launcher = LocalLauncher(1, ["cpu"])
    first = launcher.start(job, 0)
    until(lambda: bool(list(run_folder(job).glob("checkpoint-*/training.json"))), "a first checkpoint")
    (trial,) = (child for child in active_children() if child.name == f"job-{job.key}")
    os.kill(int(str(trial.pid)), signal.SIGKILL)
    until(lambda: not first.alive, "the end of the trial")
    assert first.result() == -signal.SIGKILL
    assert read_outcome(job) is None
    assert JobRunner(problem, launcher, quiet(), lambda: time.sleep(0.05)).run([job], "finalists") == set()
    assert "Resuming from checkpoint-" in (run_folder(job) / "events.ndjson").read_text("utf-8")
    assert "train:" in job.log.read_text("utf-8")


def test_more_workers_than_gpus_share_them_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("coref_automl.base.launch.visible_devices", lambda: ["cuda:0"])
    launcher = launcher_of("local", 4, "auto")
    assert isinstance(launcher, LocalLauncher)
    assert launcher.slots == 4
    assert [launcher.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(4)] == ["0", "0", "0", "0"]
    two = LocalLauncher(4, ["cuda:0", "cuda:1"])
    assert [two.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(4)] == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [two.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(2)] == ["5", "7"]


def test_a_trial_names_the_gpu_it_was_given_as_it_sees_it(
    recipe: Callable[..., TuneRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    launcher = launcher_of("local", 2, "cuda:1")
    assert isinstance(launcher, LocalLauncher)
    assert {launcher.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(2)} == {"1"}
    problem = open_masked(recipe(device="cuda:1"), tmp_path / "study", quiet())
    assert problem.job(problem.starts()[0].params, 0).recipe["device"] == "cuda:0"
    with pytest.raises(ModelError, match="no such CUDA device, so --device cuda:2"):
        launcher_of("local", 2, "cuda:2")


def test_processes_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen trainings with eight loaders each once kept a GPU idle for two minutes, until 128 processes had started."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    for jobs, cores, loaders in ((1, 16, 8), (4, 4, 3), (16, 1, 0), (40, 1, 0)):
        monkeypatch.delenv(CORES, raising=False)
        for name, value in LocalLauncher(jobs, ["cuda:0"]).environment(0).items():
            monkeypatch.setenv(name, value)
        assert usable_cores() == cores
        assert spare_workers(1) == loaders
    for share in ("a few", "0", "-1", "2.5"):
        monkeypatch.setenv(CORES, share)
        with pytest.raises(RecipeError, match=f"whole number of cores, 1 or more, not '{share}'"):
            usable_cores()


@pytest.mark.journey
def test_a_trial_forked_from_a_process_that_touched_a_gpu_starts_anew(
    recipe: Callable[..., TuneRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    problem = open_masked(recipe(epochs=1), tmp_path / "study", quiet())
    job = problem.job(problem.starts()[0].params, 0)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    forked = get_context("fork").Process(target=run_in_process, args=(job.to_json(), {}, str(Path.cwd())))
    forked.start()
    forked.join()
    assert forked.exitcode == 0
    assert read_outcome(job) == Outcome(True)
    assert problem.weights(job).name.startswith("checkpoint-")


@pytest.mark.journey
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # ray leaves its own sockets and pipes open
def test_a_trial_on_ray_that_is_killed_runs_again(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (pip install 'coref-automl[scale]')")
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        problem = open_masked(recipe(epochs=20), tmp_path / "study", quiet())
        job = problem.job(problem.starts()[0].params, 0)
        launcher = RayLauncher(1, "cpu")
        first = launcher.start(job, 0)
        until(lambda: bool(list(run_folder(job).glob("checkpoint-*/training.json"))), "a first checkpoint")
        mine = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and job.key in _command(p)]
        for pid in mine:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not first.alive, "the end of the trial")
        assert first.result() == -signal.SIGKILL
        assert JobRunner(problem, launcher, quiet(), lambda: time.sleep(0.05)).run([job], "finalists") == set()
        assert "Resuming from checkpoint-" in job.log.read_text("utf-8")
    finally:
        ray.shutdown()


@pytest.mark.journey
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_relative_paths_mean_the_folder_of_the_command_wherever_the_cluster_was_started(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (pip install 'coref-automl[scale]')")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        monkeypatch.chdir(tmp_path)
        problem = open_masked(world.recipe(Path("study"), epochs=1), Path("study"), quiet())
        job = problem.job(problem.starts()[0].params, 0)
        launcher = RayLauncher(1, "cpu")
        assert JobRunner(problem, launcher, quiet(), lambda: time.sleep(0.05)).run([job], "finalists") == set()
        assert (tmp_path / job.folder / run_folder(job).name / DONE).is_file()
        assert not list((tmp_path / "elsewhere").iterdir())
        with monkeypatch.context() as other:
            other.setattr(pool, "version", lambda _: "9.9")  # as if this machine had another version than the cluster's
            runner = JobRunner(problem, launcher, quiet(), lambda: time.sleep(0.05))
            assert runner.run([job], "finalists") == {job.key}
            assert "and this command is 9.9. Install the same version on every machine" in runner.notes[0]
        monkeypatch.setattr(Path, "cwd", lambda: tmp_path / "gone")
        runner = JobRunner(problem, launcher, quiet(), lambda: time.sleep(0.05))
        assert runner.run([job], "finalists") == {job.key}
        assert "does not exist on" in runner.notes[0]
    finally:
        ray.shutdown()


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out of memory"),
        (MemoryError(), "out of memory"),
        (NotFinite("The loss is NaN or infinite at step 3; lower the rate."), "not a number"),
        (KeyError("banana"), "KeyError"),
    ],
)
def test_failures_are_told_apart_by_kind(error: Exception, kind: str) -> None:
    assert failure(error).kind == kind
    assert failure(error).reason
    assert not failure(error).done


def test_a_diverging_trial_fails_with_its_reason(recipe: Callable[..., TuneRecipe], tmp_path: Path) -> None:
    problem = open_masked(recipe(), tmp_path / "study", quiet())
    good = problem.job(problem.starts()[0].params, 0)
    bad = Job.from_json(json.loads(json.dumps({**good.to_json(), "recipe": {**good.recipe, "dataset": str(tmp_path / "gone")}})))
    launcher = InlineLauncher()
    assert launcher.start(bad, 0).result() == FAILED
    outcome = read_outcome(bad)
    assert outcome == Outcome(False, "DatasetError", outcome.reason if outcome else "")
    assert outcome is not None
    assert "does not exist" in outcome.reason


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return False
        if pid == ancestor:
            return True
    return False
