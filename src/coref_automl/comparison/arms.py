"""Training methods side by side. In: evaluations. Out: arms (method, length, base; runs by seed), and verdicts between them.

Arms are compared at the last checkpoint of each run, runs crossed with documents: all documents if nothing was chosen on them,
else the `confirm` half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.differences import ALPHA
from coref_automl.comparison.references import bases_of
from coref_automl.comparison.scores import Entry, Group, Ints, is_equal_training, model_label, runs_of
from coref_automl.comparison.speaking import CONFIRM, Speaking, speaking
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Estimate, Half, Provenance
from coref_automl.statistics.contrasts import below_first, interaction, reciprocal
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.intervals import composite
from coref_automl.statistics.methods import MethodVerdict
from coref_automl.statistics.resampling import Floats, Part

OBJECTIVES = ("mlm", "combined", "entity", "copy", "link", "copy+link")
"""In the order of tables."""
Pick = Callable[[Sequence[Entry]], Entry]
Among = NDArray[np.bool_] | None
Outcome = Literal["hits", "ranks", "lower ranks"]
OUTCOMES: dict[Outcome, Callable[[Ints, int], Floats]] = {
    "hits": lambda ranks, at: np.asarray((ranks > 0) & (ranks <= at), np.float64),
    "ranks": lambda ranks, _: reciprocal(ranks),
    "lower ranks": lambda ranks, _: below_first(ranks),
}
"""What a run's value on an item is: a hit, one over the rank (their mean is MRR), or what ranks below the first add to that."""


class Source(Protocol):
    """What verdicts about arms are made from: a Study."""

    @property
    def group(self) -> Group: ...
    @property
    def base(self) -> Entry | None: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One method at one length from one base: its runs by seed, checkpoints in training order.

    `base` is the base's label; `origin` identifies it by its bytes, or by the label if an older record has none.
    """

    method: str
    objective: str
    base: str
    length: int
    runs: dict[int, list[Entry]]
    name: str = ""
    origin: str = ""

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def tokens(self) -> int:
        return max(entries[-1].tokens for entries in self.runs.values())

    @property
    def trained_at(self) -> int | None:
        """Sequence length in training; the scoring windows may differ."""
        made = last(next(iter(self.runs.values()))).evaluation.provenance
        return made.seq_len if made else None

    def alike(self, other: Arm) -> bool:
        """Do two arms differ in method alone (same base, training length and window length)?"""
        return (self.origin, self.trained_at, self.length) == (other.origin, other.trained_at, other.length)

    def is_method(self, other: Arm) -> bool:
        """Are both the same method, if perhaps with other runs of it?"""
        return self.method == other.method and self.alike(other)

    def steps(self) -> list[dict[int, Entry]]:
        """Checkpoints in order, across seeds: those evaluated in every run.

        Matched by epoch, because rows differ in tokens and seeds shuffle rows. If every run stopped at a point of its own
        (a time limit, a flat curve), the last checkpoints are matched too.
        """
        found = {seed: {_epoch(entry): entry for entry in entries} for seed, entries in self.runs.items()}
        shared = set.intersection(*(set(entries) for entries in found.values())) if found else set()
        steps = [{seed: entries[epoch] for seed, entries in found.items()} for epoch in sorted(shared)]
        ends = {seed: last(entries) for seed, entries in self.runs.items()}
        return [*steps, ends] if ends and all(_epoch(end) not in shared for end in ends.values()) else steps

    def with_curve(self) -> Arm:
        """The arm with only those runs that have more than one evaluated checkpoint."""
        return replace(self, runs={seed: entries for seed, entries in self.runs.items() if len(entries) > 1})


@dataclass(frozen=True, slots=True)
class Versus:
    """One arm against another on one metric: the values of both, and the verdict. `seeds` is the smaller number of runs.

    `speaking` are the documents it comes from; None for relation extraction, whose verdicts are paired by seed on sentences.
    `adjusted` is its p corrected for the `family` of verdicts it stands among; None if it was not corrected.
    """

    a: str
    b: str
    seeds: int
    values: tuple[float, float]
    answer: CrossedVerdict | MethodVerdict
    speaking: Speaking | None = None
    adjusted: float | None = None
    family: int = 1

    @property
    def shown(self) -> bool:
        """Does the difference stand among the verdicts of its family?"""
        return self.answer.shown and (self.adjusted is None or self.adjusted < ALPHA)

    @property
    def alone(self) -> bool:
        """Would it be shown if it were the only verdict, and is not among so many?"""
        return self.answer.shown and not self.shown


def arms(study: Source) -> list[Arm]:
    return arms_of(study.group.entries, study.base)


def arms_of(evaluated: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of evaluations, by base (that of the study first), length and objective; runs without a training record belong to
    none."""
    found: list[tuple[Provenance, list[Entry]]] = []
    for entries in runs_of(evaluated).values():
        if (made := entries[-1].evaluation.provenance) is not None:
            found.append((made, entries))
    twice = _ambiguous(found)
    held: dict[tuple[str, int, int, str], Arm] = {}
    for made, entries in found:
        length = entries[-1].evaluation.seq_len
        for method in (_stem(made) if made.objective in twice else made.objective, PurePath(made.run).name):
            label = model_label(made.base)
            origin = made.base_bytes or label
            arm = held.setdefault(
                (made.base_bytes or made.base, length, made.seq_len, method),
                Arm(method, made.objective, label, length, {}, origin=origin),
            )
            # a second run with that name and seed, or on other data, is a method of its own
            if made.seed not in arm.runs and _data(arm) in (None, made.data):
                arm.runs[made.seed] = entries
                break
    rank = {objective: number for number, objective in enumerate(OBJECTIVES)}
    ordered = sorted(held.items(), key=lambda one: (_order(base, one[1]), one[0][1], rank.get(one[1].objective, 9), one[0][3]))
    return [_named(arm, key[2], _order(base, arm) > 0) for key, arm in ordered]


def base_of(study: Source, arm: Arm) -> Entry | None:
    """The arm's base model, evaluated in windows of the arm's length."""
    made = last(next(iter(arm.runs.values()))).evaluation.provenance
    found = bases_of(study.group.entries, made) if made else []
    return next((entry for entry in found if not entry.trained and entry.evaluation.seq_len == arm.length), None)


def last(entries: Sequence[Entry]) -> Entry:
    return entries[-1]


def equally_trained(a: Arm, b: Arm) -> bool:
    """Did every run of either see an equal number of tokens?"""
    seen = [last(entries).tokens for arm in (a, b) for entries in arm.runs.values()]
    return is_equal_training(min(seen), max(seen))


def speaking_of(pairs: Sequence[tuple[Arm, Arm | Entry]]) -> Speaking:
    """The documents that speak about the last checkpoints of all these pairs, so that one table shows one set of documents."""
    found = {id(side): side for pair in pairs for side in pair if isinstance(side, Arm)}
    return speaking([last(entries) for entries in arm.runs.values()] for arm in found.values())


def versus(
    study: Source,
    pairs: Sequence[tuple[Arm, Arm | Entry]],
    metric: str,
    *,
    among: Among = None,
    beyond: Among = None,
    speak: Speaking | None = None,
    outcome: Outcome = "hits",
) -> list[Versus | None]:
    """Compare the last checkpoints of each pair; a single evaluation (the base) stands for itself.

    None if the metric was not run by both. Seeds need not match, for runs are crossed with documents; but a pair without a common
    seed is None where another pair of either has one: the two were not planned beside each other.
    `beyond`: the contrast is judged, the difference on those items minus that on the others. `speak` are the documents; default
    those that may speak about all of these pairs.
    """
    sides = [
        ([last(entries) for entries in a.runs.values()], [b] if isinstance(b, Entry) else [last(e) for e in b.runs.values()])
        for a, b in pairs
    ]
    speak = speak or speaking_of(pairs)
    found = _values(study, sides, metric, among, speak, outcome)
    out: list[Versus | None] = []
    for (a, b), values in zip(pairs, found, strict=True):
        if values is None or not _planned(a, b, pairs):
            out.append(None)
            continue
        one, other = values.a, values.b
        if beyond is not None:
            inside = beyond[values.rows]
            if inside.all() or not inside.any():  # a contrast needs items of both kinds
                out.append(None)
                continue
            one, other = interaction(one, inside), interaction(other, inside)
        alone = isinstance(b, Entry)
        answer = crossed_verdict(one, other, values.clusters, against_model=alone)
        seeds = len(one) if alone else min(len(one), len(other))
        out.append(Versus(a.name, b.name, seeds, (float(one.mean()), float(other.mean())), answer, speak))
    return out


def _planned(a: Arm, b: Arm | Entry, pairs: Sequence[tuple[Arm, Arm | Entry]]) -> bool:
    """Do the two share a seed, or does neither share one with anything else here?"""

    def share(one: Arm, other: Arm | Entry) -> bool:
        return isinstance(other, Entry) or bool(one.runs.keys() & other.runs.keys())

    return share(a, b) or not any(share(one, other) for one, other in pairs if one is a or other is b)


def falls(study: Source, asked: Sequence[tuple[Arm, Pick, Pick]], metric: str) -> list[Versus | None]:
    """One checkpoint of each run minus another of the same run, on the confirm half: peaks are chosen.

    Runs are compared with themselves, so it is their differences that vary over seeds.
    """
    sides = [([one(e) for e in arm.runs.values()], [other(e) for e in arm.runs.values()]) for arm, one, other in asked]
    out: list[Versus | None] = []
    for (arm, *_), values in zip(asked, _values(study, sides, metric, None, CONFIRM), strict=True):
        if values is None:
            out.append(None)
            continue
        one, other = values.a, values.b
        answer = crossed_verdict(one - other, np.zeros_like(one[:1]), values.clusters, against_model=True)
        out.append(Versus(arm.name, arm.name, len(one), (float(one.mean()), float(other.mean())), answer, CONFIRM))
    return out


@dataclass(frozen=True, slots=True)
class _Values:
    """Both sides, one row per run, on the items that all sides have; these items' rows in the group."""

    a: Floats
    b: Floats
    clusters: NDArray[Any]
    rows: NDArray[np.bool_]


def _values(
    study: Source,
    sides: Sequence[tuple[list[Entry], list[Entry]]],
    metric: str,
    among: Among,
    speak: Speaking,
    outcome: Outcome = "hits",
) -> list[_Values | None]:
    """None for sides that did not run the metric, and for composites."""
    run = [not METRICS[metric].parts and all(was_run(study, entry, metric) for entry in (*a, *b)) for a, b in sides]
    entries = list({id(e): e for two, ok in zip(sides, run, strict=True) if ok for side in two for e in side}.values())
    if not entries:
        return [None] * len(sides)
    rows = study.group.rows(metric, half=speak.half, entries=entries, among=among)
    if not rows.any():
        return [None] * len(sides)
    clusters, part = study.group.items.facts["cluster"][rows], METRICS[metric]

    def of(side: Sequence[Entry]) -> Floats:
        return OUTCOMES[outcome](np.stack([entry.ranks[part.rule][rows] for entry in side]), part.at)

    return [_Values(of(a), of(b), clusters, rows) if ok else None for (a, b), ok in zip(sides, run, strict=True)]


def means(
    study: Source, sides: Sequence[Sequence[Entry]], metric: str, *, among: Among = None, half: Half | None = None
) -> list[Estimate | None]:
    """The mean over the evaluations of each side, with an interval over documents."""
    usable = {n: list(side) for n, side in enumerate(sides) if side and all(was_run(study, entry, metric) for entry in side)}
    entries = list({id(entry): entry for side in usable.values() for entry in side}.values())
    out: list[Estimate | None] = [None] * len(sides)
    columns = study.group.columns(metric, half=half, entries=entries, among=among) if entries else None
    if columns is None or not columns.items:
        return out
    at = {id(entry): number for number, entry in enumerate(entries)}
    parts = []
    for part in columns.parts:
        values = np.asarray(part.values)
        sides_of = [values[:, [at[id(entry)] for entry in side]].mean(axis=1) for side in usable.values()]
        parts.append(Part(np.stack(sides_of, axis=1), part.clusters))
    for number, estimate in zip(usable, composite(parts, seed=study.seed), strict=True):
        out[number] = estimate
    return out


def was_run(study: Source, entry: Entry, metric: str) -> bool:
    """Did this evaluation run every part of the metric?"""
    for name, _ in METRICS[metric].parts or ((metric, 1.0),):
        part = METRICS[name]
        rows = study.group.items.facts["task"] == part.task
        if not rows.any() or (entry.ranks[part.rule][rows] == NOT_RUN).all():
            return False
    return True


def _epoch(entry: Entry) -> float:
    made = entry.evaluation.provenance
    return round(made.epoch, 3) if made else float(entry.tokens)


def _ambiguous(found: Sequence[tuple[Provenance, list[Entry]]]) -> set[str]:
    """Objectives whose runs need names to be told apart: same base and length, and the same seed or different data."""
    seen: dict[tuple[object, ...], list[Provenance]] = {}
    for made, entries in found:
        seen.setdefault((made.objective, made.base_bytes or made.base, made.seq_len, entries[-1].evaluation.seq_len), []).append(
            made
        )
    return {
        made[0].objective
        for made in seen.values()
        if len({one.seed for one in made}) < len(made) or len({one.data for one in made}) > 1
    }


def _data(arm: Arm) -> str | None:
    """The dataset of an arm's runs; None if it has no runs yet."""
    made = next((entries[-1].evaluation.provenance for entries in arm.runs.values()), None)
    return made.data if made else None


def _stem(made: Provenance) -> str:
    """A run's name without its length and its seed."""
    words = [word for word in re.split(r"[-_]", PurePath(made.run).name) if word]
    gone = {str(made.seq_len), f"s{made.seed}", f"seed{made.seed}"}
    return "-".join(word for word in words if word not in gone) or made.objective


def _order(base: Entry | None, arm: Arm) -> int:
    """Arms of the study's own base first."""
    made = last(next(iter(arm.runs.values()))).evaluation.provenance
    return 0 if base is not None and made is not None and base.is_of(made.base, made.base_bytes) else 1


def _named(arm: Arm, trained: int, other_base: bool) -> Arm:
    name = f"{arm.method} {trained:,}" + (f" @{arm.length:,}" if trained != arm.length else "")
    name += f" ({arm.base.split('/')[0]})" if other_base else ""
    return replace(arm, runs=dict(sorted(arm.runs.items())), name=name)
