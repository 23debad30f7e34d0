"""Relation extraction by method. In: a Study, relation runs from several seeds of a way of training. Out: verdicts between ways.

The unit is the seed of pretraining: a start counts with the mean over its relation seeds, so luck in pretraining is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coref_automl.comparison.arms import Arm, Versus, arms, equally_trained
from coref_automl.comparison.groups import same_model
from coref_automl.comparison.relation_runs import Pair, RelationRun, alike, over_pairs, shared
from coref_automl.comparison.scores import Entry
from coref_automl.comparison.study import Study

PAIRS = (("entity", "mlm"), ("entity", ""), ("combined", "mlm"), ("combined", ""), ("mlm", ""), ("entity", "combined"))
"""Objectives of the starts to compare, the first question first; "" is the un-adapted base."""
Names = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """An arm and the relation runs that began from its checkpoints, by the seed of pretraining."""

    arm: Arm
    runs: dict[int, RelationRun]


def between_methods(study: Study, runs: Sequence[RelationRun]) -> dict[Names, tuple[Versus, set[Names]]]:
    """Verdicts by what they compare, in the order in which one asks, each with the pairs of runs that it rests on."""
    found: dict[Names, tuple[Versus, set[Names]]] = {}
    for some in alike(runs):
        carried = _carried(study, some)
        for first, second in PAIRS:
            for ours in (one for one in carried if one.arm.objective == first):
                for name, rests, pairs in _against(ours, second, carried, some):
                    if len(pairs) > 1:
                        made = over_pairs(pairs, seed=study.seed)
                        verdict = Versus(ours.arm.name, name, made.seeds, made.values, made.answer)
                        found.setdefault((ours.arm.name, name), (verdict, rests))
    return found


def began_from(run: RelationRun, entries: Sequence[Entry]) -> bool:
    """Is the run's encoder one of these checkpoints?"""
    return model_of(run) in {same_model(entry.evaluation.checkpoint) for entry in entries}


def model_of(run: RelationRun) -> str:
    return same_model(str(run.result.get("model", "")))


def _carried(study: Study, runs: Sequence[RelationRun]) -> list[Carried]:
    """Arms with relation runs from two seeds or more; an arm scored in windows of several lengths counts once."""
    found: dict[frozenset[str], Carried] = {}
    for arm in arms(study):
        begun = {seed: [run for run in runs if began_from(run, entries)] for seed, entries in arm.runs.items()}
        first = {seed: some[0] for seed, some in begun.items() if some}
        if len(first) > 1:
            found.setdefault(frozenset(run.name for run in first.values()), Carried(arm, first))
    return list(found.values())


def _against(
    ours: Carried, objective: str, carried: Sequence[Carried], runs: Sequence[RelationRun]
) -> Iterator[tuple[str, set[Names], list[Pair]]]:
    """What an arm is set beside: its name, the pairs of runs, and their rows."""
    if not objective:
        for base in (run for run in runs if model_of(run) == ours.arm.base):
            starts = list(ours.runs.values())
            yield base.name, {(start.name, base.name) for start in starts}, _beside_base(starts, base)
    for other in (one for one in carried if objective and one.arm.objective == objective and _fair(ours.arm, one.arm)):
        both = [(ours.runs[seed], other.runs[seed]) for seed in ours.runs if seed in other.runs]
        found = {(a.name, b.name): rows for a, b in both if (rows := shared(a, b)) is not None}
        yield other.arm.name, set(found), list(found.values())


def _beside_base(starts: Sequence[RelationRun], base: RelationRun) -> list[Pair]:
    """The base has no seed of pretraining: its k-th relation seed stands beside the k-th start, so its own luck counts too."""
    held = [start.rows for start in starts if shared(start, base) is not None]
    columns = range(base.rows.seeds if base.rows is not None else 0)
    return [(rows, base.rows.of([column])) for rows, column in zip(held, columns, strict=False) if rows and base.rows]


def _fair(a: Arm, b: Arm) -> bool:
    return (a.base, a.length) == (b.base, b.length) and equally_trained(a, b)
