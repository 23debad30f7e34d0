"""Bases: what a checkpoint is compared with. In: evaluations. Out: its base model's, found beside it or among the others.

    in a group     bases_of         every evaluation of a record's base
                   own_base         the one to judge a checkpoint by: in windows of the same length
    on the disk    bases_beside     bases beside checkpoints: of the same items, scorer and length

A base is known by its bytes. For older records without bytes its place decides on the disk, its label in a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from coref_automl.comparison.scores import Entry
from coref_automl.config import nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.results import Opened, StoredEvaluation, base_evaluation, run_of
from coref_automl.evaluation.targets import slug, target_of
from coref_automl.models.model_files import full_name
from coref_automl.records import Evaluation, Provenance


def bases_of(entries: Sequence[Entry], made: Provenance | None) -> list[Entry]:
    """The evaluations of a checkpoint's base model; none without a training record. If the record has no bytes and two names
    differ in their owners alone (klue/bert, other/bert), the exact name decides."""
    if made is None:
        return []
    found = [one for one in entries if one.is_of(made.base, made.base_bytes) and not _learned_nothing(one, made.base_bytes)]
    return [one for one in found if one.evaluation.checkpoint == slug(made.base)] or found


def _learned_nothing(entry: Entry, base_bytes: str) -> bool:
    """Is it a checkpoint from the same base, which its own bytes may still equal? It is not a base."""
    made = entry.evaluation.provenance
    return bool(base_bytes) and made is not None and made.base_bytes == base_bytes


def own_base(entries: Sequence[Entry], entry: Entry, base: Entry | None) -> Entry | None:
    """A checkpoint's base, evaluated in windows of the same length; that of the study where it is one of several. A checkpoint
    without a training record is assumed to have the study's base."""
    made, length = entry.evaluation.provenance, entry.evaluation.seq_len
    if made is None:
        return base
    found = [one for one in bases_of(entries, made) if one is not entry and one.evaluation.seq_len == length]
    return base if base in found else next(iter(found), None)


def references(entries: Sequence[Entry], first: Entry) -> list[Entry | None]:
    """The default reference of each entry: its base, or None if that was not evaluated.

    Any other model is compared with the reference that is the same model in other windows, else with `first`, unless it is a
    reference itself. If no base was evaluated, `first` is the reference of all but those that began from it: windows differ.
    """
    base = None if first.trained else first
    own = [None if _is_outside_runs(one) else own_base(entries, one, base) for one in entries]
    used = list(dict.fromkeys(one for one in own if one is not None))
    if not used:
        return [None if first in bases_of(entries, one.evaluation.provenance) else first for one in entries]
    usual = first if first in used else used[0]
    return [
        next((other for other in used if other.same_model_as(one)), usual) if _is_outside_runs(one) and one not in used else mine
        for one, mine in zip(entries, own, strict=True)
    ]


def _is_outside_runs(entry: Entry) -> bool:
    return not entry.trained and entry.evaluation.provenance is None


def find_reference(entries: Sequence[Entry], reference: str | None) -> int:
    """The entry of that name or path; default the base model in the most common window length, or the first entry."""
    if reference is None:
        base = next((entry for entry in entries if not entry.trained), None)
        return _in_common_length(entries, base) if base is not None else 0
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


def _in_common_length(entries: Sequence[Entry], base: Entry) -> int:
    """The base in the window length that most of its checkpoints have; the first of equals."""
    lengths = Counter(entry.evaluation.seq_len for entry in entries if base in bases_of(entries, entry.evaluation.provenance))
    same = [number for number, one in enumerate(entries) if not one.trained and one.same_model_as(base)]
    return max(same, key=lambda number: lengths[entries[number].evaluation.seq_len])


# -- on the disk


def with_bases(stored: Sequence[StoredEvaluation], opened: Opened) -> list[StoredEvaluation]:
    """Evaluations of these results, and those of their base models; of two models of one name the later one is renamed."""
    weights = {one.evaluation.checkpoint: one.evaluation.fingerprints.get("weights") for one in stored}
    bases = []
    for one in bases_beside(stored, opened):
        own = one.evaluation.fingerprints.get("weights")
        if weights.setdefault(one.evaluation.checkpoint, own) != own:
            name = target_of(one.evaluation.path).marked().name
            one = replace(one, evaluation=replace(one.evaluation, checkpoint=name))
        bases.append(one)
    return rename_bases([*stored, *bases])


def rename_bases(stored: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Name the bases of records as they were evaluated, where two models share a folder name: base-3fa92c in place of base."""
    present = [one.evaluation for one in stored if not one.archived and Path(one.evaluation.path).is_dir()]
    owners = {evaluation.checkpoint: full_name(evaluation.path) for evaluation in present}
    out = []
    for one in stored:
        made = one.evaluation.provenance
        if made is not None and not one.archived and (name := _marked_name(made.base, owners)):
            one = replace(one, evaluation=replace(one.evaluation, provenance=replace(made, base=name)))
        out.append(one)
    return out


def _marked_name(base: str, owners: dict[str, str]) -> str:
    """A base's name with its mark, if it was evaluated under that name, or if its plain name belongs to another model, which a
    run must not find; else empty. `owners` are the places of the models that were evaluated, by name."""
    plain = target_of(base)
    if not Path(base).is_dir() or plain.in_run:
        return ""
    name, place = plain.marked().name, full_name(base)
    evaluated_as_marked = owners.get(name) == place
    plain_is_another = owners.get(plain.name, place) != place
    return name if evaluated_as_marked or plain_is_another else ""


def bases_beside(stored: Sequence[StoredEvaluation], opened: Opened) -> list[StoredEvaluation]:
    """The base models of the checkpoints, if evaluated on the same items at the same length, that are not among these."""
    known = {one.folder.resolve() for one in stored}
    found: dict[Path, StoredEvaluation] = {}
    for one in stored:
        made = one.evaluation.provenance
        base = _base_beside(made, one, opened) if made is not None and _lacks_base(made, one, stored) else None
        if base is not None and base.folder.resolve() not in known:
            found.setdefault(base.folder.resolve(), base)
    return list(found.values())


def _lacks_base(made: Provenance, one: StoredEvaluation, stored: Sequence[StoredEvaluation]) -> bool:
    """Is the base a model outside runs, and not yet among the evaluations under the same conditions? An archive brings its own.
    A checkpoint of a run is not a base, even where training has left the same bytes."""
    if one.archived or not made.base or target_of(made.base).in_run:
        return False
    alike = [other.evaluation for other in stored if other.evaluation.condition == one.evaluation.condition]
    same_bytes = [other for other in alike if made.base_bytes and other.fingerprints.get("weights") == made.base_bytes]
    return all(target_of(other.path).in_run for other in same_bytes)


def _base_beside(made: Provenance, one: StoredEvaluation, opened: Opened) -> StoredEvaluation | None:
    """The base's evaluation under the same conditions; in another dtype only if there is none in the same."""
    evaluation, run = one.evaluation, run_of(one.folder)

    def comparable(other: Evaluation) -> bool:
        same_items = other.fingerprints.get("items") == evaluation.fingerprints.get("items")
        return same_items and (other.scorer, other.seq_len) == (evaluation.scorer, evaluation.seq_len)

    search = partial(base_evaluation, made, run=run, out=run and run.parent, opened=opened)
    return search(lambda other: comparable(other) and other.dtype == evaluation.dtype) or search(comparable)
