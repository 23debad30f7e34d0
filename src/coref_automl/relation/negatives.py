"""Hard negatives. In: what the model made of its training rows this epoch. Out: the no_relation rows to repeat next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.relation.labels import NO_RELATION


def margins(logits: Any) -> Any:
    """How far the best relation stands above no_relation (a tensor, a row each); large where the model sees a relation."""
    return logits[:, NO_RELATION + 1 :].amax(1) - logits[:, NO_RELATION]


def hard_negatives(gold: NDArray[np.int64], margin: NDArray[np.floating], share: float) -> NDArray[np.int64]:
    """The `share` of no_relation rows with the largest margin, in row order; rows not seen yet (NaN) are never chosen."""
    negatives = np.flatnonzero((gold == NO_RELATION) & ~np.isnan(margin))
    count = int(share * len(negatives))
    hardest = negatives[np.argsort(-margin[negatives], kind="stable")[:count]]
    return np.sort(hardest).astype(np.int64)
