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
from typing import Any, Generic, Protocol, TypeVar

from coref_automl.decoder import read_stored
from coref_automl.errors import NotFinite, OutOfMemory
from coref_automl.locks import locked
from coref_automl.machine import is_out_of_memory
from coref_automl.records import Record
from coref_automl.store import read_json, write_json

JOB, OUTCOME = "job.json", "outcome.json"
POLL = 0.2
S = TypeVar("S")
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
    """Do the work; a failure becomes an outcome, with its traceback in the log, or is raised where `raising` says so.

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


class Running(Protocol):
    """A job on its way. `code` is its exit status once it is over, negative for a signal."""

    @property
    def alive(self) -> bool: ...

    @property
    def code(self) -> int: ...

    def stop(self) -> None: ...


class Launcher(Protocol):
    slots: int

    def start(self, job: Job, slot: int, /) -> Running: ...


class Schedule(Generic[S]):
    """What holds back, adds or stops steps while others run; by default nothing does.

    A `lost` step will never be ready, and is left out. `more` gives a further one where a slot is free and none is ready.
    `stopped` looks at a running step, again and again, and says whether it stopped it, of which `on_end` does not hear.
    """

    def ready(self, _step: S) -> bool:
        return True

    def lost(self, _step: S) -> bool:
        return False

    def more(self) -> S | None:
        return None

    def stopped(self, _step: S, _running: Running) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class End(Generic[S]):
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
        return self.outcome.kind if self.outcome else "killed" if self.code < 0 else "no outcome"

    @property
    def reason(self) -> str:
        return self.outcome.reason if self.outcome else death(self.code, self.job, " twice" if self.attempt > 1 else "")


@dataclass(slots=True)
class _Active(Generic[S]):
    step: S
    job: Job
    handle: Running
    began: float
    attempt: int

    def end(self) -> End[S]:
        code = self.handle.code
        outcome = read_outcome(self.job) if code >= 0 else None
        if outcome is not None and outcome.done and code:
            outcome = None  # it died first: an outcome that says done is older
        return End(self.step, self.job, outcome, code, time.monotonic() - self.began, self.attempt)


@dataclass(slots=True)
class _Slots(Generic[S]):
    """The steps that wait, with the number of their next attempt, and those that run, by slot."""

    launcher: Launcher
    schedule: Schedule[S]
    waiting: list[tuple[S, int]]
    active: dict[int, _Active[S]] = field(default_factory=dict)

    def fill(self, job_of: Callable[[S], Job]) -> None:
        for slot in [slot for slot in range(self.launcher.slots) if slot not in self.active]:
            found = self._next()
            if found is None:
                return
            step, attempt = found
            job, began = job_of(step), time.monotonic()
            self.active[slot] = _Active(step, job, self.launcher.start(job, slot), began, attempt)

    def _next(self) -> tuple[S, int] | None:
        self.waiting = [one for one in self.waiting if not self.schedule.lost(one[0])]
        for number, (step, _) in enumerate(self.waiting):
            if self.schedule.ready(step):
                return self.waiting.pop(number)
        step = self.schedule.more()
        return None if step is None else (step, 1)

    def take_in(self, on_end: Callable[[End[S]], bool]) -> None:
        """Free the slots of what was stopped or has ended."""
        ended = [slot for slot, one in self.active.items() if not one.handle.alive]  # asked first: then all it wrote is there
        stopped = [slot for slot, one in self.active.items() if self.schedule.stopped(one.step, one.handle)]
        past = {slot: self.active.pop(slot) for slot in {*ended, *stopped}}
        for one in [past[slot] for slot in ended if slot not in stopped]:
            if not on_end(one.end()):
                self.waiting.append((one.step, one.attempt + 1))


def wait_a_little() -> None:
    time.sleep(POLL)


def run_steps(
    steps: Sequence[S],
    launcher: Launcher,
    job_of: Callable[[S], Job],
    on_end: Callable[[End[S]], bool],
    *,
    schedule: Schedule[S] | None = None,
    over: Callable[[], bool] = lambda: False,
    wait: Callable[[], None] = wait_a_little,
) -> int:
    """Run steps in their order, as the schedule lets them. Gives the number left to do.

    `on_end` hears of every attempt and says whether the step is finished with; one that is not is tried again after the others.
    When `over` says so, or on an exception, what runs is stopped.
    """
    slots = _Slots(launcher, schedule or Schedule(), [(step, 1) for step in steps])
    try:
        while not over():
            slots.fill(job_of)
            if not slots.active and slots.waiting:
                raise RuntimeError("steps wait for something that no step makes")
            if not slots.active:
                return 0
            slots.take_in(on_end)
            if slots.active:
                wait()
        return len(slots.waiting) + len(slots.active)
    finally:
        for running in slots.active.values():
            running.handle.stop()
