"""Jobs side by side, in the slots of a launcher. In: steps, each of which becomes a Job when its turn comes. Out: how each ended.

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

    @property
    def done(self) -> bool:
        return self.outcome is not None and self.outcome.done

    @property
    def kind(self) -> str:
        return self.outcome.kind if self.outcome else "killed" if self.code < 0 else "no outcome"

    @property
    def reason(self) -> str:
        return self.outcome.reason if self.outcome else death(self.code, self.job)


@dataclass(slots=True)
class _Active(Generic[S]):
    step: S
    job: Job
    running: Running
    began: float


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
    waiting, active, attempts = list(steps), dict[int, _Active[S]](), dict[int, int]()
    try:
        while waiting or active:
            if over():
                return len(waiting) + len(active)
            for slot in range(launcher.slots):
                waiting = [step for step in waiting if not lost(step)]
                step = next((step for step in waiting if ready(step)), None) if slot not in active else None
                if step is None:
                    continue
                waiting.remove(step)
                attempts[id(step)] = attempts.get(id(step), 0) + 1
                job, began = job_of(step), time.monotonic()
                active[slot] = _Active(step, job, launcher.start(job, slot), began)
            ended = [slot for slot, one in active.items() if not one.running.alive]
            for one in [active.pop(slot) for slot in ended]:
                code, seconds = one.running.code, time.monotonic() - one.began
                end = End(one.step, one.job, outcome_of(one.job, code), code, seconds, attempts[id(one.step)])
                if not on_end(end):
                    waiting.append(one.step)
            if waiting and not active and not ended:
                raise RuntimeError("steps wait for something that no step makes")
            if active:
                wait()
        return 0
    finally:
        for one in active.values():
            one.running.stop()
