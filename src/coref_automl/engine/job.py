"""One piece of long work. In: a Job that names a function and a folder. Out: what the function leaves there, and an outcome.

FOLDER/{job.json, log.txt, outcome.json}: outcome.json is written last and marks the end.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coref_automl.decoder import read_stored
from coref_automl.errors import NotFinite, OutOfMemory
from coref_automl.locks import locked
from coref_automl.machine import is_out_of_memory
from coref_automl.records import Record
from coref_automl.store import write_json

OUTCOME = "outcome.json"
NAN = "not a number"
"""The kind of a failure that is a result: the same work would fail again."""


@dataclass(frozen=True, slots=True)
class Job(Record):
    """Work for one process. `task` names a function as "package.module:function"; it is called with the job."""

    task: str
    key: str
    folder: str
    recipe: dict[str, Any]
    confirm: str | None = None

    @property
    def run(self) -> Path:
        return Path(self.recipe["out"])

    @property
    def log(self) -> Path:
        return Path(self.folder) / "log.txt"


@dataclass(frozen=True, slots=True)
class Outcome(Record):
    """`kind` is what failures are alike by: memory, not a number, or the error's own name. `facts` are what the work returned."""

    done: bool
    kind: str = ""
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


Work = Callable[[Job], dict[str, Any] | None]


def run_job(
    job: dict[str, Any], *, call: Work | None = None, raising: Callable[[BaseException], bool] = lambda _: False
) -> Outcome:
    """Do the work; a failure becomes an outcome, with its traceback in the log, or goes on as the exception that it is.

    `call` does the work in place of the named task. Two processes that want the same folder take turns.
    """
    work = Job.from_json(job)
    folder = Path(work.folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "job.json", job)
    with locked(folder, on_wait=print):
        (folder / OUTCOME).unlink(missing_ok=True)
        try:
            module, _, function = work.task.partition(":")
            task = call or getattr(importlib.import_module(module), function)
            outcome = Outcome(True, facts=task(work) or {})
        except BaseException as error:
            if raising(error):
                raise
            with work.log.open("a") as log:
                traceback.print_exc(file=log)
            outcome = failure(error)
        write_json(folder / OUTCOME, outcome.to_json())
    return outcome


def read_outcome(job: Job) -> Outcome | None:
    """How a job ended; None where its process died without one."""
    path = Path(job.folder) / OUTCOME
    return read_stored(path, Outcome, remedy="remove it, and run the command again") if path.is_file() else None


def outcome_of(job: Job, code: int) -> Outcome | None:
    """What a process left that ended with this status; None where it died first. Then an outcome that says done is older."""
    found = read_outcome(job) if code >= 0 else None
    return None if found is not None and found.done and code else found


def failure(error: BaseException) -> Outcome:
    text = (str(error).splitlines() or [""])[0] or type(error).__name__
    if isinstance(error, OutOfMemory) or is_out_of_memory(error):
        return Outcome(False, "out of memory", text)
    return Outcome(False, NAN if isinstance(error, NotFinite) else type(error).__name__, text)


def death(code: int, job: Job, times: str = "") -> str:
    """How a process ended that left no outcome; only a signal kills."""
    if code < 0:
        return f"its process was killed (signal {-code}){times}"
    lines = job.log.read_text("utf-8", "replace").splitlines() if job.log.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
    return f"its process ended with status {code}{times}: {last}"
