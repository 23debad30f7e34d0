"""Two processes that want the same job take turns; a killed job is reported as killed."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event

import pytest

from coref_automl.engine.job import JOB, End, Job, Running, run_job, run_steps
from coref_automl.engine.launch import ProcessHandle, run_in_process
from coref_automl.store import read_json


def kill_itself(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def answer(_job: Job) -> dict[str, int]:
    return {"answer": 42}


class ForkLauncher:
    slots = 1

    def start(self, job: Job, _slot: int) -> Running:
        forked = get_context("fork").Process(target=run_in_process, args=(job.to_json(), {}))
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
        patch.setattr("coref_automl.engine.job.print", wait, raising=False)
        one = pool.submit(run_job, first.to_json(), call=slowly)
        assert works.wait(20)
        other = pool.submit(run_job, second.to_json(), call=lambda _: {"by": "second"})
        assert waits.wait(20)
        held = read_json(tmp_path / "job" / JOB)
        goes_on.set()
        assert one.result().facts == {"by": "first"}
        assert other.result().facts == facts
    assert held == first.to_json()


@pytest.mark.parametrize(("task", "code", "kind"), [("kill_itself", -signal.SIGKILL, "killed"), ("answer", 0, "")])
def test_a_process_that_has_to_start_anew_ends_as_the_job_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, code: int, kind: str
) -> None:
    """A fork of a process that had touched a GPU cannot work itself."""
    import torch

    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    job = job_at(tmp_path / "job", task)
    ends: list[End[Job]] = []
    assert run_steps([job], ForkLauncher(), lambda one: one, lambda end: ends.append(end) is None) == 0
    assert [(end.code, end.done, end.kind) for end in ends] == [(code, code == 0, kind)]
