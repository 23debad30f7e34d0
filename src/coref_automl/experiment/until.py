"""An experiment that stops early. In: its recipe. Out: its result, and what is known of every method against the first one.

Seeds are added look by look (`statistics/planning.py`), until every method is shown to be better or worse than the first one, a
difference that matters is excluded, or the seeds are spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from coref_automl.comparison.arms import arms_of
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.scores import choose_metric
from coref_automl.engine.job import Launcher
from coref_automl.errors import ComparisonError, RecipeError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.experiment.plan import EVALUATIONS, Plan
from coref_automl.experiment.recipe import ExperimentRecipe
from coref_automl.experiment.run import Before, opened
from coref_automl.experiment.state import ExperimentResult
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.say import say
from coref_automl.statistics.planning import Look, Paired, SequentialVerdict, looks_of

WORTH = 0.005
"""The smallest difference that matters."""


@dataclass(frozen=True, slots=True)
class MethodKnown(Record):
    """A method minus the first one, at the last look."""

    method: str
    against: str
    metric: str
    verdict: SequentialVerdict

    def __str__(self) -> str:
        found, ends = self.verdict, self.verdict.interval
        span = f"{100 * found.difference:+.2f} [{100 * ends.low:+.2f}, {100 * ends.high:+.2f}]"
        words = {
            "better": say("나음 확인", "shown better"),
            "worse": say("나쁨 확인", "shown worse"),
            "futile": say(f"{100 * found.most:.2f}점 넘게 낫지 않음 (95%)", f"gains no more than {100 * found.most:.2f} (95%)"),
        }
        verdict = words.get(found.decision, say("유의한 차이 미확인", "not shown"))
        label = METRICS[self.metric].label
        return say(
            f"{self.method} - {self.against}: {label} {span}, {verdict} (시드 {found.pairs}쌍)",
            f"{self.method} - {self.against}: {span} of {label}, {verdict} ({found.pairs} pairs of seeds)",
        )


def run_until_shown(
    recipe: ExperimentRecipe,
    *,
    max_minutes: float | None = None,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    before: Before = lambda plan: plan,
) -> tuple[ExperimentResult, list[MethodKnown]]:
    """Run the study look by look. A call that was killed or stopped resumes at the look that it had come to.

    `before` sees the plan of all seeds, once: that is what the study may take. `max_minutes` are those of all looks together.
    """
    if len(recipe.methods) < 2:
        raise RecipeError("--until-shown compares methods with the first one; name at least two.")
    if len(recipe.lengths) > 1:
        raise RecipeError("--until-shown judges one length; pass one --length.")
    progress = progress or quiet()
    looks = looks_of(recipe.seeds, comparisons=len(recipe.methods) - 1)
    with opened(recipe, progress, before, launcher, max_minutes) as whole:
        for look in looks:
            plan = replace(whole.plan, recipe=replace(whole.plan.recipe, seeds=look.pairs))
            result = replace(whole, plan=plan).run()
            if result.resumes:
                return result, []
            known = _known(plan, look, last_look=look is looks[-1])
            for method in known:
                progress.note(str(method))
            if all(method.verdict.decision != "open" for method in known):
                break
    return result, known


def _known(plan: Plan, look: Look, *, last_look: bool) -> list[MethodKnown]:
    group = read_groups(open_results([str(plan.out / EVALUATIONS)]), evalset=plan.sets[0].fingerprint)[0]
    metric, _ = choose_metric(group, plan.recipe.evaluate.metric)
    arms = {arm.method: arm for arm in arms_of(group.entries, None)}
    reference, *names = plan.recipe.methods
    first = arms.get(reference)
    others = [arms[name] for name in names if first and name in arms and not first.runs.keys().isdisjoint(arms[name].runs)]
    if first is None or not others:
        lost = f"{reference} was finished" if first is None else f"{', '.join(names)} was finished with a seed of {reference}"
        raise ComparisonError(f"--until-shown has nothing to compare: no run of {lost}; see the failures above.")
    found = []
    for arm in others:
        shared = [seed for seed in arm.runs if seed in first.runs][: look.pairs]
        columns = group.columns(metric, entries=[side.runs[seed][-1] for side in (arm, first) for seed in shared])
        pairs = range(len(shared))
        differences = columns.differences([*pairs], [len(shared) + pair for pair in pairs])
        verdict = Paired.of(differences).judged(look.level, min_effect=WORTH, last=last_look)
        found.append(MethodKnown(Path(arm.method).name, Path(first.method).name, metric, verdict))
    return found
