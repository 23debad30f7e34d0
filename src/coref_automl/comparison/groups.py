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
from typing import Any

import numpy as np

from coref_automl.comparison.bases import bases_of
from coref_automl.comparison.names import rename_runs, with_names
from coref_automl.comparison.reader import Results
from coref_automl.comparison.scores import Entry, Group, Ints, Items, grouped
from coref_automl.comparison.superseded import items_of, model_of, named_folders, one_dtype_each
from coref_automl.config import nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.columns import FACTS, NOT_RUN, RULES, read_columns, whole_numbers
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.evaluation.targets import CHECKPOINT
from coref_automl.records import Half, halves_of
from coref_automl.say import say


def choose_group(results: Results, *, common: bool = False, evalset: str | None = None) -> tuple[Group, list[str]]:
    """The group with an evaluation of every path; different fingerprints and scorer versions are refused by name."""
    missing = results.check_evaluated()
    if missing:
        raise results.refusal(missing)
    groups = read_groups(results, common=common, evalset=evalset)
    paths = [held for held in map(results.checked_under, results.paths) if held]  # the others hold runs of outside checks
    whole = [group for group in groups if len(paths) == 1 or all(_holds(group, held) for held in paths)]
    if not whole:
        raise ComparisonError(_refusal(groups))
    return whole[0], [*results.notes, *others_than(whole[0], groups)]


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
        results.checked_under(path)
    stored = results.counted()
    if evalset is not None:
        stored = _on_set(stored, evalset)
    if common:
        stored = _without_far_bases(stored, {one.folder.resolve() for one in results.everything})
    found = one_dtype_each(stored, named_folders(results.paths), common=common)
    groups = [group_of(kept, fingerprint, scorer, common=common) for (fingerprint, scorer), (kept, _) in found.items()]
    groups.sort(key=lambda group: max(one.evaluation.evaluated_at for one in group.entries), reverse=True)
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
    entries = [_entry(one, len(items), *table) for one, table in zip(distinct, tables, strict=True)]
    if common:
        entries = _united(entries)
    starts = _starts(entries)  # by what is left after uniting
    named = with_names([replace(one, start=one in starts) for one in entries])
    name = " + ".join(dict.fromkeys(one.evaluation.evalset for one in stored))
    return Group(name, fingerprint, scorer, items, tuple(_bases_first(named)))


def _items(stored: Sequence[StoredEvaluation]) -> tuple[Items, list[tuple[Ints, Ints]]]:
    """The items of all evaluations, and of each its rows and ranks."""
    index: dict[str, int] = {}
    facts: list[tuple[Any, ...]] = []
    tables = [_read(one, index, facts) for one in stored]
    columns = {name: np.array([row[k] for row in facts]) for k, name in enumerate(FACTS)}
    sets = grouped(zip(stored, tables, strict=True), lambda pair: items_of(pair[0]))
    split: dict[str, list[tuple[str, str]]] = {}
    own: dict[tuple[str, str], Half] = {}
    for name, members in sets.items():
        half = next((one.evaluation.half for one, _ in members if one.evaluation.half), None)
        for row in np.unique(np.concatenate([rows for _, (rows, _) in members])).tolist():
            task, cluster, *_, numbered = facts[row]
            if half is None:  # as in the set alone; sets that share documents are split together
                split.setdefault(numbered, []).append((f"{name} {task}", cluster))
            elif own.get((numbered, cluster)) != "select":  # a document that has chosen never judges
                own[numbered, cluster] = half
    of = {(numbered, cluster): half for numbered, some in split.items() for cluster, half in halves_of(some).items()} | own
    return Items(index, columns, np.array([of[numbered, cluster] for _, cluster, *_, numbered in facts])), tables


def _bases_first(entries: Sequence[Entry]) -> list[Entry]:
    """Untrained models before checkpoints, the base that most began from first."""
    begun = Counter(base.folder for one in entries if (made := one.evaluation.provenance) for base in bases_of(entries, made))
    return sorted(entries, key=lambda entry: (entry.trained, 0 if entry.trained else -begun[entry.folder]))


def _read(one: StoredEvaluation, index: dict[str, int], facts: list[tuple[Any, ...]]) -> tuple[Ints, Ints]:
    """Row numbers and ranks of an evaluation; new items are added to `index` and `facts`, last the set whose documents an archive
    has numbered (else "")."""
    held, numbered = read_columns(one.folder, (*FACTS, *RULES)), items_of(one) if one.archived else ""
    rows = [index.setdefault(item, len(index)) for item in held["item"]]
    for number, fact in zip(rows, zip(*(held[name] for name in FACTS), strict=True), strict=True):
        if number == len(facts):
            facts.append((*fact, numbered))
    return np.array(rows, np.int32), np.stack([whole_numbers(held[name]) for name in RULES], axis=1)


def _entry(one: StoredEvaluation, items: int, rows: Ints, read: Ints) -> Entry:
    """An evaluation with its ranks on the items of the group."""
    ranks = np.full((items, len(RULES)), NOT_RUN, np.int32)
    ranks[rows] = read
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
    runs: dict[PurePath, set[str]] = {}
    for one in entries:
        runs.setdefault(_run_or_model(one), set()).add(one.evaluation.path)
    records = [made for one in entries if (made := one.evaluation.provenance)]
    return {one for one in entries if len(runs[_run_or_model(one)]) == 1 and any(bases_of([one], made) for made in records)}


def _run_or_model(entry: Entry) -> PurePath:
    """The run of a checkpoint; a model outside a run counts as its own."""
    path = PurePath(entry.evaluation.path)
    return path.parent if CHECKPOINT.fullmatch(path.name) else path


def _holds(group: Group, stored: Sequence[StoredEvaluation]) -> bool:
    """Is one of the evaluations, or the one that it repeats, in the group?"""
    held = {_model_as_scored(entry) for entry in group.entries}
    return any(_model_as_scored(one) in held for one in stored if group.fingerprint in ("", items_of(one)))


def _refusal(groups: Sequence[Group]) -> str:
    lists = [
        f"{', '.join(e.name for e in g.entries[:3])}: items {g.fingerprint[:8]} of {g.evalset}, scorer {g.scorer}" for g in groups
    ]
    return (
        f"These evaluations do not share their items or their scorer ({'; '.join(lists)}). "
        "Evaluate them on one set with one version, or pass --common to compare the items they share."
    )
