"""Relation extraction by pretraining method. In: a Study, and relation runs from several seeds of a method. Out: verdicts.

The unit is the pretraining seed: a start counts with the mean over its relation seeds, so variance in pretraining counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from coref_automl.comparison.arms import Arm, Versus, arms, equally_trained, last
from coref_automl.comparison.relation_runs import Pair, RelationRun, Rows, alike, over_pairs, same_rows, shared
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.comparison.study import Study

_OF_MENTIONS = ("entity", "combined", "copy", "link", "copy+link")
PAIRS = (*product(_OF_MENTIONS, ("mlm", "")), ("mlm", ""), *combinations(_OF_MENTIONS, 2))
"""Objectives of the starts to compare, most important first; "" is the un-adapted base."""
Names = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """An arm and the relation runs from its checkpoints, by pretraining seed.

    The arm's runs end at the checkpoint that relation training started from.
    """

    arm: Arm
    runs: dict[int, RelationRun]


@dataclass(frozen=True, slots=True)
class MethodAnswer:
    """A verdict between methods, the objectives it compares, and the pairs of runs that it speaks of."""

    asked: Names
    verdict: Versus
    rests: frozenset[Names]


def compare_methods(study: Study, runs: Sequence[RelationRun]) -> list[MethodAnswer]:
    """Verdicts in the order of PAIRS. Runs with different settings or splits are judged separately."""
    several = [(some, _carried(study, some)) for some in alike(runs)]
    found: list[MethodAnswer] = []
    for first, second in PAIRS:
        for some, carried in several:
            for ours in (one for one in carried if one.arm.objective == first):
                for name, pairs, rests in _against(ours, second, carried, some):
                    if len(pairs) > 1:
                        made = over_pairs(pairs, seed=study.seed)
                        verdict = Versus(ours.arm.name, name, made.seeds, made.values, made.answer)
                        found.append(MethodAnswer((first, second), verdict, frozenset(rests)))
    return _rename_settings(found)


def _rename_settings(found: Sequence[MethodAnswer]) -> list[MethodAnswer]:
    """Name the first run of each verdict where the same two methods were judged under several settings."""
    names = [(one.verdict.a, one.verdict.b) for one in found]
    return [
        replace(one, verdict=replace(one.verdict, a=f"{one.verdict.a} ({min(one.rests)[0]})")) if names.count(name) > 1 else one
        for one, name in zip(found, names, strict=True)
    ]


def label_of(run: RelationRun) -> str:
    """The label of a relation run's start."""
    return model_label(run.model)


def began_from(run: RelationRun, entry: Entry) -> bool:
    return entry.is_of(run.model, run.weights)


def _carried(study: Study, runs: Sequence[RelationRun]) -> list[Carried]:
    """Arms with relation runs from two or more seeds, each from its latest checkpoint that has one.

    An arm scored at several window lengths counts once, preferably at its training length: windows do not affect relation runs.
    """
    found: dict[frozenset[str], Carried] = {}
    for arm in sorted(arms(study), key=lambda arm: arm.length != arm.trained_at):
        begun = {seed: some for seed, entries in arm.runs.items() if (some := _until_start(entries, runs))}
        first = {seed: next(run for run in runs if began_from(run, last(entries))) for seed, entries in begun.items()}
        if len(first) > 1:
            found.setdefault(frozenset(run.name for run in first.values()), Carried(replace(arm, runs=begun), first))
    return list(found.values())


def _until_start(entries: Sequence[Entry], runs: Sequence[RelationRun]) -> list[Entry]:
    """A run's checkpoints up to the latest one that relation training started from; empty if there is none."""
    held = (n for n in range(len(entries), 0, -1) if any(began_from(run, entries[n - 1]) for run in runs))
    return list(entries[: next(held, 0)])


def _against(
    ours: Carried, objective: str, carried: Sequence[Carried], runs: Sequence[RelationRun]
) -> Iterator[tuple[str, list[Pair], Iterable[Names]]]:
    """What an arm is compared with: its name, the pairs of rows, and the pairs of runs that they stand for."""
    if not objective and (bases := [run for run in runs if _is_base(run, ours.arm)]):
        starts = list(ours.runs.values())
        name = bases[0].name if len(bases) == 1 else label_of(bases[0])
        yield name, _beside_base(starts, bases), product([run.name for run in starts], [run.name for run in bases])
    for other in (one for one in carried if objective and one.arm.objective == objective and _fair(ours.arm, one.arm)):
        both = [(ours.runs[seed], other.runs[seed]) for seed in ours.runs if seed in other.runs]
        held = {(a.name, b.name): rows for a, b in both if (rows := shared(a, b)) is not None}
        yield other.arm.name, list(held.values()), held


def _is_base(run: RelationRun, arm: Arm) -> bool:
    """Did a relation run start from the arm's base? Decided by bytes if both are known."""
    made = last(next(iter(arm.runs.values()))).evaluation.provenance
    if made and made.base_bytes and run.weights:
        return made.base_bytes == run.weights
    return label_of(run) == arm.base


def _beside_base(starts: Sequence[RelationRun], bases: Sequence[RelationRun]) -> list[Pair]:
    """Each start beside the base under their shared relation seeds, which may lie in several runs of the base.

    Empty if a start shares none: a verdict about a method must cover all of its starts.
    """
    base = _as_one([run for run in bases if same_rows(run, bases[0])])
    pairs = [pair for start in starts if (pair := shared(start, base)) is not None]
    return pairs if len(pairs) == len(starts) else []


def _as_one(runs: Sequence[RelationRun]) -> RelationRun:
    """Runs from one model as one run; a seed that several have counts once."""
    seeds: dict[int, Rows] = {}
    for run in runs:
        for column, seed in enumerate(run.seeds):
            if run.rows is not None:
                seeds.setdefault(seed, run.rows.of([column]))
    if not seeds:
        return runs[0]
    held = list(seeds.values())
    right, given = (np.hstack([getattr(rows, name) for rows in held]) for name in ("right", "given"))
    result = {**runs[0].result, "seeds": [{"seed": seed} for seed in seeds]}
    return RelationRun(runs[0].name, result, Rows(held[0].gold, right, given, held[0].sentences))


def _fair(a: Arm, b: Arm) -> bool:
    return (a.origin, a.trained_at) == (b.origin, b.trained_at) and equally_trained(a, b)
