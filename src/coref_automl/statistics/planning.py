"""How much it takes to show a difference. In: variance components, seeds, items by document. Out: power and plans. Pure.

The power is that of the test itself (`crossed`): the variance over seeds is drawn as often as it takes, each draw gives an
interval, and the share of true differences that it would show is a normal tail. `items_needed` plans for two single models.

A study may also stop early: pairs of runs are judged at up to four looks. Each look has a nominal level, small at first, so that
all of them together call one of two equal settings better in less than 2.5% of studies (`benchmarks/tuning_surrogate.py` counts).
The spread of a few pairs is known badly: it is pooled with that of the archived studies, worth eight degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, POWER, t_quantile
from coref_automl.statistics.crossed import Crossed, CrossedVerdict
from coref_automl.statistics.intervals import concentration, standard_error
from coref_automl.statistics.resampling import Floats, Part

_DRAWS = 2_000
_MOST_ITEMS = 1 << 20
_LARGEST = 1.0
SEEDS = (2, 3, 5, 8, 12)
"""What a plan offers."""
Decision = Literal["better", "worse", "futile", "open", "not shown"]
PAIRS = 24
"""Pairs of runs at the last look."""
_LOOKS = ((1 / 6, 0.0005), (1 / 3, 0.005), (2 / 3, 0.02), (1.0, 0.035))
"""Share of the pairs, and nominal level. The first look is there to stop what is not worth going on with."""
_FEW, _SINGLE = 12, 0.05
_ONE_SIDED = 0.95
PRIOR_SPREAD, PRIOR_DEGREES = 0.003, 8
"""The spread of pairs in the archived studies, and how many degrees of freedom it is worth."""
_CEILING_DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class Components(Record):
    """Spreads, as shares of hits: `items` is that of the lasting difference of two methods on one item (items of a document go
    together, and that is in it), `flips` a run's own luck with an item, `seeds` what moves a run as a whole."""

    items: float
    flips: float
    seeds: float


USUAL = Components(0.18, 0.12, 0.003)
"""Two objectives on strict Real@1: the archives of five studies give 0.13 to 0.25, 0.12 and 0 to 0.003."""


@dataclass(frozen=True, slots=True)
class SamplePlan(Record):
    """So many seeds of either method on so many items show a true `difference` with this power."""

    seeds: int
    items: int
    documents: int
    difference: float
    power: float


def components_of(verdicts: Sequence[CrossedVerdict], *, against_model: bool = False) -> Components | None:
    """The spreads that a finished study had, pooled over its verdicts; None where none had several runs of both sides."""
    found = []
    for one in verdicts:
        if one.reason or min(one.seeds) < (1 if against_model else 2):
            continue
        runs, items = _runs(one.seeds[0], None if against_model else one.seeds[1]), one.interval.n
        documents, seeds, flips = (float(part) for part in (one.spread.documents, one.spread.seeds, one.spread.flips))
        found.append((documents * items - flips * items, flips * items / runs, (seeds - flips) / runs))
    if not found:
        return None
    return Components(*(math.sqrt(max(0.0, float(one))) for one in np.mean(found, axis=0)))


def can_show(
    sizes: ArrayLike, seeds: int, *, components: Components = USUAL, comparisons: int = 1, against_model: bool = False
) -> float | None:
    """The true difference that is shown with 80% power; None for one seed, and where a set can show none at all."""
    return _detectable(_Set.of(sizes), seeds, components, comparisons, against_model)


def plans_for(
    difference: float,
    *,
    items_a_document: float = 2.0,
    components: Components = USUAL,
    comparisons: int = 1,
    against_model: bool = False,
    offered: Sequence[int] = SEEDS,
) -> list[SamplePlan]:
    """For each number of seeds the fewest items that show the difference; numbers that never do are left out."""
    if not 0 < difference < 1:
        raise ValueError(f"A difference lies between 0 and 1 (a share of the items), not at {difference}.")
    out = []
    for seeds in offered:

        def enough(items: int, seeds: int = seeds) -> bool:
            found = _detectable(_Set.evenly(items, items_a_document), seeds, components, comparisons, against_model)
            return found is not None and found <= difference

        low, high = 1, 64
        while high < _MOST_ITEMS and not enough(high):
            low, high = high, 2 * high
        if high >= _MOST_ITEMS:
            continue
        while high - low > max(1, high // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        out.append(SamplePlan(seeds, high, math.ceil(high / items_a_document), difference, POWER))
    return out


def items_needed(effect: float, differing: float, *, design: float = 1.0, family: int = 1, power: float = POWER) -> int:
    """How many paired items detect a true difference `effect` between two single models with the given power.

    `differing` is the share of items on which exactly one of the two models is right. Over n items the sum of differences (+1,
    0 or -1) has mean n x effect and variance n x (differing - effect^2); under sign flips its variance is n x differing, and it
    moves in steps of 2, half a step of which is lost. So n is the least with

        n x effect >= z(1 - 0.05 / (2 x family)) x sqrt(n x differing) + z(power) x sqrt(n x (differing - effect^2)) + 1

    (Connor's sample size for McNemar's test, corrected for continuity), times `design`: the clustered variance over that of
    independent items. `family` is how many comparisons Holm adjusts together, taken at its hardest step.
    """
    if not 0 < effect <= differing <= 1:
        raise ValueError(f"An effect of {effect} cannot come from a share of {differing} differing items.")
    level, found = NORMAL.inv_cdf(1 - (1 - LEVEL) / (2 * family)), NORMAL.inv_cdf(power)
    reach = level * math.sqrt(differing) + found * math.sqrt(differing - effect**2)
    root = (reach + math.sqrt(reach**2 + 4 * effect)) / (2 * effect)
    return math.ceil(design * root**2)


@dataclass(frozen=True, slots=True)
class _Set:
    """A set: its items, its documents, and how many there would be of equal size."""

    items: float
    documents: int
    effective_documents: float

    @classmethod
    def of(cls, sizes: ArrayLike) -> _Set:
        counts = np.asarray(sizes, np.float64)
        if counts.ndim != 1 or not len(counts) or counts.min() < 1:
            raise ValueError("A set needs documents, each with the number of its items.")
        return cls(float(counts.sum()), len(counts), float(counts.sum() ** 2 / (counts**2).sum()))

    @classmethod
    def evenly(cls, items: int, a_document: float) -> _Set:
        documents = max(1, math.ceil(items / a_document))
        return cls(items, documents, documents)


def _runs(ours: int, theirs: int | None) -> float:
    return 1 / ours + (1 / theirs if theirs else 0.0)


def _drawn(of: _Set, seeds: int, components: Components, comparisons: int, against_model: bool) -> tuple[Floats, float]:
    """Half widths of as many intervals as are drawn, and the true standard error of the difference."""
    runs, level = _runs(seeds, None if against_model else seeds), 1 - (1 - LEVEL) / comparisons
    flips = components.flips**2 * runs / of.items
    documents = components.items**2 / of.items + flips
    whole = components.seeds**2 * runs
    rng, sides = np.random.default_rng(0), 1 if against_model else 2
    shares = rng.chisquare(seeds - 1, (sides, _DRAWS)) / (seeds - 1) / sides
    total = shares.sum(axis=0)
    degrees = np.maximum(seeds - 1, (seeds - 1) * total**2 / (shares**2).sum(axis=0))
    own = max(1.0, of.effective_documents - 1)
    drawn, spread = documents * rng.chisquare(own, _DRAWS) / own, (whole + flips) * total
    flipped = np.full(_DRAWS, flips)
    found = Crossed(np.zeros(_DRAWS), drawn, spread, flipped, degrees, own, seeds, seeds, of.documents)
    return found.half_width(level), math.sqrt(documents + whole)


def _power(difference: float, halves: Floats, error: float) -> float:
    return float(np.mean([NORMAL.cdf((abs(difference) - half) / error) for half in halves]))


def _detectable(of: _Set, seeds: int, components: Components, comparisons: int, against_model: bool) -> float | None:
    if seeds < 2 or of.documents < 2:
        return None
    halves, error = _drawn(of, seeds, components, comparisons, against_model)
    halves = np.quantile(halves, (np.arange(100) + 0.5) / 100)
    if _power(_LARGEST, halves, error) < POWER:
        return None
    low, high = 0.0, _LARGEST
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if _power(middle, halves, error) >= POWER else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class Look(Record):
    """So many pairs are judged at this nominal level, two-sided."""

    pairs: int
    level: float


@dataclass(frozen=True, slots=True)
class SequentialVerdict(Record):
    """`interval` is that of the look, wider than 95% before the last; `most` is the one-sided 95% bound on the gain.

    `decision`: better or worse is shown; futile: a gain worth having is excluded; open: further pairs may tell; not shown: there
    are none left.
    """

    difference: float
    interval: Estimate
    most: float
    pairs: int
    decision: Decision

    @property
    def shown(self) -> bool:
        return self.decision in ("better", "worse")


def looks_of(pairs: int = PAIRS, *, comparisons: int = 1) -> tuple[Look, ...]:
    """Four looks, the last at `pairs`; under twelve pairs there is one. Levels are shared by `comparisons` (Bonferroni)."""
    if pairs < _FEW:
        return (Look(pairs, _SINGLE / comparisons),)
    return tuple(Look(math.ceil(share * pairs), level / comparisons) for share, level in _LOOKS)


def judged(
    per_seed: ArrayLike,
    document_error: float,
    level: float,
    *,
    worth: float,
    last: bool,
    items: int,
    documents: int = 10_000,
    spread: float = PRIOR_SPREAD,
) -> SequentialVerdict:
    """What a look of this nominal level says; after the `last` one nothing is open.

    `document_error` is the standard error over documents of the mean of these very pairs, `documents` how many of equal size
    there would be; `worth` is the smallest gain that matters.
    """
    differences: Floats = np.asarray(per_seed, np.float64)
    k, mean = len(differences), float(differences.mean())
    own = float(differences.var(ddof=1)) if k > 1 else 0.0
    degrees = PRIOR_DEGREES + k - 1
    by_seeds = (PRIOR_DEGREES * spread**2 + (k - 1) * own) / degrees / k
    total = by_seeds + document_error**2
    spent = by_seeds**2 / degrees + document_error**4 / max(1, documents - 1)
    freedom = max(1, min(200, int(total**2 / spent)))
    error = math.sqrt(total)
    half = t_quantile(1 - level / 2, freedom) * error
    most = mean + t_quantile(_ONE_SIDED, freedom) * error
    decision: Decision = "better" if mean > half else "worse" if mean < -half else "futile" if most < worth else "open"
    if decision == "open" and last:
        decision = "not shown"
    return SequentialVerdict(mean, Estimate(mean, mean - half, mean + half, items), most, k, decision)


@dataclass(frozen=True, slots=True)
class Paired:
    """Runs of two settings, paired by seed: their differences, the standard error of the mean over documents, how many of equal
    size there would be, and the items."""

    per_seed: tuple[float, ...]
    error: float
    documents: int
    items: int

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Paired:
        """From differences on items, one column per pair; each part (task) has an error over its own documents."""
        values = [np.asarray(part.values, np.float64) for part in parts]
        means = [Part(one.mean(axis=1), part.clusters) for one, part in zip(values, parts, strict=True)]
        per_seed = np.sum([one.mean(axis=0) for one in values], axis=0)
        items = sum(map(len, values))
        return cls(tuple(per_seed.tolist()), float(standard_error(means)[0]), round(1 / concentration(means)), items)

    def judged(self, level: float, *, worth: float, last: bool) -> SequentialVerdict:
        return judged(self.per_seed, self.error, level, worth=worth, last=last, items=self.items, documents=self.documents)


def ceiling(gains: ArrayLike, errors: ArrayLike, shared: float, *, level: float = _ONE_SIDED) -> float:
    """With this confidence none of several settings gains more: the quantile of the largest of them, less what the luck of the
    luckiest adds to it on average.

    `errors` are the standard errors of the settings themselves, `shared` that of what all are compared with.
    """
    means, own = np.asarray(gains, np.float64), np.asarray(errors, np.float64)
    rng = np.random.default_rng(0)
    largest = (means + own * rng.standard_normal((_CEILING_DRAWS, len(means)))).max(axis=1)
    luck = float(largest.mean() - means.max())
    return float(np.quantile(largest - shared * rng.standard_normal(_CEILING_DRAWS), level)) - luck
