"""Ways of training, side by side. In: a Study. Out: arms (method, length, base; runs by seed), and verdicts between them.

Arms are compared at the last checkpoint of each run, paired by seed, on the `confirm` half: nothing was chosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.references import bases_of
from coref_automl.comparison.scores import Entry, as_much_training, same_model
from coref_automl.comparison.study import Study
from coref_automl.evaluation.columns import NOT_RUN
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Estimate, Half, Provenance
from coref_automl.statistics.intervals import composite
from coref_automl.statistics.methods import MethodVerdict, seed_paired_verdicts
from coref_automl.statistics.resampling import Part

OBJECTIVES = ("mlm", "combined", "entity")
Pick = Callable[[Sequence[Entry]], Entry]
Among = NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One way of training at one length from one base: its runs by seed, checkpoints in order of training.

    `base` is the base's label, `origin` what it is: its bytes, or the label where an older record has none.
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
        """The length of its training, which need not be that of the windows it was scored in."""
        made = last(next(iter(self.runs.values()))).evaluation.provenance
        return made.seq_len if made else None

    def alike(self, other: Arm) -> bool:
        """From one base, at one length, scored in windows of one length: what differs is the method."""
        return (self.origin, self.trained_at, self.length) == (other.origin, other.trained_at, other.length)

    def steps(self) -> list[dict[int, Entry]]:
        """Its checkpoints in order, of all seeds at once: those that were evaluated in every run.

        They meet by epoch: rows hold unlike numbers of tokens, so that within an epoch seeds that shuffle them differ in tokens.
        Where every run ended at a moment of its own (minutes, a flat curve), these ends meet too: each is the last of its run.
        """
        found = {seed: {_epoch(entry): entry for entry in entries} for seed, entries in self.runs.items()}
        shared = set.intersection(*(set(entries) for entries in found.values())) if found else set()
        steps = [{seed: entries[epoch] for seed, entries in found.items()} for epoch in sorted(shared)]
        ends = {seed: last(entries) for seed, entries in self.runs.items()}
        return [*steps, ends] if ends and all(_epoch(end) not in shared for end in ends.values()) else steps

    def with_curve(self) -> Arm:
        """The same with those runs alone of which more than one checkpoint was evaluated."""
        return replace(self, runs={seed: entries for seed, entries in self.runs.items() if len(entries) > 1})


@dataclass(frozen=True, slots=True)
class Versus:
    """One arm against another on one metric: the values of both, and the verdict over the seeds they share."""

    a: str
    b: str
    seeds: int
    values: tuple[float, float]
    answer: MethodVerdict


def arms(study: Study) -> list[Arm]:
    """The arms of a study, by base, length and objective; runs without a record of their training belong to none."""
    found: list[tuple[Provenance, list[Entry]]] = []
    for entries in study.runs().values():
        if (made := entries[-1].evaluation.provenance) is not None:
            found.append((made, entries))
    twice = _ambiguous(found)
    held: dict[tuple[str, int, int, str], Arm] = {}
    for made, entries in found:
        length = entries[-1].evaluation.seq_len
        for method in (_stem(made) if made.objective in twice else made.objective, PurePath(made.run).name):
            label = same_model(made.base)
            origin = made.base_bytes or label
            arm = held.setdefault(
                (made.base_bytes or made.base, length, made.seq_len, method),
                Arm(method, made.objective, label, length, {}, origin=origin),
            )
            # a second run of that name and seed is a method of its own, and so is a run on other data
            if made.seed not in arm.runs and _data(arm) in (None, made.data):
                arm.runs[made.seed] = entries
                break
    rank = {objective: number for number, objective in enumerate(OBJECTIVES)}
    ordered = sorted(held.items(), key=lambda one: (_order(study, one[1]), one[0][1], rank.get(one[1].objective, 9), one[0][3]))
    return [_named(arm, key[2], _order(study, arm) > 0) for key, arm in ordered]


def base_of(study: Study, arm: Arm) -> Entry | None:
    """The model an arm began from, evaluated in windows of the arm's length."""
    made = last(next(iter(arm.runs.values()))).evaluation.provenance
    found = bases_of(study.entries, made) if made else []
    return next((entry for entry in found if not entry.trained and entry.evaluation.seq_len == arm.length), None)


def last(entries: Sequence[Entry]) -> Entry:
    return entries[-1]


def equally_trained(a: Arm, b: Arm) -> bool:
    """Did every pair of runs of a shared seed see as many tokens?"""
    return all(as_much_training(last(a.runs[seed]).tokens, last(b.runs[seed]).tokens) for seed in a.runs if seed in b.runs)


def versus(
    study: Study,
    pairs: Sequence[tuple[Arm, Arm | Entry]],
    metric: str,
    *,
    among: Among = None,
    half: Half | None = "confirm",
    picks: Sequence[tuple[Pick, Pick]] | None = None,
) -> list[Versus | None]:
    """Every first against its second, paired by seed; a single evaluation (the base) stands beside every seed.

    None where a pair shares no seed, or the metric was not run by both. `picks` choose a checkpoint of each side's runs.
    """
    out: list[Versus | None] = [None] * len(pairs)
    if METRICS[metric].parts:
        return out
    chosen = picks or [(last, last)] * len(pairs)
    sides: dict[int, tuple[list[Entry], list[Entry]]] = {}
    for number, ((a, b), (pick_a, pick_b)) in enumerate(zip(pairs, chosen, strict=True)):
        seeds = [seed for seed in sorted(a.runs) if isinstance(b, Entry) or seed in b.runs]
        ours = [pick_a(a.runs[seed]) for seed in seeds]
        theirs = [b if isinstance(b, Entry) else pick_b(b.runs[seed]) for seed in seeds]
        if seeds and all(was_run(study, entry, metric) for entry in (*ours, *theirs)):
            sides[number] = (ours, theirs)
    entries = list({id(entry): entry for ours, theirs in sides.values() for entry in (*ours, *theirs)}.values())
    columns = study.group.columns(metric, half=half, entries=entries, among=among) if entries else None
    if columns is None or not columns.items:
        return out
    values = np.asarray(columns.parts[0].values).T
    at = {id(entry): number for number, entry in enumerate(entries)}
    rows = {number: [values[[at[id(entry)] for entry in side]] for side in two] for number, two in sides.items()}
    answers = seed_paired_verdicts([a - b for a, b in rows.values()], columns.parts[0].clusters, seed=study.seed)
    for (number, (one, other)), answer in zip(rows.items(), answers, strict=True):
        names = [side.name for side in pairs[number]]
        out[number] = Versus(names[0], names[1], len(one), (float(one.mean()), float(other.mean())), answer)
    return out


def means(
    study: Study, sides: Sequence[Sequence[Entry]], metric: str, *, among: Among = None, half: Half | None = None
) -> list[Estimate | None]:
    """The mean over the evaluations of each side, with the interval that other documents would give."""
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


def was_run(study: Study, entry: Entry, metric: str) -> bool:
    """Did this evaluation run the metric, every part of it?"""
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
    """Objectives under which two runs have the same base and length, and the same seed or other data: names tell them apart."""
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
    """What the runs of an arm were trained on; None while it has none."""
    made = next((entries[-1].evaluation.provenance for entries in arm.runs.values()), None)
    return made.data if made else None


def _stem(made: Provenance) -> str:
    """A run's name without its length and its seed."""
    words = [word for word in re.split(r"[-_]", PurePath(made.run).name) if word]
    gone = {str(made.seq_len), f"s{made.seed}", f"seed{made.seed}"}
    return "-".join(word for word in words if word not in gone) or made.objective


def _order(study: Study, arm: Arm) -> int:
    """Arms of the study's own base first."""
    made = last(next(iter(arm.runs.values()))).evaluation.provenance
    return 0 if study.base is not None and made is not None and study.base.is_of(made.base, made.base_bytes) else 1


def _named(arm: Arm, trained: int, other_base: bool) -> Arm:
    name = f"{arm.method} {trained:,}" + (f" @{arm.length:,}" if trained != arm.length else "")
    name += f" ({arm.base.split('/')[0]})" if other_base else ""
    return replace(arm, runs=dict(sorted(arm.runs.items())), name=name)
