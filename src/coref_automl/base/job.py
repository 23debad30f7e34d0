"""Jobs: long work in a folder. In: a Job that names a function and a folder. Out: what the function leaves there, and an Outcome.

FOLDER/{job.json, log.txt, outcome.json}: outcome.json is written last and marks the end. Many jobs: `schedule`. Where: `launch`.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from coref_automl.base.decoder import decode_stored, read_stored
from coref_automl.base.errors import NotFinite, OutOfMemory, first_line
from coref_automl.base.locks import locked
from coref_automl.base.machine import is_out_of_memory
from coref_automl.base.records import Record
from coref_automl.base.store import read_json, write_json

JOB, OUTCOME = "job.json", "outcome.json"
NAN = "not a number"
"""The kind of a failure that is a result: the same work would fail again."""
FAILED = 3
"""The exit status of work that failed and wrote an outcome. Any other but 0 (Python's own is 1) is that of a process that died
before it wrote one; an outcome in its folder is of an earlier attempt."""


@dataclass(frozen=True, slots=True)
class Job(Record):
    """Work for one process. `task` names a function as "package.module:function"; it is called with the job."""

    task: str
    key: str
    folder: str
    recipe: dict[str, Any]

    @property
    def log(self) -> Path:
        return Path(self.folder) / "log.txt"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read a job; versions up to 0.2.0 also wrote `confirm`, which is dropped."""
        return decode_stored(cls, {name: value for name, value in data.items() if name != "confirm"}, "Job")


@dataclass(frozen=True, slots=True)
class Outcome(Record):
    """How a job ended. `kind` of a failure: out of memory, not a number, or its class. `facts`: what the work returned."""

    done: bool
    kind: str = ""
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return 0 if self.done else FAILED


Work = Callable[[Job], dict[str, Any] | None]


def run_job(job: dict[str, Any], *, call: Work | None = None, raising: type[Exception] | None = None) -> Outcome:
    """Do the work and write its outcome; the traceback of a failure goes to the log.

    With `raising`, failures of that kind and interrupts such as Ctrl-C are raised instead. `call` does the work in place of the
    named task. If another process runs the same job, wait for it and return its outcome.
    """
    work, waits = Job.from_json(job), list[str]()
    folder = Path(work.folder)

    def on_wait(why: str) -> None:
        print(why)
        waits.append(why)

    with locked(folder, on_wait=on_wait):
        finished = read_outcome(work) if waits else None
        if finished and finished.done and Job.from_json(read_json(folder / JOB)) == work:
            return finished
        write_json(folder / JOB, job)
        (folder / OUTCOME).unlink(missing_ok=True)
        try:
            module, _, function = work.task.partition(":")
            task = call or getattr(importlib.import_module(module), function)
            outcome = Outcome(True, facts=task(work) or {})
        except BaseException as error:
            if raising and (isinstance(error, raising) or not isinstance(error, Exception)):
                raise
            with work.log.open("a") as log:
                traceback.print_exc(file=log)
            outcome = failure(error)
        write_json(folder / OUTCOME, outcome.to_json())
    return outcome


def read_outcome(job: Job) -> Outcome | None:
    """The stored outcome of a job; None if its process died without one."""
    path = Path(job.folder) / OUTCOME
    return read_stored(path, Outcome, remedy="remove it, and run the command again") if path.is_file() else None


def failure(error: BaseException) -> Outcome:
    text = first_line(error)
    if isinstance(error, OutOfMemory) or is_out_of_memory(error):
        return Outcome(False, "out of memory", text)
    return Outcome(False, NAN if isinstance(error, NotFinite) else type(error).__name__, text)


def crash_reason(code: int, job: Job, times: str = "") -> str:
    """Why a process without an outcome ended; a negative code is the signal that killed it."""
    if code < 0:
        return f"its process was killed (signal {-code}){times}"
    lines = job.log.read_text("utf-8", "replace").splitlines() if job.log.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
    return f"its process ended with status {code}{times}: {last}"


class Running(Protocol):
    """The handle on a launched job. Once it is over, `result` is its exit status: 0, `FAILED`, or that of a process that died
    without an outcome, negative for a signal."""

    @property
    def alive(self) -> bool: ...

    def result(self) -> int: ...

    def stop(self) -> None: ...


class Launcher(Protocol):
    slots: int

    def start(self, job: Job, slot: int, /) -> Running: ...
