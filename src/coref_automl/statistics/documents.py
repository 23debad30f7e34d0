"""The document test: sign flips of whole documents, in closed form. In: sums by document. Out: p, intervals. Pure.

If two models are equally good, the difference of a document has either sign with even odds. The largest documents are flipped
one by one; the sum of all others is normal, corrected for its fourth moment (Cornish and Fisher). The interval holds every
difference that, taken off each item, leaves a p of at least 1 - level. `benchmarks/verdict_simulation.py` compares this test
with Student's t over documents and with random flips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from coref_automl.statistics.closed_forms import NORMAL, normal_tail
from coref_automl.statistics.resampling import Floats

LARGEST, LARGE = 5, 0.02
"""At most so many documents are flipped one by one: those that hold at least this share of the items."""
FEWEST, FEWEST_DIFFERING = 7, 6
"""Fewer documents are not judged: of five, all have the same sign in 2 of 32 cases; of six, signs show too little."""
_STEPS = np.array([0.5, 1, 1.4, 1.7, 2, 2.3, 2.6, 3, 3.5, 4, 5, 6.5, 9, 15, 40, 200])
"""Distances from the difference at which p is computed, in standard errors."""
_PARTS = np.linspace(0, 1, 9)
_TINY, _LEAST = 1e-12, 1e-10
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class DocumentTest:
    """One difference, or an array of them (leading axes), and the documents it is the sum of.

    A document contributes c to the difference and holds the share w of the items. `large` and `shares` are those of the documents
    that are flipped one by one; `second` and `fourth` are the sums over all others of c^(n-j) w^j, n = 2 and 4. `error` is the
    root of the sum of squares of c - difference x w, and `differing` the number of documents that contribute anything.
    """

    difference: Floats
    large: Floats
    shares: Floats
    second: Floats
    fourth: Floats
    error: Floats
    documents: int
    differing: Floats

    @classmethod
    def of(cls, sums: Sequence[Floats], sizes: Sequence[Floats]) -> DocumentTest:
        """From the sums of differences by document (..., documents) of each part, and the documents' numbers of items."""
        contributions = [part / size.sum() for part, size in zip(sums, sizes, strict=True)]
        c = np.concatenate(contributions, axis=-1)
        w = np.concatenate([size / size.sum() for size in sizes]) / len(sizes)
        order = np.argsort(-w, kind="stable")
        count = min(LARGEST, max(int((w >= LARGE).sum()), LARGEST if len(w) <= LARGEST else 0))
        first, others = order[:count], order[count:]
        difference = c.sum(axis=-1)
        return cls(
            np.asarray(difference),
            c[..., first],
            w[first],
            _moments(c[..., others], w[others], 2),
            _moments(c[..., others], w[others], 4),
            np.sqrt(((c - difference[..., None] * w) ** 2).sum(axis=-1)),
            min(map(len, sizes)),
            np.asarray((np.abs(c) > _TINY).sum(axis=-1)),
        )

    @property
    def p(self) -> Floats:
        """The chance that flipped signs give a difference of this size or more."""
        return self._p_at(self.difference[..., None])[..., 0]

    def reach(self, level: float, *, up: bool | None = None, seeds: Floats | float = 0.0) -> Floats:
        """The distance of the difference from its interval's end: `up`, down, or on the side of 0. Infinite for few documents.

        `seeds` is the squared half width of what seeds add, a normal number independent of the documents. If no document is
        large, squares add up; a large one makes the flipped differences two-peaked, and the sum is computed.
        """
        distances, log_ps = self._to_nought if up is None else self._above if up else self._below
        wanted = math.sqrt(-2 * math.log(1 - level))
        alone = np.where(log_ps[..., -1] < wanted, np.inf, _crossing(distances, log_ps, wanted))
        if not len(self.shares) or not np.any(seeds):
            return np.sqrt(alone**2 + seeds)
        known = np.where(np.isfinite(alone), alone, 0.0)
        side = np.where(self.difference < 0, -1.0, 1.0) if up is None else -1.0 if up else 1.0
        least, most = np.sqrt(known**2 + seeds)[..., None], (known + np.sqrt(seeds))[..., None]
        ends = least + (most - least) * _PARTS
        variance = np.asarray(seeds / NORMAL.inv_cdf((1 + level) / 2) ** 2 + np.zeros_like(known))
        ps = self._p_of(ends, (side * known)[..., None], variance[..., None])
        return np.where(np.isfinite(alone), _crossing(ends, np.sqrt(-2 * np.log(ps)), wanted), np.inf)

    @property
    def few(self) -> NDArray[np.bool_]:
        """Are there too few documents to judge?"""
        return np.asarray((self.differing < FEWEST_DIFFERING) | (self.documents < FEWEST))

    @cached_property
    def _below(self) -> tuple[Floats, Floats]:
        return self._curve(np.ones_like(self.difference))

    @cached_property
    def _above(self) -> tuple[Floats, Floats]:
        return self._curve(-np.ones_like(self.difference))

    @cached_property
    def _to_nought(self) -> tuple[Floats, Floats]:
        return self._curve(np.where(self.difference < 0, -1.0, 1.0))

    def _curve(self, side: Floats) -> tuple[Floats, Floats]:
        """Rising distances, one of which is that of 0, and the root of -2 log p at each, in which p is nearly a line."""
        distances = self.error[..., None] * _STEPS
        to_nought = np.where(self.difference * side > 0, np.abs(self.difference), 0.0)
        distances = np.sort(np.concatenate([distances, to_nought[..., None]], axis=-1), axis=-1)
        ps = np.where(distances > 0, self._p_at(side[..., None] * distances), 1.0)
        ps = np.concatenate([np.ones_like(ps[..., :1]), ps], axis=-1)
        distances = np.concatenate([np.zeros_like(distances[..., :1]), distances], axis=-1)
        return distances, np.maximum.accumulate(np.sqrt(-2 * np.log(ps)), axis=-1)

    def _p_at(self, away: Floats) -> Floats:
        """The p of a true difference that lies so far below the observed one; the last axis holds several distances."""
        p = self._p_of(np.abs(away), away, np.zeros(1))
        least: Floats = 2.0 ** (1 - np.maximum(FEWEST_DIFFERING, self.differing)[..., None])
        return np.asarray(np.maximum(p, least))

    def _p_of(self, size: Floats, away: Floats, added: Floats) -> Floats:
        """How often flips about a true difference so far `away`, and a normal number of variance `added`, reach this size."""
        true = self.difference[..., None] - away
        flipped = (self.large[..., None, :] - true[..., None] * self.shares) @ _signs(len(self.shares)).T
        second = np.maximum(0.0, _polynomial(self.second, true)) + added
        normal = second > _TINY**2
        fourth = np.divide(_polynomial(self.fourth, true), second**2, out=np.zeros_like(second), where=normal)
        gap = size[..., None] - flipped
        spread = np.where(normal, np.sqrt(second), _TINY)[..., None]
        beyond = np.clip(np.where(normal[..., None], gap, gap - _ROUNDING) / spread, -40, 40)
        beyond = beyond + (beyond**3 - 3 * beyond) * fourth[..., None] / 12
        p = np.minimum(1.0, 2 * normal_tail(beyond).mean(axis=-1))
        return np.asarray(np.maximum(p, _LEAST))


def _crossing(xs: Floats, rising: Floats, wanted: float) -> Floats:
    """Where a line through these points reaches the wanted height; the first or the last of them if it never crosses it."""
    after = np.clip((rising < wanted).sum(axis=-1), 1, rising.shape[-1] - 1)[..., None]
    x0, x1 = (np.take_along_axis(xs, each, -1)[..., 0] for each in (after - 1, after))
    y0, y1 = (np.take_along_axis(rising, each, -1)[..., 0] for each in (after - 1, after))
    share = np.clip((wanted - y0) / np.maximum(_TINY, y1 - y0), 0.0, 1.0)
    return np.asarray(x0 + share * (x1 - x0))


@lru_cache
def _signs(count: int) -> Floats:
    return np.array(list(product((-1.0, 1.0), repeat=count)))


def _moments(c: Floats, w: Floats, power: int) -> Floats:
    square, other = c * c, w * w
    if power == 2:
        terms = [square, c * w, np.broadcast_to(other, c.shape)]
    else:
        terms = [square * square, square * c * w, square * other, c * (other * w), np.broadcast_to(other * other, c.shape)]
    return np.stack([each.sum(axis=-1) for each in terms], axis=-1)


def _polynomial(moments: Floats, true: Floats) -> Floats:
    """The sum of (c - true w)^n over documents."""
    binomials = {3: (1, -2, 1), 5: (1, -4, 6, -4, 1)}[moments.shape[-1]]
    terms = (sign * moments[..., j, None] * true**j for j, sign in enumerate(binomials))
    total: Floats = np.asarray(sum(terms), np.float64)
    return total
