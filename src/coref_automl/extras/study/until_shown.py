"""A study that adds seeds look by look. In: a recipe of methods at one length. Out: ExperimentResult and SequentialComparisons.

After each look (`statistics/planning.py`) every method is compared with the first one. The study ends when each is shown better
or worse, or a difference that matters is excluded, or the seeds are spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from coref_automl.base.errors import ComparisonError, RecipeError
from coref_automl.base.job import Launcher
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.say import say
from coref_automl.comparison.arms import Arm, arms_of
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.scores import Group, choose_metric
from coref_automl.evaluation.metrics import METRICS
from coref_automl.extras.study.plan import EVALUATIONS, Plan
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.study.run import Before, open_experiment
from coref_automl.extras.study.state import ExperimentResult
from coref_automl.statistics.planning import Look, Paired, SequentialVerdict, looks_of

MIN_EFFECT = 0.005
"""The smallest difference that matters, as a share: half a point."""


@dataclass(frozen=True, slots=True)
class SequentialComparison(Record):
    """A method minus the first one, at the last look."""

    method: str
    against: str
    metric: str
    verdict: SequentialVerdict

    def __str__(self) -> str:
        verdict, interval = self.verdict, self.verdict.interval
        difference = f"{100 * verdict.difference:+.2f} [{100 * interval.low:+.2f}, {100 * interval.high:+.2f}]"
        most = f"{100 * verdict.most:.2f}"
        words = {
            "better": say("나음 확인", "shown better"),
            "worse": say("나쁨 확인", "shown worse"),
            "futile": say(f"{most}점 넘게 낫지 않음 (95%)", f"gains no more than {most} (95%)"),
        }.get(verdict.decision, say("유의한 차이 미확인", "not shown"))
        label = METRICS[self.metric].label
        return say(
            f"{self.method} - {self.against}: {label} {difference}, {words} (시드 {verdict.pairs}쌍)",
            f"{self.method} - {self.against}: {difference} of {label}, {words} ({verdict.pairs} pairs of seeds)",
        )


def run_until_shown(
    recipe: ExperimentRecipe,
    *,
    max_minutes: float | None = None,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    before: Before = lambda plan: plan,
) -> tuple[ExperimentResult, list[SequentialComparison]]:
    """Run the study look by look. A call that was killed or stopped resumes at the look that it had come to.

    `before` sees the plan of all seeds, once: that is what the study may take. `max_minutes` are those of all looks together.
    """
    if len(recipe.methods) < 2:
        raise RecipeError("--until-shown compares methods with the first one; name at least two.")
    if len(recipe.lengths) > 1:
        raise RecipeError("--until-shown judges one length; pass one --length.")
    progress, looks = progress or quiet(), looks_of(recipe.seeds, comparisons=len(recipe.methods) - 1)
    with open_experiment(recipe, progress, before, launcher, max_minutes) as whole:
        for look in looks:
            plan = replace(whole.plan, recipe=replace(whole.plan.recipe, seeds=look.pairs))
            result = replace(whole, plan=plan).run()
            if result.resumes:
                return result, []
            comparisons = _compare_with_first(plan, look, last_look=look is looks[-1])
            for comparison in comparisons:
                progress.note(str(comparison))
            if all(comparison.verdict.decision != "open" for comparison in comparisons):
                break
    return result, comparisons


def _compare_with_first(plan: Plan, look: Look, *, last_look: bool) -> list[SequentialComparison]:
    """Compare every method with the first one, over the seeds of the plan that both finished."""
    group = read_groups(open_results([str(plan.out / EVALUATIONS)]), evalset=plan.items_fingerprint)[0]
    metric = choose_metric(group, plan.recipe.evaluate.metric)
    arms = _planned_arms(plan, group)
    reference, *names = plan.recipe.methods
    first = arms.get(reference)
    others = [arms[name] for name in names if first and name in arms and not first.runs.keys().isdisjoint(arms[name].runs)]
    if first is None or not others:
        lost = f"{reference} was finished" if first is None else f"{', '.join(names)} was finished with a seed of {reference}"
        raise ComparisonError(f"--until-shown has nothing to compare: no run of {lost}; see the failures above.")
    comparisons = []
    for arm in others:
        shared = [seed for seed in arm.runs if seed in first.runs]
        columns = group.columns(metric, entries=[side.runs[seed][-1] for side in (arm, first) for seed in shared])
        pairs = range(len(shared))
        differences = columns.differences([*pairs], [len(shared) + pair for pair in pairs])
        verdict = Paired.of(differences).judged(look.level, min_effect=MIN_EFFECT, last=last_look)
        comparisons.append(SequentialComparison(Path(arm.method).name, Path(first.method).name, metric, verdict))
    return comparisons


def _planned_arms(plan: Plan, group: Group) -> dict[str, Arm]:
    """The arms at the plan's length by method, with its seeds alone: the folder may hold runs of other lengths and seeds."""
    (length,) = plan.recipe.lengths
    planned = [
        entry for entry in group.entries
        if (provenance := entry.evaluation.provenance) is not None and provenance.seed in plan.seeds
        and provenance.seq_len == entry.evaluation.seq_len == length
    ]  # fmt: skip
    return {arm.method: arm for arm in arms_of(planned, None)}
