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
    """The evaluations of the model that a checkpoint began from.

    Where a record has no bytes, of two that only their owners tell apart (klue/bert, other/bert), those of the very one.
    A checkpoint that began from the same bytes is not a base even where they are still its own: its run has learned nothing.
    """
    found = [one for one in entries if one.is_of(made.base, made.base_bytes) and not _began_from(one, made.base_bytes)]
    return [one for one in found if one.evaluation.checkpoint == slug(made.base)] or found


def find_reference(entries: Sequence[Entry], reference: str | None) -> int:
    """The entry of that name or path; unless given, the base model in windows as its checkpoints have them, or the first."""
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
    """The same model in windows as long as those of the most checkpoints that began from it; the first of equals."""
    begun: Counter[int] = Counter()
    for entry in entries:
        if (made := entry.evaluation.provenance) is not None and base in bases_of(entries, made):
            begun[entry.evaluation.seq_len] += 1
    same = [number for number, one in enumerate(entries) if not one.trained and one.same_model_as(base)]
    return max(same, key=lambda number: begun[entries[number].evaluation.seq_len])


def own_base(entries: Sequence[Entry], entry: Entry, base: Entry | None) -> Entry | None:
    """The evaluated model that a checkpoint began from: the study's base, or one in windows as long, or of its only length.

    A checkpoint without a record of its training is taken to have begun from the study's base.
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
    """What each is judged against where nobody chose: the model it began from, or None if that was not evaluated.

    A model from elsewhere stands beside the reference that is the same model in other windows, else beside `first`, unless it is
    a reference itself. Where none of the models behind the checkpoints was evaluated, all stand beside `first`.
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
