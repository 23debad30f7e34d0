"""Before anything is trained: what there is, and what it can show. In: an opened Plan. Out: a Preflight, and a plan that fits.

Where neither a batch nor a length of training was asked for, both are fitted to the rows that there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from coref_automl.comparison.power import sizes_of
from coref_automl.corpus.manifest import read_prepared
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.experiment.plan import Plan
from coref_automl.records import Record
from coref_automl.say import say
from coref_automl.statistics.planning import can_show, items_needed

FEWEST_STEPS = 20
"""A run of fewer changes next to nothing: its learning rate has hardly risen when it falls again."""
LEAST_BATCH, MOST_EPOCHS = 4, 10
_COARSE = 0.1
"""A set that detects nothing smaller says little about an adaptation: those that we measured gain 1 to 10 points."""


@dataclass(frozen=True, slots=True)
class Preflight(Record):
    """`detectable` is the difference from the base that is detected with 80% power; None where the set can show none.

    `tokens` are those of one reading; `enough` is how many would give as many steps as a run needs.
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

    @property
    def too_short(self) -> bool:
        return self.steps < FEWEST_STEPS

    @property
    def too_coarse(self) -> bool:
        return self.detectable is None or self.detectable > _COARSE

    def lines(self) -> list[str]:
        batch = f"{self.batch} x {self.epochs:g}"
        told = [
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
        told.append(
            say(
                f"평가: {label} 문항 {self.items:,}개, 문서 {self.held_out:,}개. {could}",
                f"To judge by: {self.items:,} items of {label} in {self.held_out:,} documents. {could}",
            )
        )
        if self.too_short:
            told.append(
                say(
                    f"{self.steps}스텝으로는 거의 바뀌지 않습니다. {FEWEST_STEPS}스텝에 약 {self.enough:,}토큰이 필요합니다.",
                    f"{self.steps} steps change next to nothing; {FEWEST_STEPS} take about {self.enough:,} tokens.",
                )
            )
        if self.too_coarse:
            told.append(
                say(
                    "보통 크기의 향상을 확인하기에는 작은 세트입니다. 텍스트를 늘리거나 --eval-set을 지정하세요.",
                    "That set is too small to confirm a gain of the usual size: add texts, or name a larger set with --eval-set.",
                )
            )
        return told


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
    )


def _of_single_runs(items: int, runs: int) -> float | None:
    """What one checkpoint per method shows against the base: the sign-flip test, runs corrected together."""
    tried = (step / 200 for step in range(1, 101))
    return next((gain for gain in tried if items_needed(gain, max(0.1, 1.5 * gain), family=runs) <= items), None)
