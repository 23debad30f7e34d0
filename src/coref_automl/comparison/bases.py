"""Bases: what a checkpoint is compared with. In: evaluations. Out: its base model's, found among them or on the disk.

    in a group     bases_of         every evaluation of a record's base
                   own_base         the one to judge a checkpoint by: in windows of the same length
    on the disk    bases_beside     bases beside checkpoints: of the same items, scorer and length

A base is identified by its bytes. For older records without bytes, its place decides on the disk and its label in a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from coref_automl.base.config import nearest
from coref_automl.base.errors import ComparisonError
from coref_automl.base.folders import is_folder, is_there
from coref_automl.base.records import Evaluation, Provenance
from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.results import Opened, StoredEvaluation, base_evaluation, run_of
from coref_automl.evaluation.targets import slug, target_of
from coref_automl.models.model_files import full_name


def bases_of(entries: Sequence[Entry], provenance: Provenance | None) -> list[Entry]:
    """The evaluations of a checkpoint's base model; none without a training record. If the record has no bytes and two names
    differ in their owners alone (klue/bert, other/bert), the exact name decides."""
    if provenance is None:
        return []
    base, weights = provenance.base, provenance.base_bytes
    bases = [entry for entry in entries if entry.is_of(base, weights) and not _is_unchanged_checkpoint(entry, weights)]
    return [entry for entry in bases if entry.evaluation.checkpoint == slug(base)] or bases


def _is_unchanged_checkpoint(entry: Entry, base_bytes: str) -> bool:
    """Is it a checkpoint trained from the same base, whose bytes it may still equal? Such a checkpoint is not a base."""
    provenance = entry.evaluation.provenance
    return bool(base_bytes) and provenance is not None and provenance.base_bytes == base_bytes


def own_base(entries: Sequence[Entry], entry: Entry, base: Entry | None) -> Entry | None:
    """A checkpoint's base, evaluated in windows of the same length; the study's base if it is one of several. A checkpoint
    without a training record is assumed to have the study's base."""
    provenance, length = entry.evaluation.provenance, entry.evaluation.seq_len
    alike = bases_of(entries, provenance) if provenance else [other for other in entries if base and other.same_model_as(base)]
    bases = [other for other in alike if other is not entry and other.evaluation.seq_len == length]
    return base if base in bases else next(iter(bases), None)


def references(entries: Sequence[Entry], first: Entry) -> list[Entry | None]:
    """The default reference of each entry: its base, or None if that was not evaluated.

    Any other model is compared with the reference that is the same model in other windows, else with `first`, unless it is a
    reference itself. If no base was evaluated, `first` is the reference of all but those trained from it: windows differ.
    """
    study_base = None if first.trained else first
    own = [None if _is_outside_runs(entry) else own_base(entries, entry, study_base) for entry in entries]
    bases = list(dict.fromkeys(entry for entry in own if entry is not None))
    if not bases:
        return [None if first in bases_of(entries, entry.evaluation.provenance) else first for entry in entries]
    default = first if first in bases else bases[0]

    def reference(entry: Entry, base: Entry | None) -> Entry | None:
        if not _is_outside_runs(entry) or entry in bases:
            return base
        return next((other for other in bases if other.same_model_as(entry)), default)

    return list(map(reference, entries, own))


def _is_outside_runs(entry: Entry) -> bool:
    return not entry.trained and entry.evaluation.provenance is None


def find_reference(entries: Sequence[Entry], reference: str | None) -> int:
    """The number of the entry with that name or path; default: the base in the most common window length, or the first entry."""
    if reference is None:
        base = next((entry for entry in entries if not entry.trained), None)
        return _in_common_length(entries, base) if base is not None else 0
    requested = Path(reference)
    for number, entry in enumerate(entries):
        path = Path(entry.evaluation.path)
        if reference in (entry.name, entry.evaluation.checkpoint, entry.evaluation.path):
            return number
        if is_there(requested) and is_there(path) and requested.resolve() == path.resolve():
            return number
    raise ComparisonError(f"No evaluation of {reference!r} here. {nearest(reference, [entry.name for entry in entries])}")


def _in_common_length(entries: Sequence[Entry], base: Entry) -> int:
    """The number of the base in the window length that most of its checkpoints have; ties go to the first."""
    lengths = Counter(entry.evaluation.seq_len for entry in entries if base in bases_of(entries, entry.evaluation.provenance))
    same = [number for number, entry in enumerate(entries) if not entry.trained and entry.same_model_as(base)]
    return max(same, key=lambda number: lengths[entries[number].evaluation.seq_len])


# -- on the disk


def with_bases(evaluations: Sequence[StoredEvaluation], opened: Opened) -> list[StoredEvaluation]:
    """Add the evaluations of their base models; of two models with one name, the later one is renamed."""
    weights = {stored.evaluation.checkpoint: stored.evaluation.fingerprints.get("weights") for stored in evaluations}
    bases = []
    for base in bases_beside(evaluations, opened):
        fingerprint = base.evaluation.fingerprints.get("weights")
        if weights.setdefault(base.evaluation.checkpoint, fingerprint) != fingerprint:
            name = target_of(base.evaluation.path).marked().name
            base = replace(base, evaluation=replace(base.evaluation, checkpoint=name))
        bases.append(base)
    return rename_bases([*evaluations, *bases])


def rename_bases(evaluations: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """Name the bases of records as they were evaluated where two models share a folder name: base-3fa92c in place of base."""
    present = [stored.evaluation for stored in evaluations if not stored.archived and is_folder(stored.evaluation.path)]
    owners = {evaluation.checkpoint: full_name(evaluation.path) for evaluation in present}
    out = []
    for stored in evaluations:
        provenance = stored.evaluation.provenance
        if provenance is not None and not stored.archived and (name := _marked_name(provenance.base, owners)):
            stored = replace(stored, evaluation=replace(stored.evaluation, provenance=replace(provenance, base=name)))
        out.append(stored)
    return out


def _marked_name(base: str, owners: dict[str, str]) -> str:
    """A base's name with its mark if it was evaluated under that name, or if its plain name belongs to another model; else empty.
    `owners` are the places of the evaluated models by name."""
    target = target_of(base)
    if not is_folder(base) or target.in_run:
        return ""
    name, place = target.marked().name, full_name(base)
    evaluated_as_marked = owners.get(name) == place
    plain_is_another = owners.get(target.name, place) != place
    return name if evaluated_as_marked or plain_is_another else ""


def bases_beside(evaluations: Sequence[StoredEvaluation], opened: Opened) -> list[StoredEvaluation]:
    """Base models of the checkpoints that are not among them, if evaluated on the same items at the same length."""
    known = {stored.folder.resolve() for stored in evaluations}
    bases: dict[Path, StoredEvaluation] = {}
    for stored in evaluations:
        provenance = stored.evaluation.provenance
        if provenance is None or not _lacks_base(provenance, stored, evaluations):
            continue
        base = _base_beside(provenance, stored, opened)
        if base is not None and base.folder.resolve() not in known:
            bases.setdefault(base.folder.resolve(), base)
    return list(bases.values())


def _lacks_base(provenance: Provenance, stored: StoredEvaluation, evaluations: Sequence[StoredEvaluation]) -> bool:
    """Is the base a model outside runs, and not yet evaluated under the same conditions? An archive brings its own. A checkpoint
    of a run is not a base, even if training left its bytes unchanged."""
    if stored.archived or not provenance.base or target_of(provenance.base).in_run:
        return False
    alike = [other.evaluation for other in evaluations if other.evaluation.condition == stored.evaluation.condition]
    weights = provenance.base_bytes
    same_bytes = [other for other in alike if weights and other.fingerprints.get("weights") == weights]
    return all(target_of(other.path).in_run for other in same_bytes)


def _base_beside(provenance: Provenance, stored: StoredEvaluation, opened: Opened) -> StoredEvaluation | None:
    """The base's evaluation under the same conditions; in another dtype only if there is none in the same."""
    evaluation, run = stored.evaluation, run_of(stored.folder)

    def comparable(other: Evaluation) -> bool:
        same_items = other.fingerprints.get("items") == evaluation.fingerprints.get("items")
        return same_items and (other.scorer, other.seq_len) == (evaluation.scorer, evaluation.seq_len)

    search = partial(base_evaluation, provenance, run=run, out=run and run.parent, opened=opened)
    return search(lambda other: comparable(other) and other.dtype == evaluation.dtype) or search(comparable)
