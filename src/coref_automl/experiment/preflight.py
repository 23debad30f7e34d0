"""Before anything is trained: what there is, can show and takes. In: an opened Plan. Out: Preflight, Budget, a plan that fits.

For `adapt`, where neither a batch nor a length of training was asked for, both are fitted to the rows that there are. Times come
from finished steps of the same kind, or else from one timed training step and the tokens that a step reads.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from coref_automl.comparison.power import sizes_of
from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.corpus.manifest import read_prepared
from coref_automl.errors import OutOfMemory, RecipeError
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.evaluation.run import EvaluateRecipe
from coref_automl.experiment.plan import Plan, Step, open_plan
from coref_automl.experiment.recipe import KINDS, KOREAN, ExperimentRecipe, Kind
from coref_automl.experiment.run import KIND
from coref_automl.experiment.state import ExperimentState
from coref_automl.locks import claimed
from coref_automl.models.model_files import folder_of, weight_shapes
from coref_automl.progress import Progress, duration, peak_gigabytes, quiet
from coref_automl.records import Record
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.say import align, language, say
from coref_automl.statistics.planning import can_show, items_needed
from coref_automl.store import check_folder
from coref_automl.tuning.probe import Size, probe, timed_step

FEWEST_STEPS = 20
"""A run of fewer changes next to nothing: its learning rate has hardly risen when it falls again."""
LEAST_BATCH, MOST_EPOCHS = 4, 10
_BASE_SPEED, _HOURLY = 200_000, 3.5
"""Tokens per second of an encoder of base size on one H200 (215,000 in benchmarks/RESULTS.md), and an example of its price."""
_LONG = 1_800
"""Seconds from which a person at a terminal is asked."""
_FORWARD = 1 / 3
"""The cost of reading beside that of training on as much: a forward pass, and no backward pass of twice its cost."""
_WORDS, _ROW_TOKENS, _CHARACTERS = 3, 64, 2
"""The cost of scoring word ranks beside none; tokens of a relation row, with its markers; characters per token of Korean."""
_COARSE = 0.1
"""A set that detects nothing smaller says little about an adaptation: those that we measured gain 1 to 10 points."""


@dataclass(frozen=True, slots=True)
class Preflight(Record):
    """`detectable` is the difference from the base that is detected with 80% power; None where the set can show none.

    `tokens` are those of one reading; `enough` is how many would give as many steps as a run needs. `seconds` are those of
    training and evaluation on this machine, None where nothing was timed; `trained` is what all runs read together.
    """

    documents: int
    rows: int
    length: int
    tokens: int
    batch: int
    epochs: float
    steps: int
    runs: int
    metric: str
    held_out: int
    items: int
    detectable: float | None
    enough: int
    trained: int
    seconds: float | None = None

    @property
    def too_short(self) -> bool:
        return self.steps < FEWEST_STEPS

    @property
    def too_coarse(self) -> bool:
        return self.detectable is None or self.detectable > _COARSE

    @property
    def long(self) -> bool:
        return (self.seconds or 0.0) > _LONG

    def lines(self) -> list[str]:
        batch = f"{self.batch} x {self.epochs:g}"
        lines = [
            say(
                f"학습: 문서 {self.documents:,}개, 토큰 {self.tokens:,}개({self.length:,}토큰 행 {self.rows:,}개). "
                f"실행 {self.runs}개, 각 {self.steps:,}스텝(배치 x 에폭: {batch}).",
                f"To train on: {self.documents:,} documents, {self.tokens:,} tokens ({self.rows:,} rows of {self.length:,}). "
                f"{self.runs} runs of {self.steps:,} steps each (batch x epochs: {batch}).",
            )
        ]
        label, could = METRICS[self.metric].label, say("검출할 수 있는 차이가 없습니다.", "They can show no difference.")
        if self.detectable is not None:
            points = f"{100 * self.detectable:.1f}"
            could = say(
                f"베이스 모델과의 차이를 약 {points}점부터 검출합니다(검정력 80%).",
                f"They detect a difference of about {points} points from the base (80% power).",
            )
        lines.append(
            say(
                f"평가: {label} 문항 {self.items:,}개, 문서 {self.held_out:,}개. {could}",
                f"To judge by: {self.items:,} items of {label} in {self.held_out:,} documents. {could}",
            )
        )
        lines += [self._cost()] if self.seconds is not None else []
        if self.too_short:
            lines.append(
                say(
                    f"{self.steps}스텝으로는 거의 바뀌지 않습니다. {FEWEST_STEPS}스텝에 약 {self.enough:,}토큰이 필요합니다.",
                    f"{self.steps} steps change next to nothing; {FEWEST_STEPS} take about {self.enough:,} tokens.",
                )
            )
        if self.too_coarse:
            lines.append(
                say(
                    "보통 크기의 향상을 확인하기에는 작은 세트입니다. 텍스트를 늘리거나 --eval-set을 지정하세요.",
                    "That set is too small to confirm a gain of the usual size: add texts, or name a larger set with --eval-set.",
                )
            )
        return lines

    def _cost(self) -> str:
        here, hours = duration(self.seconds or 0.0, language()), self.trained / _BASE_SPEED / 3_600
        there = f"{hours:.1f}" if hours >= 0.1 else "0.1"
        price = f"{float(there) * _HOURLY:,.1f}"
        return say(
            f"이 컴퓨터에서 학습과 평가에 약 {here}. base 크기 인코더라면 H200 한 장으로 약 {there}시간, "
            f"시간당 {_HOURLY:g}달러일 때 {price}달러입니다.",
            f"Training and evaluation take about {here} on this machine; with an encoder of base size about {there} hours on one "
            f"H200, {price} dollars where an hour costs {_HOURLY:g}.",
        )


def before_training(
    plan: Plan, progress: Progress, agreed: Callable[[Preflight], bool], *, fit: bool, with_time: bool = True
) -> Plan:
    """Tell what is ahead, and go on where that is agreed. Too few steps that somebody asked for are ahead and trained."""
    free = not {"epochs", "max_tokens"} & set(plan.recipe.train)
    plan = fitted(plan) if fit else plan
    ahead = preflight(plan)
    if with_time and not ExperimentState.of(plan).done:
        progress.note(say("속도 측정 ...", "Timing a training step ..."))
        speed = timed(plan).tokens_per_second
        steps = [step for step in plan.steps if step.kind in ("train", "evaluate")]
        ahead = replace(ahead, seconds=sum(tokens_of(plan, step) for step in steps) / speed)
    for line in ahead.lines():
        progress.note(line)
    if (free if ahead.too_short else ahead.long) and not agreed(ahead):
        if not ahead.too_short:
            raise RecipeError("Nothing was trained; pass fewer methods, seeds or tokens, or --yes to go on.")
        short = ahead.lines()[-1 - ahead.too_coarse]
        raise RecipeError(f"{short} Add texts, pass a smaller --seq-len, or --yes to go on.")
    return plan


def fitted(plan: Plan) -> Plan:
    """The plan with a batch and epochs that make enough steps of the rows at hand; what was asked for stays as it is."""
    given = plan.recipe.train
    if "max_tokens" in given or ("batch" in given and "epochs" in given):
        return plan
    work = next(iter(plan.works.values()))
    rows, batch, epochs = work.plan.rows, work.plan.batch, float(given.get("epochs", 1.0))
    if "batch" not in given:
        while batch > LEAST_BATCH and epochs * rows / batch < FEWEST_STEPS:
            batch //= 2
    if "epochs" not in given and rows:
        epochs = float(min(MOST_EPOCHS, max(1, math.ceil(FEWEST_STEPS * batch / rows))))
    fit = {**given, "epochs": epochs, **({"batch": batch} if batch != work.plan.batch else {})}
    return replace(plan, recipe=replace(plan.recipe, train=fit))


def preflight(plan: Plan) -> Preflight:
    recipe, held = plan.recipe, EvalSet.open(plan.sets[0])
    metric = recipe.evaluate.metric or PRIMARY
    if (METRICS[metric].task or metric) not in held.items and not METRICS[metric].parts:
        metric = next(name for name, one in METRICS.items() if one.task in held.items and one.rule == "strict")
    sizes, arms = sizes_of(held, metric), plan.arms
    if recipe.seeds > 1:
        could = can_show(sizes, recipe.seeds, comparisons=len(arms), against_model=True)
    else:
        could = _of_single_runs(int(sizes.sum()), len(arms))
    work = plan.works[arms[0]]
    rows, batch = work.plan.rows, work.plan.batch
    needed = FEWEST_STEPS * batch / max(1.0, work.last / max(1, work.plan.steps_per_epoch))
    return Preflight(
        documents=sum(one["kept"] for one in read_prepared(plan.datasets[arms[0].length])["sources"]),
        rows=rows,
        length=arms[0].length,
        tokens=work.plan.tokens_per_epoch,
        batch=batch,
        epochs=round(work.last / max(1, work.plan.steps_per_epoch), 2),
        steps=work.last,
        runs=len(arms) * len(plan.seeds),
        metric=metric,
        held_out=len(sizes),
        items=int(sizes.sum()),
        detectable=could,
        enough=int(work.plan.tokens_per_epoch * needed / max(1, rows)),
        trained=sum(plan.works[arm].plan.tokens_after(plan.works[arm].last) for arm in arms) * len(plan.seeds),
    )


def _of_single_runs(items: int, runs: int) -> float | None:
    """What one checkpoint per method shows against the base: the sign-flip test, runs corrected together."""
    tried = (step / 200 for step in range(1, 101))
    return next((gain for gain in tried if items_needed(gain, max(0.1, 1.5 * gain), family=runs) <= items), None)


@dataclass(frozen=True, slots=True)
class Share(Record):
    """What is left of one kind of step: how many, seconds one after another, and where the figure comes from."""

    kind: str
    steps: int
    left: int
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class Budget(Record):
    """`seconds` are those of all steps one after another; `gigabytes` is what one step of training needs."""

    device: str
    jobs: int
    runs: int
    tokens: int
    shares: tuple[Share, ...]
    gigabytes: float
    disk: float

    @property
    def seconds(self) -> float:
        return sum(share.seconds for share in self.shares)

    def lines(self) -> list[str]:
        rows = [(say("단계", "step"), say("남음", "left"), say("시간", "time"), say("근거", "measured"))]
        for share in self.shares:
            left = say(f"{share.left}/{share.steps}", f"{share.left} of {share.steps}")
            rows.append((say(KOREAN[share.kind], share.kind), left, duration(share.seconds, language()), share.source))
        whole, least = (duration(seconds, language()) for seconds in (self.seconds, self.seconds / self.jobs))
        jobs = say(f", {self.jobs}개씩 함께 하면 최소 {least}", f", at least {least} with {self.jobs} at a time")
        steps = sum(share.steps for share in self.shares)
        return [
            say(
                f"{self.tokens:,}토큰의 실행 {self.runs}개, 단계 {steps}개 ({self.device})",
                f"{self.runs} runs of {self.tokens:,} tokens, {steps} steps on {self.device}",
            ),
            *(f"  {line}" for line in align(rows)),
            say(f"시간: 차례로 {whole}", f"Time: {whole} one after another") + (jobs if self.jobs > 1 else ""),
            say(
                f"메모리: 학습 단계당 {self.gigabytes:.1f} GB. 디스크: {self.disk:.1f} GB.",
                f"Memory: {self.gigabytes:.1f} GB per training. Disk: {self.disk:.1f} GB.",
            ),
        ]


def budget(recipe: ExperimentRecipe, *, progress: Progress | None = None) -> Budget:
    """What a study will take. A recipe that the study would refuse is refused here; nothing is trained or kept."""
    progress = progress or quiet()
    with _opened(recipe, progress) as plan:
        progress.note(say("속도 측정 ...", "Timing a training step ..."))
        state, size, work = ExperimentState.of(plan), timed(plan), plan.works[plan.arms[0]]
        kinds = [kind for kind in KINDS if any(step.kind == kind for step in plan.steps)]
        weights = 4e-9 * sum(map(math.prod, weight_shapes(folder_of(plan.recipe.model)).values()))
        kept = len(plan.arms) * len(plan.seeds) if recipe.keep_weights else recipe.jobs
        return Budget(
            device=work.device,
            jobs=recipe.jobs,
            runs=len(plan.arms) * len(plan.seeds),
            tokens=work.plan.tokens_after(work.last),
            shares=tuple(_share(plan, state, kind, size) for kind in kinds),
            gigabytes=size.gigabytes or peak_gigabytes(),
            disk=kept * weights * (len(work.saves()) + 2),  # every checkpoint, and the optimizer's state of the newest
        )


@contextmanager
def _opened(recipe: ExperimentRecipe, progress: Progress) -> Iterator[Plan]:
    """The plan, in a folder that vanishes unless the study has begun or has texts to prepare."""
    out = Path(recipe.out)
    check_folder(out, KIND)
    apart = not out.exists() and bool(recipe.datasets)
    with tempfile.TemporaryDirectory() as folder, nullcontext() if apart else claimed(out, KIND):
        yield open_plan(recipe, Path(folder) if apart else out, progress)


def _share(plan: Plan, state: ExperimentState, kind: Kind, size: Size) -> Share:
    """What is left of one kind, by the speed at which its finished steps read tokens, or else by that of training."""
    steps = [step for step in plan.steps if step.kind == kind]
    left = [step for step in steps if not state.closed(step)]
    ended = [(step, outcome.facts) for step in steps if step.label in state.done and (outcome := step.outcome(plan.out))]
    speed, source = (
        size.tokens_per_second,
        say(f"초당 {size.tokens_per_second:,.0f}토큰", f"{size.tokens_per_second:,.0f} tokens/s"),
    )
    if ended:
        speed = sum(tokens_of(plan, step) for step, _ in ended) / max(1e-9, sum(float(facts["seconds"]) for _, facts in ended))
        source = say(f"끝난 단계 {len(ended)}개", f"{len(ended)} finished")
    return Share(kind, len(steps), len(left), sum(tokens_of(plan, step) for step in left) / speed, source)


def timed(plan: Plan) -> Size:
    """Whole training steps of the first method, with fewer rows at a time where they do not fit.

    A GPU is left to the runs: there the steps are taken in a process of its own.
    """
    arm = plan.arms[0]
    work = plan.works[arm]
    if work.device == "cpu":
        return timed_step(work, work.micro, 1)
    rows = work.micro
    while True:
        try:
            return probe(plan.training(arm, plan.recipe.first_seed), first=rows, largest=rows).sizes[0]
        except OutOfMemory:
            if rows == 1:
                raise
            rows //= 2


def tokens_of(plan: Plan, step: Step) -> float:
    """Tokens that a step trains on; those that it only reads count a third. Upper bounds: early stopping is not foreseen."""
    recipe, work = step.recipe, plan.works[plan.arms[0]]
    if isinstance(recipe, EvaluateRecipe):
        models, length = len(work.saves()) if step.run else 1, recipe.seq_len or max(plan.recipe.lengths)
        return _FORWARD * models * plan.items * length * (_WORDS if recipe.words == "all" else 1)
    if isinstance(recipe, RelationRecipe) and plan.rows:
        rows = (recipe.max_rows or plan.rows.count) * recipe.epochs + _FORWARD * plan.rows.dev_count
        return recipe.seeds * rows * _ROW_TOKENS
    if isinstance(recipe, CoreferenceRecipe) and plan.annotated:
        passes = recipe.epochs * max(1, recipe.folds - 1) + _FORWARD
        return recipe.seeds * passes * plan.annotated.characters / _CHARACTERS
    return work.plan.tokens_after(work.last)
