"""What training will take and what it can show. In: a Plan (`adapt`, `study`). Out: a Preflight.

Times come from the tokens that a step reads, at the speed of finished steps of its kind or else of one timed training step. What
stands below `tokens_of` also serves the preflight of a search (`extras/tune/preflight`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import OutOfMemory
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import Progress, peak_gigabytes
from coref_automl.base.records import Record
from coref_automl.base.say import say
from coref_automl.comparison.outside_checks import CHARACTERS_PER_TOKEN, CHECKS
from coref_automl.comparison.power import Evidence, sizes_of, usual_metric
from coref_automl.corpus.manifest import read_prepared
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import metric_named
from coref_automl.extras.study.plan import FEWEST_STEPS, Plan
from coref_automl.extras.study.probe import Size, probe, timed_step
from coref_automl.extras.study.recipe import step_kinds
from coref_automl.extras.study.state import ANSWER, ExperimentState
from coref_automl.extras.study.step import Step
from coref_automl.statistics.planning import detectable_difference, items_needed

if TYPE_CHECKING:
    from coref_automl.training.setup import Prepared

INFERENCE_COST = 1 / 3
"""Cost of a token that is only read, relative to one trained on: the backward pass takes twice the time of the forward pass."""
_LONG = 1_800
"""Seconds above which training needs consent."""
_LEAST_DISCORDANT, _DISCORDANT_PER_GAIN = 0.1, 1.5
"""Assumed share of items that just one of two models gets right: a tenth at least, and more the further they are apart."""


@dataclass(frozen=True, slots=True)
class StepEstimate(Record):
    """What is left of one kind of step: how many, seconds one after another, and where the speed comes from."""

    kind: str
    steps: int
    left: int
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class Preflight(Record):
    """What a number of equal runs takes and can show."""

    device: str
    documents: int  # in the dataset
    rows: int  # of one epoch
    length: int  # tokens per row
    tokens: int  # of one epoch, without padding
    batch: int  # rows per step
    epochs: float  # of one run
    steps: int  # of one run
    runs: int
    disk: float  # gigabytes, at most
    jobs: int = 1  # runs at a time
    memory: float = 0.0  # gigabytes of one run; 0 if nothing was timed
    shares: tuple[StepEstimate, ...] = ()  # of the time, by kind of step; empty if nothing was timed
    evidence: Evidence | None = None  # what judges the runs
    left_out: dict[str, int] = field(default_factory=dict)  # documents that are not in the dataset, by reason
    methods: tuple[str, ...] = ()  # of a study, with settings of their own; empty if no method has any

    @property
    def seconds(self) -> float:
        """Of all steps that are left, one after another."""
        return sum(share.seconds for share in self.shares)

    @property
    def too_short(self) -> bool:
        return self.steps < FEWEST_STEPS

    @property
    def is_long(self) -> bool:
        return self.seconds / self.jobs > _LONG

    @property
    def enough_tokens(self) -> int:
        """Tokens of text that would give as many steps as a run needs; of a budget that ends in the first epoch, tokens read."""
        return int(FEWEST_STEPS * self.batch * self.tokens / (max(1.0, self.epochs) * max(1, self.rows)))


def plan_preflight(plan: Plan) -> Preflight:
    """Estimate the runs of a plan, without times."""
    recipe, run, runs = plan.recipe, plan.first_run, len(plan.arms) * len(plan.seeds)
    disks = [prepared.disk() for prepared in plan.prepared.values()]
    disk = sum(disks) * len(plan.seeds) if recipe.keep_weights else max(disks) * min(runs, recipe.jobs)
    tokens = run.plan.tokens_after(run.last)  # the same for all methods
    preflight = preflight_of(run, recipe.device, runs, tokens, disk=disk, jobs=recipe.jobs, evidence=_evidence(plan))
    own = {name: ", ".join(f"{key} {value}" for key, value in settings.items()) for name, settings in recipe.methods.items()}
    listed = tuple(f"{name} ({settings})" if settings else name for name, settings in own.items())
    return replace(preflight, methods=listed if any(own.values()) else ())


def _evidence(plan: Plan) -> Evidence:
    """What the first set can show of the metric that the study will be judged by."""
    recipe, evalset = plan.recipe, plan.sets[0]
    metric = metric_named(recipe.evaluate.metric or usual_metric(evalset)).name
    sizes = sizes_of(evalset, metric)
    return Evidence(metric, int(sizes.sum()), len(sizes), _detectable(recipe.seeds, sizes, len(plan.arms)))


def _detectable(seeds: int, sizes: NDArray[np.int64], methods: int) -> float | None:
    """The smallest gain over the base detected with 80% power, corrected for this many methods; of one seed by sign flips."""
    if seeds > 1:
        return detectable_difference(sizes, seeds, comparisons=methods, against_model=True)
    gains = ((gain, max(_LEAST_DISCORDANT, _DISCORDANT_PER_GAIN * gain)) for gain in (step / 200 for step in range(1, 101)))
    return next((gain for gain, discordant in gains if items_needed(gain, discordant, family=methods) <= sizes.sum()), None)


def with_times(preflight: Preflight, plan: Plan, progress: Progress, only: Collection[str] = ()) -> Preflight:
    """Add what is left of every kind of step, or of these."""
    size = measure(plan.first_run, plan.recipe.device, progress)
    state = ExperimentState.of(plan)
    steps = plan.steps + ([] if (plan.out / ANSWER).is_file() else plan.steps_from_recommended())  # the answer comes last
    present = [kind for kind in dict.fromkeys(only) or step_kinds() if any(step.kind == kind for step in steps)]
    shares = tuple(_estimate(plan, state, [step for step in steps if step.kind == kind], size) for kind in present)
    return replace(preflight, memory=size.gigabytes or peak_gigabytes(), shares=shares)


def _estimate(plan: Plan, state: ExperimentState, steps: Sequence[Step], size: Size) -> StepEstimate:
    """Estimate steps of one kind by the speed of those that finished, else by that of training. By the median speed, because a
    step that was resumed knows the seconds of its last part alone."""
    left = [step for step in steps if not state.is_closed(step)]
    finished = [(step, outcome) for step in steps if step.label in state.done and (outcome := step.outcome(plan.out))]
    if finished:
        speed = median(tokens_of(plan, step) / max(1e-9, float(outcome.facts["seconds"])) for step, outcome in finished)
        source = say(f"끝난 단계 {len(finished)}개", f"{len(finished)} finished")
    else:
        speed = size.tokens_per_second
        source = speed_text(size) if steps[0].kind == "train" else say("학습 속도로 추정", "from training speed")
    return StepEstimate(steps[0].kind, len(steps), len(left), sum(tokens_of(plan, step) for step in left) / speed, source)


def tokens_of(plan: Plan, step: Step) -> float:
    """An upper bound on the tokens that a step trains on, plus those it only reads at their share of the cost."""
    recipe = step.recipe
    if step.kind == "train":
        run = plan.run_of(step)
        return run.plan.tokens_after(run.last)
    if step.kind == "evaluate":
        models, length = len(plan.run_of(step).saves()) if step.run else 1, recipe.seq_len or max(plan.recipe.lengths)
        return models * sum(scoring_tokens(evalset, length) for evalset in plan.sets)
    return CHECKS[step.kind].tokens(recipe, plan.data[step.kind].sizes, INFERENCE_COST)


def scoring_tokens(evalset: EvalSet, length: int) -> float:
    """Tokens trained on in the time that a model takes to score a set; the window of a short document ends with it."""
    characters = (len(evalset.documents[item.document]) for item in evalset.select())
    return INFERENCE_COST * sum(min(length, count / CHARACTERS_PER_TOKEN) for count in characters)


def preflight_of(run: Prepared, device: str, runs: int, tokens: int, *, disk: float, jobs: int, evidence: Evidence) -> Preflight:
    """Estimate `runs` runs like this one, each of so many tokens."""
    plan = run.plan
    steps = min(run.last, round(tokens * plan.steps_per_epoch / max(1, plan.tokens_per_epoch)))
    sources, left_out = read_prepared(run.dataset.folder)["sources"], Counter[str]()
    for source in sources:
        left_out.update(source["dropped"])
    return Preflight(
        device=pick_device(device), documents=sum(source["kept"] for source in sources), left_out=dict(left_out.most_common()),
        rows=plan.rows, length=run.dataset.seq_len, tokens=plan.tokens_per_epoch, batch=plan.batch,
        epochs=round(steps / max(1, plan.steps_per_epoch), 2), steps=steps, runs=runs, disk=disk, jobs=jobs, evidence=evidence,
    )  # fmt: skip


def measure(run: Prepared, device: str, progress: Progress) -> Size:
    """Time whole training steps, with fewer rows at a time where they do not fit.

    On a GPU this happens in a process of its own, which leaves its memory to the runs.
    """
    progress.note("속도 측정 ...", "Timing a training step ...")
    rows = run.micro
    if run.device == "cpu":
        return timed_step(run, rows, 1)
    while True:
        try:
            return probe(replace(run.recipe, device=device), first=rows, largest=rows).sizes[0]
        except OutOfMemory:
            if rows == 1:
                raise
            rows //= 2


def speed_text(size: Size) -> str:
    return say(f"초당 {size.tokens_per_second:,.0f}토큰", f"{size.tokens_per_second:,.0f} tokens/s")
