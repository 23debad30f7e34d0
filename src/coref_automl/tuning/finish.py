"""The end of a study. In: its trials. Out: a winner chosen on `select`, judged by new runs on `confirm`, and one sentence.

The winner is chosen over the first seeds. A run's luck is in both halves of the documents, so runs that chose do not judge: the
winner and the reference are trained with as many new seeds, and these runs say on `confirm` whether the winner is better. The
reference is the recommended trial that did best on `select`: the tuner gets no easy opponent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from coref_automl.engine.job import Job
from coref_automl.engine.launch import Launcher
from coref_automl.engine.run import End, run_steps
from coref_automl.errors import TuningError
from coref_automl.progress import Progress
from coref_automl.records import Estimate, Record
from coref_automl.say import Say, language
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.tuning.problem import Follower, Problem
from coref_automl.tuning.pruning import RECOMMENDED
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.search import distinct
from coref_automl.tuning.storage import counts


@dataclass(frozen=True, slots=True)
class Finalist(Record):
    """One of the best trials. `select` are its runs that chose; `confirm` are its new runs, one per seed of `judging_seeds`.

    Values are fractions. Only the winner and the reference have new runs, and only the winner has a verdict. Earlier versions
    judged every finalist by the runs that chose: there `judging_seeds` is empty and `confirm` is not.
    """

    number: int
    recommended: bool
    params: dict[str, Any]
    select: tuple[float, ...]
    confirm: tuple[float, ...] = ()
    against_reference: MethodVerdict | None = None
    judging_seeds: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        return sum(self.select) / len(self.select)

    @property
    def confirmed(self) -> float | None:
        return sum(self.confirm) / len(self.confirm) if self.confirm else None

    @property
    def judged_by_its_choice(self) -> bool:
        """Was it judged by the runs that chose it, as earlier versions did?"""
        return bool(self.confirm) and not self.judging_seeds


@dataclass(frozen=True, slots=True)
class Final(Record):
    """`finalists` in the order of their mean on select, the winner first; `verdict` is the winner's against the reference.

    `choosing_seeds` are those of the runs that chose; each finalist names the seeds that judge it.
    """

    finalists: tuple[Finalist, ...]
    reference: int | None
    verdict: MethodVerdict | None
    sentence: str
    notes: tuple[str, ...] = ()
    choosing_seeds: tuple[int, ...] = ()

    @property
    def winner(self) -> Finalist:
        return self.finalists[0]

    @property
    def opponent(self) -> Finalist | None:
        """The reference; None where no recommended settings are among the finalists."""
        return next((one for one in self.finalists if one.number == self.reference), None)


def finish(
    study: Any, problem: Problem, recipe: TuneRecipe, launcher: Launcher, progress: Progress, *, wait: Callable[[], None]
) -> Final:
    """Choose the winner over the first seeds, then judge it and the reference by new ones."""
    best = distinct(study, problem, recipe.seed)
    if not best:
        raise TuningError(nothing_completed(study, recipe))
    reference = next((trial for trial in best if trial.user_attrs.get("origin") == RECOMMENDED), None)
    chosen = best[: recipe.finalists]
    if reference is not None and reference not in chosen:
        chosen.append(reference)
    choosing = range(recipe.seed, recipe.seed + recipe.seeds)
    judging = range(choosing.stop, choosing.stop + recipe.seeds)
    train = partial(run_all, launcher=launcher, progress=progress, wait=wait)
    found, left_out = choose(chosen, choosing, problem, train)
    opponent = next((one for one in found if reference is not None and one.number == reference.number), None)
    judged, missing = judge([one for one in found if one in (found[0], opponent)], judging, problem, train)
    winner, opponent = judged[found[0].number], judged[opponent.number] if opponent else None
    if opponent is not None and opponent is not winner:
        winner = replace(winner, against_reference=verdict_on_new_seeds(problem, winner, opponent, recipe.seed))
    return Final(
        finalists=(winner, *(judged.get(one.number, one) for one in found[1:])),
        reference=opponent.number if opponent else None,
        verdict=winner.against_reference,
        sentence=sentence_of(winner, opponent, problem.label, problem.confirm_name, Say(language())),
        notes=tuple(dict.fromkeys([*left_out, *missing])),
        choosing_seeds=tuple(choosing),
    )


def choose(
    trials: Sequence[Any], seeds: Iterable[int], problem: Problem, train: Callable[[Sequence[Job]], dict[str, str]]
) -> tuple[list[Finalist], list[str]]:
    """The trials in the order of their mean on `select`, and why some are left out: one that fails with a seed cannot win."""
    jobs = {trial.number: [problem.job(trial.params, seed, confirm=True) for seed in seeds] for trial in trials}
    failed = train([job for group in jobs.values() for job in group])
    notes = [f"Trial {number} is left out of the end: {failed[job.key]}" for number, group in jobs.items()
             for job in group if job.key in failed]  # fmt: skip
    found = [
        Finalist(
            trial.number,
            trial.user_attrs.get("origin") == RECOMMENDED,
            dict(trial.params),
            tuple(last_value(problem, job) for job in jobs[trial.number]),
        )
        for trial in trials
        if not any(job.key in failed for job in jobs[trial.number])
    ]
    if not found:
        raise TuningError(f"No finalist could be trained with its further seeds: {notes[0]}")
    return sorted(found, key=lambda one: (-one.mean, one.number)), notes


def judge(
    finalists: Sequence[Finalist], seeds: Iterable[int], problem: Problem, train: Callable[..., dict[str, str]]
) -> tuple[dict[int, Finalist], list[str]]:
    """The finalists by number with their new runs on `confirm`, and a note for each run that failed."""
    jobs = {(one.number, seed): problem.job(one.params, seed, confirm=True) for one in finalists for seed in seeds}
    failed = train([*jobs.values()], stage="verdict")
    notes = [f"Trial {number} with seed {seed} is left out of the verdict: {failed[job.key]}"
             for (number, seed), job in jobs.items() if job.key in failed]  # fmt: skip
    judged = {}
    for one in finalists:
        held = {seed: job for (number, seed), job in jobs.items() if number == one.number and job.key not in failed}
        judged[one.number] = replace(one, confirm=tuple(problem.confirmed([*held.values()])), judging_seeds=tuple(held))
    return judged, notes


def shared_seeds(one: Finalist, other: Finalist) -> tuple[int, ...]:
    """The new seeds that both have: the pairs of a verdict."""
    return tuple(seed for seed in one.judging_seeds if seed in other.judging_seeds)


def verdict_on_new_seeds(problem: Problem, one: Finalist, other: Finalist, seed: int) -> MethodVerdict | None:
    """Paired by the new seeds that both have; None where they have none in common."""
    if not (shared := shared_seeds(one, other)):
        return None
    ours, theirs = ([problem.job(side.params, new, confirm=True) for new in shared] for side in (one, other))
    return problem.verdict(ours, theirs, seed)


def run_all(
    jobs: Sequence[Job], launcher: Launcher, progress: Progress, *, wait: Callable[[], None], stage: str = "finalists"
) -> dict[str, str]:
    """Run jobs in the launcher's slots; a killed one is tried once more. Gives the reasons of those that failed, by key."""
    failed: dict[str, str] = {}
    distinct_jobs = list({job.key: job for job in jobs}.values())
    with progress.stage(stage, len(distinct_jobs), "runs") as bar:

        def ended(end: End[Job]) -> bool:
            if end.outcome is None and end.attempt < 2:
                return False
            if not end.done:
                reason = end.outcome.reason if end.outcome else "its process ended twice without a word"
                failed[end.job.key] = f"{reason} (log: {end.job.log})"
            bar.advance()
            return True

        run_steps(distinct_jobs, launcher, lambda job: job, ended, wait=wait)
    return failed


def last_value(problem: Problem, job: Job) -> float:
    """The metric on `select` at the end of a run."""
    values = [report.value for report in problem.reports(job, Follower(job.run / "events.ndjson").rows())]
    return values[-1]


def sentence_of(winner: Finalist, reference: Finalist | None, label: str, confirm_name: str, say: Say) -> str:
    """Is the winner better than the recommended settings, or is it noise?"""
    one, verdict = winner.number, winner.against_reference
    own = len(winner.confirm)
    if winner.confirmed is None:
        reached = say(" (완료된 새 시드 없음)", " (no new seed completed)")
    else:
        value, where = f"{label} {100 * winner.confirmed:.2f}%", judged_where(winner, own, confirm_name, say)
        reached = say(f" ({value}, {where})", f" ({value} {where})")
    if reference is None:
        return say(
            f"시도 {one}: select에서 가장 좋습니다{reached}. 비교할 추천 설정은 완료되지 못했습니다.",
            f"Trial {one} is the best on select{reached}; no recommended settings completed to compare it with.",
        )
    if reference.number == one:
        return say(
            f"추천 설정이 탐색한 것 가운데 가장 좋습니다{reached}. 그대로 쓰세요.",
            f"The recommended settings are the best found{reached}: keep them.",
        )
    if verdict is None:
        return say(
            f"시도 {one}: select에서 가장 좋습니다{reached}. 추천 설정과 함께 완료된 새 시드가 없어 판정할 수 없습니다. "
            "같은 명령을 다시 실행하세요.",
            f"Trial {one} is the best on select{reached}; without a new seed that it and the recommended settings both completed "
            "there is no verdict: run the same command again.",
        )
    pairs = own if winner.judged_by_its_choice else len(shared_seeds(winner, reference))
    where = judged_where(winner, pairs, confirm_name, say)
    change = f"{100 * verdict.difference:+.2f}"
    gain = say(f"{label} {change}점 ({where})", f"{change} points of {label} {where}")
    spans = say("문서 단위 신뢰구간 ", "over documents ") + _span(verdict.over_documents)
    if verdict.over_seeds is None:
        same = say("시드마다 차이가 같아 흩어짐을 알 수 없습니다", "every seed gives the same, so their spread is unknown")
        single = say("시드 하나로는 판정할 수 없으니 --seeds 3을 주세요", "one seed cannot tell, pass --seeds 3")
        left = say(
            "남은 새 시드 하나로는 판정할 수 없으니 같은 명령을 다시 실행하세요",
            "the one new seed that is left cannot tell, run the same command again",
        )
        why = same if pairs > 1 else single if len(winner.select) == 1 else left
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


def judged_where(winner: Finalist, seeds: int, confirm_name: str, say: Say) -> str:
    """The documents, and how many seeds they were answered with."""
    many = "" if seeds == 1 else "s"
    if winner.judged_by_its_choice:
        return say(f"{confirm_name}, 선택에도 쓰인 시드 {seeds}개", f"on {confirm_name} over {seeds} seed{many} that also chose")
    return say(f"{confirm_name}, 새 시드 {seeds}개", f"on {confirm_name} over {seeds} new seed{many}")


def nothing_completed(study: Any, recipe: TuneRecipe) -> str:
    trials = [trial for trial in study.get_trials(deepcopy=False) if counts(trial)]
    reasons = [str(trial.user_attrs["reason"]) for trial in trials if "reason" in trial.user_attrs]
    why = f" (the last says: {reasons[-1].rstrip('.')})" if reasons else ""
    return (
        f"No trial of the study {recipe.arm!r} completed{why}; raise --trials to try more, or correct the recipe and give it "
        "another --out."
    )


def _span(estimate: Estimate) -> str:
    return f"[{100 * estimate.low:+.2f}, {100 * estimate.high:+.2f}]"


def pause() -> None:
    time.sleep(0.2)


def against_other_arms(problem: Problem, recipe: TuneRecipe, finals: Mapping[str, Final]) -> dict[str, MethodVerdict | None]:
    """The winner against the winner of every other arm (random search), judged as the winner is against the reference."""
    mine = finals[recipe.arm].winner
    others = {name: final.winner for name, final in finals.items() if name != recipe.arm}
    return {name: verdict_on_new_seeds(problem, mine, other, recipe.seed) for name, other in others.items()}


def rival_sentence(arm: str, verdicts: Mapping[str, MethodVerdict | None], say: Say) -> str | None:
    """Does the tuner win against random search with the same number of trials?"""
    lines = []
    for name, verdict in verdicts.items():
        winners = say(f"{arm}의 최종 시도 - {name}의 최종 시도", f"Winner of {arm} - winner of {name}")
        if verdict is None:
            lines.append(
                say(
                    f"{winners}: 함께 완료한 새 시드가 없어 비교할 수 없습니다. 두 명령을 같은 --seeds로 다시 실행하세요.",
                    f"{winners}: not compared, as they share no new seed; run both commands again with the same --seeds.",
                )
            )
            continue
        told = say("유의한 차이 확인", "shown") if verdict.shown else say("유의한 차이 미확인", "not shown")
        if verdict.over_seeds is None:
            told = say("시드 사이에 흩어짐이 없어 판정할 수 없음", "the seeds show no spread, so this cannot tell")
        change = f"{100 * verdict.difference:+.2f}"
        lines.append(say(f"{winners}: {change}점 ({told}).", f"{winners}: {change} points ({told})."))
    return " ".join(lines) or None
