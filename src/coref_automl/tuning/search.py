"""The search. In: a Problem and a recipe. Out: a study in its storage with as many trials as were asked for.

The parent asks Optuna for settings, starts one process per trial, reads its reports, and prunes, closes or requeues it.
It can be killed at any moment: the same command resumes, and nothing is trained twice. The states of a trial are Optuna's:

WAITING -> RUNNING -> COMPLETE              it ended with a score
                   -> PRUNED                not in the better half at a rung
                   -> FAIL                  an error, no score, or its process died a second time
                   -> FAIL, `interrupted`   its process or the study's died: its settings are WAITING again, as another trial
                   -> FAIL, `surplus`       several machines asked at once, and it is one too many
What `counts` among the trials asked for has neither mark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from coref_automl.engine.job import Job, Launcher, Running
from coref_automl.engine.schedule import Attempt, Schedule, run_steps
from coref_automl.errors import TuningError
from coref_automl.progress import Progress, Stage
from coref_automl.say import in_words, say
from coref_automl.tuning.problem import ORIGINS, Follower, Origin, Problem, Report, events_of
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.storage import HEARTBEAT_SECONDS, counts, heartbeat, queue_again, recover, sampler_of

SAME_FAILURES = 3
"""So many trials in a row that fail the same way stop the study: the next would, too."""
RUNGS = (1, 2)
"""The quarters of the budget at which trials are pruned: the better half goes on."""
_NOTHING = Report(0, 0.0)


@dataclass(slots=True, eq=False)
class ActiveTrial:
    trial: Any
    job: Job
    events: Follower
    started: float
    alive: float = 0.0  # when the storage last heard of it
    last: Report = _NOTHING
    prune_reason: str | None = None


class _Ending(NamedTuple):
    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    value: float | None = None
    reason: str = ""
    kind: str = ""


@dataclass(slots=True)
class Search:
    """One process's share of a study. `wait` is called between looks; tests replace it."""

    study: Any
    problem: Problem
    recipe: TuneRecipe
    launcher: Launcher
    progress: Progress
    owner: str
    wait: Callable[[], None]
    active: list[ActiveTrial] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    looked: float = 0.0
    total: int = 0
    stage: Stage = field(init=False)

    def run(self, total: int | None = None) -> None:
        """Run trials until so many have ended; by default as many as the recipe asks for."""
        self.total = self.recipe.trials if total is None else total
        self._take_over()
        with self.progress.stage("trials", self.total, "trials") as self.stage:
            self.stage.skip(min(self.total, self.ended()))
            try:
                schedule = Schedule(next_step=self._next, poll=self._stopped)
                run_steps((), self.launcher, lambda active: active.job, self._end, schedule=schedule, wait=self.wait)
            except BaseException:
                self._hand_back()
                raise

    def _take_over(self) -> None:
        """Requeue trials whose process died; at most every HEARTBEAT_SECONDS seconds while trials run."""
        if self.active and time.monotonic() - self.looked < HEARTBEAT_SECONDS:
            return
        self.looked = time.monotonic()
        ours = [active.trial.number for active in self.active]
        for number in recover(self.study, self.owner, private=self.recipe.storage is None, ours=ours):
            self.progress.note(
                f"시도 {number}: 프로세스가 끝나 중단되었습니다. 같은 설정을 다시 대기열에 넣습니다.",
                f"Trial {number} was left running by a process that ended; its settings are queued again.",
            )

    def ended(self) -> int:
        return sum(counts(trial) and trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))

    def _begun(self, before: float = math.inf) -> int:
        """How many trials were started, of those before this number."""
        found = [trial for trial in self.study.get_trials(deepcopy=False) if trial.number < before and counts(trial)]
        return sum(trial.state.name != "WAITING" for trial in found)

    def _next(self) -> ActiveTrial | None:
        """A trial for a free slot; None where none is left to start."""
        if self.recipe.storage is not None:
            self._take_over()
        begun = self._begun()
        if begun >= self.total:
            return None
        self.study.sampler = sampler_of(self.recipe, begun, self.owner)
        trial = self.study.ask()
        if self._begun(before=trial.number) >= self.total:  # one too many, by its number: several machines agree without talking
            trial.set_user_attr("surplus", True)
            self.study.tell(trial, state=_states().FAIL)
            return None
        trial.set_user_attr("owner", self.owner)
        job = self.problem.job(self.problem.space.suggest(trial, self.problem.fixed), self.recipe.seed)
        trial.set_user_attr("key", job.key)
        self.active.append(ActiveTrial(trial, job, events_of(job), time.monotonic()))
        return self.active[-1]

    def _stopped(self, active: ActiveTrial, running: Running) -> bool:
        """Take in what a trial has reported, and prune it if that is reason enough."""
        with self._unless_taken(active, running):
            active.alive = heartbeat(active.trial, active.alive)
            self._take_reports(active)
            if active.prune_reason is not None:
                running.stop()
                self._close(active, _Ending("PRUNED", reason=active.prune_reason))
        return active not in self.active

    @contextmanager
    def _unless_taken(self, lost: ActiveTrial, running: Running | None = None) -> Iterator[None]:
        """A trial that is closed already: another machine took this one for dead and runs it; one of the two is enough."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            yield
        except UpdateFinishedTrialError:
            if running is not None:
                running.stop()
            self.active = [active for active in self.active if active is not lost]
            self._drop_weights(lost.job)
            number = lost.trial.number
            self.progress.note(
                f"시도 {number}: 이 서버의 응답이 없는 동안 다른 서버가 이어받았습니다.",
                f"Trial {number} was taken over by another machine while this one was silent.",
            )

    def _take_reports(self, active: ActiveTrial) -> None:
        for report in self.problem.reports(active.job, active.events.rows()):
            average_wins = report.averaged and report.step == active.last.step and report.value > active.last.value
            if active.prune_reason is not None or (report.step <= active.last.step and not average_wins):
                continue
            active.last = report
            if average_wins:
                continue  # the weights' average is a candidate that cost nothing; rungs compare what was trained
            if report.mrr is not None:
                active.trial.set_user_attr(f"mrr-{report.step}", report.mrr)
            active.trial.report(report.value, report.step)
            active.prune_reason = self._reason_to_prune(active.trial, report)

    def _reason_to_prune(self, trial: Any, report: Report) -> str | None:
        if not self.recipe.prune or origin_of(trial) != "drawn":
            return None
        others = [
            Rung(other.number, _group(other), other.intermediate_values[report.step], other.user_attrs.get(f"mrr-{report.step}"))
            for other in self.study.get_trials(deepcopy=False)
            if counts(other) and other.number != trial.number and report.step in other.intermediate_values
        ]
        return reason_to_prune(Rung(trial.number, _group(trial), report.value, report.mrr), others, report.step)

    def _end(self, end: Attempt[ActiveTrial]) -> bool:
        """A process that is over: done, failed with a reason, or dead without one. Trials run again through the queue alone."""
        active = end.step
        end = replace(end, earlier=(end.kind,) * active.trial.user_attrs.get("attempt", 0))
        with self._unless_taken(active):
            if end.outcome is None and end.number == 1:
                self._try_again(active, end.reason)
            elif not end.done:
                self._close(active, _Ending("FAIL", reason=end.reason, kind=end.kind))
            elif not active.last.step:
                self._close(active, _Ending("FAIL", reason="it ended without a score", kind="no score"))
            else:
                active.trial.set_user_attr("averaged", active.last.averaged)
                self._close(active, _Ending("COMPLETE", active.last.value))
        return True

    def _try_again(self, active: ActiveTrial, reason: str) -> None:
        """A process died: the same settings once more."""
        self.active.remove(active)
        number = active.trial.number
        queue_again(self.study, self._frozen(active), reason, attempt=1)
        self.progress.note(
            f"시도 {number}: {in_words(reason)}. 마지막 체크포인트에서 다시 실행합니다.",
            f"Trial {number}: {reason}; it runs again from its last checkpoint.",
        )

    def _frozen(self, active: ActiveTrial) -> Any:
        return next(trial for trial in self.study.get_trials(deepcopy=False) if trial.number == active.trial.number)

    def _close(self, active: ActiveTrial, ending: _Ending) -> None:
        self.active.remove(active)
        facts: dict[str, Any] = {**self.problem.cost(active.job), "wall": round(time.monotonic() - active.started, 2)}
        if ending.reason:
            facts |= {"reason": ending.reason, "log": str(active.job.log)}
        for name, fact in facts.items():
            active.trial.set_user_attr(name, fact)
        self.study.tell(active.trial, ending.value, state=getattr(_states(), ending.state))
        self.progress.note(self._told(active, ending))
        self._drop_weights(active.job)
        done = completed(self.study)
        self.stage.advance(1, **({"best": f"{100 * done[0].value:.2f}%"} if done else {}))
        self._count_failures(ending, active.job)

    def _told(self, active: ActiveTrial, ending: _Ending) -> str:
        number, log, why = active.trial.number, active.job.log, in_words(ending.reason)
        if ending.value is not None:
            scored = f"{self.problem.label} {100 * ending.value:.2f}%"
            return say(f"시도 {number}: select {scored}", f"Trial {number}: {scored} on select")
        if ending.state == "PRUNED":
            return say(f"시도 {number} 중단: {why}", f"Trial {number} pruned: {why}")
        return say(f"시도 {number} 실패: {why} 기록: {log}", f"Trial {number} failed ({ending.kind}): {why} Log: {log}")

    def _count_failures(self, ending: _Ending, job: Job) -> None:
        kind, reason = ending.kind, ending.reason.rstrip(".")
        self.failures.append(kind)
        if kind and self.failures[-SAME_FAILURES:] == [kind] * SAME_FAILURES:
            raise TuningError(
                f"{SAME_FAILURES} trials in a row failed the same way ({kind}: {reason}); read {job.log}. "
                "A corrected recipe needs another --out; if the machine was at fault, run the same command again."
            )

    def _drop_weights(self, job: Job) -> None:
        """A trial is known by its scores: what wins is trained anew. Another trial of the same settings may still train there."""
        if job.key not in [active.job.key for active in self.active]:
            self.problem.drop_weights(job)

    def _hand_back(self) -> None:
        """Interrupted: leave what ran in the queue for the next call."""
        for active in self.active:
            queue_again(self.study, self._frozen(active), "the study was interrupted")
        self.active.clear()


def completed(study: Any) -> list[Any]:
    """The completed trials, best first; of equals the earlier one."""
    done = study.get_trials(deepcopy=False, states=[_states().COMPLETE])
    return sorted((trial for trial in done if counts(trial)), key=lambda trial: (-trial.value, trial.number))


def distinct(study: Any, problem: Problem, seed: int) -> list[Any]:
    """The completed trials, best first, one per recipe: of several that trained the same, the start or else the best."""
    found: dict[str, Any] = {}
    for trial in completed(study):
        key = problem.job(trial.params, seed).key
        if key not in found or ORIGINS.index(origin_of(trial)) < ORIGINS.index(origin_of(found[key])):
            found[key] = trial
    return list(found.values())


def origin_of(trial: Any) -> Origin:
    found: Origin = trial.user_attrs.get("origin", "drawn")
    return found


def _group(trial: Any) -> str:
    return str(trial.params.get("objective", ""))


@dataclass(frozen=True, slots=True)
class Rung:
    """A trial at one quarter of its budget."""

    number: int
    group: str
    value: float
    mrr: float | None = None


def reason_to_prune(own: Rung, others: Sequence[Rung], step: int) -> str | None:
    """Why a trial is pruned at this quarter. `others` are all that have come so far, in whatever order they did.

    Trials of one objective are ranked by the mean reciprocal rank, which tells them apart with half the items; objectives are
    compared by the score itself, as their ranks below the first differ.
    """
    if step not in RUNGS:
        return None
    group = [other for other in others if other.group == own.group]
    ranks = {rung.number: rung.value if rung.mrr is None else rung.mrr for rung in (*group, own)}
    if not _in_better_half(own.number, ranks):
        return f"not in the better half of its objective at {step}/{REPORTS} of the budget"
    leads = all(own.value >= other.value for other in group)  # the best of an objective goes on, whatever others reach
    if not leads and not _in_better_half(own.number, {rung.number: rung.value for rung in (*others, own)}):
        return f"not in the better half of all trials at {step}/{REPORTS} of the budget"
    return None


def _in_better_half(number: int, values: Mapping[int, float]) -> bool:
    """Of an odd number the middle one is out; of equals the earlier one is ahead."""
    order = sorted(values, key=lambda trial: (-values[trial], trial))
    return order.index(number) < max(1, len(order) // 2)


def running_elsewhere(study: Any) -> int:
    return len(study.get_trials(deepcopy=False, states=[_states().RUNNING]))


def _states() -> Any:
    from optuna.trial import TrialState

    return TrialState
