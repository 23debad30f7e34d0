"""Many checkpoints on the same documents. In: columns of values. Out: corrected comparisons, the set of the best. Pure.

Each comparison alone is the document test. Flipped signs are drawn once for all of them, so that correlated columns, such as
ninety checkpoints of the same runs, count as few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate
from coref_automl.statistics.closed_forms import LEVEL
from coref_automl.statistics.documents import DocumentTest
from coref_automl.statistics.resampling import Floats, Gathered, Part, flipped_sums, gather

_DRAWS = 4_000
_SEED = 0
_ROUNDING = 1e-9
_FAR = 1.0
"""Stands for an interval without end: a share cannot differ by more."""


@dataclass(frozen=True, slots=True)
class DocumentVerdict:
    """A column minus the one that it is compared with: `p` alone, `adjusted` for the family (step-down max-T).

    The interval has the level that the adjustment amounts to: it excludes 0 exactly if `adjusted` is under 0.05. Where too
    few documents differ, nothing is `judged` and p is 1.
    """

    difference: Estimate
    p: float
    adjusted: float
    level: float
    documents: int
    judged: bool = True


def compare_documents(columns: Sequence[Part], against: Sequence[int | None]) -> list[DocumentVerdict | None]:
    """Compare each column with the column of the number beside it; None for itself or nothing to compare with."""
    pairs = [(n, other) for n, other in enumerate(against) if other is not None and other != n]
    if not pairs:
        return [None] * len(against)
    gathered = [gather(part) for part in columns]
    ours, theirs = [n for n, _ in pairs], [other for _, other in pairs]
    moved = [Gathered(part.sums[:, ours] - part.sums[:, theirs], part.sizes) for part in gathered]
    return _placed(judge_columns(moved), ours, len(against))


def judge_columns(differences: Sequence[Gathered]) -> list[DocumentVerdict]:
    """Each column of differences alone and in its family: the chance that the largest of them is as large."""
    test = DocumentTest.of([part.sums.T for part in differences], [part.sizes for part in differences])
    alone, items = np.where(test.few, 1.0, test.p), sum(part.items for part in differences)
    several = int((test.differing > 0).sum()) > 1  # equal columns cost the others nothing
    adjusted = np.maximum(alone, _max_t(differences)) if several else alone
    levels = 1 - (1 - LEVEL) * alone / adjusted
    out = []
    for n, value in enumerate(test.difference.tolist()):
        down, up = (_end(test, n, float(levels[n]), up) for up in (False, True))
        interval, judged = Estimate(value, value - down, value + up, items), not test.few[n]
        verdict = float(alone[n]), float(adjusted[n]), float(levels[n])
        out.append(DocumentVerdict(interval, *verdict, test.documents, bool(judged)))
    return out


def _end(test: DocumentTest, column: int, level: float, up: bool) -> float:
    """How far an interval reaches; beyond 0 if too few documents differ."""
    value, few = float(test.difference[column]), test.few[column]
    reach = min(_FAR, float(test.reach(level, up=up)[column]))
    return max(reach, abs(value)) if few else reach


def _placed(found: Sequence[DocumentVerdict], places: Sequence[int], count: int) -> list[DocumentVerdict | None]:
    out: list[DocumentVerdict | None] = [None] * count
    for place, verdict in zip(places, found, strict=True):
        out[place] = verdict
    return out


def _max_t(differences: Sequence[Gathered]) -> Floats:
    """Westfall and Young's step-down max-T. Columns are scaled by their standard deviation under the flips."""
    spread = _flipped_spread(differences)
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    observed = np.abs(sum(part.means() for part in differences)) * scale
    order = np.argsort(-observed, kind="stable")
    draws = max(_DRAWS, 400 * len(observed))  # so many columns need smaller p-values
    exceeded = np.zeros(len(observed))
    for block in flipped_sums(differences, seed=_SEED, draws=draws):
        flipped = (np.abs(block) * scale)[:, order]
        largest = np.maximum.accumulate(flipped[:, ::-1], axis=1)[:, ::-1]  # of this column and those after it
        exceeded += (largest >= observed[order] - _ROUNDING).sum(axis=0)
    adjusted = np.empty_like(observed)
    adjusted[order] = np.maximum.accumulate((1 + exceeded) / (1 + draws))
    return np.where(spread > 0, adjusted, 1.0)


def _flipped_spread(parts: Sequence[Gathered]) -> Floats:
    return np.asarray(np.sqrt(sum(((part.sums / part.items) ** 2).sum(axis=0) for part in parts)))


@dataclass(frozen=True, slots=True)
class BestSet:
    """The columns that cannot be told from the best, and the p of each: that it is the best after all."""

    members: tuple[int, ...]
    p: tuple[float, ...]


def not_told_from_best(columns: Sequence[Part], *, level: float = LEVEL) -> BestSet:
    """Multiple comparisons with the best: with 95% confidence the truly best column is a member.

    A column leaves if the largest lead of another over it is more than flipped signs give to the largest of all leads. Only the
    test of the truly best column can drop it, so that choosing on the same documents is allowed for (Hsu).
    """
    gathered = [gather(part) for part in columns]
    means = np.asarray(sum(part.means() for part in gathered))
    count = len(means)
    squares = np.zeros((count, count))
    for part in gathered:
        shares = part.sums / part.items
        products = shares.T @ shares
        squares += np.diag(products)[:, None] + np.diag(products)[None, :] - 2 * products
    spread = np.sqrt(np.maximum(0.0, squares))
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    leads = ((means[:, None] - means[None, :]) * scale).max(axis=0)
    exceeded = np.zeros(count)
    for block in flipped_sums(gathered, seed=_SEED, draws=_DRAWS):
        for column in range(count):
            flipped = (block - block[:, column : column + 1]) * scale[:, column]
            exceeded[column] += (flipped.max(axis=1) >= leads[column] - _ROUNDING).sum()
    return _best_set(np.where(leads > 0, (1 + exceeded) / (1 + _DRAWS), 1.0), means, level)


def methods_not_told_from_best(differences: ArrayLike, ps: ArrayLike, *, level: float = LEVEL) -> BestSet:
    """The same for methods, from their Verdicts: `differences[i, j]` is i - j, `ps[i, j]` its p (Bonferroni over rivals)."""
    leads, two_sided = np.asarray(differences, np.float64), np.asarray(ps, np.float64)
    rivals = max(1, len(leads) - 1)
    one_sided = np.where(leads > 0, two_sided / 2, 1.0)  # that i leads j
    return _best_set(np.minimum(1.0, rivals * one_sided.min(axis=0)), leads.mean(axis=1), level)


def _best_set(ps: Floats, means: Floats, level: float) -> BestSet:
    order = np.argsort(-means, kind="stable").tolist()
    return BestSet(tuple(n for n in order if ps[n] >= 1 - level), tuple(map(float, ps)))
