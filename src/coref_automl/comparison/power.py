"""What a set or a study can show, and what it would take to show more. In: paths, a set, a difference. Out: a PowerTable.

Spreads, and the tokens and time per run, are those of the runs under the paths; without runs, those of the archived studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import ComparisonError, RecipeError
from coref_automl.base.folders import is_there
from coref_automl.base.progress import duration
from coref_automl.base.records import Record
from coref_automl.base.say import align, language, say
from coref_automl.base.store import read_json
from coref_automl.comparison.arms import arms_of
from coref_automl.comparison.bases import own_base
from coref_automl.comparison.groups import choose_group
from coref_automl.comparison.judging import PairedValues
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.scores import Group, choose_metric
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import METRICS, PRIMARY, leading, metric_named, tasks_of
from coref_automl.statistics import planning
from coref_automl.statistics.crossed import CrossedVerdict

COSTS = "costs.json"


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """What a run costs, as the median of earlier ones: tokens and seconds of training, seconds of scoring so many items."""

    runs: int
    tokens: int
    training: float
    scoring: float
    items: int

    def seconds(self, items: int) -> float:
        return self.training + self.scoring * items / max(1, self.items)


@dataclass(frozen=True, slots=True)
class Ability(Record):
    """The true difference that a set with so many seeds detects with 80% power; None if it can detect none."""

    name: str
    items: int
    documents: int
    seeds: int
    difference: float | None


_COARSE = 0.1
"""A set that detects nothing smaller says little about an adaptation: the measured ones gain 1 to 10 points."""


@dataclass(frozen=True, slots=True)
class Evidence(Record):
    """The set that will judge training still ahead. `detectable` is the difference it detects with 80% power (None: none at all),
    with up to `pairs` of seeds if both sides are trained; `needed` documents would detect one point."""

    metric: str
    items: int
    documents: int
    detectable: float | None
    pairs: int = 0
    needed: int | None = None

    @property
    def too_coarse(self) -> bool:
        return self.detectable is None or self.detectable > _COARSE

    def lines(self) -> list[str]:
        label, points = METRICS[self.metric].label, f"{100 * (self.detectable or 0.0):.1f}"
        seeds = say(f", 시드 최대 {self.pairs}쌍", f", up to {self.pairs} pairs of seeds") if self.pairs else ""
        shown = say(
            f"차이를 약 {points}점부터 검출합니다(검정력 80%{seeds}).",
            f"They detect a difference of about {points} points (80% power{seeds}).",
        )
        none = say("검출할 수 있는 차이가 없습니다.", "They can show no difference.")
        judged = say(
            f"평가: {label} 문항 {self.items:,}개, 문서 {self.documents:,}개.",
            f"Evaluation: {self.items:,} items of {label} in {self.documents:,} documents.",
        )
        needed = f"{self.needed or 0:,}"
        point = say(f" 1점에는 문서 {needed}개가 필요합니다.", f" One point takes {needed} documents.") if self.needed else ""
        coarse = say(
            "보통 크기의 향상을 확인하기에는 작은 세트입니다. 텍스트를 늘리거나 --eval-set을 지정하세요.",
            "That set is too small to confirm a gain of the usual size: add texts, or name a larger set with --eval-set.",
        )
        return [f"{judged} {none if self.detectable is None else shown}{point}", *([coarse] if self.too_coarse else [])]


@dataclass(frozen=True, slots=True)
class PowerTable(Record):
    """`measured` counts the verdicts from which the spreads come; 0 says that they are those of the archived studies. With
    `unreachable` numbers of seeds, no number of items detects the `difference`."""

    metric: str
    components: planning.Components
    measured: int
    comparisons: int
    against_base: bool
    able: tuple[Ability, ...]
    plans: tuple[planning.SamplePlan, ...]
    cost: Cost | None = None
    difference: float | None = None
    unreachable: tuple[int, ...] = ()

    def lines(self) -> list[str]:
        """The table as printed."""
        spread = f"{100 * self.components.seeds:.2f}"
        measured = say(f"판정 {self.measured}건에서 추정", f"estimated from {self.measured} pairs of methods")
        origin = measured if self.measured else say("보관된 연구들의 값", "those of the archived studies")
        sides = say("베이스 모델 대비", "against the base") if self.against_base else say("방법 대 방법", "method against method")
        vary = say(f"시드 표준편차 {spread}점({origin}).", f"Seeds vary by {spread} points ({origin}).")
        lines = [f"{self.metric}, {sides}. {vary}"]
        if self.comparisons > 1:
            lines.append(say(f"비교 {self.comparisons}건 보정(Holm).", f"Corrected for {self.comparisons} comparisons (Holm)."))
        if self.able:
            head = (say("세트", "set"), say("문항", "items"), say("문서", "documents"), say("시드", "seeds"))
            rows = [(*head, say("검출 가능한 차이", "detectable difference"))]
            for able in self.able:
                detectable = f"{100 * able.difference:.1f}" if able.difference is not None else say("없음", "none")
                rows.append((able.name, f"{able.items:,}", f"{able.documents:,}", str(able.seeds), detectable))
            lines += ["", *align(rows, right=True)]
        points = f"{100 * (self.difference or 0.0):g}"
        if self.plans:
            goal = say(f"{points}점 차이를 검정력 80%로 검출하려면:", f"To detect a {points}-point difference with 80% power:")
            columns = (say("방법당 시드", "seeds per method"), say("문항", "items"), say("문서", "documents"))
            costs = (say("토큰", "tokens"), say("시간", "time")) if self.cost else ()
            lines += ["", goal, *align([(*columns, *costs), *map(self._row, self.plans)], right=True)]
        if self.unreachable:
            seeds, most = ", ".join(map(str, self.unreachable)), f"{planning.MOST_ITEMS:,}"
            none = say(
                f"방법당 시드 {seeds}개로는 문항을 아무리 늘려도({most}개까지 계산) {points}점 차이를 검출할 수 없습니다.",
                f"With {seeds} seeds per method, no number of items (up to {most}) detects a {points}-point difference.",
            )
            lines += ["", none]
        return lines

    def _row(self, plan: planning.SamplePlan) -> tuple[str, ...]:
        cost, runs = self.cost, plan.seeds * (1 if self.against_base else 2)
        spent = (f"{runs * cost.tokens:,}", duration(runs * cost.seconds(plan.items), language())) if cost else ()
        return (str(plan.seeds), f"{plan.items:,}", f"{plan.documents:,}", *spent)


def power(
    paths: Sequence[str] = (),
    *,
    difference: float | None = None,
    eval_set: Path | str | None = None,
    metric: str | None = None,
    seeds: Sequence[int] = (),
    comparisons: int = 1,
    against_base: bool = False,
) -> PowerTable:
    """What the set and the study can show, and plans for a `difference` to detect (a share, not points)."""
    if not paths and eval_set is None and difference is None:
        raise RecipeError("power needs a wanted --difference, an --eval-set, or finished runs (PATH...).")
    group = None
    if paths:
        group, _ = choose_group(open_results(paths))
        metric = choose_metric(group, metric)
    evalset = EvalSet.open(eval_set) if eval_set is not None else None
    metric = metric_named(metric or (usual_metric(evalset) if evalset else PRIMARY)).name
    verdicts = verdicts_of(group, metric, against_base=against_base) if group else []
    measured = planning.components_of(verdicts, against_model=against_base)
    if group is not None and measured is None:
        raise ComparisonError("These runs say nothing about seeds: two runs of two methods are needed (or of one and its base).")
    components = measured or planning.USUAL
    sets = [(group.evalset, group.columns(metric).sizes)] if group else []
    if evalset and not (group and group.fingerprint == evalset.fingerprint):
        sets.append((evalset.name, sizes_of(evalset, metric)))
    test: dict[str, Any] = {"components": components, "comparisons": comparisons, "against_model": against_base}
    able = tuple(
        Ability(name, int(sizes.sum()), len(sizes), count, planning.detectable_difference(sizes, count, **test))
        for name, sizes in sets
        for count in seeds or planning.SEEDS
    )
    mean = float(sets[-1][1].mean()) if sets else 2.0
    wanted = seeds or planning.SEEDS if difference is not None else ()
    plans = planning.plans_for(difference or 0.0, items_a_document=mean, offered=wanted, **test) if wanted else []
    return PowerTable(
        metric, components, len(verdicts), comparisons, against_base, able, tuple(plans),
        cost_of(group, paths) if group else None, difference,
        tuple(sorted({*wanted} - {plan.seeds for plan in plans})),
    )  # fmt: skip


def sizes_of(evalset: EvalSet, metric: str) -> NDArray[np.int64]:
    """Items per document of a set, those of all tasks of the metric; an error if it has none of one."""
    check_tasks(evalset, metric)
    items = evalset.select(sorted(tasks_of(metric)))
    return np.sort(np.unique([item.cluster for item in items], return_counts=True)[1])


def usual_metric(evalset: EvalSet) -> str:
    """The metric that leads on a set."""
    return leading([name for name in METRICS if tasks_of(name) <= set(evalset.items)])


def check_tasks(evalset: EvalSet, metric: str) -> None:
    """Refuse a metric whose tasks a set does not have."""
    if missing := sorted(tasks_of(metric) - {task for task, items in evalset.items.items() if items}):
        raise RecipeError(
            f"{evalset.folder} has no {missing[0]} items, which {METRICS[metric].label} needs; "
            f"pass --metric {usual_metric(evalset)}, or another --eval-set."
        )


def verdicts_of(group: Group, metric: str, *, against_base: bool) -> list[CrossedVerdict]:
    """All methods that differ in nothing else, or each against its base: last checkpoints on all documents."""
    arms = [arm for arm in arms_of(group.entries, None) if arm.seeds > 1]
    methods = [(a.ends, b.ends) for a, b in combinations(arms, 2) if a.same_setting_as(b)]
    gains = [(arm.ends, [base]) for arm in arms if (base := own_base(group.entries, arm.ends[0], None))]
    columns = [(len(a), group.columns(metric, entries=[*a, *b])) for a, b in (gains if against_base else methods)]
    values = [PairedValues.of(both, count) for count, both in columns if both.items]
    verdicts = [paired.crossed(against_model=against_base) for paired in values]
    return [verdict for verdict in verdicts if not verdict.reason]


def cost_of(group: Group, paths: Sequence[str]) -> Cost | None:
    """The cost of a run, from `costs.json` of studies under the paths, else from the clocks beside the checkpoints."""
    ends = [entry for arm in arms_of(group.entries, None) for entry in arm.ends]
    scoring = [entry.evaluation.seconds for entry in ends if entry.evaluation.seconds > 0]
    files = [Path(path) / COSTS for path in paths if (Path(path) / COSTS).is_file()]
    trained = [run for file in files for run in _tokens_and_seconds(read_json(file))]
    if not trained:
        trained = [(entry.tokens, seconds) for entry in ends if (seconds := _seconds_until(Path(entry.evaluation.path)))]
    if not trained or not scoring:
        return None
    tokens, seconds = (median(run[column] for run in trained) for column in (0, 1))
    return Cost(len(trained), round(tokens), float(seconds), median(scoring), len(group.items))


def _tokens_and_seconds(costs: Any) -> list[tuple[float, float]]:
    rows = costs.values() if isinstance(costs, dict) else ()
    return [(row["tokens"], row["seconds"]) for row in rows if isinstance(row, dict) and {"tokens", "seconds"} <= row.keys()]


def _seconds_until(checkpoint: Path) -> float:
    """The training time of a checkpoint, by its clock; 0 without one."""
    path = checkpoint / "clock.json"
    clock = read_json(path) if is_there(path) else {}
    return float(clock.get("seconds", 0.0)) if isinstance(clock, dict) else 0.0
