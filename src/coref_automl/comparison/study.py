"""A group judged by one metric. In: a group of evaluations. Out: a Study: its checkpoints against their base, its answer, and
the claim about any two of its methods or checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from coref_automl.comparison.answer import answer_of
from coref_automl.comparison.arms import Arm, arms_of, base_of
from coref_automl.comparison.bases import find_reference, own_base, references
from coref_automl.comparison.choice import Choice, choose
from coref_automl.comparison.claims import BASE, Answer, Claim, QuestionId
from coref_automl.comparison.differences import compare_with, judging_columns
from coref_automl.comparison.judging import Among, checkpoint_claim, corrected_claims, judge_pairs, speaking_half
from coref_automl.comparison.reader import Results
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry, Group, choose_metric, runs_of
from coref_automl.decoder import read_stored
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.records import Comparison, Half

Checks = Mapping[QuestionId, Sequence[TaskRun]]
"""Runs of outside checks."""
LOOKS = "looks.json"
"""The numbers of seeds at which a study was judged, written beside its runs and in its archive."""


@dataclass(frozen=True)
class Study:
    """One group, its metric, and what came out highest. `judged` are trained checkpoints against their base, max-T over all of
    them, on so many `documents`; `notes` are problems met on the way, `dropped` counts the items that some evaluations lack;
    `unread` is what could not be read, `looks` how often it was judged as seeds were added.
    """

    group: Group
    metric: str
    seed: int
    margin: float
    judged: Mapping[Entry, Comparison]
    documents: int
    choice: Choice
    checks: Checks = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dropped: int = 0
    unread: tuple[str, ...] = ()
    looks: int = 1

    @cached_property
    def answer(self) -> Answer:
        return answer_of(self)

    @cached_property
    def arms(self) -> list[Arm]:
        return arms_of(self.entries, self.base)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.group.entries

    @property
    def base(self) -> Entry | None:
        return self.choice.base

    @cached_property
    def chosen(self) -> Entry:
        """The checkpoint to use; where none is, what came out highest."""
        return next(entry for entry in self.choice.candidates if entry.name == self.answer.highest)

    def runs(self) -> dict[str, list[Entry]]:
        return runs_of(self.entries)

    def metrics(self, among: Sequence[str]) -> list[str]:
        return [name for name in among if any(name in entry.evaluation.estimates for entry in self.entries)]

    def own_base(self, entry: Entry) -> Entry | None:
        """The evaluated base of a checkpoint, or None."""
        return own_base(self.entries, entry, self.base)

    def checkpoint_claims(self) -> dict[Entry, Claim]:
        """Every judged checkpoint against what it is compared with."""
        half = self.group.judging
        return {
            entry: checkpoint_claim(self.group, "base", one, entry, half=half, documents=self.documents)
            for entry, one in self.judged.items()
        }


def study_of(group: Group, *, metric: str | None = None, margin: float, seed: int, checks: Checks | None = None) -> Study:
    metric, more = choose_metric(group, metric)
    choice, notes = choose(group, metric, seed=seed), list(more)
    judged: dict[Entry, Comparison] = {}
    documents = 0
    if len(group.entries) > 1:
        try:
            judged, documents = _against_own(group, metric, choice.base, seed)
        except ComparisonError as error:
            notes.append(str(error))
    dropped = group.columns(metric).dropped
    return Study(group, metric, seed, margin, judged, documents, choice, checks or {}, tuple(notes), dropped)


def study_at(results: Results, group: Group, *, metric: str | None = None, margin: float, seed: int) -> Study:
    """The study of a group, with the runs of outside checks beside it."""
    study = study_of(group, metric=metric, margin=margin, seed=seed, checks=results.runs.checks)
    return replace(study, unread=results.left_out, looks=looks_at(results.paths))


def looks_at(paths: Sequence[str]) -> int:
    """How often a study was judged as seeds were added, by what it wrote beside its runs; once if nothing says so."""
    places = {place / LOOKS for path in paths for place in (Path(path), Path(path).parent)}
    return max((len(read_stored(place, list[int])) for place in places if place.is_file()), default=1)


def _against_own(group: Group, metric: str, base: Entry | None, seed: int) -> tuple[dict[Entry, Comparison], int]:
    """Compare the trained checkpoints with their bases; also on how many documents.

    Other untrained models, and a base in windows of another length, are not compared."""
    own = {entry: own_base(group.entries, entry, base) for entry in group.entries if entry.trained}
    bases = {one for one in own.values() if one is not None}
    if bases:
        group = replace(group, entries=tuple(entry for entry in group.entries if entry.trained or entry in bases))
        beside = [own.get(entry) for entry in group.entries]
    else:
        beside = references(group.entries, group.entries[find_reference(group.entries, None)])
    columns = judging_columns(group, metric, common=True)
    found = compare_with(group, metric, group.entries, beside, seed=seed, half=group.judging)
    return {entry: one for entry, one in zip(group.entries, found, strict=True) if one is not None}, columns.documents


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
        return of_checkpoints(group, study, a.entries[0], b.entries[0], metric, group.judging)
    if study is None or any(side.arm is None and side.entries[0].trained for side in (a, b)):
        raise ComparisonError("Compare two methods, a method with a base, or two checkpoints.")
    swapped = a.arm is None  # the base stands for itself, and on the right
    found = of_methods(study, b if swapped else a, a if swapped else b, metric)
    if found is None:
        raise ComparisonError(f"{METRICS[metric].label} was not run by both, so they cannot be compared.")
    return found.reversed() if swapped else found


def of_methods(study: Study, a: Side, b: Side, metric: str, among: Among = None) -> Claim | None:
    """A method against another or a base, on all items or `among` some, not corrected."""
    if a.arm is None:
        return None
    pair = (a.arm, b.arm or b.entries[0])
    half = speaking_half(side.ends for side in pair if isinstance(side, Arm))
    judged = judge_pairs(study, "method", [pair], metric, half=half, among=among)
    return next(iter(corrected_claims(judged, "none")), None)


def of_checkpoints(
    group: Group, study: Study | None, a: Entry, b: Entry, metric: str, half: Half | None, among: Among = None
) -> Claim:
    pair = replace(group, entries=(b, a))
    found = compare_with(pair, metric, [a], [b], seed=study.seed if study else 0, half=half, among=among)[0]
    if found is None:
        raise ComparisonError("These two share no item to be compared on.")
    held = group.columns(metric, half=half, entries=[a, b], among=among)
    first, other = (float(sum(np.asarray(part.values)[:, side].mean() for part in held.parts)) for side in (0, 1))
    claim = checkpoint_claim(pair, "method", found, a, half=half, documents=held.documents)
    return replace(claim, b=b.name, values=(first, other))
