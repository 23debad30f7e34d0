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
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.runs import CHOSEN
from coref_automl.comparison.study import LOOKS
from coref_automl.decoder import read_stored
from coref_automl.engine.job import NAN, End, Launcher, run_steps, wait_a_little
from coref_automl.engine.launch import launcher_of
from coref_automl.errors import ComparisonError, RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.results import EXPERIMENT
from coref_automl.experiment.plan import EVALUATIONS, Plan, open_plan
from coref_automl.experiment.recipe import ExperimentRecipe, kind_name, step_kinds
from coref_automl.experiment.state import ExperimentResult, ExperimentState, Failure
from coref_automl.experiment.step import RUNS, Step
from coref_automl.folders import claim_folder, contents, remove
from coref_automl.locks import claimed
from coref_automl.progress import Progress, duration, quiet
from coref_automl.report.checkpoint_report import report
from coref_automl.report.printout import PrintedAnswer, recommend
from coref_automl.report.rendering import markdown_table
from coref_automl.report.wording import verdicts_table
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
    wait: Callable[[], None] = wait_a_little,
    before: Callable[[Plan], Plan] = lambda plan: plan,
) -> ExperimentResult:
    """Run what is not finished, then write report and archive. `only` names the kinds of steps to run, or `report`.

    `before` sees the opened plan before anything is trained, and may change or refuse it. After `max_minutes` no step is begun
    and those under way are stopped; the next call resumes them.
    """
    out = Path(recipe.out)
    progress = progress or quiet()
    ends = time.monotonic() + 60 * max_minutes if max_minutes is not None else None
    for check in CHECKS:
        if check in only and check not in recipe.checks:
            raise RecipeError(f"The recipe has no {check} stage to run; add one, or leave out --only {check}.")
    with speaking(recipe.lang), claimed(out, EXPERIMENT):
        progress = progress.into(events := out / "events.ndjson")
        try:
            plan = before(open_plan(recipe, out, progress))
        except BaseException:
            if contents(out) == [events]:  # nothing was made: nothing is left
                events.unlink()
            raise
        state = ExperimentState.of(plan)
        remove_weights(plan, state, plan.steps)
        claim_folder(out / EVALUATIONS, EVALUATIONS)  # one folder for many processes: none of them finds it half made
        runner = Runner(plan, state, progress, launcher, ends, wait)
        ran = runner.run(only or step_kinds())
        if any(stage.start == CHOSEN for stage in recipe.checks.values()) and state.judged and state.finished("evaluate"):
            state.add(plan.after_choice(recommended(plan).highest_path))
            ran |= runner.run(only or step_kinds())
        result = state.result(only or step_kinds())
        report = "report" in only or (not only and all(state.closed(step) for step in state.steps))
        if report:
            result = _finish(plan, state, result, progress)
        if report or ran or not (out / "result.json").is_file():  # else what it says of the report still holds
            write_json(out / "result.json", result.to_json())
    return result


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
    wait: Callable[[], None]

    def run(self, kinds: Collection[str]) -> bool:
        """Run what of these kinds is left; False: nothing was."""
        say, recipe, steps = self.progress.say, self.plan.recipe, self.state.needed(kinds)
        if not steps:
            return False
        self.launcher = self.launcher or launcher_of(recipe.engine, recipe.jobs, recipe.device)
        with self.progress.stage("study", len(self.state.steps), "steps") as stage:
            stage.skip(len(self.state.steps) - len(steps))

            def ended(end: End[Step]) -> bool:
                if closed := self._close(end):
                    stage.advance()
                return closed

            left = run_steps(
                steps,
                self.launcher,
                lambda step: step.job(self.plan.out, self.plan.recipe.model),
                ended,
                ready=self.state.ready,
                lost=self.state.lost,
                over=lambda: self.ends is not None and time.monotonic() > self.ends,
                wait=self.wait,
            )
        if left:
            self.progress.note(
                say(
                    f"시간이 다 되었습니다. 단계 {left}개가 남았고, 같은 명령을 다시 실행하면 이어서 진행합니다.",
                    f"The time is up: {left} steps are left; the same command resumes.",
                )
            )
        return True

    def _close(self, end: End[Step]) -> bool:
        """Take in how an attempt ended; False: it is tried again."""
        say, step = self.progress.say, end.step
        name = f"{step.name} {kind_name(step.kind)}"
        if end.done:
            self.state.done.add(step.label)
            took = duration(end.seconds, say.lang)
            self.progress.note(say(f"{name}: 완료, {took}", f"{step.label}: done in {took}"))
            remove_weights(self.plan, self.state, [step])
            return True
        reason = end.reason if end.outcome else say(in_korean(end.reason), end.reason)
        if end.kind != NAN and end.attempt == 1:
            self.progress.note(say(f"{name}: {reason}. 다시 시도합니다.", f"{step.label}: {reason}; it is tried again"))
            return False
        self.state.failures[step.label] = Failure(step.label, end.kind, reason)
        log = end.job.log
        self.progress.note(say(f"{name} 실패: {reason} (기록: {log})", f"{step.label} failed: {reason} (log: {log})"))
        return True


def remove_weights(plan: Plan, state: ExperimentState, steps: Iterable[Step]) -> None:
    """Remove the weights of runs when all that needs them is done, unless they are to be kept."""
    for step in steps if not plan.recipe.keep_weights else ():
        if step.kind in CHECKS and CHECKS[step.kind].weights and step.label in state.done:
            for model in (plan.out / step.kind / step.name).glob(CHECKS[step.kind].weights):
                remove(model)
        if step.run and all(one.label in state.done for one in state.of_run(step.run)):
            for checkpoint in checkpoints_of(plan.out / RUNS / step.run):
                remove_checkpoint(checkpoint)


def _finish(plan: Plan, state: ExperimentState, result: ExperimentResult, progress: Progress) -> ExperimentResult:
    recipe, out = plan.recipe, plan.out
    if not result.finished["evaluate"]:
        if result.failures:
            return result
        raise ComparisonError(f"{out} has no finished evaluation to report on; run it first, without --only report.")
    progress.note(progress.say("판정, 보고서, 보관본 작성", "Writing verdicts, report and archive"))
    paths = [str(folder) for name in (EVALUATIONS, *CHECKS) if (folder := out / name).is_dir()]
    looks, now = read_stored(out / LOOKS, list[int]) if (out / LOOKS).is_file() else [], sum(arm.finished for arm in result.arms)
    looks += [] if looks[-1:] == [now] else [now]  # the numbers of finished seeds at which it was judged
    write_json(out / LOOKS, looks)
    costs = {step.label: outcome.facts for step in state.steps if (outcome := step.outcome(out)) and outcome.done}
    items = EvalSet.open(plan.sets[0]).fingerprint
    stage = recipe.evaluate
    options: dict[str, Any] = {"metric": stage.metric, "margin": stage.margin, "lang": recipe.lang, "title": recipe.title}
    made = report(*paths, out=out / "report", eval_set=items, **options)
    kept = archive(*paths, out=out / "archive")
    assert made.answer is not None
    table = markdown_table(verdicts_table(made.answer, Say(language())))
    for folder in (out, Path(kept.folder)):
        write_json(folder / "answer.json", made.answer.to_json())
        write_text(folder / "verdicts.md", f"{table}\n")
        write_json(folder / "costs.json", costs)
        write_json(folder / LOOKS, looks)
    return replace(result, sentence=made.sentence, report=made.page, archive=kept.folder)
