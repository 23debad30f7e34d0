"""Two processes that want the same job take turns; a killed job is reported as killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from threading import Event

import pytest

from coref_automl.base.job import JOB, OUTCOME, Job, Outcome, Running, run_job
from coref_automl.base.launch import LocalLauncher, ProcessHandle, run_in_process
from coref_automl.base.machine import CORES
from coref_automl.base.schedule import Attempt, Schedule, run_steps
from coref_automl.base.store import read_json, write_json

KEPT: list[object] = []


def kill_itself(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(_job: Job) -> None:
    raise ValueError("no")


def answer(_job: Job) -> dict[str, int]:
    return {"answer": 42}


def semaphore(_job: Job) -> dict[str, int]:
    KEPT.append(get_context("spawn").Semaphore())  # as the workers of torch.compile have them
    return {}


def threads(_job: Job) -> dict[str, int]:
    import torch

    return {"threads": torch.get_num_threads()}


@dataclass
class ForkLauncher:
    environment: dict[str, str] = field(default_factory=dict)
    slots: int = 1

    def start(self, job: Job, _slot: int) -> Running:
        forked = get_context("fork").Process(target=run_in_process, args=(job.to_json(), self.environment, str(Path.cwd())))
        forked.start()
        return ProcessHandle(forked)


def job_at(folder: Path, task: str = "answer", **recipe: int) -> Job:
    return Job(f"{__name__}:{task}", "one", str(folder), dict(recipe))


@pytest.mark.parametrize(("seed", "facts"), [(0, {"by": "first"}), (1, {"by": "second"})])
def test_who_waits_for_a_folder_changes_nothing_there_and_takes_the_outcome_of_the_same_job(
    tmp_path: Path, seed: int, facts: dict[str, str]
) -> None:
    first, second = job_at(tmp_path / "job", seed=0), job_at(tmp_path / "job", seed=seed)
    works, goes_on, waits = Event(), Event(), Event()

    def slowly(_: Job) -> dict[str, str]:
        works.set()
        assert goes_on.wait(20)
        return {"by": "first"}

    def wait(*_: object) -> None:
        waits.set()

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr("coref_automl.base.job.print", wait, raising=False)
        one = pool.submit(run_job, first.to_json(), call=slowly)
        assert works.wait(20)
        other = pool.submit(run_job, second.to_json(), call=lambda _: {"by": "second"})
        assert waits.wait(20)
        stored = read_json(tmp_path / "job" / JOB)
        goes_on.set()
        assert one.result().facts == {"by": "first"}
        assert other.result().facts == facts
    assert stored == first.to_json()


@pytest.mark.parametrize(("task", "code", "kind"), [("kill_itself", -signal.SIGKILL, "killed"), ("answer", 0, "")])
def test_a_process_that_has_to_start_anew_ends_as_the_job_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, code: int, kind: str
) -> None:
    """A fork of a process that had touched a GPU cannot work itself."""
    import torch

    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    job = job_at(tmp_path / "job", task)
    ends: list[Attempt[Job]] = []
    assert run_steps([job], ForkLauncher(), lambda item: item, lambda end: ends.append(end) is None) == 0
    assert [(end.code, end.done, end.kind) for end in ends] == [(code, code == 0, kind)]


def test_a_process_that_dies_before_its_work_leaves_no_failure_of_an_earlier_call(tmp_path: Path) -> None:
    job, ends = job_at(tmp_path / "job"), list[Attempt[Job]]()
    write_json(tmp_path / "job" / OUTCOME, Outcome(False, "not a number", "The loss is NaN.").to_json())
    (tmp_path / "job" / JOB).mkdir()  # which cannot be written, as on a full disk
    assert run_steps([job], ForkLauncher(), lambda item: item, lambda end: ends.append(end) is None) == 0
    assert [(end.outcome, end.kind) for end in ends] == [(None, "no outcome")]


def test_steps_that_can_never_run_are_not_left_to_do(tmp_path: Path) -> None:
    """The time is up just as the training fails that the second one needs."""
    training, evaluation = job_at(tmp_path / "train", "fail"), job_at(tmp_path / "evaluate")
    ends: list[Attempt[Job]] = []
    schedule: Schedule[Job] = Schedule(unreachable=lambda job: job is evaluation and bool(ends))
    steps = [training, evaluation, training]

    def hear(end: Attempt[Job]) -> bool:
        ends.append(end)
        return True

    left = run_steps(steps, ForkLauncher(), lambda job: job, hear, schedule=schedule, should_stop=lambda: bool(ends))
    assert [end.done for end in ends] == [False]
    assert left == 1


def test_every_launcher_of_a_process_shares_the_cores_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401 - as the server of jobs has, with a number of threads of its own

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv(CORES, raising=False)
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    ends: list[Attempt[Job]] = []
    for jobs in (1, 4):
        launcher = ForkLauncher(LocalLauncher(jobs, ["cpu"]).environment(0))
        run_steps([job_at(tmp_path / str(jobs), "threads")], launcher, lambda job: job, lambda end: ends.append(end) is None)
    facts = [end.outcome.facts for end in ends if end.outcome]
    assert facts == [{"threads": 8}, {"threads": 2}]
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # the user's own number stays
    assert "OMP_NUM_THREADS" not in LocalLauncher(4, ["cpu"]).environment(0)


@pytest.mark.journey
def test_a_semaphore_of_a_job_is_not_called_leaked_after_the_last_line(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tests.base.test_job import *\n"
        f"run_steps([job_at(Path({str(tmp_path)!r}), 'semaphore')], LocalLauncher(1, ['cpu']), lambda job: job, lambda end: True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "leaked" not in done.stderr


def test_a_job_of_an_earlier_version_can_be_read() -> None:
    job = job_at(Path("job"))
    assert Job.from_json({**job.to_json(), "confirm": None}) == job
