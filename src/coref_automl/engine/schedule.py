"""The schedule of steps. In: steps, a launcher, and what job each makes. Out: each step's end, told as it comes.

A step is asked for its job only when what it needs is there, so that it may start from what an earlier one made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from coref_automl.engine.job import Job, Outcome, death, outcome_of
from coref_automl.engine.launch import Launcher, Running

POLL = 0.2
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class End(Generic[S]):
    """How one attempt at a step ended. `outcome` is None where its process died without one; `attempt` counts from 1."""

    step: S
    job: Job
    outcome: Outcome | None
    code: int
    seconds: float
    attempt: int

    @classmethod
    def of(cls, step: S, job: Job, running: Running, began: float, attempt: int) -> End[S]:
        """The end of an attempt whose process is over."""
        code = running.code
        return cls(step, job, outcome_of(job, code), code, time.monotonic() - began, attempt)

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


def wait_a_little() -> None:
    time.sleep(POLL)


def run_steps(
    steps: Sequence[S],
    launcher: Launcher,
    job_of: Callable[[S], Job],
    on_end: Callable[[End[S]], bool],
    *,
    ready: Callable[[S], bool] = lambda _: True,
    lost: Callable[[S], bool] = lambda _: False,
    over: Callable[[], bool] = lambda: False,
    wait: Callable[[], None] = wait_a_little,
) -> int:
    """Run steps in their order as far as they are `ready`; those that are `lost` are left out. Gives the number left to do.

    `on_end` hears of every attempt and says whether the step is finished with; one that is not is tried again after the others.
    When `over` says so, or on an exception, what runs is stopped.
    """
    waiting, active = [(step, 1) for step in steps], dict[int, _Active[S]]()
    try:
        while waiting or active:
            if over():
                return len(waiting) + len(active)
            for slot in range(launcher.slots):
                waiting = [one for one in waiting if not lost(one[0])]
                found = next((one for one in waiting if ready(one[0])), None) if slot not in active else None
                if found is not None:
                    waiting.remove(found)
                    job, began = job_of(found[0]), time.monotonic()
                    active[slot] = _Active(found[0], job, launcher.start(job, slot), began, found[1])
            ended = [slot for slot, running in active.items() if not running.handle.alive]
            for past in [active.pop(slot) for slot in ended]:
                if not on_end(End.of(past.step, past.job, past.handle, past.began, past.attempt)):
                    waiting.append((past.step, past.attempt + 1))
            if waiting and not active and not ended:
                raise RuntimeError("steps wait for something that no step makes")
            if active:
                wait()
        return 0
    finally:
        for running in active.values():
            running.handle.stop()
