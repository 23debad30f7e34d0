"""Which documents speak, and why. In: runs by seed. Out: Speaking: all documents, or those of the half that chose nothing.

Where neither the checkpoint nor the setting was chosen on a set, there is nothing to hold documents back for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from coref_automl.comparison.scores import Entry
from coref_automl.records import Half, Record

Why = Literal["planned", "same end", "chosen"]


@dataclass(frozen=True, slots=True)
class Speaking(Record):
    """`half` is the one that speaks, None for all documents.

    `why`: every run ends where it was planned to; or its record does not say, and all runs of a method end at the same epoch; or
    the set had a say (early stopping, tuning, a peak), or may have had.
    """

    half: Half | None
    why: Why


CONFIRM = Speaking("confirm", "chosen")


def speaking(methods: Iterable[Sequence[Entry]]) -> Speaking:
    """For last checkpoints, a sequence of them per method: all documents if every one of them was unchosen."""
    found: list[Why] = [_why(ends) for ends in methods]
    if "chosen" in found:
        return CONFIRM
    return Speaking(None, "same end" if "same end" in found else "planned")


def _why(ends: Sequence[Entry]) -> Why:
    made = [entry.evaluation.provenance for entry in ends]
    planned = [one.planned_end if one else False for one in made]
    if False in planned:
        return "chosen"
    if None not in planned:
        return "planned"
    return "same end" if len({round(one.epoch, 3) for one in made if one}) == 1 else "chosen"
