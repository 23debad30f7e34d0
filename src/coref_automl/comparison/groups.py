"""Which evaluations belong together. In: paths. Out: groups of evaluations of the same items, ranks aligned.

Evaluations never overwrite each other: a checkpoint may have been scored in float32 and in bfloat16, or before and after its
weights were replaced. A group holds one evaluation per model and length; `left_out` says why others are not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from coref_automl.comparison.copies import drop_copies, model_of
from coref_automl.comparison.coreference_runs import find_coreference, look_for_coreference
from coref_automl.comparison.references import bases_of
from coref_automl.comparison.relation_runs import find_relation, look_for_relation
from coref_automl.comparison.scores import Entry, Group, Ints, Items
from coref_automl.comparison.superseded import changed_since, drop_replaced_weights, keep_one_dtype, named_folders
from coref_automl.config import choose, nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.columns import FACTS, NOT_RUN, RULES, read_columns, whole_numbers
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.evaluation.results import (
    CHECKPOINT,
    StoredEvaluation,
    base_evaluation,
    is_of_one_model,
    look_through,
    marked,
    run_of,
    target_of,
)
from coref_automl.models.model_files import model_place
from coref_automl.records import Evaluation, Provenance, halves_of
from coref_automl.say import say
from coref_automl.store import short_names

_OF_A_RUN = ("seed", "objective", "seq_len", "base_bytes", "dataset_bytes")
"""What every checkpoint of a run has in common; bytes are empty in older records."""


def choose_group(paths: Sequence[str], *, common: bool = False, evalset: str | None = None) -> tuple[Group, list[str]]:
    """The group with an evaluation of every path; different fingerprints and scorer versions are refused by name."""
    wrongs = dict.fromkeys([*left_out(paths), *look_for_relation(paths)[1], *look_for_coreference(paths)[1]])
    notes = [*(say(f"제외: {wrong}", f"Left out: {wrong}") for wrong in wrongs), *changed_since(look_through(paths)[0])]
    if missing := not_evaluated(paths):
        raise ComparisonError(nothing_under(missing))
    groups = read_groups(paths, common=common, evalset=evalset)
    paths = [path for path in paths if evaluations_under([path])]  # the others are relation runs
    whole = [group for group in groups if all(_holds(group, path) for path in paths)] if len(paths) > 1 else groups
    if not whole:
        raise ComparisonError(_refusal(groups))
    chosen = whole[0]
    left = [group for group in groups if group is not chosen]
    notes += [
        say(
            f"{group.evalset}(문항 {group.fingerprint[:8]})의 평가 {len(group.entries)}개는 이 표에 없습니다.",
            f"{len(group.entries)} evaluations on {group.evalset} (items {group.fingerprint[:8]}) are not in this table.",
        )
        for group in left
    ]
    return chosen, notes


def choose_metric(group: Group, metric: str | None) -> tuple[str, list[str]]:
    """The metric to judge by: the given one, else strict Real@1, `word` if tokenizers differ, or the first that was run."""
    several = group.tokenizers > 1
    usable = [name for name in group.metrics() if not several or (METRICS[name].rule == "word" and not METRICS[name].parts)]
    if metric is not None:
        choose(metric, METRICS, "metric")
        if metric in usable:
            return metric, []
        if several and metric in group.metrics():
            raise ComparisonError(
                f"These checkpoints have different tokenizers, so {metric} cannot compare them; "
                f"use --metric {usable[0] if usable else 'real_word'}."
            )
        raise ComparisonError(f"{metric} was not run on {group.evalset}. Run there: {', '.join(usable) or 'nothing comparable'}.")
    if not usable:
        raise ComparisonError(
            "No metric was run by all of these; where tokenizers differ, run: coref-automl evaluate --words all"
        )
    if several:
        label = METRICS[usable[0]].label
        told = f"토크나이저가 서로 달라 {label}만 비교합니다.", f"Tokenizers differ, so only {label} is compared."
        return usable[0], [say(*told)]
    return (PRIMARY if PRIMARY in usable else usable[0]), []


def read_groups(paths: Sequence[str], *, common: bool = False, evalset: str | None = None) -> list[Group]:
    """Finished evaluations under the paths, grouped by items and scorer; `common` groups by scorer alone.

    With `common` a model that was scored on several sets is one entry over the items of all of them. `evalset` leaves those of
    one set. Largest first, then newest: old evaluations remain when the scorer or a set gets a new version.
    """
    given = evaluations_under(paths)
    stored = drop_copies(add_bases(paths, drop_replaced_weights(given)[0]))[0]
    if evalset is not None:
        stored = _on_set(stored, evalset)
    if common:
        stored = _without_far_bases(stored, {one.folder.resolve() for one in given})
    keys, named = keyed(stored, common=common), named_folders(paths)
    groups = [
        group_of(keep_one_dtype(found, named)[0], fingerprint, scorer, unite=common)
        for (fingerprint, scorer), found in sorted(keys.items(), key=lambda one: _newest(one[1]), reverse=True)
    ]
    return sorted(groups, key=lambda group: -len(group.entries))


def keyed(stored: Sequence[StoredEvaluation], *, common: bool = False) -> dict[tuple[str, str], list[StoredEvaluation]]:
    """Evaluations by the fingerprint of their items (empty if `common`) and the version of their scorer."""
    keys: dict[tuple[str, str], list[StoredEvaluation]] = {}
    for one in stored:
        keys.setdefault(("" if common else _items(one), one.evaluation.scorer), []).append(one)
    return keys


def _on_set(stored: Sequence[StoredEvaluation], evalset: str) -> list[StoredEvaluation]:
    """The evaluations on a set, told by its name or by the fingerprint of its items; renamed sets count by their items."""
    items = {_items(one) for one in stored if evalset in (one.evaluation.evalset, _items(one))}
    if not items:
        names = {one.evaluation.evalset for one in stored}
        raise ComparisonError(f"No evaluation on the set {evalset!r} here. {nearest(evalset, names)}")
    return [one for one in stored if _items(one) in items]


def _without_far_bases(stored: Sequence[StoredEvaluation], given: set[Path]) -> list[StoredEvaluation]:
    """Without bases that were not given and were scored on a set that the given models do not share: they would leave no item."""
    sets: dict[tuple[object, ...], set[str]] = {}
    for one in stored:
        if one.folder.resolve() in given:
            sets.setdefault(model_of(one), set()).add(_items(one))
    shared = set.intersection(*sets.values()) if sets else set()
    return [one for one in stored if not shared or _items(one) in shared or one.folder.resolve() in given]


def _items(one: StoredEvaluation) -> str:
    return one.evaluation.fingerprints.get("items", "")


def _newest(stored: Sequence[StoredEvaluation]) -> str:
    return max(one.evaluation.evaluated_at for one in stored)


def evaluations_under(paths: Sequence[str]) -> list[StoredEvaluation]:
    """The readable finished evaluations under the paths; `left_out` names the damaged ones.

    A damaged one is an error if it was named by its model or folder, or if its path holds nothing else.
    """
    found: dict[Path, StoredEvaluation] = {}
    for path in paths:
        here, damaged = look_through([path])
        if damaged and (not here or is_of_one_model(path)):
            raise damaged[0]
        found |= {one.folder.resolve(): one for one in here if one.folder.resolve() not in found}
    return list(found.values())


def left_out(paths: Sequence[str]) -> list[str]:
    """Why evaluations under the paths are in no group: unreadable, found twice, or a second evaluation of a model."""
    found, damaged = look_through(paths)
    once, copies = drop_copies(found)
    today, told = drop_replaced_weights(once)
    for members in keyed(today).values():
        told += keep_one_dtype(members, named_folders(paths))[1]
    return [*map(str, damaged), *copies, *told]


def add_bases(paths: Sequence[str], stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """The evaluations found under the paths, and those of their base models."""
    if not stored:
        missing = not_evaluated(paths)
        raise ComparisonError(nothing_under(missing) if missing or not paths else _relation_alone(paths))
    held = {one.evaluation.checkpoint: one.evaluation.fingerprints.get("weights") for one in stored}
    bases = []
    for one in _bases(stored):
        evaluation = one.evaluation
        weights = evaluation.fingerprints.get("weights")
        if held.setdefault(evaluation.checkpoint, weights) != weights:  # another model of that name
            one = replace(one, evaluation=replace(evaluation, checkpoint=marked(target_of(evaluation.path)).name))
        bases.append(one)
    return rename_bases([*stored, *bases])


def not_evaluated(paths: Sequence[str]) -> list[str]:
    """The paths without a finished evaluation, relation run or coreference run; a base's may lie with the runs of the others."""
    found = [path for path in paths if evaluations_under([path]) or find_relation([path]) or find_coreference([path])]
    bases = {model_place(one.evaluation.path) for one in _bases(evaluations_under(found))} if len(found) < len(paths) else set()
    return [path for path in paths if path not in found and model_place(path) not in bases]


def nothing_under(paths: Sequence[str]) -> str:
    return f"No finished evaluation under {', '.join(paths)}; run: coref-automl evaluate {' '.join(paths)}"


def _relation_alone(paths: Sequence[str]) -> str:
    told = f"Under {', '.join(paths)} there are relation or coreference runs alone"
    return f"{told}; name at least one evaluated checkpoint beside them (coref-automl evaluate makes one)."


def _bases(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """The base models of the checkpoints, if evaluated on the same items at the same length.

    An archive brings its own: evaluations elsewhere on this machine do not belong to it.
    """
    held = {one.folder.resolve() for one in stored}
    found: dict[Path, StoredEvaluation] = {}
    for one in stored:
        evaluation, made = one.evaluation, one.evaluation.provenance
        if made is None or not made.base or target_of(made.base).in_run or one.archived or _is_held(made, evaluation, stored):
            continue
        base = _like(made, one)
        if base and base.folder.resolve() not in held:
            found.setdefault(base.folder.resolve(), base)
    return list(found.values())


def _is_held(made: Provenance, evaluation: Evaluation, stored: Sequence[StoredEvaluation]) -> bool:
    """Is the base itself among what was found, under the same conditions? Told by its bytes; then none from elsewhere is needed.

    A checkpoint of a run is not its base, even where training has left the same bytes.
    """
    alike = (one.evaluation for one in stored if made.base_bytes and one.evaluation.condition == evaluation.condition)
    return any(other.fingerprints.get("weights") == made.base_bytes and not target_of(other.path).in_run for other in alike)


def _like(made: Provenance, one: StoredEvaluation) -> StoredEvaluation | None:
    """The base's evaluation under the same conditions; in another dtype only if there is none in the same."""

    def alike(other: Evaluation) -> bool:
        return (other.fingerprints.get("items"), other.scorer, other.seq_len) == conditions

    evaluation, run = one.evaluation, run_of(one.folder)
    conditions = (evaluation.fingerprints.get("items"), evaluation.scorer, evaluation.seq_len)
    near: dict[str, Any] = {"run": run, "out": run and run.parent}
    same = base_evaluation(made, lambda other: alike(other) and other.dtype == evaluation.dtype, **near)
    return same or base_evaluation(made, alike, **near)


def rename_bases(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Rename the bases of runs where two models share a folder name, so that each run finds its own."""
    told = [one.evaluation for one in stored if not one.archived and Path(one.evaluation.path).is_dir()]
    owners = {evaluation.checkpoint: model_place(evaluation.path) for evaluation in told}
    out = []
    for one in stored:
        made = one.evaluation.provenance
        if made is not None and Path(made.base).is_dir() and not one.archived and not (plain := target_of(made.base)).in_run:
            own, place = marked(plain).name, model_place(made.base)
            if owners.get(own) == place or owners.get(plain.name, place) != place:
                one = replace(one, evaluation=replace(one.evaluation, provenance=replace(made, base=own)))
        out.append(one)
    return out


def group_of(stored: Sequence[StoredEvaluation], fingerprint: str, scorer: str, *, unite: bool = False) -> Group:
    """Evaluations side by side; the caller makes sure that they share one scorer version, and one set unless `unite`.

    `unite` makes one entry of a model's evaluations on several sets.
    """
    index: dict[str, int] = {}
    facts: list[tuple[Any, ...]] = []
    tables = [_read(one.folder, index, facts) for one in stored]
    columns = {name: np.array([row[k] for row in facts]) for k, name in enumerate(FACTS)}
    part = next((one.evaluation.half for one in stored if one.evaluation.half), None)
    of = halves_of(zip(columns["task"].tolist(), columns["cluster"].tolist(), strict=True))
    halves = np.array([part or of[cluster] for cluster in columns["cluster"].tolist()])
    entries = []
    for one, (rows, read) in zip(_rename_runs(stored), tables, strict=True):
        ranks = np.full((len(index), 4), NOT_RUN, np.int32)
        ranks[rows] = read
        by_rule = {rule: ranks[:, k] for k, rule in enumerate(("strict", "lenient", "word"))}
        entries.append(Entry(one.evaluation.checkpoint, one.evaluation, one.folder, by_rule, ranks[:, 3] == 1))
    if unite:
        entries = _united(entries)
    starts = _starts(entries)
    entries = [replace(one, start=one in starts) for one in entries]
    sets = list(dict.fromkeys(one.evaluation.evalset for one in stored))
    begun: Counter[Path] = Counter()
    for entry in entries:
        if (made := entry.evaluation.provenance) is not None:
            begun.update({base.folder for base in bases_of(entries, made)})
    return Group(
        " + ".join(sets),
        fingerprint,
        scorer,
        Items(index, columns, halves),
        tuple(
            sorted(
                _named(entries),
                key=lambda entry: (entry.trained, 0 if entry.trained else -begun[entry.folder]),
            )
        ),
    )


def _united(entries: Sequence[Entry]) -> list[Entry]:
    """One entry per model, dtype and length over the items of all its sets; of an item in two sets the first rank counts."""
    held: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        key = (model_of(entry), *_conditions(entry.evaluation))
        if (first := held.setdefault(key, entry)) is not entry:
            both = {rule: np.where(ranks == NOT_RUN, entry.ranks[rule], ranks) for rule, ranks in first.ranks.items()}
            held[key] = replace(first, ranks=both, out_of_reach=first.out_of_reach | entry.out_of_reach)
    return list(held.values())


def _conditions(evaluation: Evaluation) -> tuple[object, ...]:
    """How it was scored, whatever the set."""
    return evaluation.scorer, evaluation.dtype, evaluation.seq_len


def _rename_runs(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Name runs by their folders where two of the same name differ in a setting of the run, or in weights at the same step."""
    told: dict[tuple[str, object], set[object]] = {}
    made = {id(one): one.evaluation.provenance for one in stored}
    for one in stored:
        if (record := made[id(one)]) is not None:
            told.setdefault((record.run, record.step), set()).add(one.evaluation.fingerprints.get("weights", ""))
            for name in _OF_A_RUN:
                if (value := getattr(record, name)) != "":
                    told.setdefault((record.run, name), set()).add(value)
    twice = {run for (run, _), found in told.items() if len(found) > 1}
    of = {id(one): PurePath(one.evaluation.path).parent for one in stored if (record := made[id(one)]) and record.run in twice}
    names = short_names(of.values())
    return [
        replace(one, evaluation=replace(one.evaluation, provenance=replace(record, run=names[of[id(one)]])))
        if (record := made[id(one)]) is not None and id(one) in of
        else one
        for one in stored
    ]


def _starts(entries: Sequence[Entry]) -> set[Entry]:
    """Checkpoints that serve as a base and are the only ones of their run: there is nothing to choose among."""
    runs: dict[PurePath, set[str]] = {}
    for one in entries:
        runs.setdefault(_run_or_model(one), set()).add(one.evaluation.path)
    begun = [made for one in entries if (made := one.evaluation.provenance)]
    return {one for one in entries if len(runs[_run_or_model(one)]) == 1 and any(bases_of([one], made) for made in begun)}


def _run_or_model(entry: Entry) -> PurePath:
    """The run of a checkpoint; a model outside a run counts as its own."""
    path = PurePath(entry.evaluation.path)
    return path.parent if CHECKPOINT.fullmatch(path.name) else path


def _read(folder: Path, index: dict[str, int], facts: list[tuple[Any, ...]]) -> tuple[Ints, Ints]:
    """Row numbers and ranks of an evaluation; new items are added to `index` and `facts`."""
    held = read_columns(folder, (*FACTS, *RULES, "out_of_reach"))
    at = [index.setdefault(item, len(index)) for item in held["item"]]
    for number, row in zip(at, zip(*(held[name] for name in FACTS), strict=True), strict=True):
        if number == len(facts):
            facts.append(row)
    ranks = [whole_numbers(held[name]) for name in (*RULES, "out_of_reach")]
    return np.array(at, np.int32), np.stack(ranks, axis=1)


def _named(entries: Sequence[Entry]) -> list[Entry]:
    """Unique names: without the run if there is only one, with the length if there are several."""
    one_run = len({entry.run for entry in entries if entry.trained}) == 1
    times = Counter((entry.evaluation.checkpoint, entry.evaluation.seq_len) for entry in entries)
    twice = {entry.run for entry in entries if times[entry.evaluation.checkpoint, entry.evaluation.seq_len] > 1}
    names = []
    for entry in entries:
        name, label = entry.evaluation.checkpoint, Path(entry.evaluation.checkpoint).name
        names.append(name if not entry.trained else label if one_run else f"{entry.run}/{label}" if entry.run in twice else name)
    count = Counter(names)
    names = [f"{name}@{e.evaluation.seq_len}" if count[name] > 1 else name for name, e in zip(names, entries, strict=True)]
    seen: dict[str, int] = {}
    out = []
    for name, entry in zip(names, entries, strict=True):
        seen[name] = seen.get(name, 0) + 1
        out.append(replace(entry, name=name if seen[name] == 1 else f"{name} ({seen[name]})"))
    return out


def _holds(group: Group, path: str) -> bool:
    """Is an evaluation under the path, or the one that it repeats, in the group?"""
    held = {(model_of(entry), *_conditions(entry.evaluation)) for entry in group.entries}
    found = [one for one in evaluations_under([path]) if group.fingerprint in ("", _items(one))]
    return any((model_of(one), *_conditions(one.evaluation)) in held for one in found)


def _refusal(groups: Sequence[Group]) -> str:
    lists = [
        f"{', '.join(e.name for e in g.entries[:3])}: items {g.fingerprint[:8]} of {g.evalset}, scorer {g.scorer}" for g in groups
    ]
    return (
        f"These evaluations do not share their items or their scorer ({'; '.join(lists)}). "
        "Evaluate them on one set with one version, or pass --common to compare the items they share."
    )
