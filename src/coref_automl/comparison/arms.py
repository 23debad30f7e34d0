"""Training methods side by side. In: evaluations. Out: arms: a method at a length from a base, its runs by seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Protocol

from coref_automl.comparison.references import bases_of
from coref_automl.comparison.scores import Entry, Group, is_equal_training, model_label, runs_of
from coref_automl.records import Provenance

OBJECTIVES = ("mlm", "combined", "entity", "copy", "link", "copy+link")
"""In the order of tables."""
_OF_A_STUDY = re.compile(r"([^-_/\s]+)-(\d+)-s(\d+)")
"""How `study` names a run: method, length, seed."""


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


def arms(study: Source) -> list[Arm]:
    return arms_of(study.group.entries, study.base)


def methods_of(eligible: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of all candidates. A run without a training record, or a model outside runs, is an arm of its own."""
    found = arms_of(eligible, base)
    held = {entry for arm in found for run in arm.runs.values() for entry in run}
    rest: dict[tuple[str, int], list[Entry]] = {}
    for entry in eligible:
        if entry not in held:
            rest.setdefault((entry.run, entry.evaluation.seq_len), []).append(entry)
    return [*found, *(Arm(run, "", "", length, {0: entries}, name=run) for (run, length), entries in rest.items())]


def arms_of(evaluated: Sequence[Entry], base: Entry | None) -> list[Arm]:
    """The arms of evaluations, by base (that of the study first), length and objective; runs without a training record belong to
    none."""
    found: list[tuple[Provenance, list[Entry]]] = []
    for entries in runs_of(evaluated).values():
        if (made := entries[-1].evaluation.provenance) is not None:
            found.append((made, entries))
    twice = _ambiguous([one for one in found if not method_name(one[0])])
    held: dict[tuple[str, int, int, str], Arm] = {}
    for made, entries in found:
        length = entries[-1].evaluation.seq_len
        usual = method_name(made) or (_stem(made) if made.objective in twice else made.objective)
        for method in (usual, PurePath(made.run).name):
            label = model_label(made.base)
            origin = made.base_bytes or label
            arm = held.setdefault(
                (made.base_bytes or made.base, length, made.seq_len, method),
                Arm(method, made.objective, label, length, {}, origin=origin),
            )
            # a second run with that name and seed, of another objective or on other data, is a method of its own
            if made.seed not in arm.runs and _data(arm) in (None, made.data) and arm.objective == made.objective:
                arm.runs[made.seed] = entries
                break
    rank = {objective: number for number, objective in enumerate(OBJECTIVES)}
    ordered = sorted(held.items(), key=lambda one: (_order(base, one[1]), one[0][1], rank.get(one[1].objective, 9), one[0][3]))
    several = base is not None or len({key[0] for key in held}) > 1  # one base that was not evaluated is no part of a name
    return [_named(arm, key[2], several and _order(base, arm) > 0) for key, arm in ordered]


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


def method_name(made: Provenance) -> str:
    """The name that its owner gave a method: what `study` calls its runs by; empty for a run by itself."""
    found = _OF_A_STUDY.fullmatch(PurePath(made.run).name)
    return found[1] if found is not None and (int(found[2]), int(found[3])) == (made.seq_len, made.seed) else ""


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
