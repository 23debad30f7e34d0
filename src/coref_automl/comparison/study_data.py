"""What a study is answered from. In: a group of evaluations and a metric. Out: StudyData: checkpoints against their bases, what
came out highest, methods, and the runs of outside checks beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coref_automl.comparison.arms import Arm, arms_of
from coref_automl.comparison.bases import find_reference, own_base, references
from coref_automl.comparison.choice import Choice, choose
from coref_automl.comparison.claims import Claim, QuestionId
from coref_automl.comparison.differences import compare_with, judging_columns
from coref_automl.comparison.judging import checkpoint_claim
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry, Group, choose_metric, runs_of
from coref_automl.errors import ComparisonError
from coref_automl.records import Comparison

Checks = Mapping[QuestionId, Sequence[TaskRun]]
"""Runs of outside checks."""


@dataclass(frozen=True)
class StudyData:
    """One group, its metric, and what came out highest. `judged` are trained checkpoints against their base, max-T over all of
    them, on so many `documents`; `notes` are problems met on the way, `dropped` counts the items that some evaluations lack.
    """

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

    def metrics(self, among: Sequence[str]) -> list[str]:
        return [name for name in among if any(name in entry.evaluation.estimates for entry in self.entries)]

    def own_base(self, entry: Entry) -> Entry | None:
        """The evaluated base of a checkpoint, or None."""
        return own_base(self.entries, entry, self.choice.base)

    def checkpoint_claims(self) -> dict[Entry, Claim]:
        """Every judged checkpoint against what it is compared with."""
        half = self.group.judging
        return {
            entry: checkpoint_claim(self.group, "base", one, entry, half=half, documents=self.documents)
            for entry, one in self.judged.items()
        }


def data_of(group: Group, *, metric: str | None, margin: float, seed: int, checks: Checks) -> StudyData:
    metric, more = choose_metric(group, metric)
    choice, notes = choose(group, metric, seed=seed), list(more)
    judged: dict[Entry, Comparison] = {}
    documents = 0
    if len(group.entries) > 1:
        try:
            judged, documents = _against_own(group, metric, choice.base, seed)
        except ComparisonError as error:
            notes.append(str(error))
    arms, dropped = arms_of(group.entries, choice.base), group.columns(metric).dropped
    return StudyData(group, metric, seed, margin, judged, documents, choice, arms, checks, tuple(notes), dropped)


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
