"""A whole experiment. In: its recipe. Out: ExperimentResult, and a folder of runs, all that judges them, a report and an archive.

Killed or interrupted at any moment, the same command resumes: finished steps are recognised by their outcome, the others resume
in their own folders. A step that fails is named and what needs it is left out; the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.comparison.archive import archive
from coref_automl.comparison.outside_checks import CHECKS, CHOSEN
from coref_automl.comparison.study import LOOKS
from coref_automl.decoder import read_stored
from coref_automl.engine.job import NAN, End, Launcher, Schedule, run_steps
from coref_automl.engine.launch import launcher_of
from coref_automl.errors import ComparisonError, RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.experiment.plan import EVALUATIONS, Plan, open_plan
from coref_automl.experiment.recipe import ExperimentRecipe, kind_name, step_kinds
from coref_automl.experiment.state import ANSWER, ExperimentResult, ExperimentState, Failure
from coref_automl.experiment.step import RUNS, Step
from coref_automl.folders import EVENTS, EXPERIMENT, claim_folder, remove
from coref_automl.locks import claimed
from coref_automl.progress import Progress, Stage, duration, quiet
from coref_automl.report.checkpoint_report import report
from coref_automl.report.printout import PrintedAnswer, recommend
from coref_automl.report.rendering import markdown_table
from coref_automl.report.sections.questions import verdicts_table
from coref_automl.say import Say, in_korean, language, speaking
from coref_automl.store import write_json, write_text
from coref_automl.training.folder import checkpoints_of, remove_checkpoint


def run_experiment(
    recipe: ExperimentRecipe,
    *,
    only: Sequence[str] = (),
    max_minutes: float | None = None,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    before: Callable[[Plan], Plan] = lambda plan: plan,
) -> ExperimentResult:
    """Run what is not finished, then write report and archive. `only` names the kinds of steps to run, or `report`.

    `before` sees the opened plan before anything is trained, and may change or refuse it. After `max_minutes` no step is begun
    and those under way are stopped; the next call resumes them.
    """
    out, ends = Path(recipe.out), end_after(max_minutes)
    for check in CHECKS:
        if check in only and check not in recipe.checks:
            raise RecipeError(f"The recipe has no {check} stage to run; add one, or leave out --only {check}.")
    with speaking(recipe.lang), claimed(out, EXPERIMENT):
        progress = (progress or quiet()).into(out / EVENTS)
        return run_plan(before(open_plan(recipe, out, progress)), progress, launcher, only=only, ends=ends)


def end_after(minutes: float | None) -> float | None:
    return time.monotonic() + 60 * minutes if minutes is not None else None


def run_plan(
    plan: Plan, progress: Progress, launcher: Launcher | None, *, only: Sequence[str] = (), ends: float | None = None
) -> ExperimentResult:
    """Run what is not finished of an opened plan, in a folder that the caller has claimed."""
    out, kinds, state = plan.out, only or step_kinds(), ExperimentState.of(plan)
    remove_weights(plan, state, plan.steps)
    claim_folder(out / EVALUATIONS, EVALUATIONS)  # one folder for many processes: none of them finds it half made
    runner = Runner(plan, state, progress, launcher, ends)
    ran = runner.run(kinds)
    ran |= _run_from_chosen(runner, kinds)
    result = state.result(kinds)
    reports = "report" in only or (not only and all(state.closed(step) for step in state.steps))
    if reports:
        result = _finish(plan, state, result, progress)
    if reports or ran or not (out / "result.json").is_file():  # else what it says of the report still holds
        write_json(out / "result.json", result.to_json())
    return result


def _run_from_chosen(runner: Runner, kinds: Collection[str]) -> bool:
    """The second phase: checks with `start: chosen`, once all that chooses is over. Their weights are there: a recipe that asks
    for such checks keeps them."""
    plan, state = runner.plan, runner.state
    asked = any(stage.start == CHOSEN for stage in plan.recipe.checks.values())
    if not (asked and state.judged and state.finished("evaluate")):
        return False
    state.add(plan.after_choice(recommended(plan).highest_path))
    return runner.run(kinds)


def recommended(plan: Plan) -> PrintedAnswer:
    """What the evaluations of the first set answer."""
    stage, items = plan.recipe.evaluate, EvalSet.open(plan.sets[0]).fingerprint
    return recommend(plan.out / EVALUATIONS, metric=stage.metric, margin=stage.margin, eval_set=items, lang=plan.recipe.lang)


@dataclass(slots=True)
class Runner:
    """Runs steps; one that fails is tried once more, when its neighbours on the GPU are others."""

    plan: Plan
    state: ExperimentState
    progress: Progress
    launcher: Launcher | None
    ends: float | None

    def run(self, kinds: Collection[str]) -> bool:
        """Run what of these kinds is left; False: nothing was."""
        recipe, steps = self.plan.recipe, self.state.needed(kinds)
        if not steps:
            return False
        self.launcher = self.launcher or launcher_of(recipe.engine, recipe.jobs, recipe.device)
        with self.progress.stage("study", len(self.state.steps), "steps") as stage:
            stage.skip(len(self.state.steps) - len(steps))
            left = run_steps(
                steps,
                self.launcher,
                lambda step: step.job(self.plan.out, recipe.model),
                lambda end: self._close(end, stage),
                schedule=Schedule(self.state.ready, self.state.lost),
                over=lambda: self.ends is not None and time.monotonic() > self.ends,
            )
        if left:
            self.progress.note(
                f"시간이 다 되었습니다. 단계 {left}개가 남았고, 같은 명령을 다시 실행하면 이어서 진행합니다.",
                f"The time is up: {left} steps are left; the same command resumes.",
            )
        return True

    def _close(self, end: End[Step], stage: Stage) -> bool:
        """Take in how an attempt ended; False: it is tried again."""
        say, step = self.progress.say, end.step
        name = f"{step.name} {kind_name(step.kind)}"
        reason = end.reason if end.outcome else say(in_korean(end.reason), end.reason)
        if end.done:
            self.state.done.add(step.label)
            took = duration(end.seconds, say.lang)
            self.progress.note(f"{name}: 완료, {took}", f"{step.label}: done in {took}")
            remove_weights(self.plan, self.state, [step])
        elif end.kind != NAN and end.attempt == 1:
            self.progress.note(f"{name}: {reason}. 다시 시도합니다.", f"{step.label}: {reason}; it is tried again")
            return False
        else:
            self.state.failures[step.label] = Failure(step.label, end.kind, reason)
            log = end.job.log
            self.progress.note(f"{name} 실패: {reason} (기록: {log})", f"{step.label} failed: {reason} (log: {log})")
        stage.advance()
        return True


def remove_weights(plan: Plan, state: ExperimentState, steps: Iterable[Step]) -> None:
    """With `keep_weights: false`, remove the weights of a check that is done, and those of a run when all its steps are done."""
    for step in steps if not plan.recipe.keep_weights else ():
        if step.kind in CHECKS and CHECKS[step.kind].weight_folders and step.label in state.done:
            for model in (plan.out / step.kind / step.name).glob(CHECKS[step.kind].weight_folders):
                remove(model)
        if step.run and all(one.label in state.done for one in state.of_run(step.run)):
            for checkpoint in checkpoints_of(plan.out / RUNS / step.run):
                remove_checkpoint(checkpoint)


def _finish(plan: Plan, state: ExperimentState, result: ExperimentResult, progress: Progress) -> ExperimentResult:
    """Write verdicts, report and archive, if anything was evaluated."""
    recipe, out = plan.recipe, plan.out
    if not result.finished["evaluate"]:
        if result.failures:
            return result
        raise ComparisonError(f"{out} has no finished evaluation to report on; run it first, without --only report.")
    progress.note("판정, 보고서, 보관본 작성", "Writing verdicts, report and archive")
    looks = read_stored(out / LOOKS, list[int]) if (out / LOOKS).is_file() else []
    finished = sum(arm.finished for arm in result.arms)
    if looks[-1:] != [finished]:  # the numbers of finished seeds at which it was judged
        looks.append(finished)
    write_json(out / LOOKS, looks)
    paths = [str(out / name) for name in (EVALUATIONS, *CHECKS) if (out / name).is_dir()]
    stage, items = recipe.evaluate, EvalSet.open(plan.sets[0]).fingerprint
    options: dict[str, Any] = {"metric": stage.metric, "margin": stage.margin, "lang": recipe.lang, "title": recipe.title}
    made = report(*paths, out=out / "report", eval_set=items, **options)
    kept = archive(*paths, out=out / "archive")
    assert made.answer is not None
    table = markdown_table(verdicts_table(made.answer, Say(language())))
    outcomes = {step.label: step.outcome(out) for step in state.steps}
    for folder in (out, Path(kept.folder)):
        write_json(folder / ANSWER, made.answer.to_json())
        write_text(folder / "verdicts.md", f"{table}\n")
        write_json(folder / "costs.json", {label: one.facts for label, one in outcomes.items() if one and one.done})
        write_json(folder / LOOKS, looks)
    return replace(result, sentence=made.sentence, report=made.page, archive=kept.folder)
