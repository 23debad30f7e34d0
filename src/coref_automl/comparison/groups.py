"""Which evaluations belong together. In: results. Out: groups of evaluations of the same items, ranks aligned.

Evaluations never overwrite each other: a checkpoint may have been scored in float32 and in bfloat16, or before and after its
weights were replaced. A group holds one evaluation per model and length, on one set of items (its fingerprint), by one version
of the scorer and under one tokenizer; `left_out` says why others are not in it, and `others` are the groups of the same items
under other tokenizers. A `common` group spans all sets and has no fingerprint (""): a model's
evaluations on several sets are one entry over the items of all.

Half of the documents choose (`select`), the others judge (`confirm`). In a `common` group of the sets x and y:

    x, a whole set               split by the hashes of its documents; sets that share documents are split together
    y, a half of a larger set    all of its documents are in that half; of one that x would split otherwise, `select` wins
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from coref_automl.base.config import nearest
from coref_automl.base.errors import ComparisonError
from coref_automl.base.records import Half, grouped, halves_of
from coref_automl.base.say import say
from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.names import rename_runs, with_names
from coref_automl.comparison.reader import Results
from coref_automl.comparison.scores import Entry, Group, Ints, Items
from coref_automl.comparison.superseded import items_of, model_of, one_dtype_each
from coref_automl.evaluation.columns import FACTS, read_columns
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.evaluation.targets import CHECKPOINT

_RowsOfSets = Mapping[str, list[int]]
"""The rows of a set's items in a group, by the fingerprint of the set."""


def choose_group(results: Results, *, common: bool = False, evalset: str | None = None) -> tuple[Group, list[str]]:
    """The largest group with an evaluation from every path, and notes on what was left out. An error if a path has no results,
    or if no group spans all paths."""
    missing = results.check_evaluated()
    if missing:
        raise results.refusal(missing)
    groups = read_groups(results, common=common, evalset=evalset)
    by_path = [under for under in map(results.checked_under, results.paths) if under]  # the others hold runs of outside checks
    complete = [group for group in groups if _spans(group, by_path)]
    if not complete:
        raise ComparisonError(_refusal(groups, (*results.left_out, *groups[0].left_out)))
    return complete[0], [*results.notes_on(complete[0]), *others_than(complete[0], groups)]


def _spans(group: Group, by_path: Sequence[Sequence[StoredEvaluation]]) -> bool:
    """Does the group hold, of every path, an evaluation or the one that it repeats? Any group of a single path does."""
    models = {_model_as_scored(entry) for each in (group, *group.others) for entry in each.entries}
    on_set = ([stored for stored in under if group.fingerprint in ("", items_of(stored))] for under in by_path)
    return len(by_path) == 1 or all(any(_model_as_scored(stored) in models for stored in under) for under in on_set)


def _refusal(groups: Sequence[Group], left_out: Sequence[str]) -> str:
    """Why no group spans all paths: they differ in items or scorer, or what lies under one of them does not count."""
    if len(groups) == 1:
        return f"Only {', '.join(entry.name for entry in groups[0].entries[:3])} can be compared here: {'; '.join(left_out)}."
    first_of_sets = {(group.fingerprint, group.scorer): group for group in reversed(groups)}
    groups = list(first_of_sets.values())[::-1]
    names = [", ".join(entry.name for entry in group.entries[:3]) for group in groups]
    if len({group.fingerprint for group in groups}) == 1:  # also all sets together, by --common
        listed = "; ".join(f"{name}: scorer {group.scorer}" for name, group in zip(names, groups, strict=True))
        return f"These evaluations do not share their scorer ({listed}). Evaluate them again with one version."
    sets = [f"items {group.fingerprint[:8]} of {group.evalset}, scorer {group.scorer}" for group in groups]
    listed = "; ".join(map(": ".join, zip(names, sets, strict=True)))
    return (
        f"These evaluations do not share their items or their scorer ({listed}). "
        "Evaluate them on one set with one version, or pass --common to compare the items they share."
    )


def others_than(chosen: Group, groups: Sequence[Group]) -> list[str]:
    """A sentence for each group that is left out beside the chosen one, for its items or for its version of the scorer."""
    return [_left_out(group, chosen) for group in groups if group is not chosen and not group.is_beside(chosen)]


def _left_out(group: Group, chosen: Group) -> str:
    count, name, items, scorer = len(group.entries), group.evalset, group.fingerprint[:8], group.scorer
    if group.fingerprint == chosen.fingerprint:
        return say(
            f"{name}의 평가 {count}개는 채점기 버전이 달라({scorer}) 제외했습니다. 모두 같은 버전으로 평가하세요.",
            f"{count} evaluations on {name} are of another scorer ({scorer}) and are left out; use one version for all.",
        )
    return say(
        f"{name}(문항 {items})의 평가 {count}개는 포함하지 않았습니다 (--eval-set).",
        f"{count} evaluations on {name} (items {items}) are left out (--eval-set).",
    )


def read_groups(results: Results, *, common: bool = False, evalset: str | None = None) -> list[Group]:
    """Group the evaluations that count, or only those on one set. Largest first, then newest: old evaluations remain when the
    scorer or a set gets a new version."""
    evaluations = results.counted()
    if evalset is not None:
        evaluations = _on_set(evaluations, evalset)
    if common:
        evaluations = _without_unshared_bases(evaluations, {stored.folder.resolve() for stored in results.everything})
    by_condition = one_dtype_each(evaluations, results.named, common=common)
    groups = [
        replace(group_of(kept, fingerprint, scorer, common=common), left_out=tuple(out))
        for (fingerprint, scorer, _), (kept, out) in by_condition.items()
    ]
    groups.sort(key=lambda group: (len(group.entries), max(e.evaluation.evaluated_at for e in group.entries)), reverse=True)
    return [replace(group, others=tuple(filter(group.is_beside, groups))) for group in groups]


def _on_set(evaluations: Sequence[StoredEvaluation], evalset: str) -> list[StoredEvaluation]:
    """The evaluations on a set, given by its name or the fingerprint of its items; renamed sets count by their items."""
    items = {items_of(stored) for stored in evaluations if evalset in (stored.evaluation.evalset, items_of(stored))}
    if not items:
        names = {stored.evaluation.evalset for stored in evaluations}
        raise ComparisonError(f"No evaluation on the set {evalset!r} here. {nearest(evalset, names)}")
    return [stored for stored in evaluations if items_of(stored) in items]


def _without_unshared_bases(evaluations: Sequence[StoredEvaluation], below: set[Path]) -> list[StoredEvaluation]:
    """Leave out bases found elsewhere that were scored on sets that the models in `below` do not share."""
    sets: dict[tuple[object, ...], set[str]] = {}
    for stored in evaluations:
        if stored.folder.resolve() in below:
            sets.setdefault(model_of(stored), set()).add(items_of(stored))
    shared = set.intersection(*sets.values()) if sets else set()
    return [stored for stored in evaluations if not shared or items_of(stored) in shared or stored.folder.resolve() in below]


def group_of(evaluations: Sequence[StoredEvaluation], fingerprint: str, scorer: str, *, common: bool = False) -> Group:
    """Align evaluations; the caller makes sure that they share scorer version and tokenizer, and one set unless
    `common`."""
    items, tables = _aligned_items(evaluations)
    distinct = rename_runs(evaluations)  # before anything is known by a run's name
    entries = [_entry(stored, len(items), table) for stored, table in zip(distinct, tables, strict=True)]
    if common:
        entries = _merged_by_model(entries)
    starts = _starts(entries)
    named = with_names([replace(entry, start=entry in starts) for entry in entries])
    name = " + ".join(dict.fromkeys(stored.evaluation.evalset for stored in evaluations))
    return Group(name, fingerprint, scorer, items, tuple(_bases_first(named)))


class _Table(NamedTuple):
    """The items of an evaluation: their rows in the group, and their ranks."""

    rows: Ints
    ranks: Ints


class _ItemIndex:
    """The items of a group, one row each, as evaluations add them; facts are those of the first with an item."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.facts: dict[str, list[Any]] = {name: [] for name in FACTS}
        self.documents: list[str] = []

    def add(self, stored: StoredEvaluation) -> _Table:
        columns = read_columns(stored.folder, (*FACTS, "rank"))
        for position, item in enumerate(columns["item"]):
            if item in self.rows:
                continue
            self.rows[item] = len(self.rows)
            self.documents.append(columns["cluster"][position])
            for name in FACTS:
                self.facts[name].append(columns[name][position])
        rows = np.array([self.rows[item] for item in columns["item"]], np.int32)
        return _Table(rows, np.array(columns["rank"], np.int32))


def _aligned_items(evaluations: Sequence[StoredEvaluation]) -> tuple[Items, list[_Table]]:
    """The items of all evaluations, with the half of each item's document, and the table of each evaluation."""
    index = _ItemIndex()
    tables = [index.add(stored) for stored in evaluations]
    halves = _halves(evaluations, tables, index)
    arrays = {name: np.array(values) for name, values in index.facts.items()}
    return Items(index.rows, arrays, np.array([halves[document] for document in index.documents])), tables


def _halves(evaluations: Sequence[StoredEvaluation], tables: Sequence[_Table], index: _ItemIndex) -> dict[str, Half]:
    """The half of every document: that of a set which is a half, else by hash. What has chosen anywhere never judges."""
    by_set = grouped(zip(evaluations, tables, strict=True), lambda member: items_of(member[0]))
    rows = {name: np.unique(np.concatenate([table.rows for _, table in members])).tolist() for name, members in by_set.items()}
    recorded = {items_of(stored): stored.evaluation.half for stored in evaluations if stored.evaluation.half}
    by_hash = _halves_by_hash({name: rows[name] for name in rows if name not in recorded}, index)
    by_record = {name: [index.documents[row] for row in rows[name]] for name in recorded}
    halves = by_hash | {document: recorded[name] for name, documents in by_record.items() for document in documents}
    chose = [document for document, half in by_hash.items() if half == "select"]
    chose += [document for name, documents in by_record.items() if recorded[name] == "select" for document in documents]
    return halves | dict.fromkeys(chose, "select")


def _halves_by_hash(rows: _RowsOfSets, index: _ItemIndex) -> dict[str, Half]:
    """Documents of whole sets are split by the hashes of their names."""
    return halves_of((f"{name} {index.facts['task'][row]}", index.documents[row]) for name in rows for row in rows[name])


def _bases_first(entries: Sequence[Entry]) -> list[Entry]:
    """Untrained models before checkpoints, the base of most checkpoints first."""
    trained_from = Counter(base.folder for entry in entries for base in bases_of(entries, entry.evaluation.provenance))
    return sorted(entries, key=lambda entry: (entry.trained, 0 if entry.trained else -trained_from[entry.folder]))


def _entry(stored: StoredEvaluation, items: int, table: _Table) -> Entry:
    """An evaluation with its ranks on the items of the group."""
    ranks = np.zeros(items, np.int32)
    ranks[table.rows] = table.ranks
    return Entry(stored.evaluation.checkpoint, stored.evaluation, stored.folder, ranks)


def _merged_by_model(entries: Sequence[Entry]) -> list[Entry]:
    """One entry per model, dtype and length over the items of all its sets; of an item in two sets the first rank counts."""
    merged: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        key = _model_as_scored(entry)
        first = merged.setdefault(key, entry)
        if first is not entry:
            merged[key] = replace(first, ranks=np.where(first.ranks == 0, entry.ranks, first.ranks))
    return list(merged.values())


def _model_as_scored(evaluated: StoredEvaluation | Entry) -> tuple[object, ...]:
    """A model and how it was scored, whatever the set."""
    evaluation = evaluated.evaluation
    return model_of(evaluated), evaluation.scorer, evaluation.dtype, evaluation.seq_len


def _starts(entries: Sequence[Entry]) -> set[Entry]:
    """Checkpoints that others were trained from and that are the only ones of their run: there is nothing to choose among."""
    checkpoints = Counter(run for run, _ in {(_run_or_model(entry), entry.evaluation.path) for entry in entries})
    alone = [entry for entry in entries if checkpoints[_run_or_model(entry)] == 1]
    return {entry for entry in alone if any(bases_of([entry], other.evaluation.provenance) for other in entries)}


def _run_or_model(entry: Entry) -> PurePath:
    """The run of a checkpoint; a model outside a run counts as its own."""
    path = PurePath(entry.evaluation.path)
    return path.parent if CHECKPOINT.fullmatch(path.name) else path
