"""Many jobs at a time. In: steps, and the job of each. Out: every attempt as it ends, and how many steps are left.

A step is asked for its job once it is ready and has a slot, so that it may start from what an earlier step made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from coref_automl.base.job import FAILED, Job, Launcher, Outcome, Running, crash_reason, read_outcome

S = TypeVar("S")
sleep = partial(time.sleep, 0.2)


@dataclass(frozen=True, slots=True)
class Schedule(Generic[S]):
    """Which steps may run, and what else happens while they do; by default all may, and nothing does.

    ready         may this step start now?
    unreachable   will it never be ready? Then it is left out.
    next_step     a further step, asked for when a slot is free and no waiting step is ready; None: there is none now
    poll          called again and again for every step under way, and once more when its process is over and all that it wrote
                  can be read; True if it stopped the step: `on_end` is not called
    """

    ready: Callable[[S], bool] = lambda _: True
    unreachable: Callable[[S], bool] = lambda _: False
    next_step: Callable[[], S | None] = lambda: None
    poll: Callable[[S, Running], bool] = lambda _step, _running: False


@dataclass(frozen=True, slots=True)
class Attempt(Generic[S]):
    """A finished attempt at a step. `outcome` is None if its process died without one; `earlier`: the kinds before it."""

    step: S
    job: Job
    outcome: Outcome | None
    code: int
    seconds: float
    earlier: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        return 1 + len(self.earlier)

    @property
    def done(self) -> bool:
        return self.outcome is not None and self.outcome.done

    @property
    def kind(self) -> str:
        """The kind of failure: that of the outcome, "killed", or "no outcome"."""
        if self.outcome is not None:
            return self.outcome.kind
        return "killed" if self.code < 0 else "no outcome"

    @property
    def reason(self) -> str:
        if self.outcome is not None:
            return self.outcome.reason
        return crash_reason(self.code, self.job, " twice" if self.kind in self.earlier else "")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[S]):
    step: S
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Active(Generic[S]):
    entry: _Waiting[S]
    job: Job
    handle: Running
    began: float

    def attempt(self) -> Attempt[S]:
        """The attempt, now that its process is over."""
        code = self.handle.result()
        outcome = read_outcome(self.job) if code in (0, FAILED) else None
        return Attempt(self.entry.step, self.job, outcome, code, time.monotonic() - self.began, self.entry.earlier)


def run_steps(
    steps: Sequence[S],
    launcher: Launcher,
    job_of: Callable[[S], Job],
    on_end: Callable[[Attempt[S]], bool],
    *,
    schedule: Schedule[S] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    wait: Callable[[], None] = sleep,
) -> int:
    """Run the steps in order as the schedule allows; return how many are left.

    `on_end` is called with every finished attempt; the step is tried again, after the others, if it returns False. When
    `should_stop` says so, or on an exception, running jobs are stopped.
    """
    schedule, waiting, active = schedule or Schedule(), [_Waiting(step) for step in steps], dict[int, _Active[S]]()
    try:
        while not should_stop():
            for slot in [slot for slot in range(launcher.slots) if slot not in active]:
                if (chosen := _next(waiting, schedule)) is None:
                    break
                job, began = job_of(chosen.step), time.monotonic()
                active[slot] = _Active(chosen, job, launcher.start(job, slot), began)
            if not active and waiting:
                raise RuntimeError("steps wait for something that no step makes")
            if not active:
                return 0
            with ExitStack() as ends:  # one that raises does not keep the others, which are over too, from being recorded
                for finished in reversed(_take_finished(active, schedule)):  # the last pushed is called first
                    ends.callback(_end, finished, on_end, waiting)
            if active:
                wait()
        return sum(not schedule.unreachable(entry.step) for entry in waiting) + len(active)
    finally:
        for running in active.values():
            running.handle.stop()


def _end(finished: _Active[S], on_end: Callable[[Attempt[S]], bool], waiting: list[_Waiting[S]]) -> None:
    if not on_end(attempt := finished.attempt()):
        waiting.append(_Waiting(attempt.step, (*attempt.earlier, attempt.kind)))


def _next(waiting: list[_Waiting[S]], schedule: Schedule[S]) -> _Waiting[S] | None:
    """Take a step for a free slot, without those that are unreachable."""
    waiting[:] = [entry for entry in waiting if not schedule.unreachable(entry.step)]
    for position, entry in enumerate(waiting):
        if schedule.ready(entry.step):
            return waiting.pop(position)
    further = schedule.next_step()
    return None if further is None else _Waiting(further)


def _take_finished(active: dict[int, _Active[S]], schedule: Schedule[S]) -> list[_Active[S]]:
    """Free the slots of stopped and finished jobs; return the finished ones."""
    finished = [slot for slot, running in active.items() if not running.handle.alive]
    for slot, running in [*active.items()]:  # after the check above: a process that is over has written all its reports
        if schedule.poll(running.entry.step, running.handle):
            del active[slot]
    return [active.pop(slot) for slot in finished if slot in active]
