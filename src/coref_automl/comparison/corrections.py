"""Verdicts about methods that stand side by side. In: those of one question. Out: the same, corrected for their number.

Holm's correction for the few primary verdicts of a study, Benjamini-Hochberg's within the tables of every other question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from coref_automl.comparison.arms import Versus
from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.corrections import benjamini_hochberg

Column = list[Versus | None]
Key = TypeVar("Key")


def corrected(found: Sequence[Versus | None], *, primary: bool = False) -> Column:
    """Those over several seeds are a family; one seed shows nothing and is not part of it."""
    at = [n for n, one in enumerate(found) if one is not None and one.seeds > 1]
    ps = [one.answer.p for n in at if (one := found[n]) is not None]
    out = list(found)
    for n, p in zip(at, holm(ps) if primary else benjamini_hochberg(ps), strict=True):
        if (one := out[n]) is not None:
            out[n] = replace(one, adjusted=float(p), family=len(at))
    return out


def corrected_columns(columns: Mapping[Key, Sequence[Versus | None]]) -> dict[Key, Column]:
    """Several columns of one question as one family."""
    flat = iter(corrected([one for column in columns.values() for one in column]))
    return {key: [next(flat) for _ in column] for key, column in columns.items()}
