"""Contrasts of one outcome. In: values, item by item. Out: values whose mean is the contrast, for any test of this room. Pure.

"It helps more here than there" is a difference of differences, and a verdict of its own: shown here and not shown there does not
show it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.statistics.resampling import Floats


def interaction(values: ArrayLike, inside: ArrayLike) -> Floats:
    """Values whose mean over all items is that over those `inside` minus that over the others; the last axis is items.

    Documents may hold both kinds: each kind is centred on its own mean, so that a document moves the contrast by what it adds to
    either mean, and not by how many items of a kind it happens to hold.
    """
    seen, here = np.asarray(values, np.float64), np.asarray(inside, np.bool_)
    if seen.shape[-1] != len(here):
        raise ValueError(f"{seen.shape[-1]} values and {len(here)} marks: there must be one mark per item.")
    count = int(here.sum())
    if count in (0, len(here)):
        raise ValueError("All items are of one kind; a contrast needs both.")
    within, beyond = seen[..., here].mean(axis=-1, keepdims=True), seen[..., ~here].mean(axis=-1, keepdims=True)
    moved = np.where(here, (seen - within) * (len(here) / count), (beyond - seen) * (len(here) / (len(here) - count)))
    return np.asarray(moved + within - beyond)


def reciprocal(ranks: ArrayLike) -> Floats:
    """One over the rank; 0 for rank 0, which says that no entry of the vocabulary can match. Its mean is MRR."""
    found = np.asarray(ranks)
    return np.asarray(np.divide(1.0, found, out=np.zeros(found.shape), where=found > 0))


def below_first(ranks: ArrayLike) -> Floats:
    """What lower ranks add to MRR: a difference in MRR is that in hit@1 and that in these. They may differ in sign."""
    found = np.asarray(ranks)
    return np.asarray(np.where(found > 1, reciprocal(found), 0.0))
