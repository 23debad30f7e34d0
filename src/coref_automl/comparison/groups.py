"""Which evaluations belong together. In: results. Out: groups of evaluations of the same items, ranks aligned.

Evaluations never overwrite each other: a checkpoint may have been scored in float32 and in bfloat16, or before and after its
weights were replaced. A group holds one evaluation per model and length; `left_out` says why others are not in it. It is of
one set of items, whose fingerprint it has, and of one scorer version. A `common` group is of all sets: a model's evaluations on
them are one entry over the items of all, and the group has no fingerprint ("")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.names import rename_runs, with_names
from coref_automl.comparison.reader import Results
from coref_automl.comparison.scores import Entry, Group, Ints, Items
from coref_automl.comparison.superseded import items_of, model_of, named_folders, one_dtype_each
from coref_automl.config import nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.columns import FACTS, NOT_RUN, RULES, read_columns, whole_numbers
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.records import Half, grouped, halves_of
from coref_automl.say import say


def choose_group(results: Results, *, common: bool = False, evalset: str | None = None) -> tuple[Group, list[str]]:
    """The group with an evaluation of every path; different fingerprints and scorer versions are refused by name."""
    missing = results.check_evaluated()
    if missing:
        raise results.refusal(missing)
    groups = read_groups(results, common=common, evalset=evalset)
    by_path = [here for here in map(results.checked_under, results.paths) if here]  # the others hold runs of outside checks
    complete = [group for group in groups if len(by_path) == 1 or all(_holds(group, here) for here in by_path)]
    if not complete:
        raise ComparisonError(_refusal(groups))
    return complete[0], [*results.notes, *others_than(complete[0], groups)]


def others_than(chosen: Group, groups: Sequence[Group]) -> list[str]:
    """A sentence for each group that is left out beside the chosen one."""
    return [
        say(
            f"{group.evalset}(문항 {group.fingerprint[:8]})의 평가 {len(group.entries)}개는 포함하지 않았습니다 (--eval-set).",
            f"{len(group.entries)} evaluations on {group.evalset} (items {group.fingerprint[:8]}) are left out (--eval-set).",
        )
        for group in groups
        if group is not chosen
    ]


def read_groups(results: Results, *, common: bool = False, evalset: str | None = None) -> list[Group]:
    """Finished evaluations, grouped; `evalset` leaves those of one set.

    Largest first, then newest: old evaluations remain when the scorer or a set gets a new version.
    """
    for path in results.paths:
        results.checked_under(path)  # raises what is damaged under a path
    stored = results.counted()
    if evalset is not None:
        stored = _on_set(stored, evalset)
    if common:
        stored = _without_far_bases(stored, {one.folder.resolve() for one in results.everything})
    counted = one_dtype_each(stored, named_folders(results.paths), common=common)
    groups = [group_of(kept, fingerprint, scorer, common=common) for (fingerprint, scorer), (kept, _) in counted.items()]
    groups.sort(key=lambda group: max(entry.evaluation.evaluated_at for entry in group.entries), reverse=True)
    return sorted(groups, key=lambda group: -len(group.entries))


def _on_set(stored: Sequence[StoredEvaluation], evalset: str) -> list[StoredEvaluation]:
    """The evaluations on a set, told by its name or by the fingerprint of its items; renamed sets count by their items."""
    items = {items_of(one) for one in stored if evalset in (one.evaluation.evalset, items_of(one))}
    if not items:
        names = {one.evaluation.evalset for one in stored}
        raise ComparisonError(f"No evaluation on the set {evalset!r} here. {nearest(evalset, names)}")
    return [one for one in stored if items_of(one) in items]


def _without_far_bases(stored: Sequence[StoredEvaluation], given: set[Path]) -> list[StoredEvaluation]:
    """Without bases that were not given and were scored on a set that the given models do not share: they would leave no item."""
    sets: dict[tuple[object, ...], set[str]] = {}
    for one in stored:
        if one.folder.resolve() in given:
            sets.setdefault(model_of(one), set()).add(items_of(one))
    shared = set.intersection(*sets.values()) if sets else set()
    return [one for one in stored if not shared or items_of(one) in shared or one.folder.resolve() in given]


def group_of(stored: Sequence[StoredEvaluation], fingerprint: str, scorer: str, *, common: bool = False) -> Group:
    """Evaluations side by side; the caller makes sure that they share one scorer version, and one set unless `common`."""
    items, tables = _items(stored)
    distinct = rename_runs(stored)  # before anything is known by a run's name
    entries = [_entry(one, len(items), table) for one, table in zip(distinct, tables, strict=True)]
    if common:
        entries = _united(entries)
    starts = _starts(entries)  # by what is left after uniting
    named = with_names([replace(entry, start=entry in starts) for entry in entries])
    name = " + ".join(dict.fromkeys(one.evaluation.evalset for one in stored))
    return Group(name, fingerprint, scorer, items, tuple(_bases_first(named)))


class _Document(NamedTuple):
    """A document as all sets know it; of an archive, where documents are numbers, as the set `numbered_in` knows it."""

    numbered_in: str
    cluster: str


class _Table(NamedTuple):
    """The items of an evaluation: their rows in the group, and their ranks, one column per rule."""

    rows: Ints
    ranks: Ints


def _items(stored: Sequence[StoredEvaluation]) -> tuple[Items, list[_Table]]:
    """The items of all evaluations, and the table of each."""
    index: dict[str, int] = {}
    facts: dict[str, list[Any]] = {name: [] for name in FACTS}
    documents: list[_Document] = []
    tables = []
    for one in stored:
        columns = read_columns(one.folder, (*FACTS, *RULES))
        numbered_in = items_of(one) if one.archived else ""
        rows = [index.setdefault(item, len(index)) for item in columns["item"]]
        for place, row in enumerate(rows):
            if row == len(documents):  # no evaluation before this one has the item
                documents.append(_Document(numbered_in, columns["cluster"][place]))
                for name in FACTS:
                    facts[name].append(columns[name][place])
        tables.append(_Table(np.array(rows, np.int32), np.stack([whole_numbers(columns[name]) for name in RULES], axis=1)))
    halves = _halves(stored, tables, facts["task"], documents)
    arrays = {name: np.array(values) for name, values in facts.items()}
    return Items(index, arrays, np.array([halves[document] for document in documents])), tables


def _halves(
    stored: Sequence[StoredEvaluation], tables: Sequence[_Table], tasks: Sequence[str], documents: Sequence[_Document]
) -> dict[_Document, Half]:
    """The half of every document: that of the larger set which its set is a half of, else split here, where sets that share
    documents are split together. Of a document in two such sets `select` counts: what has chosen never judges."""
    frozen: dict[_Document, Half] = {}
    to_split: dict[str, list[tuple[str, str]]] = {}
    for name, members in grouped(zip(stored, tables, strict=True), lambda pair: items_of(pair[0])).items():
        half = next((one.evaluation.half for one, _ in members if one.evaluation.half), None)
        for row in np.unique(np.concatenate([table.rows for _, table in members])).tolist():
            document = documents[row]
            if half is None:
                to_split.setdefault(document.numbered_in, []).append((f"{name} {tasks[row]}", document.cluster))
            elif frozen.get(document) != "select":
                frozen[document] = half
    split = {_Document(place, cluster): half for place, some in to_split.items() for cluster, half in halves_of(some).items()}
    return split | frozen


def _bases_first(entries: Sequence[Entry]) -> list[Entry]:
    """Untrained models before checkpoints, the base that most began from first."""
    begun = Counter(base.folder for entry in entries for base in bases_of(entries, entry.evaluation.provenance))
    return sorted(entries, key=lambda entry: (entry.trained, 0 if entry.trained else -begun[entry.folder]))


def _entry(one: StoredEvaluation, items: int, table: _Table) -> Entry:
    """An evaluation with its ranks on the items of the group."""
    ranks = np.full((items, len(RULES)), NOT_RUN, np.int32)
    ranks[table.rows] = table.ranks
    by_rule = {rule.removesuffix("_rank"): ranks[:, k] for k, rule in enumerate(RULES)}
    return Entry(one.evaluation.checkpoint, one.evaluation, one.folder, by_rule)


def _united(entries: Sequence[Entry]) -> list[Entry]:
    """One entry per model, dtype and length over the items of all its sets; of an item in two sets the first rank counts."""
    merged: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        key = _model_as_scored(entry)
        first = merged.setdefault(key, entry)
        if first is not entry:
            both = {rule: np.where(ranks == NOT_RUN, entry.ranks[rule], ranks) for rule, ranks in first.ranks.items()}
            merged[key] = replace(first, ranks=both)
    return list(merged.values())


def _model_as_scored(one: StoredEvaluation | Entry) -> tuple[object, ...]:
    """A model and how it was scored, whatever the set."""
    return model_of(one), one.evaluation.scorer, one.evaluation.dtype, one.evaluation.seq_len


def _starts(entries: Sequence[Entry]) -> set[Entry]:
    """Checkpoints that serve as a base and are the only ones of their run: there is nothing to choose among."""
    checkpoints = Counter(run for run, _ in {(_run_or_model(entry), entry.evaluation.path) for entry in entries})
    alone = [entry for entry in entries if checkpoints[_run_or_model(entry)] == 1]
    return {entry for entry in alone if any(bases_of([entry], other.evaluation.provenance) for other in entries)}


def _run_or_model(entry: Entry) -> PurePath:
    """The run of a checkpoint; a model outside a run counts as its own."""
    path = PurePath(entry.evaluation.path)
    return path.parent if CHECKPOINT.fullmatch(path.name) else path


def _holds(group: Group, stored: Sequence[StoredEvaluation]) -> bool:
    """Is one of the evaluations, or the one that it repeats, in the group?"""
    models = {_model_as_scored(entry) for entry in group.entries}
    return any(_model_as_scored(one) in models for one in stored if group.fingerprint in ("", items_of(one)))


def _refusal(groups: Sequence[Group]) -> str:
    names = [", ".join(entry.name for entry in group.entries[:3]) for group in groups]
    sets = [f"items {group.fingerprint[:8]} of {group.evalset}, scorer {group.scorer}" for group in groups]
    listed = "; ".join(map(": ".join, zip(names, sets, strict=True)))
    return (
        f"These evaluations do not share their items or their scorer ({listed}). "
        "Evaluate them on one set with one version, or pass --common to compare the items they share."
    )
