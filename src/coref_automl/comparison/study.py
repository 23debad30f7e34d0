"""A group judged by one metric. In: a group of evaluations. Out: a Study: its comparison with the base and its recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.coreference_runs import CoreferenceRun
from coref_automl.comparison.differences import ALPHA, ComparisonTable, against, compare_group, compare_with_bases
from coref_automl.comparison.groups import choose_metric
from coref_automl.comparison.recommendation import Choice, Recommendation, choose_entry
from coref_automl.comparison.references import own_base
from coref_automl.comparison.relation_runs import RelationRun
from coref_automl.comparison.scores import Entry, Group, runs_of
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.evalset import find_set
from coref_automl.records import Comparison, Estimate
from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.intervals import pairwise_ps

MATRIX = 20


@dataclass(frozen=True)
class Study:
    """One group, its metric, its comparison with the base, its recommendation. `rows` are the evaluations of the table's rows.

    `notes` are problems met on the way; `dropped` counts the items that some evaluations lack.
    """

    group: Group
    metric: str
    seed: int
    margin: float
    table: ComparisonTable | None
    rows: tuple[Entry, ...]
    choice: Choice
    relation: Sequence[RelationRun] = ()
    coreference: Sequence[CoreferenceRun] = ()
    notes: tuple[str, ...] = ()
    dropped: int = 0

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.group.entries

    @property
    def recommendation(self) -> Recommendation:
        return self.choice.recommendation

    @property
    def base(self) -> Entry | None:
        return self.choice.base

    @property
    def chosen(self) -> Entry:
        return self.choice.chosen

    @property
    def best(self) -> Entry:
        return self.choice.best

    def runs(self) -> dict[str, list[Entry]]:
        return runs_of(self.entries)

    def sets(self) -> dict[str, tuple[Entry, Path | None]]:
        """Evaluation sets by fingerprint: an entry evaluated on each, and its folder or None."""
        out: dict[str, tuple[Entry, Path | None]] = {}
        for entry in (self.chosen, *self.entries):
            fingerprint = entry.evaluation.fingerprints.get("items", "")
            if fingerprint not in out or out[fingerprint][1] is None:
                out[fingerprint] = (entry, find_set(entry.evaluation.evalset_path, fingerprint))
        return out

    def metrics(self, among: Sequence[str]) -> list[str]:
        return [name for name in among if any(name in entry.evaluation.estimates for entry in self.entries)]

    def select_values(self) -> dict[Entry, Estimate]:
        return {entry: candidate.value for entry, candidate in self.choice.candidates.items()}

    def peak(self, entries: Sequence[Entry]) -> Entry:
        """The best on the select half; the earliest of equals."""
        values = self.select_values()
        return max(entries, key=lambda entry: (values[entry].value, -entry.tokens))

    def judged(self, reference: Entry, others: Sequence[Entry]) -> list[Comparison | None]:
        """Compare others with a reference on the confirm half, max-T over them; None if that half is empty."""
        columns = self.group.columns(self.metric, half="confirm", entries=[reference, *others])
        if not columns.items or not others:
            return [None] * len(others)
        names = [reference.name, *(entry.name for entry in others)]
        return against(columns, names, 0, self.metric, seed=self.seed)[1:]

    def own_base(self, entry: Entry) -> Entry | None:
        """The evaluated base of a checkpoint, or None."""
        return own_base(self.entries, entry, self.base)

    def over_own_base(self, entries: Sequence[Entry]) -> list[Comparison | None]:
        """Compare each with its base on the judging documents, max-T over all; None if the base was not evaluated."""
        return compare_with_bases(self.group, self.metric, entries, [self.own_base(entry) for entry in entries], seed=self.seed)

    def against_base(self) -> dict[Entry, Comparison]:
        if self.table is None:
            return {}
        lines = zip(self.rows, self.table.rows, strict=True)
        return {entry: line.comparison for entry, line in lines if line.comparison is not None}

    def matrix(self) -> tuple[list[Entry], NDArray[np.float64], NDArray[np.float64]] | None:
        """The best twenty (with base and chosen), best first: differences row - column, and Holm-adjusted p over all pairs."""
        values = self.select_values()
        ranked = sorted((entry for entry in self.entries if entry in values), key=lambda entry: -values[entry].value)
        kept = {*ranked[: MATRIX - 2], self.chosen, self.base}
        entries = [entry for entry in self.entries if entry in kept]
        columns = self.group.columns(self.metric, half=self.group.judging, entries=entries)
        if len(entries) < 3 or not columns.items:
            return None
        means = np.asarray(sum(np.asarray(part.values).mean(axis=0) for part in columns.parts))
        order = np.argsort(-means, kind="stable")
        entries, means = [entries[number] for number in order], means[order]
        ps = pairwise_ps(columns.parts, seed=self.seed)[np.ix_(order, order)]
        first, second = np.triu_indices(len(entries), 1)
        adjusted = np.ones_like(ps)
        adjusted[first, second] = adjusted[second, first] = holm(ps[first, second])
        return entries, means[:, None] - means[None, :], adjusted


def study_of(
    group: Group,
    *,
    metric: str | None = None,
    margin: float,
    seed: int,
    relation: Sequence[RelationRun] = (),
    coreference: Sequence[CoreferenceRun] = (),
) -> Study:
    metric, more = choose_metric(group, metric)
    table, rows = None, group.entries
    notes = list(more)
    choice = choose_entry(group, metric, margin=margin, seed=seed)
    if len(group.entries) > 1:
        try:
            table, rows = _against_own(group, metric, choice.base, seed)
        except ComparisonError as error:
            notes.append(str(error))
    dropped = group.columns(metric).dropped
    return Study(group, metric, seed, margin, table, rows, choice, relation, coreference, tuple(notes), dropped)


def _against_own(group: Group, metric: str, base: Entry | None, seed: int) -> tuple[ComparisonTable, tuple[Entry, ...]]:
    """Compare the trained checkpoints with their bases: as many comparisons as the recommendation makes.

    Other untrained models, and a base in windows of another length, are not compared."""
    own = {entry: own_base(group.entries, entry, base) for entry in group.entries if entry.trained}
    bases = {one for one in own.values() if one is not None}
    if not bases:
        return compare_group(group, metric, common=True, seed=seed), group.entries
    judged = replace(group, entries=tuple(entry for entry in group.entries if entry.trained or entry in bases))
    beside = [own.get(entry) for entry in judged.entries]
    return compare_group(judged, metric, reference=base, own=beside, common=True, seed=seed), judged.entries


def shown(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.p_adjusted < ALPHA and comparison.difference.value != 0
