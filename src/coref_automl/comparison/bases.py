"""Bases: what a checkpoint is compared with. In: evaluations. Out: its base model's, found beside it or among the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coref_automl.comparison.names import rename_bases
from coref_automl.comparison.scores import Entry
from coref_automl.config import nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.results import Opened, StoredEvaluation, base_evaluation, marked, run_of, slug, target_of
from coref_automl.records import Evaluation, Provenance


def bases_of(entries: Sequence[Entry], made: Provenance) -> list[Entry]:
    """The evaluations of a checkpoint's base model.

    If the record has no bytes and two names differ in the owner alone (klue/bert, other/bert), the exact name decides.
    A checkpoint with the same base bytes is not a base, even if its own bytes still equal them (its run has learned nothing).
    """
    found = [one for one in entries if one.is_of(made.base, made.base_bytes) and not _began_from(one, made.base_bytes)]
    return [one for one in found if one.evaluation.checkpoint == slug(made.base)] or found


def find_reference(entries: Sequence[Entry], reference: str | None) -> int:
    """The entry of that name or path; default the base model in the most common window length, or the first entry."""
    if reference is None:
        base = next((entry for entry in entries if not entry.trained), None)
        return _as_long_as_most(entries, base) if base is not None else 0
    wanted = Path(reference)
    for number, entry in enumerate(entries):
        place = Path(entry.evaluation.path)
        if reference in (entry.name, entry.evaluation.checkpoint, entry.evaluation.path):
            return number
        if wanted.exists() and place.exists() and wanted.resolve() == place.resolve():
            return number
    raise ComparisonError(
        f"No evaluation of the reference {reference!r} here. {nearest(reference, [entry.name for entry in entries])}"
    )


def _as_long_as_most(entries: Sequence[Entry], base: Entry) -> int:
    """The base in the window length that most of its checkpoints have; the first of equals."""
    begun: Counter[int] = Counter()
    for entry in entries:
        if (made := entry.evaluation.provenance) is not None and base in bases_of(entries, made):
            begun[entry.evaluation.seq_len] += 1
    same = [number for number, one in enumerate(entries) if not one.trained and one.same_model_as(base)]
    return max(same, key=lambda number: begun[entries[number].evaluation.seq_len])


def own_base(entries: Sequence[Entry], entry: Entry, base: Entry | None) -> Entry | None:
    """A checkpoint's base, evaluated in windows of the same length; that of the study where it is one of several.

    A checkpoint without a training record is assumed to have the study's base.
    """
    made = entry.evaluation.provenance
    if made is None:
        return base
    length = entry.evaluation.seq_len
    found = [one for one in bases_of(entries, made) if one is not entry and one.evaluation.seq_len == length]
    return base if base in found else next(iter(found), None)


def references(entries: Sequence[Entry], first: Entry) -> list[Entry | None]:
    """The default reference of each entry: its base, or None if that was not evaluated.

    Any other model is compared with the reference that is the same model in other windows, else with `first`, unless it is a
    reference itself. If no base was evaluated, `first` is the reference of all but those that began from it: windows differ.
    """
    base = None if first.trained else first
    out = [own_base(entries, one, base) if one.trained or one.evaluation.provenance else None for one in entries]
    used = list({id(one): one for one in out if one is not None}.values())
    if not used:
        began = [made is not None and first in bases_of(entries, made) for made in (one.evaluation.provenance for one in entries)]
        return [None if own else first for own in began]
    other = first if first in used else used[0]
    for number, entry in enumerate(entries):
        if not entry.trained and entry.evaluation.provenance is None and entry not in used:
            out[number] = next((one for one in used if one.same_model_as(entry)), other)
    return out


def _began_from(entry: Entry, weights: str) -> bool:
    made = entry.evaluation.provenance
    return bool(weights and made and made.base_bytes == weights)


def with_bases(stored: Sequence[StoredEvaluation], opened: Opened) -> list[StoredEvaluation]:
    """Evaluations of these results, and those of their base models."""
    weights = {one.evaluation.checkpoint: one.evaluation.fingerprints.get("weights") for one in stored}
    bases = []
    for one in bases_beside(stored, opened):
        evaluation, own = one.evaluation, one.evaluation.fingerprints.get("weights")
        if weights.setdefault(evaluation.checkpoint, own) != own:  # another model of that name
            one = replace(one, evaluation=replace(evaluation, checkpoint=marked(target_of(evaluation.path)).name))
        bases.append(one)
    return rename_bases([*stored, *bases])


def bases_beside(stored: Sequence[StoredEvaluation], opened: Opened) -> list[StoredEvaluation]:
    """The base models of the checkpoints, if evaluated on the same items at the same length.

    An archive brings its own: evaluations elsewhere on this machine do not belong to it.
    """
    known = {one.folder.resolve() for one in stored}
    found: dict[Path, StoredEvaluation] = {}
    for one in stored:
        made = one.evaluation.provenance
        if made is None or not made.base or target_of(made.base).in_run or one.archived or _has_base(made, one, stored):
            continue
        base = _base_beside(made, one, opened)
        if base and base.folder.resolve() not in known:
            found.setdefault(base.folder.resolve(), base)
    return list(found.values())


def _base_beside(made: Provenance, one: StoredEvaluation, opened: Opened) -> StoredEvaluation | None:
    """The base's evaluation under the same conditions; in another dtype only if there is none in the same."""

    def comparable(other: Evaluation) -> bool:
        same_items = other.fingerprints.get("items") == evaluation.fingerprints.get("items")
        return same_items and (other.scorer, other.seq_len) == (evaluation.scorer, evaluation.seq_len)

    evaluation, run = one.evaluation, run_of(one.folder)
    near: dict[str, Any] = {"run": run, "out": run and run.parent, "opened": opened}
    same = base_evaluation(made, lambda other: comparable(other) and other.dtype == evaluation.dtype, **near)
    return same or base_evaluation(made, comparable, **near)


def _has_base(made: Provenance, one: StoredEvaluation, stored: Sequence[StoredEvaluation]) -> bool:
    """Is the base itself, known by its bytes, among the evaluations under the same conditions?

    A checkpoint of a run is not its base, even where training has left the same bytes.
    """
    others = (other.evaluation for other in stored if other.evaluation.condition == one.evaluation.condition)
    weights = made.base_bytes
    return bool(weights) and any(o.fingerprints.get("weights") == weights and not target_of(o.path).in_run for o in others)
