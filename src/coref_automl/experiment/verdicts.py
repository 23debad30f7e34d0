"""What a study shows. In: a plan and what its steps left. Out: a verdict for each pair of methods on each outcome, over seeds.

Later methods of the recipe minus earlier ones at the same length, and every method minus the base, at the last checkpoints.
The p-values of one outcome are corrected together (Benjamini-Hochberg).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from coref_automl.comparison import arms as methods
from coref_automl.comparison.arms import Versus, versus
from coref_automl.comparison.coreference_runs import CoreferenceRun, find_coreference
from coref_automl.comparison.corrections import corrected
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.relation_runs import find_relation, over_pairs, shared
from coref_automl.comparison.scores import Entry, Group, runs_of
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.experiment.plan import BASE, COREFERENCE, EVALUATIONS, RELATION, Arm, Plan
from coref_automl.records import Estimate, Record
from coref_automl.report.language import Say, language, p_text
from coref_automl.report.verdicts import before_correction, phrase
from coref_automl.say import say
from coref_automl.statistics.ratios import ratio_verdict
from coref_automl.statistics.resampling import Floats

_OUTCOMES = (PRIMARY, "real_far1_strict", "lambada_top1_strict")
Pair = tuple[Arm, Arm | None]
"""Two arms; None is the base."""


@dataclass(frozen=True, slots=True)
class Verdict(Record):
    """`a` minus `b` on one outcome. Values and interval are fractions; `seeds` are the runs of both sides, of `asked` each.

    `p` is corrected for the pairs of this outcome; None with one seed, which shows nothing.
    """

    outcome: str
    a: str
    b: str
    seeds: tuple[int, int]
    asked: int
    values: tuple[float, float]
    difference: Estimate
    p: float | None
    shown: bool
    detectable: float | None
    told: str

    def __str__(self) -> str:
        both = (self.seeds[0],) if self.b == BASE else self.seeds
        korean, english = ", ".join(f"{count}/{self.asked}" for count in both), " and ".join(map(str, both))
        seeds = say(f"시드 {korean}", f"{english} of {self.asked} seeds")
        return f"{self.outcome}, {self.a} - {_side_name(self.b)}: {self.told} ({seeds})"


def _side_name(arm: str) -> str:
    return say("원래 모델", arm) if arm == BASE else arm


def verdicts(plan: Plan) -> list[Verdict]:
    """Every pair on every outcome that was run, in the order of the recipe."""
    pairs: list[Pair] = [(a, b) for b, a in combinations(plan.arms, 2) if a.length == b.length]
    pairs += [(arm, None) for arm in plan.arms]
    found = [*_evaluated(plan, pairs), *_related(plan, pairs), *_coreferent(plan, pairs)]
    out = []
    for outcome, several in found:
        told = corrected([one for _, _, one in several])
        out += [_verdict(plan, outcome, pair, seeds, one) for (pair, seeds, _), one in zip(several, told, strict=True) if one]
    return out


Found = tuple[str, list[tuple[Pair, tuple[int, int], Versus]]]
"""An outcome; its pairs, the runs of both sides, and the verdict."""


def _verdict(plan: Plan, outcome: str, pair: Pair, seeds: tuple[int, int], one: Versus) -> Verdict:
    answer = one.answer
    return Verdict(
        outcome=outcome,
        a=str(pair[0]),
        b=str(pair[1] or BASE),
        seeds=seeds,
        asked=plan.recipe.seeds,
        values=one.values,
        difference=answer.interval,
        p=one.adjusted,
        shown=one.shown,
        detectable=answer.detectable,
        told=phrase(one, Say(language())),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    group: Group
    base: Entry | None = None
    seed: int = 0


def _evaluated(plan: Plan, pairs: Sequence[Pair]) -> Iterator[Found]:
    """Each set by itself, and on it each metric that was run."""
    groups = read_groups([str(plan.out / EVALUATIONS)])
    for group in groups:
        runs = runs_of(group.entries)
        sides = {arm: _side(plan, arm, runs) for arm in plan.arms}
        bases = {entry.evaluation.seq_len: entry for entry in group.entries if not entry.trained}
        asked = [(pair, (sides[pair[0]], sides[pair[1]] if pair[1] else bases.get(pair[0].length))) for pair in pairs]
        whole = [(pair, (a, b)) for pair, (a, b) in asked if a.runs and b is not None and (isinstance(b, Entry) or b.runs)]
        for metric in dict.fromkeys([plan.recipe.evaluate.metric or PRIMARY, *_OUTCOMES]):
            if METRICS[metric].parts:
                continue
            answers = versus(_Source(group), [two for _, two in whole], metric)
            label = METRICS[metric].label if len(groups) == 1 else f"{METRICS[metric].label} ({group.evalset})"
            told = [(pair, _counts(two), one) for (pair, two), one in zip(whole, answers, strict=True) if one is not None]
            if told:
                yield label, told


def _side(plan: Plan, arm: Arm, runs: dict[str, list[Entry]]) -> methods.Arm:
    held = {seed: runs[name] for seed in plan.seeds if (name := plan.run_name(arm, seed)) in runs}
    objective = plan.recipe.settings(arm.method)["objective"]
    return methods.Arm(arm.method, objective, plan.recipe.model, arm.length, held, name=str(arm))


def _counts(pair: tuple[methods.Arm, methods.Arm | Entry]) -> tuple[int, int]:
    return pair[0].seeds, pair[1].seeds if isinstance(pair[1], methods.Arm) else 1


def _related(plan: Plan, pairs: Sequence[Pair]) -> Iterator[Found]:
    """Runs are paired by pretraining seed; the k-th tuning of the base stands beside the k-th run."""
    runs = {run.name: run for run in find_relation([str(plan.out / RELATION)])}
    for share in plan.recipe.relation.shares if plan.recipe.relation else ():
        mark = f"{100 * share:g}pct"
        told: list[tuple[Pair, tuple[int, int], Versus]] = []
        for a, b in pairs:
            names = [(f"{mark}-{plan.run_name(a, seed)}", f"{mark}-{plan.run_name(b, seed)}") for seed in plan.seeds]
            sides = [(runs[ours], runs[theirs]) for ours, theirs in names if ours in runs and theirs in runs]
            both = [pair for side in sides if (pair := shared(*side)) is not None]
            if both:
                made = over_pairs(both, seed=0)
                one = Versus(str(a), str(b or BASE), made.seeds, made.values, made.answer)
                told.append(((a, b), (len(both), len(both)), one))
        if told:
            part = f"{100 * share:g}%"
            yield say(f"관계 추출, 학습 데이터 {part}의 micro-F1", f"Relation extraction, micro-F1 with {part} of train"), told


def _coreferent(plan: Plan, pairs: Sequence[Pair]) -> Iterator[Found]:
    """A run counts with the mean over its head seeds, and so does the base beside it."""
    runs = {run.name: run for run in find_coreference([str(plan.out / COREFERENCE)])}
    told: list[tuple[Pair, tuple[int, int], Versus]] = []
    for a, b in pairs:
        ours, theirs = ([_mean(run) for seed in plan.seeds if (run := runs.get(plan.run_name(arm, seed)))] for arm in (a, b))
        if ours and theirs:
            sizes = next(iter(runs.values())).documents.sizes
            values = tuple(float(np.mean([np.average(one, weights=sizes) for one in side])) for side in (ours, theirs))
            answer = ratio_verdict(ours, theirs, sizes)
            seeds = len(ours), len(theirs)
            told.append(((a, b), seeds, Versus(str(a), str(b or BASE), min(seeds), (values[0], values[1]), answer)))
    if told:
        yield say("상호참조, 정답 언급의 CoNLL", "Coreference, CoNLL with gold mentions"), told


def _mean(run: CoreferenceRun) -> Floats:
    return np.asarray(np.mean([run.documents.values("gold", column) for column in range(len(run.seeds))], axis=0))


def markdown(found: Sequence[Verdict]) -> str:
    """All verdicts as one table."""
    points, limit = say("a - b (점)", "a - b (points)"), say("검출 가능 차이", "detectable difference")
    head = (say("지표", "outcome"), "a", "b", say("실행", "runs"), "a %", "b %", points, "p", limit, say("판정", "verdict"))
    rows = [head, ("---",) * len(head), *map(_row, found)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def _row(one: Verdict) -> tuple[str, ...]:
    change = one.difference.within(-1.0, 1.0)
    return (
        one.outcome,
        one.a,
        _side_name(one.b),
        say(f"{one.seeds[0]} / {one.seeds[1]} (각 {one.asked})", f"{one.seeds[0]} / {one.seeds[1]} of {one.asked}"),
        *(f"{100 * value:.1f}" for value in one.values),
        f"{100 * change.value:+.2f} [{100 * change.low:+.2f}, {100 * change.high:+.2f}]",
        p_text(one.p),
        f"{100 * one.detectable:.1f}" if one.detectable else "–",
        _word(one),
    )


def _word(one: Verdict) -> str:
    if one.shown:
        return say("더 좋음", "better") if one.difference.value > 0 else say("더 나쁨", "worse")
    alone = one.p is not None and not one.difference.low <= 0 <= one.difference.high
    return before_correction(Say(language())) if alone else say("유의한 차이 미확인", "not shown")
