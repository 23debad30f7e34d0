"""The search. In: a Problem and a recipe. Out: a study in its storage with as many trials as the recipe asks for.

This process asks Optuna for settings, starts one process per trial, reads its reports, and prunes, closes or requeues it. It can
be killed at any moment: the same command resumes, and nothing is trained twice. The states of a trial are Optuna's:

WAITING -> RUNNING -> COMPLETE              `_record_end`: it ended with a score
                   -> PRUNED                `_poll`: not in the better half at a rung (`problem.reason_to_prune`)
                   -> FAIL                  `_record_end`: an error, no score, or its process died a second time
                   -> FAIL, `interrupted`   its process died (`_requeue`) or the study's (`_requeue_orphans`, `_requeue_active`):
                                            its settings are WAITING again, as another trial
                   -> FAIL, `surplus`       `_start_trial`: several machines asked at once for the last one
A trial that another machine closes meanwhile is dropped here (`_lose`).
Only trials with neither mark count towards the total (`counts`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from coref_automl.base.errors import TuningError
from coref_automl.base.job import Job, Launcher, Running
from coref_automl.base.progress import Progress, Stage
from coref_automl.base.say import in_words, say
from coref_automl.base.schedule import Attempt, Schedule, run_steps
from coref_automl.extras.tune.problem import SAMPLED, Follower, Origin, Problem, Report, Rung, events_of, reason_to_prune
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.storage import HEARTBEAT_SECONDS, counts, heartbeat, queue_again, recover, sampler_of

SAME_FAILURES = 3
"""This many trials in a row that fail the same way stop the study: the next one would fail, too."""
_NO_REPORT = Report(0, 0.0)


@dataclass(slots=True, eq=False)
class ActiveTrial:
    """A trial whose process runs. `last`: its latest report, or that of its averaged weights where they score higher."""

    trial: Any
    job: Job
    events: Follower
    started: float
    heartbeat: float = 0.0
    last: Report = _NO_REPORT
    prune_reason: str | None = None


class _Ending(NamedTuple):
    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    value: float | None = None
    reason: str = ""
    kind: str = ""


@dataclass(slots=True)
class Search:
    """One process's share of a study.

    owner         this machine and folder, by which a later call knows its own trials
    wait          called between polls; tests replace it
    ended_kinds   how each trial that ended here failed; "" if it did not
    sought_at     when trials of dead processes were last sought
    """

    study: Any
    problem: Problem
    recipe: TuneRecipe
    launcher: Launcher
    progress: Progress
    owner: str
    wait: Callable[[], None]
    active: list[ActiveTrial] = field(default_factory=list)
    ended_kinds: list[str] = field(default_factory=list)
    sought_at: float = 0.0
    total: int = 0
    stage: Stage = field(init=False)

    def run(self, total: int | None = None) -> None:
        """Run trials until `total` have ended; by default as many as the recipe asks for."""
        self.total = self.recipe.trials if total is None else total
        self._requeue_orphans()
        with self.progress.stage("trials", self.total, "trials") as stage:
            self.stage = stage
            stage.skip(min(self.total, self.ended_trials()))
            try:
                schedule = Schedule(next_step=self._start_trial, poll=self._poll)
                run_steps((), self.launcher, lambda active: active.job, self._record_end, schedule=schedule, wait=self.wait)
            except BaseException:
                self._requeue_active()
                raise

    def _requeue_orphans(self) -> None:
        """Requeue trials whose process died; at most once per heartbeat while trials run."""
        if self.active and time.monotonic() - self.sought_at < HEARTBEAT_SECONDS:
            return
        self.sought_at = time.monotonic()
        ours = [active.trial.number for active in self.active]
        for number in recover(self.study, self.owner, private=self.recipe.storage is None, ours=ours):
            self.progress.note(
                f"시도 {number}: 프로세스가 끝나 중단되었습니다. 같은 설정을 다시 대기열에 넣습니다.",
                f"Trial {number} was left running by a process that ended; its settings are queued again.",
            )

    def ended_trials(self) -> int:
        return sum(counts(trial) and trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))

    def _started_trials(self, before: float = math.inf) -> int:
        """Count the trials that were started, up to the one with this number."""
        trials = self.study.get_trials(deepcopy=False)
        return sum(trial.number < before and counts(trial) and trial.state.name != "WAITING" for trial in trials)

    def _start_trial(self) -> ActiveTrial | None:
        """Ask Optuna for a trial; None once enough have started."""
        if self.recipe.storage is not None:
            self._requeue_orphans()
        started = self._started_trials()
        if started >= self.total:
            return None
        self.study.sampler = sampler_of(self.recipe, started, self.owner)
        trial = self.study.ask()
        if self._started_trials(before=trial.number) >= self.total:  # the number decides, so machines need no coordination
            trial.set_user_attr("surplus", True)
            self.study.tell(trial, state=_states().FAIL)
            return None
        trial.set_user_attr("owner", self.owner)
        job = self.problem.job(self.problem.space.suggest(trial, self.problem.fixed), self.recipe.seed)
        trial.set_user_attr("key", job.key)
        self.active.append(ActiveTrial(trial, job, events_of(job), time.monotonic()))
        return self.active[-1]

    def _poll(self, active: ActiveTrial, running: Running) -> bool:
        """Read a trial's new reports, and stop its process if it is pruned or lost to another machine; True if stopped."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            active.heartbeat = heartbeat(active.trial, active.heartbeat)
            self._read_reports(active)
            if active.prune_reason is None:
                return False
            running.stop()
            self._close(active, _Ending("PRUNED", reason=active.prune_reason))
        except UpdateFinishedTrialError:
            running.stop()
            self._lose(active)
        return True

    def _lose(self, lost: ActiveTrial) -> None:
        """Drop a trial that another machine closed and took over, because this one seemed dead."""
        self.active = [active for active in self.active if active is not lost]
        self._drop_weights(lost.job)
        self.progress.note(
            f"시도 {lost.trial.number}: 이 서버의 응답이 없는 동안 다른 서버가 이어받았습니다.",
            f"Trial {lost.trial.number} was taken over by another machine while this one was silent.",
        )

    def _read_reports(self, active: ActiveTrial) -> None:
        for report in self.problem.reports(active.job, active.events.rows()):
            if active.prune_reason is not None:
                return
            is_new = report.step > active.last.step
            if is_new or (report.step == active.last.step and (not report.averaged or report.value > active.last.value)):
                active.last = report
            if is_new:  # else it is of averaged weights: a free candidate, but rungs compare trained ones
                if report.mrr is not None:
                    active.trial.set_user_attr(f"mrr-{report.step}", report.mrr)
                active.trial.report(report.value, report.step)
                active.prune_reason = self._reason_to_prune(active.trial, report)

    def _reason_to_prune(self, trial: Any, report: Report) -> str | None:
        if not self.recipe.prune or origin_of(trial) != SAMPLED:
            return None
        step, mrr = report.step, f"mrr-{report.step}"
        others = [
            Rung(other.number, other.params.get("objective", ""), other.intermediate_values[step], other.user_attrs.get(mrr))
            for other in self.study.get_trials(deepcopy=False)
            if counts(other) and other.number != trial.number and step in other.intermediate_values
        ]
        return reason_to_prune(Rung(trial.number, trial.params.get("objective", ""), report.value, report.mrr), others, step)

    def _record_end(self, end: Attempt[ActiveTrial]) -> bool:
        """Close or requeue a trial whose process ended. Always True: a trial runs again through Optuna's queue alone."""
        from optuna.exceptions import UpdateFinishedTrialError

        active, attributes = end.step, end.step.trial.user_attrs
        if attributes.get("attempt"):  # the scheduler sees one attempt: the one before ran under another number of the study
            end = replace(end, earlier=(attributes.get("died", ""),))
        try:
            if end.outcome is None and end.number == 1:
                self._requeue(active, end)
            elif not end.done:
                self._close(active, _Ending("FAIL", reason=end.reason, kind=end.kind))
            elif not active.last.step:
                self._close(active, _Ending("FAIL", reason="it ended without a score", kind="no score"))
            else:
                active.trial.set_user_attr("averaged", active.last.averaged)
                self._close(active, _Ending("COMPLETE", active.last.value))
        except UpdateFinishedTrialError:
            self._lose(active)
        return True

    def _requeue(self, active: ActiveTrial, end: Attempt[ActiveTrial]) -> None:
        """Queue the settings of a trial whose process died once more, unless another machine was first."""
        if not queue_again(self.study, active.trial, end.reason, attempt=1, died=end.kind):
            self._lose(active)
            return
        self.active.remove(active)
        number, why = active.trial.number, in_words(end.reason).rstrip(".")
        self.progress.note(
            f"시도 {number}: {why}. 마지막 체크포인트에서 다시 실행합니다.",
            f"Trial {number}: {why}; it runs again from its last checkpoint.",
        )

    def _close(self, active: ActiveTrial, ending: _Ending) -> None:
        self.active.remove(active)
        facts: dict[str, Any] = {**self.problem.cost(active.job), "wall": round(time.monotonic() - active.started, 2)}
        if ending.reason:
            facts |= {"reason": ending.reason, "log": str(active.job.log)}
        for name, fact in facts.items():
            active.trial.set_user_attr(name, fact)
        self.study.tell(active.trial, ending.value, state=getattr(_states(), ending.state))
        self.progress.note(self._message(active, ending))
        self._drop_weights(active.job)
        complete = completed(self.study)
        self.stage.advance(1, **({"best": f"{100 * complete[0].value:.2f}%"} if complete else {}))
        self._count_failures(ending, active.job)

    def _message(self, active: ActiveTrial, ending: _Ending) -> str:
        number, log, why = active.trial.number, active.job.log, in_words(ending.reason).rstrip(".")
        if ending.value is not None:
            scored = f"{self.problem.label} {100 * ending.value:.2f}%"
            return say(f"시도 {number}: select {scored}", f"Trial {number}: {scored} on select")
        if ending.state == "PRUNED":
            return say(f"시도 {number} 중단: {why}", f"Trial {number} pruned: {why}")
        return say(f"시도 {number} 실패: {why}. 기록: {log}", f"Trial {number} failed ({ending.kind}): {why}. Log: {log}")

    def _count_failures(self, ending: _Ending, job: Job) -> None:
        kind, reason = ending.kind, ending.reason.rstrip(".")
        self.ended_kinds.append(kind)
        if kind and self.ended_kinds[-SAME_FAILURES:] == [kind] * SAME_FAILURES:
            raise TuningError(
                f"{SAME_FAILURES} trials in a row failed the same way ({kind}: {reason}); read {job.log}. "
                "A corrected recipe needs another --out; if the machine was at fault, run the same command again."
            )

    def _drop_weights(self, job: Job) -> None:
        """Keep only the scores, since the winner is retrained. Another trial of the same settings may still train there."""
        if job.key not in [active.job.key for active in self.active]:
            self.problem.drop_weights(job)

    def _requeue_active(self) -> None:
        """Leave the running trials in the queue for the next call."""
        for active in self.active:
            queue_again(self.study, active.trial, "the study was interrupted")
        self.active.clear()


def completed(study: Any) -> list[Any]:
    """Return the completed trials, best first; ties go to the earlier one."""
    trials = study.get_trials(deepcopy=False, states=[_states().COMPLETE])
    return sorted((trial for trial in trials if counts(trial)), key=lambda trial: (-trial.value, trial.number))


def origin_of(trial: Any) -> Origin:
    origin: Origin = trial.user_attrs.get("origin", SAMPLED)
    return origin


def _states() -> Any:
    from optuna.trial import TrialState

    return TrialState
