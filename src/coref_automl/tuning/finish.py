"""The end of a study. In: its trials. Out: the best trained with further seeds, compared on `confirm`, and one sentence.

The winner is chosen on `select`, over all seeds; `confirm` chooses nothing and says whether the winner is better than the
recommended settings. The reference is the recommended trial that did best on `select`: the tuner gets no easy opponent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coref_automl.errors import InputError
from coref_automl.progress import Progress
from coref_automl.records import Estimate, Record
from coref_automl.say import Say, language
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.tuning.problem import Follower, Job, Problem
from coref_automl.tuning.pruning import RECOMMENDED
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.search import completed
from coref_automl.tuning.storage import counts
from coref_automl.tuning.trial import Launcher, Running, read_outcome


@dataclass(frozen=True, slots=True)
class Finalist(Record):
    """One of the best trials with all its seeds. Values are fractions; `select` chose, `confirm` did not."""

    number: int
    recommended: bool
    params: dict[str, Any]
    select: tuple[float, ...]
    confirm: tuple[float, ...]
    against_reference: MethodVerdict | None = None

    @property
    def mean(self) -> float:
        return sum(self.select) / len(self.select)

    @property
    def confirmed(self) -> float:
        return sum(self.confirm) / len(self.confirm)


@dataclass(frozen=True, slots=True)
class Final(Record):
    """`finalists` in the order of their mean on select, the winner first; `verdict` is the winner's against the reference."""

    finalists: tuple[Finalist, ...]
    reference: int | None
    verdict: MethodVerdict | None
    sentence: str
    notes: tuple[str, ...] = ()

    @property
    def winner(self) -> Finalist:
        return self.finalists[0]


def finish(
    study: Any, problem: Problem, recipe: TuneRecipe, launcher: Launcher, progress: Progress, *, wait: Callable[[], None]
) -> Final:
    """Train the finalists' further seeds and compare them."""
    best = completed(study)
    if not best:
        raise InputError(nothing_completed(study, recipe))
    reference = next((trial for trial in best if trial.user_attrs.get("origin") == RECOMMENDED), None)
    chosen = best[: recipe.finalists]
    if reference is not None and reference not in chosen:
        chosen.append(reference)
    seeds = range(recipe.seed, recipe.seed + recipe.seeds)
    jobs = {trial.number: [problem.job(trial.params, seed, confirm=True) for seed in seeds] for trial in chosen}
    failed = run_all([job for group in jobs.values() for job in group], launcher, progress, wait=wait)
    notes = [f"Trial {number} is left out of the end: {failed[job.key]}" for number, group in jobs.items()
             for job in group if job.key in failed]  # fmt: skip
    whole = [trial for trial in chosen if not any(job.key in failed for job in jobs[trial.number])]
    if not whole:
        raise InputError(f"No finalist could be trained with its further seeds: {notes[0]}")
    against = reference if reference in whole else None
    found = []
    for trial in whole:
        group = jobs[trial.number]
        verdict = problem.verdict(group, jobs[against.number], recipe.seed) if against and trial is not against else None
        found.append(
            Finalist(
                trial.number,
                trial.user_attrs.get("origin") == RECOMMENDED,
                dict(trial.params),
                tuple(last_value(problem, job) for job in group),
                tuple(problem.confirmed(group)),
                verdict,
            )
        )
    found.sort(key=lambda one: (-one.mean, one.number))
    verdict = found[0].against_reference
    number, say = against.number if against else None, Say(language())
    sentence = sentence_of(found[0], number, problem.label, problem.confirm_name, recipe.seeds, say)
    return Final(tuple(found), number, verdict, sentence, tuple(dict.fromkeys(notes)))


def run_all(jobs: Sequence[Job], launcher: Launcher, progress: Progress, *, wait: Callable[[], None]) -> dict[str, str]:
    """Run jobs in the launcher's slots; a killed one is tried once more. Gives the reasons of those that failed, by key."""
    waiting = list({job.key: job for job in jobs}.values())
    attempts: dict[str, int] = {}
    active: dict[int, tuple[Job, Running]] = {}
    failed: dict[str, str] = {}
    with progress.stage("finalists", len(waiting), "runs") as stage:
        try:
            while waiting or active:
                for slot in range(launcher.slots):
                    if slot not in active and waiting:
                        job = waiting.pop(0)
                        attempts[job.key] = attempts.get(job.key, 0) + 1
                        active[slot] = job, launcher.start(job, slot)
                for slot, (job, running) in list(active.items()):
                    if running.alive:
                        continue
                    del active[slot]
                    outcome = read_outcome(job) if running.code >= 0 else None
                    if outcome is None and attempts[job.key] < 2:
                        waiting.append(job)
                        continue
                    if outcome is None or not outcome.done:
                        failed[job.key] = (
                            f"{outcome.reason if outcome else 'its process ended twice without a word'} (log: {job.log})"
                        )
                    stage.advance()
                if active:
                    wait()
        finally:
            for _, running in active.values():
                running.stop()
    return failed


def last_value(problem: Problem, job: Job) -> float:
    """The metric on `select` at the end of a run."""
    values = [report.value for report in problem.reports(job, Follower(job.run / "events.ndjson").rows())]
    return values[-1]


def sentence_of(winner: Finalist, reference: int | None, label: str, confirm_name: str, seeds: int, say: Say) -> str:
    """Is the winner better than the recommended settings, or is it noise?"""
    one, verdict = winner.number, winner.against_reference
    where = say(f"{confirm_name}, 시드 {seeds}개", f"on {confirm_name} over {seeds} seed{'s' if seeds > 1 else ''}")
    value = f"{label} {100 * winner.confirmed:.2f}%"
    reached = say(f"{value}, {where}", f"{value} {where}")
    if reference is None:
        return say(
            f"시도 {one}: select에서 가장 좋습니다 ({reached}). 비교할 추천 설정은 완료되지 못했습니다.",
            f"Trial {one} is the best on select ({reached}); no recommended settings completed to compare it with.",
        )
    if verdict is None:
        return say(
            f"추천 설정이 탐색한 것 가운데 가장 좋습니다 ({reached}). 그대로 쓰세요.",
            f"The recommended settings are the best found ({reached}): keep them.",
        )
    change = f"{100 * verdict.difference:+.2f}"
    gain = say(f"{label} {change}점 ({where})", f"{change} points of {label} {where}")
    spans = say("문서 단위 신뢰구간 ", "over documents ") + _span(verdict.over_documents)
    if verdict.over_seeds is None:
        same = say("시드마다 차이가 같아 흩어짐을 알 수 없습니다", "every seed gives the same, so their spread is unknown")
        single = say("시드 하나로는 판정할 수 없으니 --seeds 3을 주세요", "one seed cannot tell, pass --seeds 3")
        why = single if seeds < 2 else same
        return say(
            f"시도 {one}: 추천 설정과의 차이는 {gain}, {spans}. {why}.",
            f"Trial {one} against the recommended settings: {gain}, {spans}; {why}.",
        )
    spans = say("시드 단위 신뢰구간 ", "over seeds ") + f"{_span(verdict.over_seeds)}, {spans}"
    if verdict.shown and verdict.difference > 0:
        return say(
            f"시도 {one}: 추천 설정보다 낫습니다(유의한 차이 확인). {gain}, {spans}.",
            f"Trial {one} is better than the recommended settings: {gain} ({spans}).",
        )
    if verdict.shown:
        return say(
            f"시도 {one}: select에서 가장 좋았지만 추천 설정보다 나쁩니다(유의한 차이 확인). {gain}, {spans}.",
            f"Trial {one} won on select and is worse than the recommended settings: {gain} ({spans}); keep those.",
        )
    return say(
        f"시도 {one}: 추천 설정과 유의한 차이 미확인. {gain}, {spans}.",
        f"Trial {one} is not shown to differ from the recommended settings: {gain} ({spans}).",
    )


def nothing_completed(study: Any, recipe: TuneRecipe) -> str:
    trials = [trial for trial in study.get_trials(deepcopy=False) if counts(trial)]
    reasons = [str(trial.user_attrs["reason"]) for trial in trials if "reason" in trial.user_attrs]
    why = f" (the last says: {reasons[-1].rstrip('.')})" if reasons else ""
    return (
        f"No trial of the study {recipe.arm!r} completed{why}; correct the recipe, or raise --trials, and run the command again."
    )


def _span(estimate: Estimate) -> str:
    return f"[{100 * estimate.low:+.2f}, {100 * estimate.high:+.2f}]"


def pause() -> None:
    time.sleep(0.2)


def against_other_arms(problem: Problem, recipe: TuneRecipe, finals: Mapping[str, Final]) -> dict[str, MethodVerdict]:
    """The winner against the winner of every other arm (random search), paired by seed, on the confirming half."""
    mine = finals[recipe.arm].winner
    found = {}
    for name, other in finals.items():
        if name != recipe.arm:
            seeds = range(recipe.seed, recipe.seed + min(len(mine.confirm), len(other.winner.confirm)))
            ours, theirs = ([problem.job(one.params, seed, confirm=True) for seed in seeds] for one in (mine, other.winner))
            found[name] = problem.verdict(ours, theirs, recipe.seed)
    return found


def rival_sentence(arm: str, verdicts: Mapping[str, MethodVerdict], say: Say) -> str | None:
    """Does the tuner win against random search with the same number of trials?"""
    lines = []
    for name, verdict in verdicts.items():
        told = say("유의한 차이 확인", "shown") if verdict.shown else say("유의한 차이 미확인", "not shown")
        if verdict.over_seeds is None:
            told = say("시드 사이에 흩어짐이 없어 판정할 수 없음", "the seeds show no spread, so this cannot tell")
        change = f"{100 * verdict.difference:+.2f}"
        lines.append(
            say(
                f"{arm}의 최종 시도 - {name}의 최종 시도: {change}점 ({told}).",
                f"Winner of {arm} - winner of {name}: {change} points ({told}).",
            )
        )
    return " ".join(lines) or None
