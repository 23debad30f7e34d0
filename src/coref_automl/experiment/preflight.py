"""What training will take and can show, said and agreed to before it starts. In: a Plan (`adapt`, `study`) or a Problem (`tune`).
Out: a Preflight, printed; of a Plan, the one to go on with, sized to the texts.

Times come from the tokens that a step reads, at the speed of finished steps of its kind or else of one timed training step.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.power import Evidence, sizes_of
from coref_automl.comparison.scores import usual_metric
from coref_automl.corpus.manifest import read_prepared
from coref_automl.errors import OutOfMemory, RecipeError
from coref_automl.evaluation.answers import reachable
from coref_automl.evaluation.metrics import METRICS, tasks_of
from coref_automl.experiment.plan import Plan, open_plan
from coref_automl.experiment.recipe import ExperimentRecipe, step_kinds
from coref_automl.experiment.state import ANSWER, ExperimentState, Preflight, Share
from coref_automl.experiment.step import Step
from coref_automl.folders import EXPERIMENT, check_folder
from coref_automl.locks import claimed
from coref_automl.machine import pick_device
from coref_automl.progress import Progress, peak_gigabytes, quiet
from coref_automl.say import say
from coref_automl.statistics.planning import detectable_difference, items_needed, looks_of
from coref_automl.training.folder import check_disk_space
from coref_automl.tuning.masked import MaskedProblem
from coref_automl.tuning.probe import Size, probe, timed_step
from coref_automl.tuning.problem import Problem
from coref_automl.tuning.recipe import REPORTS, TuneRecipe
from coref_automl.tuning.score import outside_guards

if TYPE_CHECKING:
    from coref_automl.training.setup import Prepared

_FORWARD = 1 / 3
"""The cost of reading beside that of training on as much: a forward pass, and no backward pass of twice its cost."""
_WORDS = 3
"""The cost of scoring word ranks beside none."""
Agree = Callable[[Preflight], bool]


def before_training(plan: Plan, progress: Progress, agreed: Agree, *, fit: bool, with_time: bool = True) -> Plan:
    """Say what is ahead of `adapt` or `study`, and give the plan to go on with; `fit` sizes batch and epochs to the texts."""
    asked = bool({"epochs", "max_tokens"} & set(plan.recipe.train))
    plan = plan.fitted() if fit else plan
    ahead = preflight(plan)
    check_disk_space(plan.out, ahead.disk)
    if with_time and not ExperimentState.of(plan).done:
        ahead = with_times(ahead, plan, progress)
    _tell_and_agree(ahead, progress, agreed, asked=asked)
    return plan


def before_tuning(problem: Problem, progress: Progress, agreed: Agree) -> None:
    """Say what is ahead of `tune` for pretraining; for another task nothing is said."""
    if isinstance(problem, MaskedProblem):
        asked = any((problem.recipe.epochs, problem.recipe.max_tokens, problem.recipe.max_minutes))
        _tell_and_agree(_tuning_preflight(problem, progress), progress, agreed, asked=asked)


def _tuning_preflight(problem: MaskedProblem, progress: Progress) -> Preflight:
    """The trials of the search, of which pruning ends some early; each scores `select` at every report."""
    from coref_automl.training.optimizer import OPEN_END
    from coref_automl.training.setup import prepare_run

    recipe, starts = problem.recipe, problem.starts()
    work = prepare_run(problem.training(starts[0].params, recipe.seed))
    disk = _disk_of_tuning(recipe, work.disk())
    check_disk_space(problem.out, disk)
    size = _speed(work, recipe.device, progress)
    speed, runs = size.tokens_per_second, len(starts) if recipe.portfolio_only else max(recipe.trials, len(starts))
    budgets = [int(60 * recipe.max_minutes * speed)] if recipe.max_minutes is not None else []
    budgets += [work.plan.tokens_after(work.last)] if work.last < OPEN_END else []
    tokens = min(budgets)
    items = len(problem.halves["select"].select())
    scored = _FORWARD * REPORTS * items * work.dataset.seq_len * (_WORDS if problem.score.words else 1)
    ahead = _of_runs(work, recipe.device, runs, tokens, disk=disk, jobs=recipe.workers, evidence=problem.power())
    share = Share("train", runs, runs, runs * (tokens + scored) / speed, _measured(size))
    return replace(ahead, memory=size.gigabytes or peak_gigabytes(), shares=(share,))


def _disk_of_tuning(recipe: TuneRecipe, run: float) -> float:
    """Gigabytes that a study holds at once: runs under way, each with the average of its last checkpoints; a model of every
    judging run that is read again, which are the first look's, or all where guards are fine-tuned from them; and its own."""
    model = run / (REPORTS + 2)  # beside its checkpoints a run has the optimizer's state, of twice the model
    pairs = recipe.seeds if outside_guards(recipe) else looks_of(recipe.seeds)[0].pairs
    return recipe.workers * (run + model) + (2 * pairs + 1) * model


def study_preflight(recipe: ExperimentRecipe, *, only: Collection[str] = (), progress: Progress | None = None) -> Preflight:
    """What a study, or its steps of these kinds, will take. What it would refuse is refused here; nothing is trained or kept."""
    progress, out = progress or quiet(), Path(recipe.out)
    check_folder(out, EXPERIMENT)
    with ExitStack() as stack:
        if out.exists() or not recipe.datasets:
            stack.enter_context(claimed(out, EXPERIMENT))
        else:  # a study that has not begun, and prepares no texts, leaves nothing behind
            out = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plan = open_plan(recipe, out, progress)
        return with_times(preflight(plan), plan, progress, only)


def _tell_and_agree(ahead: Preflight, progress: Progress, agreed: Agree, *, asked: bool) -> None:
    """Print it, and ask where it is long or too short. Few steps are trained where a length was `asked` for."""
    for line in ahead.lines():
        progress.note(line)
    if ahead.too_short and not asked and not agreed(ahead):
        raise RecipeError(f"{ahead.shortage} Add texts, prepare shorter rows (--seq-len), or pass --yes to go on.")
    if ahead.long and (asked or not ahead.too_short) and not agreed(ahead):
        raise RecipeError("Nothing was trained; ask for fewer methods, trials, seeds or tokens, or pass --yes to go on.")


def preflight(plan: Plan) -> Preflight:
    recipe, work, runs = plan.recipe, plan.first, len(plan.arms) * len(plan.seeds)
    disk = work.disk() * (runs if recipe.keep_weights else min(runs, recipe.jobs))
    tokens = work.plan.tokens_after(work.last)  # all methods see as many
    ahead = _of_runs(work, recipe.device, runs, tokens, disk=disk, jobs=recipe.jobs, evidence=_evidence(plan))
    own = {name: ", ".join(f"{key} {value}" for key, value in given.items()) for name, given in recipe.methods.items()}
    listed = tuple(f"{name} ({settings})" if settings else name for name, settings in own.items())
    return replace(ahead, methods=listed if any(own.values()) else ())


def _of_runs(work: Prepared, device: str, runs: int, tokens: int, *, disk: float, jobs: int, evidence: Evidence) -> Preflight:
    """So many runs like this one, each of so many tokens."""
    plan = work.plan
    steps = min(work.last, round(tokens * plan.steps_per_epoch / max(1, plan.tokens_per_epoch)))
    sources, left_out = read_prepared(work.dataset.folder)["sources"], Counter[str]()
    for source in sources:
        left_out.update(source["dropped"])
    return Preflight(
        device=pick_device(device), documents=sum(source["kept"] for source in sources), left_out=dict(left_out.most_common()),
        rows=plan.rows, length=work.dataset.seq_len, tokens=plan.tokens_per_epoch, batch=plan.batch,
        epochs=round(steps / max(1, plan.steps_per_epoch), 2), steps=steps, runs=runs, disk=disk, jobs=jobs, evidence=evidence,
    )  # fmt: skip


def _evidence(plan: Plan) -> Evidence:
    """What the first set says of the metric that the study will be judged by."""
    recipe, judged_on = plan.recipe, plan.sets[0]
    rules = {"strict", "lenient"} if recipe.evaluate.words == "none" else {"strict", "lenient", "word"}
    measured = [
        name for name, metric in METRICS.items()
        if tasks_of(name) <= set(judged_on.items) and (metric.parts or metric.rule in rules)
    ]  # fmt: skip
    if not measured:
        raise RecipeError(
            f"{judged_on.folder} is scored by word alone, and evaluate.words is none; set it to gold, sample or all."
        )
    share = reachable(plan.first.tokenizer, judged_on.items.get("real", ()))
    metric = recipe.evaluate.metric or usual_metric(measured, share)
    sizes = sizes_of(judged_on, metric)
    return Evidence(metric, int(sizes.sum()), len(sizes), _detectable(recipe.seeds, sizes, len(plan.arms)))


def _detectable(seeds: int, sizes: NDArray[np.int64], methods: int) -> float | None:
    """The smallest gain over the base that is shown for sure enough, of methods corrected together."""
    if seeds > 1:
        return detectable_difference(sizes, seeds, comparisons=methods, against_model=True)
    # one checkpoint per method against the base: the sign-flip test
    gains, items = (step / 200 for step in range(1, 101)), int(sizes.sum())
    return next((gain for gain in gains if items_needed(gain, max(0.1, 1.5 * gain), family=methods) <= items), None)


def with_times(ahead: Preflight, plan: Plan, progress: Progress, only: Collection[str] = ()) -> Preflight:
    """With what is left of every kind of step, or of these."""
    state, size = ExperimentState.of(plan), _speed(plan.first, plan.recipe.device, progress)
    steps = plan.steps if (plan.out / ANSWER).is_file() else [*plan.steps, *plan.of_chosen()]  # an answer is written last
    present = [kind for kind in dict.fromkeys(only) or step_kinds() if any(step.kind == kind for step in steps)]
    shares = tuple(_share(plan, state, [step for step in steps if step.kind == kind], size) for kind in present)
    return replace(ahead, memory=size.gigabytes or peak_gigabytes(), shares=shares)


def _share(plan: Plan, state: ExperimentState, steps: Sequence[Step], size: Size) -> Share:
    """What is left of one kind, by the speed at which its finished steps read tokens, or else by that of training. The speed is
    their median: one that was resumed knows the seconds of its last part alone."""
    left = [step for step in steps if not state.closed(step)]
    ended = [(step, outcome) for step in steps if step.label in state.done and (outcome := step.outcome(plan.out))]
    if ended:
        speed = median(tokens_of(plan, step) / max(1e-9, float(outcome.facts["seconds"])) for step, outcome in ended)
        source = say(f"끝난 단계 {len(ended)}개", f"{len(ended)} finished")
    else:
        speed, source = size.tokens_per_second, _measured(size)
    return Share(steps[0].kind, len(steps), len(left), sum(tokens_of(plan, step) for step in left) / speed, source)


def _speed(work: Prepared, device: str, progress: Progress) -> Size:
    """Whole training steps, with fewer rows at a time where they do not fit.

    A GPU, the one asked for, is left to the runs: there the steps are taken in a process of its own.
    """
    progress.note("속도 측정 ...", "Timing a training step ...")
    rows = work.micro
    if work.device == "cpu":
        return timed_step(work, rows, 1)
    while True:
        try:
            return probe(replace(work.recipe, device=device), first=rows, largest=rows).sizes[0]
        except OutOfMemory:
            if rows == 1:
                raise
            rows //= 2


def _measured(size: Size) -> str:
    return say(f"초당 {size.tokens_per_second:,.0f}토큰", f"{size.tokens_per_second:,.0f} tokens/s")


def tokens_of(plan: Plan, step: Step) -> float:
    """Tokens that a step trains on; those that it only reads count a third. Upper bounds: early stopping is not foreseen."""
    work, recipe = plan.first, step.recipe
    if step.kind == "train":
        return work.plan.tokens_after(work.last)
    if step.kind == "evaluate":
        models, length = len(work.saves()) if step.run else 1, recipe.seq_len or max(plan.recipe.lengths)
        items = sum(len(opened.select()) for opened in plan.sets)
        return _FORWARD * models * items * length * (_WORDS if recipe.words == "all" else 1)
    return CHECKS[step.kind].tokens(recipe, plan.data[step.kind].sizes, _FORWARD)
