"""A whole experiment. In: its recipe. Out: ExperimentResult, and a folder of runs, all that judges them, a report and an archive.

Killed or interrupted at any moment, the same command resumes: finished steps are recognised by their outcome, the others resume
in their own folders. A step that fails is named and what needs it is left out; the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from coref_automl.comparison.archive import archive
from coref_automl.comparison.outside_checks import CHECKS, CHOSEN
from coref_automl.comparison.study import LOOKS
from coref_automl.decoder import read_stored
from coref_automl.engine.job import NAN, Launcher
from coref_automl.engine.launch import launcher_of
from coref_automl.engine.schedule import Attempt, Schedule, run_steps
from coref_automl.errors import ComparisonError, RecipeError
from coref_automl.experiment.plan import EVALUATIONS, Plan, open_plan
from coref_automl.experiment.recipe import ExperimentRecipe, kind_name, step_kinds
from coref_automl.experiment.state import ANSWER, ExperimentResult, ExperimentState, Failure
from coref_automl.experiment.step import RUNS, Step
from coref_automl.folders import EVENTS, EXPERIMENT, claim_folder, remove
from coref_automl.locks import claimed
from coref_automl.progress import Progress, Stage, duration, quiet
from coref_automl.report.checkpoint_report import report
from coref_automl.report.printout import recommend
from coref_automl.report.rendering import markdown_table
from coref_automl.report.sections.questions import verdicts_table
from coref_automl.say import Say, in_korean, language, speaking
from coref_automl.store import write_json, write_text
from coref_automl.training.folder import checkpoints_of, remove_checkpoint

Before = Callable[[Plan], Plan]


def run_experiment(
    recipe: ExperimentRecipe,
    *,
    only: Sequence[str] = (),
    max_minutes: float | None = None,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    before: Before = lambda plan: plan,
) -> ExperimentResult:
    """Run what is not finished, then write report and archive. `only` names the kinds of steps to run, or `report`.

    After `max_minutes` no step is begun and those under way are stopped; the next call resumes them.
    """
    for check in CHECKS:
        if check in only and check not in recipe.checks:
            raise RecipeError(f"The recipe has no {check} stage to run; add one, or leave out --only {check}.")
    with opened(recipe, progress, before, launcher, max_minutes) as experiment:
        return experiment.run(only)


@dataclass
class Experiment:
    """A plan at work, in a folder that is claimed for it. A step that fails is tried once more, when its neighbours on the GPU
    are others."""

    plan: Plan
    progress: Progress
    launcher: Launcher | None
    ends: float | None

    @cached_property
    def state(self) -> ExperimentState:
        return ExperimentState.of(self.plan)

    def run(self, only: Sequence[str] = ()) -> ExperimentResult:
        """Run what is not finished, then write report and archive."""
        out, kinds, state = self.plan.out, only or step_kinds(), self.state
        self._remove_weights(self.plan.steps)
        claim_folder(out / EVALUATIONS, EVALUATIONS)  # one folder for many processes: none of them finds it half made
        ran = self._run_steps(kinds)
        has_chosen = any(stage.start == CHOSEN for stage in self.plan.recipe.checks.values())  # which keeps the weights
        if has_chosen and state.judged and state.finished("evaluate"):
            state.add(self.plan.after_choice(recommend(out / EVALUATIONS, **self._judged).highest_path))
            ran |= self._run_steps(kinds)
        result = state.result(kinds)
        reports = "report" in only or (not only and all(state.closed(step) for step in state.steps))
        if reports:
            result = self._finish(result)
        if reports or ran or not (out / "result.json").is_file():  # else what it says of the report still holds
            write_json(out / "result.json", result.to_json())
        return result

    @property
    def _judged(self) -> dict[str, Any]:
        """What verdicts are on, and in which words."""
        recipe = self.plan.recipe
        stage, items = recipe.evaluate, self.plan.sets[0].fingerprint
        return {"metric": stage.metric, "margin": stage.margin, "eval_set": items, "lang": recipe.lang}

    def _run_steps(self, kinds: Collection[str]) -> bool:
        """Run what of these kinds is left; False: nothing was."""
        steps, every = self.state.needed(kinds), len(self.state.steps)
        if not steps:
            return False
        recipe = self.plan.recipe
        self.launcher = self.launcher or launcher_of(recipe.engine, recipe.jobs, recipe.device)
        with self.progress.stage("study", every, "steps") as stage:
            stage.skip(every - len(steps))
            left = run_steps(
                steps,
                self.launcher,
                lambda step: step.job(self.plan.out, recipe.model),
                lambda end: self._close(end, stage),
                schedule=Schedule(self.state.ready, self.state.lost),
                should_stop=lambda: self.ends is not None and time.monotonic() > self.ends,
            )
        if left:
            self.progress.note(
                f"시간이 다 되었습니다. 단계 {left}개가 남았고, 같은 명령을 다시 실행하면 이어서 진행합니다.",
                f"The time is up: {left} steps are left; the same command resumes.",
            )
        return True

    def _close(self, end: Attempt[Step], stage: Stage) -> bool:
        """Take in how an attempt ended; False: it is tried again."""
        say, step = self.progress.say, end.step
        name = f"{step.name} {kind_name(step.kind)}"
        reason = end.reason if end.outcome else say(in_korean(end.reason), end.reason)
        if end.done:
            self.state.done.add(step.label)
            took = duration(end.seconds, say.lang)
            self.progress.note(f"{name}: 완료, {took}", f"{step.label}: done in {took}")
            self._remove_weights([step])
        elif end.kind != NAN and end.number == 1:
            self.progress.note(f"{name}: {reason}. 다시 시도합니다.", f"{step.label}: {reason}; it is tried again")
            return False
        else:
            self.state.failures[step.label] = Failure(step.label, end.kind, reason)
            log = end.job.log
            self.progress.note(f"{name} 실패: {reason} (기록: {log})", f"{step.label} failed: {reason} (log: {log})")
        stage.advance()
        return True

    def _remove_weights(self, steps: Iterable[Step]) -> None:
        """With `keep_weights: false`, remove the weights of a check that is done, and those of a run when all its steps are."""
        for step in steps if not self.plan.recipe.keep_weights else ():
            if step.kind in CHECKS and CHECKS[step.kind].weight_folders and step.label in self.state.done:
                for model in (self.plan.out / step.kind / step.name).glob(CHECKS[step.kind].weight_folders):
                    remove(model)
            if step.run and all(one.label in self.state.done for one in self.state.of_run(step.run)):
                for checkpoint in checkpoints_of(self.plan.out / RUNS / step.run):
                    remove_checkpoint(checkpoint)

    def _finish(self, result: ExperimentResult) -> ExperimentResult:
        """Write verdicts, report and archive, if anything was evaluated."""
        out = self.plan.out
        if not result.finished["evaluate"]:
            if result.failures:
                return result
            raise ComparisonError(f"{out} has no finished evaluation to report on; run it first, without --only report.")
        self.progress.note("판정, 보고서, 보관본 작성", "Writing verdicts, report and archive")
        looks = read_stored(out / LOOKS, list[int]) if (out / LOOKS).is_file() else []
        finished = sum(arm.finished for arm in result.arms)
        if looks[-1:] != [finished]:  # the numbers of finished seeds at which it was judged
            looks.append(finished)
        write_json(out / LOOKS, looks)
        paths = [str(out / name) for name in (EVALUATIONS, *CHECKS) if (out / name).is_dir()]
        made = report(*paths, out=out / "report", title=self.plan.recipe.title, **self._judged)
        kept = archive(*paths, out=out / "archive")
        assert made.answer is not None
        table = markdown_table(verdicts_table(made.answer, Say(language())))
        outcomes = {step.label: step.outcome(out) for step in self.state.steps}
        for folder in (out, Path(kept.folder)):
            write_json(folder / ANSWER, made.answer.to_json())
            write_text(folder / "verdicts.md", f"{table}\n")
            write_json(folder / "costs.json", {label: one.facts for label, one in outcomes.items() if one and one.done})
            write_json(folder / LOOKS, looks)
        return replace(result, sentence=made.sentence, report=made.page, archive=kept.folder)


@contextmanager
def opened(
    recipe: ExperimentRecipe,
    progress: Progress | None,
    before: Before,
    launcher: Launcher | None = None,
    max_minutes: float | None = None,
) -> Iterator[Experiment]:
    """A recipe's experiment, in its folder and its language; what it tells is kept there.

    `before` sees the opened plan before anything is trained, and may change or refuse it.
    """
    out, ends = Path(recipe.out), time.monotonic() + 60 * max_minutes if max_minutes is not None else None
    with speaking(recipe.lang), claimed(out, EXPERIMENT):
        kept = (progress or quiet()).into(out / EVENTS)
        yield Experiment(before(open_plan(recipe, out, kept)), kept, launcher, ends)
