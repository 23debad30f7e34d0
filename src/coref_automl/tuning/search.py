"""The search. In: a Problem and a recipe. Out: a study in its storage with as many trials as were asked for.

The parent asks Optuna for settings, starts one process per trial, reads its reports, and prunes, closes or requeues it.
It can be killed at any moment: the same command resumes, and nothing is trained twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coref_automl.engine.job import Job, death, outcome_of
from coref_automl.engine.launch import Launcher, Running
from coref_automl.errors import TuningError
from coref_automl.progress import Progress, Stage
from coref_automl.say import Say, language, say
from coref_automl.tuning.problem import Follower, Problem
from coref_automl.tuning.pruning import RECOMMENDED, reason_to_cut
from coref_automl.tuning.reasons import reason_words
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.storage import SIGN_EVERY, closed_elsewhere, counts, queue_again, recover, sign_of_life

ALIKE = 3
"""So many trials in a row that fail the same way stop the study: the next would, too."""

_POLL = 0.2


@dataclass(slots=True)
class _Active:
    """A trial on its way."""

    trial: Any
    job: Job
    running: Running
    events: Follower
    started: float
    alive: float = 0.0
    last: tuple[int, float] = (0, 0.0)
    cut: str | None = None


@dataclass(slots=True)
class Search:
    """One process's share of a study. `wait` is called between looks; tests replace it."""

    study: Any
    problem: Problem
    recipe: TuneRecipe
    launcher: Launcher
    progress: Progress
    owner: str
    wait: Callable[[], None] = lambda: time.sleep(_POLL)
    active: dict[int, _Active] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    over: bool = False
    looked: float = 0.0

    def run(self) -> None:
        """Fill the slots until every trial that was asked for has ended."""
        self._take_over()
        total = self.recipe.trials
        with self.progress.stage("trials", total, "trials") as stage:
            stage.skip(min(total, self._ended()))
            try:
                while self._fill() or self.active:
                    for slot in list(self.active):
                        with closed_elsewhere(partial(self._give_up, self.active[slot])):
                            self._look(slot, stage)
                    if self.active:
                        self.wait()
                    if self.recipe.storage is not None:
                        self._take_over()
            except BaseException:
                self._hand_back()
                raise

    def _take_over(self) -> None:
        """Queue what dead processes left running; a process that works looks now and then, and before it ends."""
        if self.active and time.monotonic() - self.looked < SIGN_EVERY:
            return
        self.looked = time.monotonic()
        ours = [active.trial.number for active in self.active.values()]
        for number in recover(self.study, self.owner, private=self.recipe.storage is None, ours=ours):
            self.progress.note(
                say(
                    f"시도 {number}: 프로세스가 끝나 중단되었습니다. 같은 설정을 다시 대기열에 넣습니다.",
                    f"Trial {number} was left running by a process that ended; its settings are queued again.",
                )
            )

    def _ended(self) -> int:
        return sum(counts(trial) and trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False))

    def _begun(self) -> int:
        return sum(counts(trial) and trial.state.name != "WAITING" for trial in self.study.get_trials(deepcopy=False))

    def _fill(self) -> bool:
        """Start trials in the free slots; False when none is left to start; one that is queued again opens the door anew."""
        self.over = False
        for slot in range(self.launcher.slots):
            if slot in self.active or self.over:
                continue
            if self._begun() >= self.recipe.trials:
                self.over = True
                break
            trial = self.study.ask()
            if self._is_surplus(trial):
                self.over = True
                break
            trial.set_user_attr("owner", self.owner)
            params = self.problem.space.suggest(trial, self.problem.fixed)
            job = self.problem.job(params, self.recipe.seed)
            trial.set_user_attr("key", job.key)
            running = self.launcher.start(job, slot)
            self.active[slot] = _Active(trial, job, running, Follower(job.run / "events.ndjson"), time.monotonic())
        return not self.over

    def _is_surplus(self, trial: Any) -> bool:
        """Is this trial one too many? Decided by its number, so that several machines agree without talking."""
        earlier = sum(
            other.number < trial.number and counts(other) and other.state.name != "WAITING"
            for other in self.study.get_trials(deepcopy=False)
        )
        if earlier < self.recipe.trials:
            return False
        trial.set_user_attr("surplus", True)
        self.study.tell(trial, state=_states().FAIL)
        return True

    def _look(self, slot: int, stage: Stage) -> None:
        """Take in what a trial has reported, and close it when it is over."""
        active = self.active[slot]
        alive = active.running.alive  # asked first: what it wrote before it ended is then surely read
        active.alive = sign_of_life(active.trial, active.alive)
        self._take_reports(active)
        if active.cut is not None:
            active.running.stop()
            self._close(slot, "PRUNED", stage, reason=active.cut)
        elif not alive:
            self._end(slot, stage)

    def _give_up(self, lost: _Active) -> None:
        """Another machine took this one for dead and runs the trial: one of the two is enough."""
        lost.running.stop()
        self.active = {slot: active for slot, active in self.active.items() if active is not lost}
        number = lost.trial.number
        self.progress.note(
            say(
                f"시도 {number}: 이 기계의 응답이 없는 동안 다른 기계가 이어받았습니다.",
                f"Trial {number} was taken over by another machine while this one was silent.",
            )
        )

    def _take_reports(self, active: _Active) -> None:
        for report in self.problem.reports(active.job, active.events.rows()):
            step, _ = active.last
            if report.step <= step or active.cut is not None:
                continue
            active.last = report.step, report.value
            if report.hits:
                active.trial.set_user_attr(f"hits-{report.step}", list(report.hits))
            active.trial.report(report.value, report.step)
            others = [trial for trial in self.study.get_trials(deepcopy=False) if counts(trial)]
            active.cut = reason_to_cut(
                active.trial, report, others, self.problem.clusters, prune=self.recipe.prune, seed=self.recipe.seed
            )

    def _end(self, slot: int, stage: Stage) -> None:
        """A process that is over: done, failed with a reason, or dead without one."""
        active = self.active[slot]
        outcome = outcome_of(active.job, active.running.code)
        step, value = active.last
        if outcome is None:
            again = active.trial.user_attrs.get("attempt")
            reason = death(active.running.code, active.job, " twice" if again else "")
            if not again:
                frozen = next(t for t in self.study.get_trials(deepcopy=False) if t.number == active.trial.number)
                queue_again(self.study, frozen, reason, attempt=1)
                number, why = active.trial.number, reason_words(reason, Say(language()))
                self.progress.note(
                    say(
                        f"시도 {number}: {why}. 마지막 체크포인트에서 다시 실행합니다.",
                        f"Trial {number}: {why}; it runs again from its last checkpoint.",
                    )
                )
                del self.active[slot]
                return
            self._close(slot, "FAIL", stage, reason=reason, kind="killed" if active.running.code < 0 else "no outcome")
        elif not outcome.done:
            self._close(slot, "FAIL", stage, reason=outcome.reason, kind=outcome.kind)
        elif not step:
            self._close(slot, "FAIL", stage, reason="it ended without a score", kind="no score")
        else:
            self._close(slot, "COMPLETE", stage, value=value)

    def _close(
        self, slot: int, state: str, stage: Stage, *, value: float | None = None, reason: str = "", kind: str = ""
    ) -> None:
        active = self.active.pop(slot)
        trial, number = active.trial, active.trial.number
        facts: dict[str, Any] = {**self.problem.cost(active.job), "wall": round(time.monotonic() - active.started, 2)}
        if reason:
            facts |= {"reason": reason, "log": str(active.job.log)}
        for name, fact in facts.items():
            trial.set_user_attr(name, fact)
        self.study.tell(trial, value, state=getattr(_states(), state))
        scored, why = f"{self.problem.label} {100 * (value or 0):.2f}%", reason_words(reason, Say(language()))
        if state == "COMPLETE":
            self.progress.note(say(f"시도 {number}: select {scored}", f"Trial {number}: {scored} on select"))
        elif state == "PRUNED":
            self.progress.note(say(f"시도 {number} 중단: {why}", f"Trial {number} pruned: {why}"))
            self.problem.drop_weights(active.job)
        else:
            log = active.job.log
            self.progress.note(say(f"시도 {number} 실패: {why} 기록: {log}", f"Trial {number} failed ({kind}): {why} Log: {log}"))
        self._keep_best_weights()
        stage.advance(1, **self._best())
        self._count_failures(kind if state == "FAIL" else "", reason, active.job)

    def _count_failures(self, kind: str, reason: str, job: Job) -> None:
        self.failures.append((kind, reason))
        last = self.failures[-ALIKE:]
        if kind and len(last) == ALIKE and all(entry[0] == kind for entry in last):
            raise TuningError(
                f"{ALIKE} trials in a row failed the same way ({kind}: {reason.rstrip('.')}); read {job.log}. "
                "A corrected recipe needs another --out; if the machine was at fault, run the same command again."
            )

    def _best(self) -> dict[str, str]:
        done = completed(self.study)
        return {"best": f"{100 * done[0].value:.2f}%"} if done else {}

    def _keep_best_weights(self) -> None:
        """Only what may still win keeps its weights: the best trials, and the recommended settings."""
        for trial in distinct(self.study, self.problem, self.recipe.seed)[self.recipe.finalists :]:
            if trial.user_attrs.get("origin") != RECOMMENDED and trial.user_attrs.get("owner") == self.owner:
                self.problem.drop_weights(self.problem.job(trial.params, self.recipe.seed))

    def _hand_back(self) -> None:
        """Interrupted: stop what runs, and leave it in the queue for the next call."""
        for active in self.active.values():
            active.running.stop()
            frozen = next(t for t in self.study.get_trials(deepcopy=False) if t.number == active.trial.number)
            queue_again(self.study, frozen, "the study was interrupted")
        self.active.clear()


def completed(study: Any) -> list[Any]:
    """The completed trials, best first; of equals the earlier one."""
    done = study.get_trials(deepcopy=False, states=[_states().COMPLETE])
    return sorted((trial for trial in done if counts(trial)), key=lambda trial: (-trial.value, trial.number))


def distinct(study: Any, problem: Problem, seed: int) -> list[Any]:
    """The completed trials, best first, one per recipe: of several that trained the same, the recommended or else the best."""
    found: dict[str, Any] = {}
    for trial in completed(study):
        key = problem.job(trial.params, seed).key
        if key not in found or trial.user_attrs.get("origin") == RECOMMENDED != found[key].user_attrs.get("origin"):
            found[key] = trial
    return list(found.values())


def running_elsewhere(study: Any) -> int:
    return len(study.get_trials(deepcopy=False, states=[_states().RUNNING]))


def _states() -> Any:
    from optuna.trial import TrialState

    return TrialState
