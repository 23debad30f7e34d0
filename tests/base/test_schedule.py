"""Steps run in order, are tried again as asked, and say how their attempts ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from coref_automl.base.errors import InputError
from coref_automl.base.job import FAILED, OUTCOME, Job, Outcome, Running
from coref_automl.base.launch import FinishedJob
from coref_automl.base.schedule import Attempt, run_steps
from coref_automl.base.store import write_json


@dataclass
class ScriptedLauncher:
    """Jobs that are over at once, with these statuses in turn."""

    statuses: list[int]
    slots: int = 1

    def start(self, job: Job, _slot: int) -> Running:
        status = self.statuses.pop(0)
        if status == FAILED:
            write_json(Path(job.folder) / OUTCOME, Outcome(False, "ValueError", "no").to_json())
        return FinishedJob(status)


KILLED = -int(signal.SIGKILL)


@pytest.mark.parametrize(
    ("statuses", "reasons"),
    [
        ((FAILED, KILLED), ["no", "its process was killed (signal 9)"]),
        ((1, KILLED), ["its process ended with status 1: its log is empty", "its process was killed (signal 9)"]),
        ((KILLED, KILLED), ["its process was killed (signal 9)", "its process was killed (signal 9) twice"]),
    ],
)
def test_only_a_process_that_died_the_same_way_before_is_said_to_have_died_twice(
    tmp_path: Path, statuses: tuple[int, ...], reasons: list[str]
) -> None:
    attempts: list[Attempt[str]] = []

    def on_end(attempt: Attempt[str]) -> bool:
        attempts.append(attempt)
        return attempt.number == 2

    launcher = ScriptedLauncher(list(statuses))
    assert run_steps(["step"], launcher, lambda name: Job("module:task", name, str(tmp_path), {}), on_end) == 0
    assert [attempt.reason for attempt in attempts] == reasons


def test_an_error_about_one_job_does_not_lose_another_that_is_over(tmp_path: Path) -> None:
    recorded: list[str] = []

    def on_end(attempt: Attempt[str]) -> bool:
        recorded.append(attempt.step)
        if attempt.step == "first":
            raise ValueError("stop")
        return True

    def job(name: str) -> Job:
        (tmp_path / name).mkdir()
        return Job("module:task", name, str(tmp_path / name), {})

    with pytest.raises(ValueError, match="stop"):
        run_steps(["first", "second"], ScriptedLauncher([FAILED, FAILED], slots=2), job, on_end)
    assert recorded == ["first", "second"]


def test_an_outcome_that_cannot_be_read_does_not_lose_another_job_that_is_over(tmp_path: Path) -> None:
    recorded: list[str] = []

    class Launcher(ScriptedLauncher):
        def start(self, job: Job, slot: int) -> Running:
            running = super().start(job, slot)
            if slot == 1:
                (Path(job.folder) / OUTCOME).write_text("[]")
            return running

    def job(name: str) -> Job:
        (tmp_path / name).mkdir()
        return Job("module:task", name, str(tmp_path / name), {})

    with pytest.raises(InputError):
        run_steps(
            ["first", "second"], Launcher([FAILED, FAILED], slots=2), job, lambda attempt: not recorded.append(attempt.step)
        )
    assert recorded == ["first"]
