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

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import ComparisonError, RecipeError
from coref_automl.base.folders import EVENTS, EXPERIMENT, claim_folder, remove
from coref_automl.base.job import NAN, Launcher
from coref_automl.base.launch import launcher_of
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress, Stage, duration, quiet
from coref_automl.base.say import Say, in_words, language, speaking
from coref_automl.base.schedule import Attempt, Schedule, run_steps
from coref_automl.base.store import write_json, write_text
from coref_automl.comparison.archive import archive
from coref_automl.comparison.outside_checks import CHECKS, CHOSEN
from coref_automl.comparison.study import LOOKS
from coref_automl.extras.pages.checkpoint_report import WrittenReport, report
from coref_automl.extras.pages.rendering import markdown_table
from coref_automl.extras.pages.sections.questions import claims_table
from coref_automl.extras.study.plan import EVALUATIONS, Plan, open_plan
from coref_automl.extras.study.recipe import ExperimentRecipe, kind_name, step_kinds
from coref_automl.extras.study.state import ANSWER, ExperimentResult, ExperimentState, Failure
from coref_automl.extras.study.step import RUNS, Step
from coref_automl.report.printout import recommend
from coref_automl.training.folder import checkpoints_of, remove_checkpoint

Before = Callable[[Plan], Plan]
"""Sees the opened plan before anything is trained, and may change or refuse it."""


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
    with open_experiment(recipe, progress, before, launcher, max_minutes) as experiment:
        return experiment.run(only)


@dataclass
class Experiment:
    """A plan under way, in a folder that is claimed for it. A step that fails is retried once, after the others."""

    plan: Plan
    progress: Progress
    launcher: Launcher | None
    deadline: float | None

    @cached_property
    def state(self) -> ExperimentState:
        return ExperimentState.of(self.plan)

    def run(self, only: Sequence[str] = ()) -> ExperimentResult:
        """Run what is not finished, then write report and archive."""
        out, kinds, state = self.plan.out, only or step_kinds(), self.state
        self._remove_weights(self.plan.steps)
        claim_folder(out / EVALUATIONS, EVALUATIONS)  # here, because many processes write into it at once
        ran = self._run_steps(kinds)
        if any(stage.start == CHOSEN for stage in self.plan.recipe.checks.values()) and state.can_choose:
            state.add(self.plan.steps_from_recommended(recommend(out / EVALUATIONS, **self._verdict_options).highest_path))
            ran |= self._run_steps(kinds)
        result, complete = state.result(kinds), all(state.is_closed(step) for step in state.steps)
        reports = "report" in only or (complete and not only)
        if reports:
            result = self._write_report(result)
        if reports or ran or not (out / "result.json").is_file():  # else the stored result, which names its report, still holds
            write_json(out / "result.json", result.to_json())
        return result

    @property
    def _verdict_options(self) -> dict[str, Any]:
        recipe = self.plan.recipe
        stage, items = recipe.evaluate, self.plan.items_fingerprint
        return {"metric": stage.metric, "margin": stage.margin, "eval_set": items, "lang": recipe.lang}

    def _run_steps(self, kinds: Collection[str]) -> bool:
        """Run the unfinished steps of these kinds; False if there were none."""
        steps = self.state.unfinished(kinds)
        if not steps:
            return False
        recipe = self.plan.recipe
        self.launcher = self.launcher or launcher_of(recipe.engine, recipe.jobs, recipe.device)
        with self.progress.stage("study", len(steps), "steps") as stage:
            left = run_steps(
                steps, self.launcher, lambda step: step.job(self.plan.out, recipe.model),
                lambda end: self._record_end(end, stage), schedule=Schedule(self.state.is_ready, self.state.is_unreachable),
                should_stop=lambda: self.deadline is not None and time.monotonic() > self.deadline,
            )  # fmt: skip
        if left:
            self.progress.note(
                f"시간이 다 되었습니다. 단계 {left}개가 남았고, 같은 명령을 다시 실행하면 이어서 진행합니다.",
                f"The time is up: {left} steps are left; the same command resumes.",
            )
        return True

    def _record_end(self, end: Attempt[Step], stage: Stage) -> bool:
        """Record how an attempt ended; False: it is tried again."""
        step, name = end.step, f"{end.step.name} {kind_name(end.step.kind)}"
        why = in_words(end.reason).rstrip(".")  # what follows in a note is of the same sentence
        if end.done:
            self.state.done.add(step.label)
            took = duration(end.seconds, language())
            self.progress.note(f"{name}: 완료, {took}", f"{step.label}: done in {took}")
            self._remove_weights([step])
        elif end.kind != NAN and end.number == 1:
            self.progress.note(f"{name}: {why}. 다시 시도합니다.", f"{step.label}: {why}; it is tried again")
            return False
        else:
            self.state.failures[step.label] = Failure(step.label, end.kind, end.reason)
            self.progress.note(f"{name} 실패: {why} (기록: {end.job.log})", f"{step.label} failed: {why} (log: {end.job.log})")
        stage.advance()
        return True

    def _remove_weights(self, steps: Iterable[Step]) -> None:
        """With `keep_weights: false`, remove the weights of finished checks, and those of runs whose steps are all finished."""
        for step in steps if not self.plan.recipe.keep_weights else ():
            if step.kind in CHECKS and CHECKS[step.kind].weight_folders and step.label in self.state.done:
                for model in (self.plan.out / step.kind / step.name).glob(CHECKS[step.kind].weight_folders):
                    remove(model)
            if step.run and all(other.label in self.state.done for other in self.state.of_run(step.run)):
                for checkpoint in checkpoints_of(self.plan.out / RUNS / step.run):
                    remove_checkpoint(checkpoint)

    def _write_report(self, result: ExperimentResult) -> ExperimentResult:
        """Write verdicts, report and archive, if anything was evaluated."""
        out = self.plan.out
        if not result.finished["evaluate"]:
            if result.failures:
                return result
            raise ComparisonError(f"{out} has no finished evaluation to report on; run it first, without --only report.")
        self.progress.note("판정, 보고서, 보관본 작성", "Writing verdicts, report and archive")
        looks = self._record_look(sum(arm.finished for arm in result.arms))
        paths = [str(out / name) for name in (EVALUATIONS, *CHECKS) if (out / name).is_dir()]
        written = report(*paths, out=out / "report", title=self.plan.recipe.title, **self._verdict_options)
        archived = Path(archive(*paths, out=out / "archive").folder)
        self._write_verdicts((out, archived), written)
        write_json(archived / LOOKS, looks)
        return replace(result, sentence=written.sentence, report=written.page, archive=str(archived))

    def _record_look(self, finished: int) -> list[int]:
        """Add this look, by its number of finished seeds, unless the study was judged at that number before."""
        path = self.plan.out / LOOKS
        looks = read_stored(path, list[int]) if path.is_file() else []
        if finished not in looks:
            looks.append(finished)
        write_json(path, looks)
        return looks

    def _write_verdicts(self, folders: Iterable[Path], written: WrittenReport) -> None:
        """Write the answer, its table and what every step cost, into the study and into its archive, which is read alone."""
        table = markdown_table(claims_table(written.answer.claims, Say(language())))
        outcomes = {step.label: step.outcome(self.plan.out) for step in self.state.steps}
        costs = {label: outcome.facts for label, outcome in outcomes.items() if outcome and outcome.done}
        for folder in folders:
            write_json(folder / ANSWER, written.answer.to_json())
            write_text(folder / "verdicts.md", f"{table}\n")
            write_json(folder / "costs.json", costs)


@contextmanager
def open_experiment(
    recipe: ExperimentRecipe, progress: Progress | None, before: Before, launcher: Launcher | None, max_minutes: float | None
) -> Iterator[Experiment]:
    """Claim the folder, speak the recipe's language, write events into the folder, and open the plan."""
    out, deadline = Path(recipe.out), time.monotonic() + 60 * max_minutes if max_minutes is not None else None
    with speaking(recipe.lang), claimed(out, EXPERIMENT):
        recorded = (progress or quiet()).into(out / EVENTS)
        yield Experiment(before(open_plan(recipe, out, recorded)), recorded, launcher, deadline)
