"""What a study is answered from. In: a group of evaluations and a metric. Out: StudyData: the highest checkpoint, checkpoints
against their bases, methods and the pairs of them that may be compared.

The highest is chosen on the `select` half by posterior means: the method that is highest over its seeds, then the highest of its
checkpoints. Nothing is judged there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from coref_automl.base.errors import ComparisonError
from coref_automl.base.records import Comparison, Estimate, Half
from coref_automl.comparison.arms import Arm, arms_of, methods_of
from coref_automl.comparison.bases import bases_of, find_reference, own_base, references
from coref_automl.comparison.claims import Claim, QuestionId
from coref_automl.comparison.differences import compare_with, shared_columns
from coref_automl.comparison.judging import checkpoint_claim
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Columns, Entry, Group, choose_metric, runs_of, verdict_half
from coref_automl.statistics.intervals import composite, simultaneous_bounds
from coref_automl.statistics.shrinkage import covariance, posterior_means

MARGIN = 0.02
"""The loss that is acceptable to save training, as a fraction, which is what everything computes with."""
POINTS = 100 * MARGIN
"""The same in points, as people give and read it."""
_SMALLEST_MARGIN = 0.1
_TIE = 1e-9
"""Posterior means closer than this are equal."""
Checks = Mapping[QuestionId, Sequence[TaskRun]]
"""Runs of outside checks."""


def checked_margin(points: float) -> float:
    """Convert a margin in points to the fraction that is computed with; refuse a fraction, which it once was."""
    if 0 < points < _SMALLEST_MARGIN:
        raise ComparisonError(f"A margin is a number of points, and {points:g} is a fraction of 1; write {100 * points:g}.")
    if not 0 < points < 100:
        raise ComparisonError(f"A margin of {points:g} points cannot be; give a number of points such as 2.")
    return points / 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint on the documents that choose. `bound` is its largest distance to the best at 95% simultaneous confidence;
    `posterior_mean` its value, shrunk towards its neighbors in training and the other seeds of its method."""

    value: Estimate
    bound: float
    posterior_mean: float


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The candidates, their arms, and the base of the chosen one. `best` has the highest value, `chosen` the highest posterior
    mean of the highest method. `half` are the documents that chose: `select`, or all (None)."""

    candidates: dict[Entry, Candidate]
    arms: list[Arm]
    chosen: Entry
    best: Entry
    base: Entry | None
    half: Half | None

    def highest(self, entries: Sequence[Entry]) -> Entry:
        """The entry with the highest posterior mean; the earliest of equals."""
        top = max(self.candidates[entry].posterior_mean for entry in entries)
        ties = [entry for entry in entries if self.candidates[entry].posterior_mean > top - _TIE]
        return min(ties, key=lambda entry: entry.tokens)

    def tied_with(self, chosen: Entry) -> list[Entry]:
        """Other checkpoints of its method with the same posterior mean."""
        height = self.candidates[chosen].posterior_mean
        others = [entry for entry in self.arm(chosen).matched_entries() if entry is not chosen]
        return [entry for entry in others if abs(self.candidates[entry].posterior_mean - height) < _TIE]

    def arm(self, entry: Entry) -> Arm:
        return next(arm for arm in self.arms if any(entry in run for run in arm.runs.values()))

    def peak(self, entries: Sequence[Entry]) -> Entry:
        """The entry with the highest value; the earliest of equals."""
        return max(entries, key=lambda entry: (self.candidates[entry].value.value, -entry.tokens))


def choose(group: Group, metric: str, *, seed: int = 0) -> Choice:
    """Choose among the trained checkpoints, or among all evaluations if nothing was trained."""
    trained = [entry for entry in group.entries if entry.trained] or list(group.entries)
    eligible = sorted(trained, key=lambda entry: entry.tokens)
    columns, half = choosing_columns(group, metric, eligible)
    arms = methods_of(eligible, None)
    bounds, values = simultaneous_bounds(columns.parts, seed=seed), composite(columns.parts, seed=seed)
    means = _posterior_means(columns, eligible, arms)
    candidates = {
        entry: Candidate(value, float(bound), float(mean))
        for entry, value, bound, mean in zip(eligible, values, bounds.upper, means, strict=True)
    }
    choice = Choice(candidates, arms, chosen=eligible[0], best=eligible[0], base=None, half=half)

    def height(arm: Arm) -> float:
        points = arm.matched_checkpoints()
        return max(float(np.mean([candidates[entry].posterior_mean for entry in point.values()])) for point in points)

    replicated = [arm for arm in arms if arm.seeds > 1]
    method = max(replicated or arms, key=height)  # a single run may be lucky as a whole
    chosen = choice.highest(method.matched_entries())
    return replace(choice, chosen=chosen, best=choice.peak(eligible), base=_base_for(group, chosen))


def choosing_columns(group: Group, metric: str, entries: Sequence[Entry]) -> tuple[Columns, Half | None]:
    """Hits on the documents that choose, and which these are: the `select` half, or all (None) if there is none."""
    select = group.columns(metric, half="select", entries=entries)
    return (select, "select") if select.items else (group.columns(metric, entries=entries), None)


def _posterior_means(columns: Columns, eligible: Sequence[Entry], arms: Sequence[Arm]) -> Sequence[float]:
    """The values of checkpoints, smoothed along their run and shrunk towards the other seeds of their method."""
    run_of = {entry: (number, seed) for number, arm in enumerate(arms) for seed, run in arm.runs.items() for entry in run}
    values = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in columns.parts))
    means = posterior_means(
        values,
        covariance(columns.parts),
        methods=[run_of[entry][0] for entry in eligible],
        runs=[run_of[entry] for entry in eligible],
        training=[entry.tokens for entry in eligible],
    )
    return list(map(float, means))


def _base_for(group: Group, chosen: Entry) -> Entry | None:
    """The base of a checkpoint, preferably in windows of the same length; any untrained model if the base is not recorded."""
    provenance, others = chosen.evaluation.provenance, [entry for entry in group.entries if entry is not chosen]
    bases = bases_of(others, provenance) if provenance else [entry for entry in others if not entry.trained]
    base = min(bases, key=lambda entry: entry.evaluation.seq_len != chosen.evaluation.seq_len, default=None)
    return base if any(entry.trained for entry in group.entries) else None


@dataclass(frozen=True)
class StudyData:
    """One group and its metric. `judged` are trained checkpoints against their bases, max-T over all of them, on `documents`.
    `notes` are problems met on the way, `dropped` counts the items that some evaluations lack."""

    group: Group
    metric: str
    seed: int
    margin: float
    judged: Mapping[Entry, Comparison]
    documents: int
    choice: Choice
    arms: list[Arm]
    checks: Checks
    notes: tuple[str, ...]
    dropped: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.group.entries

    def runs(self) -> dict[str, list[Entry]]:
        return runs_of(self.entries)

    def metrics(self, names: Sequence[str]) -> list[str]:
        """Those of the metrics that an evaluation has."""
        return [name for name in names if any(name in entry.evaluation.estimates for entry in self.entries)]

    def own_base(self, entry: Entry) -> Entry | None:
        """The evaluated base of a checkpoint, or None."""
        return own_base(self.entries, entry, self.choice.base)

    def checkpoint_claims(self) -> dict[Entry, Claim]:
        """Every judged checkpoint against its reference."""
        half = self.group.verdict_half
        return {
            entry: checkpoint_claim("base", comparison, entry, half=half, documents=self.documents)
            for entry, comparison in self.judged.items()
        }

    @cached_property
    def replicated(self) -> list[Arm]:
        """Methods with several seeds; a single seed says nothing about a method."""
        return [arm for arm in self.arms if arm.seeds > 1]

    @cached_property
    def half(self) -> Half | None:
        """The documents that judge methods."""
        return verdict_half(arm.ends for arm in self.replicated or self.arms)

    @cached_property
    def against_bases(self) -> list[tuple[Arm, Entry]]:
        return [(arm, base) for arm in self.arms if (base := self.own_base(arm.ends[0])) is not None]

    @cached_property
    def same_setting(self) -> list[tuple[Arm, Arm]]:
        """Later methods and earlier ones at the same length from the same base."""
        return [(a, b) for b, a in combinations(self.arms, 2) if a.same_setting_as(b)]

    @cached_property
    def equal_training(self) -> list[tuple[Arm, Arm]]:
        """Those pairs of `same_setting` that were trained equally."""
        return [(a, b) for a, b in self.same_setting if a.equally_trained_as(b)]


def data_of(group: Group, *, metric: str | None, margin: float, seed: int, checks: Checks) -> StudyData:
    metric, notes = choose_metric(group, metric), list[str]()
    choice = choose(group, metric, seed=seed)
    judged: dict[Entry, Comparison] = {}
    documents = 0
    if len(group.entries) > 1:
        try:
            judged, documents = _against_bases(group, metric, choice.base, seed)
        except ComparisonError as error:
            notes.append(str(error))
    arms, dropped = arms_of(group.entries, choice.base), group.columns(metric).dropped
    return StudyData(group, metric, seed, margin, judged, documents, choice, arms, checks, tuple(notes), dropped)


def _against_bases(group: Group, metric: str, base: Entry | None, seed: int) -> tuple[dict[Entry, Comparison], int]:
    """Compare the trained checkpoints with their bases; return the comparisons and their number of documents. Other untrained
    models, and a base in windows of another length, are not compared."""
    own = {entry: own_base(group.entries, entry, base) for entry in group.entries if entry.trained}
    bases = {entry for entry in own.values() if entry is not None}
    if bases:
        group = replace(group, entries=tuple(entry for entry in group.entries if entry.trained or entry in bases))
        against = [own.get(entry) for entry in group.entries]
    else:
        against = references(group.entries, group.entries[find_reference(group.entries, None)])
    columns = shared_columns(group, metric, common=True)
    comparisons = compare_with(group, metric, group.entries, against, seed=seed, half=group.verdict_half)
    compared = zip(group.entries, comparisons, strict=True)
    return {entry: comparison for entry, comparison in compared if comparison is not None}, columns.documents
