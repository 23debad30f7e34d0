"""Long work. In: a Job that names a function and a folder. Out: what the function leaves there, and an outcome; of many jobs
(`run_steps`), each one's end, told as it comes.

FOLDER/{job.json, log.txt, outcome.json}: outcome.json is written last and marks the end. A step is asked for its job only when
what it needs is there, so that it may start from what an earlier one made.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from coref_automl.decoder import decode_stored, read_stored
from coref_automl.errors import NotFinite, OutOfMemory, first_line
from coref_automl.locks import locked
from coref_automl.machine import is_out_of_memory
from coref_automl.records import Record
from coref_automl.store import read_json, write_json

JOB, OUTCOME = "job.json", "outcome.json"
POLL = 0.2
S = TypeVar("S")
NAN = "not a number"
"""The kind of a failure that is a result: the same work would fail again."""
FAILED = 3
"""The exit status of work that failed and wrote an outcome. Any other but 0 (Python's own is 1) is of a process that died first:
an outcome in its folder is older."""


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
        """Versions up to 0.2.0 wrote `confirm`, which only tuning used, for every job."""
        return decode_stored(cls, {name: value for name, value in data.items() if name != "confirm"}, "Job")


@dataclass(frozen=True, slots=True)
class Outcome(Record):
    """`kind` is what failures are alike by: memory, not a number, or the error's own name. `facts` are what the work returned."""

    done: bool
    kind: str = ""
    reason: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return 0 if self.done else FAILED


Work = Callable[[Job], dict[str, Any] | None]


def run_job(job: dict[str, Any], *, call: Work | None = None, raising: type[Exception] | None = None) -> Outcome:
    """Do the work; a failure becomes an outcome, with its traceback in the log, or is raised if of the kind `raising`, as Ctrl-C.

    `call` does the work in place of the named task. Of two processes with the same job one waits, and takes the other's outcome.
    """
    work, waits = Job.from_json(job), list[str]()
    folder = Path(work.folder)

    def tell(why: str) -> None:
        print(why)
        waits.append(why)

    with locked(folder, on_wait=tell):
        found = read_outcome(work) if waits else None
        if found and found.done and Job.from_json(read_json(folder / JOB)) == work:
            return found
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
    """How a job ended; None where its process died without one."""
    path = Path(job.folder) / OUTCOME
    return read_stored(path, Outcome, remedy="remove it, and run the command again") if path.is_file() else None


def failure(error: BaseException) -> Outcome:
    text = first_line(error)
    if isinstance(error, OutOfMemory) or is_out_of_memory(error):
        return Outcome(False, "out of memory", text)
    return Outcome(False, NAN if isinstance(error, NotFinite) else type(error).__name__, text)


def crash_reason(code: int, job: Job, times: str = "") -> str:
    """How a process ended that left no outcome; only a signal kills."""
    if code < 0:
        return f"its process was killed (signal {-code}){times}"
    lines = job.log.read_text("utf-8", "replace").splitlines() if job.log.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
    return f"its process ended with status {code}{times}: {last}"


class Running(Protocol):
    """A job on its way. `result` is its exit status once it is over: 0, `FAILED`, or any other of a process that died without an
    outcome, negative for a signal."""

    @property
    def alive(self) -> bool: ...

    def result(self) -> int: ...

    def stop(self) -> None: ...


class Launcher(Protocol):
    slots: int

    def start(self, job: Job, slot: int, /) -> Running: ...


@dataclass(frozen=True, slots=True)
class Schedule(Generic[S]):
    """What holds back, adds or stops steps while others run; by default nothing does.

    A `lost` step will never be `ready`, and is left out. `more` gives a further one where a slot is free and none is ready.
    `stopped` looks at a running step, again and again, and says whether it stopped it, of which `on_end` does not hear.
    """

    ready: Callable[[S], bool] = lambda _: True
    lost: Callable[[S], bool] = lambda _: False
    more: Callable[[], S | None] = lambda: None
    stopped: Callable[[S, Running], bool] = lambda _step, _running: False


@dataclass(frozen=True, slots=True)
class Attempt(Generic[S]):
    """How one attempt at a step ended. `outcome` is None where its process died without one; `attempt` counts from 1."""

    step: S
    job: Job
    outcome: Outcome | None
    code: int
    seconds: float
    attempt: int

    @property
    def done(self) -> bool:
        return self.outcome is not None and self.outcome.done

    @property
    def kind(self) -> str:
        if self.outcome is not None:
            return self.outcome.kind
        return "killed" if self.code < 0 else "no outcome"

    @property
    def reason(self) -> str:
        return self.outcome.reason if self.outcome else crash_reason(self.code, self.job, " twice" if self.attempt > 1 else "")


@dataclass(slots=True)
class _Active(Generic[S]):
    step: S
    job: Job
    handle: Running
    began: float
    attempt: int

    def end(self) -> Attempt[S]:
        code = self.handle.result()
        outcome = read_outcome(self.job) if code in (0, FAILED) else None
        return Attempt(self.step, self.job, outcome, code, time.monotonic() - self.began, self.attempt)


def _next(waiting: list[tuple[S, int]], schedule: Schedule[S]) -> tuple[S, int] | None:
    """A step and the number of the attempt at it, for a free slot."""
    waiting[:] = [(step, attempt) for step, attempt in waiting if not schedule.lost(step)]
    for place, (step, _) in enumerate(waiting):
        if schedule.ready(step):
            return waiting.pop(place)
    further = schedule.more()
    return None if further is None else (further, 1)


def _freed(active: dict[int, _Active[S]], schedule: Schedule[S]) -> list[_Active[S]]:
    """Free the slots of what was stopped or has ended; gives the latter."""
    ended = [slot for slot, running in active.items() if not running.handle.alive]  # asked first: then all it wrote is there
    for slot in [slot for slot, running in active.items() if schedule.stopped(running.step, running.handle)]:
        del active[slot]
    return [active.pop(slot) for slot in ended if slot in active]


def pause() -> None:
    time.sleep(POLL)


def run_steps(
    steps: Sequence[S],
    launcher: Launcher,
    job_of: Callable[[S], Job],
    on_end: Callable[[Attempt[S]], bool],
    *,
    schedule: Schedule[S] | None = None,
    over: Callable[[], bool] = lambda: False,
    wait: Callable[[], None] = pause,
) -> int:
    """Run steps in their order, as the schedule lets them. Gives the number left to do.

    `on_end` hears of every attempt and says whether the step is finished with; one that is not is tried again after the others.
    When `over` says so, or on an exception, what runs is stopped.
    """
    schedule, waiting, active = schedule or Schedule(), [(step, 1) for step in steps], dict[int, _Active[S]]()
    try:
        while not over():
            for slot in [slot for slot in range(launcher.slots) if slot not in active]:
                found = _next(waiting, schedule)
                if found is None:
                    break
                step, attempt = found
                job, began = job_of(step), time.monotonic()
                active[slot] = _Active(step, job, launcher.start(job, slot), began, attempt)
            if not active and waiting:
                raise RuntimeError("steps wait for something that no step makes")
            if not active:
                return 0
            for ended in _freed(active, schedule):
                if not on_end(ended.end()):
                    waiting.append((ended.step, ended.attempt + 1))
            if active:
                wait()
        return sum(not schedule.lost(step) for step, _ in waiting) + len(active)
    finally:
        for running in active.values():
            running.handle.stop()
