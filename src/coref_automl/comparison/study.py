"""A group judged by one metric. In: a group of evaluations. Out: a Study: its data and its answer, and the claim about any two
of its methods or checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from coref_automl.comparison.answer import answer_of
from coref_automl.comparison.arms import Arm, base_of
from coref_automl.comparison.claims import BASE, Answer, Claim
from coref_automl.comparison.differences import compare_with
from coref_automl.comparison.judging import Among, checkpoint_claim, corrected_claims, judge_pairs, speaking_half
from coref_automl.comparison.reader import Results
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.study_data import Checks, StudyData, data_of
from coref_automl.decoder import read_stored
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Half

LOOKS = "looks.json"
"""The numbers of seeds at which a study was judged, written beside its runs and in its archive."""


@dataclass(frozen=True)
class Study(StudyData):
    """What a study was judged by, and its answer."""

    answer: Answer

    @cached_property
    def chosen(self) -> Entry:
        """The checkpoint to use; where none is, what came out highest."""
        return next(entry for entry in self.choice.candidates if entry.name == self.answer.highest)


def study_of(
    group: Group, *, metric: str | None, margin: float, seed: int, checks: Checks, unread: tuple[str, ...] = (), looks: int = 1
) -> Study:
    """`unread` is what could not be read, `looks` how often the study was judged as seeds were added."""
    data = data_of(group, metric=metric, margin=margin, seed=seed, checks=checks)
    values = {part.name: getattr(data, part.name) for part in fields(data)}
    return Study(**values, answer=replace(answer_of(data), unread=unread, looks=looks))


def study_at(results: Results, group: Group, *, metric: str | None = None, margin: float, seed: int) -> Study:
    """The study of a group, with the runs of outside checks beside it."""
    checks, unread, looks = results.runs.checks, results.left_out, looks_at(results.paths)
    return study_of(group, metric=metric, margin=margin, seed=seed, checks=checks, unread=unread, looks=looks)


def looks_at(paths: Sequence[str]) -> int:
    """How often a study was judged as seeds were added, by what it wrote beside its runs; once if nothing says so."""
    places = {place / LOOKS for path in paths for place in (Path(path), Path(path).parent)}
    return max((len(read_stored(place, list[int])) for place in places if place.is_file()), default=1)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of the two: its name and its evaluations; of a method the last of each seed's, and its arm."""

    name: str
    entries: tuple[Entry, ...]
    arm: Arm | None = None

    @property
    def claim_name(self) -> str:
        """What claims call it."""
        return self.name if self.arm is not None or self.entries[0].trained else BASE


def between(study: Study, a: Side, b: Side) -> list[Claim]:
    """What the answer claims of the two, on every outcome; nothing of an untrained model that is not the other's base."""
    for one, other in ((a, b), (b, a)):
        if one.claim_name == BASE:
            base = base_of(study.group.entries, other.arm) if other.arm is not None else study.own_base(other.entries[0])
            if other.claim_name == BASE or base is not one.entries[0]:
                return []
    return study.answer.between(a.claim_name, b.claim_name)


def claim_of(group: Group, study: Study | None, a: Side, b: Side, metric: str) -> Claim:
    """The claim about two sides on a metric."""
    if a.entries == b.entries:
        raise ComparisonError("A and B are the same; choose another.")
    held = next((one for one in between(study, a, b) if one.outcome == metric), None) if study is not None else None
    if held is not None:
        return held
    if a.arm is None and b.arm is None:
        return of_checkpoints(group, a.entries[0], b.entries[0], metric, group.judging, seed=study.seed if study else 0)
    if study is None or any(side.arm is None and side.entries[0].trained for side in (a, b)):
        raise ComparisonError("Compare two methods, a method with a base, or two checkpoints.")
    swapped = a.arm is None  # the base stands for itself, and on the right
    found = of_methods(group, b if swapped else a, a if swapped else b, metric)
    if found is None:
        raise ComparisonError(f"{METRICS[metric].label} was not run by both, so they cannot be compared.")
    return found.reversed() if swapped else found


def of_methods(group: Group, a: Side, b: Side, metric: str, among: Among = None) -> Claim | None:
    """A method against another or a base, on all items or `among` some, not corrected."""
    if a.arm is None:
        return None
    pair = (a.arm, b.arm or b.entries[0])
    half = speaking_half(side.ends for side in pair if isinstance(side, Arm))
    judged = judge_pairs(group, "method", [pair], metric, half=half, among=among)
    return next(iter(corrected_claims(judged, "none")), None)


def of_checkpoints(group: Group, a: Entry, b: Entry, metric: str, half: Half | None, among: Among = None, *, seed: int) -> Claim:
    pair = replace(group, entries=(b, a))
    found = compare_with(pair, metric, [a], [b], seed=seed, half=half, among=among)[0]
    if found is None:
        raise ComparisonError("These two share no item to be compared on.")
    held = group.columns(metric, half=half, entries=[a, b], among=among)
    first, other = (float(sum(np.asarray(part.values)[:, side].mean() for part in held.parts)) for side in (0, 1))
    claim = checkpoint_claim(pair, "method", found, a, half=half, documents=held.documents)
    return replace(claim, b=b.name, values=(first, other))
