"""What a checkpoint is compared with. In: evaluations side by side. Out: the model each started from, or one reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from coref_automl.comparison.scores import Entry
from coref_automl.config import nearest
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.results import slug
from coref_automl.records import Provenance


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
        if reference in (entry.name, entry.evaluation.checkpoint, entry.evaluation.path) or _same(
            wanted, Path(entry.evaluation.path)
        ):
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
    """A checkpoint's evaluated base: the study's base, or one with the same window length, or its only evaluation.

    A checkpoint without a training record is assumed to have the study's base.
    """
    made = entry.evaluation.provenance
    if made is None:
        return base
    found = [one for one in bases_of(entries, made) if one is not entry]
    if base is not None and any(one is base for one in found):
        return base
    as_long = next((one for one in found if one.evaluation.seq_len == entry.evaluation.seq_len), None)
    return as_long or (found[0] if len(found) == 1 else None)


def references(entries: Sequence[Entry], first: Entry) -> list[Entry | None]:
    """The default reference of each entry: its base, or None if that was not evaluated.

    Any other model is compared with the reference that is the same model in other windows, else with `first`, unless it is a
    reference itself. If no base was evaluated, `first` is the reference of all.
    """
    base = None if first.trained else first
    out = [own_base(entries, one, base) if one.trained or one.evaluation.provenance else None for one in entries]
    used = list({id(one): one for one in out if one is not None}.values())
    if not used:
        return [first] * len(entries)
    other = first if first in used else used[0]
    for number, entry in enumerate(entries):
        if not entry.trained and entry.evaluation.provenance is None and entry not in used:
            out[number] = next((one for one in used if one.same_model_as(entry)), other)
    return out


def _same(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.resolve() == b.resolve()


def _began_from(entry: Entry, weights: str) -> bool:
    made = entry.evaluation.provenance
    return bool(weights and made and made.base_bytes == weights)
