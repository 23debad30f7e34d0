"""Verdicts of outside checks. In: what was fine-tuned from two sides. Out: a claim before correction, and its p.

Relation extraction pairs runs by seed; coreference crosses runs with documents, because other novels would move a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import read_share
from coref_automl.comparison.claims import Caveat, Claim
from coref_automl.comparison.coreference_results import DocumentSums
from coref_automl.comparison.judging import Judged, few_documents, why_unjudged
from coref_automl.comparison.relation_results import RowFacts
from coref_automl.comparison.runs import TaskRun
from coref_automl.statistics.intervals import DRAWS, from_draws
from coref_automl.statistics.methods import MethodVerdict, method_verdict
from coref_automl.statistics.outcomes import ratio_verdict
from coref_automl.statistics.resampling import Floats, resampled_f1

Start = Mapping[int, tuple[TaskRun[Any, Any], int]]
"""Of every fine-tuning seed from one checkpoint, its run and the column of the run's facts."""
Starts = Mapping[int, Start]
"""By pretraining seed; a base or a single checkpoint is one start."""


def start_of(runs: Iterable[TaskRun[Any, Any]]) -> Start:
    """Runs from one checkpoint; a seed that several have counts once."""
    held: dict[int, tuple[TaskRun[Any, Any], int]] = {}
    for run in runs:
        for column, seed in enumerate(run.seeds):
            held.setdefault(seed, (run, column))
    return held


def rows_of(run: TaskRun[Any, Any]) -> int:
    """The rows that a relation run was trained on."""
    return (run.result.train_rows or 0) + (run.result.validation_rows or 0)


def judge_relation(a: Starts, b: Starts, claim: Claim, seed: int) -> Judged | None:
    """Starts of one pretraining seed are paired; every start with a base; of a single start, its fine-tuning seeds.

    None if seeds are not shared: a verdict over a base must cover every start of the method, one between methods two pairs.
    """
    both = [(a[n], b[n]) for n in a if n in b] if len(b) > 1 else [(start, one) for start in a.values() for one in b.values()]
    pairs = [pair for ours, theirs in both if (pair := shared(ours, theirs)) is not None]
    if len(pairs) < (2 if len(b) > 1 else len(a)):
        return None
    if len(a) == 1:
        pairs = [pairs[0].of([number]) for number in pairs[0].seeds]
    values, (count, found) = _means(pairs), over_pairs(pairs, seed=seed)
    run = next(iter(both[0][0].values()))[0]
    judged = count > 1 and found.p_seeds is not None
    same = found.difference == 0 and found.interval.low == found.interval.high
    lost: tuple[Caveat, ...] = () if judged or same else ("one seed" if count < 2 else "copies",)
    told = replace(
        claim,
        count=run.result.n,
        seeds=(count, count),
        difference=found.interval,
        verdict="same" if same else "not judged",
        values=values,
        detectable=found.detectable,
        rows=rows_of(run) or None,
        share=read_share(run.name),
        against=(*claim.against, *lost),
    )
    return Judged(told, found.p if judged else None, found.interval_at)


@dataclass(frozen=True, slots=True, eq=False)
class SeedPairs:
    """Two sides on the same rows under the same fine-tuning seeds, a column each."""

    a: RowFacts
    b: RowFacts
    seeds: tuple[int, ...]

    def of(self, seeds: Sequence[int]) -> SeedPairs:
        columns = [self.seeds.index(seed) for seed in seeds]
        return SeedPairs(self.a.of(columns), self.b.of(columns), tuple(seeds))

    def differences(self) -> NDArray[np.float64]:
        """In micro-F1, seed by seed."""
        return np.asarray(self.a.f1() - self.b.f1())


def shared(a: Start, b: Start) -> SeedPairs | None:
    """Both sides under their shared fine-tuning seeds; None if there are none, or if the rows differ."""
    seeds = [number for number in a if number in b]
    ours, theirs = ([run.facts.of([column]) for run, column in (side[number] for number in seeds)] for side in (a, b))
    if not seeds or not all(np.array_equal(one.gold, ours[0].gold) for one in (*ours, *theirs)):
        return None
    return SeedPairs(_joined(ours), _joined(theirs), tuple(seeds))


def _joined(rows: Sequence[RowFacts]) -> RowFacts:
    right, given = (np.hstack([getattr(one, name) for one in rows]) for name in ("right", "given"))
    return replace(rows[0], right=right, given=given)


def _means(pairs: Sequence[SeedPairs]) -> tuple[float, float]:
    """Micro-F1 of both sides."""
    return float(np.mean([pair.a.f1().mean() for pair in pairs])), float(np.mean([pair.b.f1().mean() for pair in pairs]))


def over_pairs(pairs: Sequence[SeedPairs], *, seed: int) -> tuple[int, MethodVerdict]:
    """Are the first sides better than the second ones, over pairs, fine-tuning seeds and sentences? And the number of pairs.

    If pairs share fine-tuning seeds, these are crossed with the pairs, provided that all pairs have them. Pairs that all have one
    seed count as one: its luck is in each of them.
    """
    crossed = len({number for pair in pairs for number in pair.seeds}) < sum(len(pair.seeds) for pair in pairs)
    if crossed and (common := [number for number in pairs[0].seeds if all(number in pair.seeds for pair in pairs)]):
        pairs = [pair.of(common) for pair in pairs]
        differences = np.stack([pair.differences() for pair in pairs])
    else:
        differences = np.array([pair.differences().mean() for pair in pairs])
        differences = differences[:, None] if crossed else differences  # no seed is in every pair: counted as one seed
    marks = min((rows.sentences for pair in pairs for rows in (pair.a, pair.b)), key=lambda held: len(np.unique(held)))
    over = from_draws(float(differences.mean()), _draws(pairs, marks, seed), marks)
    verdict = method_verdict(differences, over.interval, over.error, over.held)
    return 1 if differences.shape[1:] == (1,) else len(pairs), verdict


def _draws(pairs: Sequence[SeedPairs], sentences: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """Bootstrap draws of the mean micro-F1 difference: each draw resamples the same sentences for all pairs."""
    sides = [rows for pair in pairs for rows in (pair.a, pair.b)]
    joined = _joined(sides)
    gold = np.repeat(joined.gold[:, None], joined.count, axis=1)
    share = np.concatenate([np.full(rows.count, (-1) ** side / rows.count / len(pairs)) for side, rows in enumerate(sides)])
    return np.asarray(resampled_f1(joined.right, joined.given, gold, sentences, seed=seed, draws=DRAWS) @ share)


def judge_coreference(a: Starts, b: Starts, claim: Claim, _seed: int) -> Judged:
    """CoNLL with gold mentions, runs crossed with documents: the starts of a method, or the fine-tuning seeds of a single one."""
    documents: DocumentSums = next(iter(next(iter(a.values())).values()))[0].facts
    sides = [_by_document(side) for side in (a, b)]
    ours, theirs = (float(np.mean([np.average(run, weights=documents.sizes) for run in runs])) for runs in sides)
    found = ratio_verdict(sides[0], sides[1], documents.sizes)
    told = replace(
        claim,
        count=len(documents.marks),
        seeds=found.seeds,
        difference=found.interval,
        verdict="same" if found.reason == "same" else "not judged",
        values=(ours, theirs),
        detectable=found.detectable,
        against=(*claim.against, *why_unjudged(found), *few_documents(len(documents.marks))),
    )
    return Judged(told, None if found.reason else found.p, found.interval_at)


def _by_document(starts: Starts) -> list[Floats]:
    found = [[run.facts.values("gold", column) for run, column in start.values()] for start in starts.values()]
    return [np.mean(values, axis=0) for values in found] if len(found) > 1 else found[0]
