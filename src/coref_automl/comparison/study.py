"""A group judged by one metric. In: a group of evaluations. Out: a Study: its checkpoints against their base, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from coref_automl.comparison.answer import answer_of
from coref_automl.comparison.arms import Arm, arms_of
from coref_automl.comparison.choice import Choice, choose
from coref_automl.comparison.claims import Answer
from coref_automl.comparison.copies import repeated
from coref_automl.comparison.coreference_runs import CoreferenceRun, look_for_coreference
from coref_automl.comparison.differences import ComparisonTable, compare_group, compare_with
from coref_automl.comparison.groups import choose_metric, left_out
from coref_automl.comparison.references import own_base
from coref_automl.comparison.relation_runs import RelationRun, look_for_relation
from coref_automl.comparison.scores import Entry, Group, runs_of
from coref_automl.decoder import read_stored
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.evalset import find_set
from coref_automl.records import Comparison

LOOKS = "looks.json"
"""The numbers of seeds at which a study was judged, written beside its runs and in its archive."""


@dataclass(frozen=True)
class Study:
    """One group, its metric, its comparison with the base, and what came out highest. `rows` are the evaluations of the table's
    rows, `notes` problems met on the way; `dropped` counts the items that some evaluations lack; `unread` is what could not be
    read, `looks` how often it was judged as seeds were added.
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
    unread: tuple[str, ...] = ()
    looks: int = 1

    @cached_property
    def answer(self) -> Answer:
        return answer_of(self, looks=self.looks, unread=self.unread)

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
        return next(entry for entry in self.choice.candidates if entry.evaluation.path == self.answer.highest_path)

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

    def judged(self, reference: Entry, others: Sequence[Entry]) -> list[Comparison | None]:
        """Compare others with a reference on the confirm half, max-T over them; None if that half is empty."""
        return compare_with(self.group, self.metric, others, [reference] * len(others), seed=self.seed, half="confirm")

    def own_base(self, entry: Entry) -> Entry | None:
        """The evaluated base of a checkpoint, or None."""
        return own_base(self.entries, entry, self.base)

    def against_base(self) -> dict[Entry, Comparison]:
        """Every trained checkpoint against its base, max-T over all of them."""
        if self.table is None:
            return {}
        lines = zip(self.rows, self.table.rows, strict=True)
        return {entry: line.comparison for entry, line in lines if line.comparison is not None}


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
    choice = choose(group, metric, seed=seed)
    if len(group.entries) > 1:
        try:
            table, rows = _against_own(group, metric, choice.base, seed)
        except ComparisonError as error:
            notes.append(str(error))
    dropped = group.columns(metric).dropped
    return Study(group, metric, seed, margin, table, rows, choice, relation, coreference, tuple(notes), dropped)


def study_at(paths: Sequence[str], group: Group, *, metric: str | None = None, margin: float, seed: int) -> Study:
    """The study of a group, with the relation and coreference runs under the paths."""
    relation, unread = look_for_relation(paths)
    coreference, more = look_for_coreference(paths)
    left = [*left_out(paths), *unread, *more, *repeated([*relation, *coreference])]
    study = study_of(group, metric=metric, margin=margin, seed=seed, relation=relation, coreference=coreference)
    return replace(study, unread=tuple(dict.fromkeys(left)), looks=looks_at(paths))


def looks_at(paths: Sequence[str]) -> int:
    """How often a study was judged as seeds were added, by what it wrote beside its runs; once if nothing says so."""
    places = {place / LOOKS for path in paths for place in (Path(path), Path(path).parent)}
    return max((len(read_stored(place, list[int])) for place in places if place.is_file()), default=1)


def _against_own(group: Group, metric: str, base: Entry | None, seed: int) -> tuple[ComparisonTable, tuple[Entry, ...]]:
    """Compare the trained checkpoints with their bases.

    Other untrained models, and a base in windows of another length, are not compared."""
    own = {entry: own_base(group.entries, entry, base) for entry in group.entries if entry.trained}
    bases = {one for one in own.values() if one is not None}
    if not bases:
        return compare_group(group, metric, common=True, seed=seed), group.entries
    judged = replace(group, entries=tuple(entry for entry in group.entries if entry.trained or entry in bases))
    beside = [own.get(entry) for entry in judged.entries]
    return compare_group(judged, metric, reference=base, own=beside, common=True, seed=seed), judged.entries
