"""A group judged by one metric. In: a group of evaluations. Out: a Study: its data and its answer, and the claim about any two
of its methods or checkpoints: the answer's own, or an uncorrected one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import ComparisonError
from coref_automl.base.records import Half
from coref_automl.comparison.answer import answer_of
from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import BASE, Answer, Claim
from coref_automl.comparison.differences import compare_with
from coref_automl.comparison.judging import Estimand, checkpoint_claim, corrected_claims, judge_pairs
from coref_automl.comparison.reader import Results
from coref_automl.comparison.scores import Entry, Group, ItemMask, verdict_half
from coref_automl.comparison.study_data import Checks, StudyData, data_of
from coref_automl.evaluation.metrics import METRICS

LOOKS = "looks.json"
"""The numbers of seeds at which a study was judged, written beside its runs and in its archive."""


@dataclass(frozen=True)
class Study(StudyData):
    """What a study is answered from, and its answer."""

    answer: Answer

    @cached_property
    def chosen(self) -> Entry:
        """The checkpoint to use; if there is none, the highest."""
        return next(entry for entry in self.choice.candidates if entry.name == self.answer.highest)


def study_of(
    group: Group, *, metric: str | None, margin: float, seed: int, checks: Checks, unread: tuple[str, ...] = (), looks: int = 1
) -> Study:
    """Answer a group. `unread` is what could not be read; `looks` counts how often the study was judged as seeds were added."""
    data = data_of(group, metric=metric, margin=margin, seed=seed, checks=checks)
    values = {part.name: getattr(data, part.name) for part in fields(data)}
    return Study(**values, answer=replace(answer_of(data), unread=unread, looks=looks))


def study_at(results: Results, group: Group, *, metric: str | None = None, margin: float, seed: int) -> Study:
    """Answer a group, with the runs of outside checks found beside it."""
    checks, unread, looks = results.runs.checks, (*results.left_out, *group.left_out), looks_at(results.paths)
    return study_of(group, metric=metric, margin=margin, seed=seed, checks=checks, unread=unread, looks=looks)


def looks_at(paths: Sequence[str]) -> int:
    """How often a study was judged as seeds were added, from the file it wrote beside its runs; 1 without one."""
    files = {folder / LOOKS for path in paths for folder in (Path(path).resolve(), Path(path).resolve().parent)}
    return max((len(read_stored(file, list[int])) for file in files if file.is_file()), default=1)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of two sides: its name and evaluations; for a method, its arm and the last evaluation of each seed."""

    name: str
    entries: tuple[Entry, ...]
    arm: Arm | None = None

    def is_base_of(self, other: Side, study: StudyData) -> bool:
        """Is it the model that the other side began from?"""
        return self.arm is None and study.own_base(other.entries[0]) is self.entries[0]


def between(study: Study, a: Side, b: Side) -> list[Claim]:
    """The answer's claims about two sides, on every outcome; none about an untrained model that is not the other's base."""
    names = []
    for side, other in ((a, b), (b, a)):
        is_base = side.is_base_of(other, study)
        if not is_base and side.arm is None and not side.entries[0].trained:
            return []
        names.append(BASE if is_base else side.name)
    return study.answer.between(*names)


def claim_of(group: Group, study: Study | None, a: Side, b: Side, metric: str) -> Claim:
    """The claim about two sides on a metric; an error if they cannot be compared."""
    if a.entries == b.entries:
        raise ComparisonError("A and B are the same; choose another.")
    claimed = next((claim for claim in between(study, a, b) if claim.outcome == metric), None) if study is not None else None
    if claimed is not None:
        return claimed
    if a.arm is None and b.arm is None:
        return of_checkpoints(group, a.entries[0], b.entries[0], metric, group.verdict_half, seed=study.seed if study else 0)
    swapped = a.arm is None  # a base is the second side
    method, other = (b, a) if swapped else (a, b)
    if study is None or (other.arm is None and other.entries[0].trained and not other.is_base_of(method, study)):
        raise ComparisonError("Compare two methods, a method with a base, or two checkpoints.")
    claim = of_methods(group, method, other, metric)
    if claim is None:
        raise ComparisonError(f"{METRICS[metric].label} was not run by both, so they cannot be compared.")
    return claim.reversed() if swapped else claim


def of_methods(group: Group, a: Side, b: Side, metric: str, mask: ItemMask = None) -> Claim | None:
    """Compare a method with another or with a base, uncorrected; None if `a` is not a method, or if a side lacks the metric."""
    if a.arm is None:
        return None
    pair = (a.arm, b.arm or b.entries[0])
    half = verdict_half(side.ends for side in pair if isinstance(side, Arm))
    estimand = Estimand(group=group, question="method", metric=metric, half=half, mask=mask)
    return next(iter(corrected_claims(judge_pairs(estimand, [pair]), "none")), None)


def of_checkpoints(
    group: Group, a: Entry, b: Entry, metric: str, half: Half | None, mask: ItemMask = None, *, seed: int
) -> Claim:
    """A checkpoint against another; an error if they share no item."""
    pair = replace(group, entries=(b, a))
    comparison = compare_with(pair, metric, [a], [b], seed=seed, half=half, mask=mask)[0]
    if comparison is None:
        raise ComparisonError("These two share no item to be compared on.")
    columns = group.columns(metric, half=half, entries=[a, b], mask=mask)
    first, other = (float(sum(np.asarray(part.values)[:, side].mean() for part in columns.parts)) for side in (0, 1))
    claim = checkpoint_claim("method", comparison, a, half=half, documents=columns.documents)
    return replace(claim, b=b.name, values=(first, other))
