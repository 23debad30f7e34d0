"""Many verdicts at once. In: p-values, or the columns behind them. Out: p-values adjusted for their number. Pure.

Holm's (closed_forms) for the few primary verdicts of a study: no false one in 19 studies of 20. Benjamini-Hochberg within one
question's table: of what a table shows, 5% is false on average. Step-down max-T for many checkpoints against their references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coref_automl.statistics.closed_forms import LEVEL, NORMAL
from coref_automl.statistics.intervals import permutation_draws
from coref_automl.statistics.resampling import Floats, Part, flipped_sums, gather

_ROUNDING = 1e-9


def benjamini_hochberg(ps: ArrayLike) -> Floats:
    """Adjusted p-values in the order given: those under 0.05 hold at most 5% false ones on average.

    That is where tests are independent or positively dependent, as verdicts on the same documents are.
    """
    raw = np.asarray(ps, dtype=np.float64)
    order = np.argsort(raw, kind="stable")[::-1]
    stepped = np.minimum.accumulate(raw[order] * (len(raw) / np.arange(len(raw), 0, -1)))
    out = np.empty_like(raw)
    out[order] = np.minimum(1.0, stepped)
    return out


@dataclass(frozen=True, slots=True)
class Flipped:
    """Sign-flip p-values of several columns of differences: each alone, and adjusted for all of them (step-down max-T).

    `level` is what a column's own p must be under at the hardest step: between 0.05 and that over the number of columns. `half`
    are the half widths of simultaneous 95% intervals: they exclude 0 exactly where the adjusted p is under 0.05.
    """

    alone: Floats
    adjusted: Floats
    level: float
    half: Floats


def step_down_max_t(parts: Sequence[Part], *, seed: int, family: int = 1) -> Flipped:
    """Westfall and Young's step-down max-T: is any difference still shown when the largest of all is what chance is asked for?

    One sign per document flips all columns together, so that columns which rise and fall together count as the few they are:
    Holm counts ninety checkpoints of the same runs as ninety. Columns are on the scale of their own spread under the flips,
    which no flip changes. The family is what the columns hold; `family` may only raise the number of draws.
    """
    gathered = [gather(part) for part in parts]
    means = np.asarray(sum(part.means() for part in gathered))
    spread = np.sqrt(np.asarray(sum(((part.sums / part.items) ** 2).sum(axis=0) for part in gathered)))
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    seen = np.abs(means) * scale
    order = np.argsort(-seen, kind="stable")
    draws = permutation_draws(max(family, len(seen)))
    alone, largest, highest = np.zeros(len(seen)), np.zeros(len(seen)), []
    for block in flipped_sums(gathered, seed=seed, draws=draws):
        flipped = (np.abs(block) * scale)[:, order]
        alone += (flipped >= seen[order] - _ROUNDING).sum(axis=0)
        left = np.maximum.accumulate(flipped[:, ::-1], axis=1)[:, ::-1]  # the largest of this column and those after it
        largest += (left >= seen[order] - _ROUNDING).sum(axis=0)
        highest.append(left.astype(np.float32))
    ps, adjusted = np.empty_like(seen), np.empty_like(seen)
    ps[order] = (1 + alone) / (1 + draws)
    adjusted[order] = np.maximum.accumulate((1 + largest) / (1 + draws))
    same = spread == 0
    ps[same] = adjusted[same] = 1.0
    reach = np.asarray(
        np.quantile(np.concatenate(highest), LEVEL, axis=0), np.float64
    )  # flipped means are about normal on this scale
    level = min(1 - LEVEL, max((1 - LEVEL) / len(seen), 2 * (1 - NORMAL.cdf(float(reach[0])))))
    return Flipped(ps, adjusted, level, _half_widths(means, spread, adjusted, reach, order))


def _half_widths(means: Floats, spread: Floats, adjusted: Floats, reach: Floats, order: NDArray[np.intp]) -> Floats:
    """As far as chance reaches at each column's own step; behind a step that shows nothing no other is taken."""
    shown = adjusted < 1 - LEVEL
    last = min(int(shown.sum()), len(reach) - 1)
    half = np.empty_like(spread)
    half[order] = reach[np.minimum(np.arange(len(reach)), last)] * spread[order]
    far = np.abs(means)
    return np.where(
        shown, np.minimum(half, far * (1 - _ROUNDING)), np.where(spread > 0, np.maximum(half, far * (1 + _ROUNDING)), 0.0)
    )
