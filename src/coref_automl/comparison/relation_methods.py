"""Relation extraction by pretraining method. In: a study's evaluations, and relation runs. Out: what they claim, uncorrected.

The unit is the pretraining seed: a start counts with the mean over its relation seeds, so variance in pretraining counts. Where a
method has a single start, the pairs are relation seeds and the claim is about that checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from coref_automl.comparison.arms import OBJECTIVES, Arm, Source, arms, equally_trained, last
from coref_automl.comparison.claims import BASE, RELATION, Claim
from coref_automl.comparison.judging import Judged, paired_claim
from coref_automl.comparison.relation_runs import (
    Pair,
    RelationPair,
    RelationRun,
    Rows,
    alike,
    over_pairs,
    paired,
    same_rows,
    shared,
)
from coref_automl.comparison.scores import Entry, model_label
from coref_automl.records import Estimate

_SHARE = re.compile(r"(\d+(?:\.\d+)?)pct-")
"""How `study` marks the share of rows in the name of a relation run."""


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """An arm and the relation runs from its checkpoints, by pretraining seed.

    The arm's runs end at the checkpoint that relation training started from.
    """

    arm: Arm
    runs: dict[int, RelationRun]


def judge_relation(study: Source, runs: Sequence[RelationRun]) -> list[list[Judged]]:
    """Families of claims, one per setting (rows trained on, split): those with the most rows first."""
    found = []
    for some in sorted(alike(runs), key=lambda some: -_rows(some[0])):
        several = _carried(study, some)
        claims = list(_of_methods(study, several, some))
        held = {run.name for one in several for run in one.runs.values()}
        claims += _of_checkpoints(study, [run for run in some if run.name not in held])
        found.append(claims)
    return [claims for claims in found if claims]


def label_of(run: RelationRun) -> str:
    """The label of a relation run's start."""
    return model_label(run.model)


def began_from(run: RelationRun, entry: Entry) -> bool:
    return entry.is_of(run.model, run.weights)


def _rows(run: RelationRun) -> int:
    held = (run.result.get(name) for name in ("train_rows", "validation_rows"))
    return sum(count for count in held if isinstance(count, int))


def _share(run: RelationRun) -> float | None:
    found = _SHARE.match(run.name)
    return float(found[1]) / 100 if found else None


def _of_methods(study: Source, several: Sequence[Carried], runs: Sequence[RelationRun]) -> Iterator[Judged]:
    """Every method against its base, and later methods against earlier ones that were trained alike."""
    for one in several:
        bases = [run for run in runs if _is_base(run, one.arm)]
        if bases and (pairs := _beside_base(list(one.runs.values()), bases)):
            yield _judged(study, (one.arm.name, BASE), pairs, bases[0])
    for other, one in combinations(several, 2):
        both = [(one.runs[seed], other.runs[seed]) for seed in one.runs if seed in other.runs]
        pairs = [rows for a, b in both if (rows := shared(a, b)) is not None]
        if _fair(one.arm, other.arm) and len(pairs) > 1:
            yield _judged(study, (one.arm.name, other.arm.name), pairs, both[0][0])


def _of_checkpoints(study: Source, runs: Sequence[RelationRun]) -> Iterator[Judged]:
    """Single starts: against their base, and later objectives against earlier ones of one length and seed."""
    starts = [(run, entry.evaluation.provenance) for run in runs for entry in study.group.entries if began_from(run, entry)]
    rank = {objective: number for number, objective in enumerate(OBJECTIVES)}
    trained = sorted(((run, made) for run, made in starts if made is not None), key=lambda one: rank.get(one[1].objective, 9))
    bases = [run for run in runs if all(run is not one for one, _ in trained)]
    for run, made in trained:
        for base in bases:
            if (pair := paired(run, base, seed=study.seed)) is not None and label_of(base) == model_label(made.base):
                yield _told((run.name, BASE), pair, run, about_checkpoints=True)
    for (other, theirs), (run, ours) in combinations(trained, 2):
        alike_ = (ours.seq_len, ours.seed) == (theirs.seq_len, theirs.seed) and ours.objective != theirs.objective
        if alike_ and (pair := paired(run, other, seed=study.seed)) is not None:
            yield _told((run.name, other.name), pair, run, about_checkpoints=True)


def _judged(study: Source, names: tuple[str, str], pairs: Sequence[Pair], run: RelationRun) -> Judged:
    return _told(names, over_pairs(pairs, seed=study.seed), run)


def _told(names: tuple[str, str], found: RelationPair, run: RelationRun, *, about_checkpoints: bool = False) -> Judged:
    told = Claim(
        "relation",
        *names,
        RELATION,
        "rows",
        int(run.result.get("n") or 0),
        (found.seeds, found.seeds),
        Estimate(0.0, 0.0, 0.0, 0),
        "paired",
        "not judged",
        found.values,
        rows=_rows(run) or None,
        share=_share(run),
        against=("checkpoint",) if about_checkpoints else (),
    )
    return paired_claim(found.answer, found.seeds, told)


def _carried(study: Source, runs: Sequence[RelationRun]) -> list[Carried]:
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
