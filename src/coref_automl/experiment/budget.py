"""What an experiment will take. In: its recipe. Out: steps, hours, disk and memory, from steps that are finished or from a probe.

The probe does a little of everything for real, from the base: training steps of every arm, a sample of items, a few hundred
relation rows, a few annotated documents. Nothing of it is kept; texts that must be prepared first stay in the study's folder.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from coref_automl.coreference.recipe import CoreferenceRecipe
from coref_automl.errors import OutOfMemory
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.experiment.plan import Arm, Plan, Step, open_plan
from coref_automl.experiment.recipe import KINDS, ExperimentRecipe, Kind
from coref_automl.experiment.run import KIND
from coref_automl.experiment.state import STEPS, State
from coref_automl.experiment.work import peak_gigabytes
from coref_automl.locks import claimed
from coref_automl.models.model_files import folder_of, weight_shapes
from coref_automl.progress import Progress, duration, quiet
from coref_automl.records import Record
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.say import language, say
from coref_automl.store import check_folder
from coref_automl.tabular import align
from coref_automl.tuning.probe import Size, probe

_ITEMS, _ROWS, _DOCUMENTS = 96, 320, 3
"""How much the probe scores, and trains relation extraction and coreference on."""
_FORWARD = 1 / 3
"""The cost of reading beside that of training on as much: a forward pass, and no backward pass of twice its cost."""


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
    """`seconds` are those of all steps one after another; `gigabytes` is what one step needs at most."""

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
        steps = sum(share.steps for share in self.shares)
        rows = [(say("단계", "step"), say("남음", "left"), say("시간", "time"), say("근거", "measured"))]
        for share in self.shares:
            left = say(f"{share.left}/{share.steps}", f"{share.left} of {share.steps}")
            rows.append((say(STEPS[share.kind], share.kind), left, duration(share.seconds, language()), share.source))
        whole, least = (duration(seconds, language()) for seconds in (self.seconds, self.seconds / self.jobs))
        one, all_ = f"{self.gigabytes:.1f} GB", f"{self.jobs * self.gigabytes:.1f} GB"
        memory = say(f"단계당 {one}", f"{one} per step")
        together = ""
        if self.jobs > 1:
            together = say(f", {self.jobs}개씩 함께 하면 최소 {least}", f", at least {least} with {self.jobs} at a time")
            memory += say(f", 모두 {all_}", f", {all_} in all")
        return [
            say(
                f"{self.tokens:,}토큰의 실행 {self.runs}개, 단계 {steps}개 ({self.device})",
                f"{self.runs} runs of {self.tokens:,} tokens, {steps} steps on {self.device}",
            ),
            *(f"  {line}" for line in align(rows)),
            say(
                f"시간: 차례로 {whole}{together} (프로세스를 시작하는 시간은 별도)",
                f"Time: {whole} one after another{together}, plus the time to start processes",
            ),
            say(f"메모리: {memory}. 디스크: {self.disk:.1f} GB.", f"Memory: {memory}. Disk: {self.disk:.1f} GB."),
        ]


def budget(recipe: ExperimentRecipe, *, progress: Progress | None = None) -> Budget:
    """Open everything that the study names, measure, and add up. A recipe that the study would refuse is refused here."""
    progress = progress or quiet()
    with _opened(recipe, progress) as plan:
        state = State.of(plan)
        found = {kind: _share(plan, state, kind, progress) for kind in KINDS if any(step.kind == kind for step in plan.steps)}
        work = plan.works[plan.arms[0]]
        return Budget(
            device=work.device,
            jobs=recipe.jobs,
            runs=len(plan.arms) * len(plan.seeds),
            tokens=work.plan.tokens_after(work.last),
            shares=tuple(share for share, _ in found.values()),
            gigabytes=round(max(gigabytes for _, gigabytes in found.values()) or peak_gigabytes(), 2),
            disk=round(_disk(plan), 2),
        )


@contextmanager
def _opened(recipe: ExperimentRecipe, progress: Progress) -> Iterator[Plan]:
    """The plan, in a folder that vanishes unless the study has begun or has texts to prepare."""
    out = Path(recipe.out)
    check_folder(out, KIND)
    apart = not out.exists() and bool(recipe.datasets)
    with tempfile.TemporaryDirectory() as folder, nullcontext() if apart else claimed(out, KIND):
        yield open_plan(recipe, Path(folder) if apart else out, progress)


def _share(plan: Plan, state: State, kind: Kind, progress: Progress) -> tuple[Share, float]:
    """What is left of one kind, and the memory that one step of it needs; 0 where it is not known."""
    steps = [step for step in plan.steps if step.kind == kind]
    left = [step for step in steps if not state.closed(step)]
    ended = [(step, outcome.facts) for step in steps if step.label in state.done and (outcome := step.outcome(plan.out))]
    if ended:
        took = [(step, float(facts["seconds"]) / step.seeds) for step, facts in ended]
        source, gigabytes = (
            say(f"끝난 단계 {len(ended)}개의 평균", f"mean of the {len(ended)} finished"),
            max(float(facts["peak_gigabytes"] or 0.0) for _, facts in ended),
        )
        return Share(kind, len(steps), len(left), sum(_as_before(step, took) for step in left), source), gigabytes
    if not left:
        return Share(kind, len(steps), 0, 0.0, ""), 0.0
    progress.note(say(f"측정: {STEPS[kind]} ...", f"Measuring {kind} ..."))
    found = _MEASURES[kind](plan, left)
    return Share(kind, len(steps), len(left), found.seconds, found.source), found.gigabytes


def _as_before(step: Step, took: Sequence[tuple[Step, float]]) -> float:
    """What a step will take by those that are finished: the mean for one seed of steps of its size, or else of all."""
    alike = [seconds for one, seconds in took if _amount(one) == _amount(step)] or [seconds for _, seconds in took]
    return step.seeds * sum(alike) / len(alike)


def _amount(step: Step) -> tuple[bool, int | None]:
    """What makes two steps of a kind unlike in cost: a run has several checkpoints to evaluate, and shares differ in rows."""
    return step.kind == "evaluate" and step.run is None, getattr(step.recipe, "max_rows", None)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Seconds of all steps of a kind, one after another; the memory of one, 0 where it is not known."""

    seconds: float
    source: str
    gigabytes: float = 0.0


def _train(plan: Plan, left: Sequence[Step]) -> _Measured:
    """Whole training steps of every arm, with as many rows as a run would read at a time."""
    sizes = {arm: _size(plan, arm) for arm in plan.arms}
    runs = {plan.run_name(arm, seed): arm for arm in plan.arms for seed in plan.seeds}
    seconds = 0.0
    for arm in (runs[str(step.run)] for step in left):
        work = plan.works[arm]
        seconds += work.plan.tokens_after(work.last) / sizes[arm].tokens_per_second
    speeds = sorted(size.tokens_per_second for size in sizes.values())
    low, high = f"{speeds[0]:,.0f}", f"{speeds[-1]:,.0f}"
    source = (
        say(f"초당 {low}~{high}토큰", f"{low} to {high} tokens/s") if low != high else say(f"초당 {low}토큰", f"{low} tokens/s")
    )
    return _Measured(seconds, source, max(size.gigabytes or 0.0 for size in sizes.values()))


def _size(plan: Plan, arm: Arm) -> Size:
    rows = plan.works[arm].micro
    while True:
        try:
            return probe(plan.training(arm, plan.recipe.first_seed), first=rows, largest=rows).sizes[0]
        except OutOfMemory:
            if rows == 1:
                raise
            rows //= 2


def _evaluate(plan: Plan, left: Sequence[Step]) -> _Measured:
    """A sample of the first set's items at the greatest length; a run has several checkpoints."""
    from coref_automl.evaluation.scorer import Scorer, pick
    from coref_automl.evaluation.words import wanted_ids
    from coref_automl.models.load import load_masked_lm

    recipe, evalset = plan.recipe, EvalSet.open(plan.sets[0])
    device, dtype = pick(recipe.device, "auto")
    length = max(recipe.lengths)
    loaded = load_masked_lm(recipe.model, seq_len=length, device=device)
    items = evalset.select()
    sample = items[:: max(1, len(items) // _ITEMS)]
    scorer = Scorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=length, dtype=dtype)
    words = wanted_ids(sample, recipe.evaluate.words)
    for _ in range(2):  # the first time pays for kernels
        began = time.perf_counter()
        scored = sum(len(batch) for batch in scorer.score(sample, evalset.documents, words=words))
        speed = scored / (time.perf_counter() - began)
    whole = sum(len(EvalSet.open(folder).select()) for folder in plan.sets)
    saves = len(plan.works[plan.arms[0]].saves())
    models = sum(saves if step.run else 1 for step in left)
    return _Measured(models * whole / speed, _of_items(speed, models, whole), peak_gigabytes())


def _of_items(speed: float, models: int, items: int) -> str:
    return say(
        f"초당 {speed:,.0f}문항, 모델 {models:,}개, 문항 {items:,}개", f"{speed:,.0f} items/s, {models:,} models, {items:,} items"
    )


def _relation(plan: Plan, left: Sequence[Step]) -> _Measured:
    """One epoch on some rows; every step is counted with all its epochs, though it may stop earlier."""
    from coref_automl.relation.train import train_relation

    total = plan.rows[0]
    first = left[0].recipe
    assert isinstance(first, RelationRecipe)
    with tempfile.TemporaryDirectory() as folder:
        some = replace(first, out=f"{folder}/run", dev=None, seeds=1, epochs=1, max_rows=min(_ROWS, total), holdout=0.1)
        speed = train_relation(some).seeds[0].rows_per_second
    rows = 0.0
    for step in left:
        recipe = step.recipe
        assert isinstance(recipe, RelationRecipe)
        rows += recipe.seeds * ((recipe.max_rows or total) * recipe.epochs + _FORWARD * plan.rows[1])
    return _Measured(rows / speed, say(f"초당 {speed:,.0f}행", f"{speed:,.0f} rows/s"), peak_gigabytes())


def _coreference(_plan: Plan, left: Sequence[Step]) -> _Measured:
    """One epoch on some documents; a fold trains on all documents but its own and reads those."""
    from coref_automl.coreference.data import read_coref, write_documents
    from coref_automl.coreference.train import train_coreference

    first = left[0].recipe
    assert isinstance(first, CoreferenceRecipe)
    documents = read_coref(first.data, skip_bad=first.skip_bad).documents
    count = min(_DOCUMENTS, len(documents))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.jsonl"
        write_documents(path, documents[:count])
        some = replace(first, data=str(path), out=f"{folder}/run", split=None, folds=count, seeds=1, epochs=1)
        spent_on = train_coreference(some).seeds[0]
    read = sum(len(document.text) for document in documents[:count]) * (count - 1)
    speed = read / max(spent_on.seconds, 1e-9)
    whole = sum(len(document.text) for document in documents)
    seconds = 0.0
    for step in left:
        recipe = step.recipe
        assert isinstance(recipe, CoreferenceRecipe)
        passes = recipe.epochs * max(1, recipe.folds - 1) + _FORWARD
        seconds += recipe.seeds * passes * whole / speed
    return _Measured(seconds, say(f"초당 {speed:,.0f}자", f"{speed:,.0f} characters/s"), spent_on.peak_gigabytes)


def _disk(plan: Plan) -> float:
    """Gigabytes of weights in 32 bits: every checkpoint, and the optimizer's state of the newest one."""
    recipe, work = plan.recipe, plan.works[plan.arms[0]]
    weights = 4e-9 * sum(map(math.prod, weight_shapes(folder_of(recipe.model)).values()))
    runs = len(plan.arms) * len(plan.seeds) if recipe.keep_weights else recipe.jobs
    return runs * weights * (len(work.saves()) + 2)


_MEASURES: dict[Kind, Callable[[Plan, Sequence[Step]], _Measured]] = {
    "train": _train,
    "evaluate": _evaluate,
    "relation": _relation,
    "coreference": _coreference,
}
