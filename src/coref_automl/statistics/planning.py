"""Sample sizes and power. In: variance components, seeds, items by document. Out: detectable differences, plans, looks. Pure.

The power is that of the test itself (`crossed`): the variance over seeds is simulated many times, each draw gives an interval,
and the probability that a true difference is shown is a normal tail. `items_needed` plans for two single models.

A study may also stop early: pairs of runs are judged at up to four looks. Each look has a nominal level, small at first, so that
over all looks one of two equal settings is called better in less than 2.5% of studies (`benchmarks/tuning_surrogate.py` counts).
The standard deviation of few pairs is uncertain: it is pooled with that of the archived studies, at eight degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coref_automl.base.records import Estimate, Record
from coref_automl.statistics.closed_forms import LEVEL, NORMAL, POWER, t_quantile
from coref_automl.statistics.crossed import Spread, Verdict, seeds_of
from coref_automl.statistics.documents import FEWEST, LARGE, LARGEST, DocumentTest
from coref_automl.statistics.intervals import concentration, standard_error
from coref_automl.statistics.resampling import Floats, Part

_DRAWS = 400
MOST_ITEMS = 1 << 19
"""No plan has more."""
SEEDS = (2, 3, 5, 8, 12)
"""Numbers of seeds for which plans are computed."""
Decision = Literal["better", "worse", "futile", "open", "not shown"]
PAIRS = 24
"""Pairs of runs at the last look."""
_LOOKS = ((1 / 6, 0.0005), (1 / 3, 0.005), (2 / 3, 0.02), (1.0, 0.035))
"""Share of the pairs, and nominal level, of each look. The first can hardly show anything: it stops futile studies."""
_MIN_PAIRS, _SINGLE_LEVEL = 12, 0.05
"""With fewer pairs there is a single look, at this level."""
_ONE_SIDED = 0.95
PRIOR_SPREAD, PRIOR_DEGREES = 0.003, 8
"""The standard deviation of pairs in the archived studies, and the degrees of freedom that it counts for."""
_CEILING_DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class Components(Record):
    """Standard deviations, as shares of hits: `items` of the lasting difference of two methods on an item (items of one
    document are correlated), `flips` of a run's luck with an item, `seeds` of a run as a whole."""

    items: float
    flips: float
    seeds: float


USUAL = Components(0.18, 0.12, 0.003)
"""Two objectives on strict Real@1: the archives of five studies give 0.13 to 0.25, 0.12 and 0 to 0.003."""


@dataclass(frozen=True, slots=True)
class SamplePlan(Record):
    """This many seeds of each method, on this many items, show a true `difference` with this power."""

    seeds: int
    items: int
    documents: int
    difference: float
    power: float


def components_of(verdicts: Sequence[Verdict], *, against_model: bool = False) -> Components | None:
    """The components of a finished study, pooled over its verdicts; None if no verdict has several runs on both sides."""
    variances = []
    for verdict in verdicts:
        if verdict.reason or min(verdict.seeds) < (1 if against_model else 2):
            continue
        spread, items = verdict.spread, verdict.interval.n
        runs = _per_run(verdict.seeds[0], None if against_model else verdict.seeds[1])
        documents, seeds, flips = (float(part) for part in (spread.documents, spread.seeds, spread.flips))
        variances.append((documents * items - flips * items, flips * items / runs, (seeds - flips) / runs))
    if not variances:
        return None
    return Components(*(math.sqrt(max(0.0, float(variance))) for variance in np.mean(variances, axis=0)))


def detectable_difference(
    sizes: ArrayLike,
    seeds: int,
    *,
    components: Components = USUAL,
    comparisons: int = 1,
    against_model: bool = False,
    methods: int = 1,
) -> float | None:
    """The true difference that is shown with 80% power; None for a single seed, and if the set cannot show any.

    `methods` is the number of methods of the study, whose variance over seeds is pooled.
    """
    counts: Floats = np.asarray(sizes, np.float64)
    if counts.ndim != 1 or not len(counts) or counts.min() < 1:
        raise ValueError("A set needs documents, each with the number of its items.")
    if seeds < 2 or len(counts) < 2:
        return None
    if len(counts) < FEWEST:
        return None
    halves, error = _simulated(counts, seeds, components, comparisons, against_model, methods)
    halves = np.quantile(halves, (np.arange(100) + 0.5) / 100)
    low, high = 0.0, 1.0
    if _power(high, halves, error) < POWER:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if _power(middle, halves, error) >= POWER else (middle, high)
    return high


def plans_for(
    difference: float,
    *,
    items_a_document: float = 2.0,
    components: Components = USUAL,
    comparisons: int = 1,
    against_model: bool = False,
    methods: int = 1,
    offered: Sequence[int] = SEEDS,
) -> list[SamplePlan]:
    """For each number of seeds, the fewest items that show the difference; numbers for which none do are left out."""
    if not 0 < difference < 1:
        raise ValueError(f"A difference lies between 0 and 1 (a share of the items), not at {difference}.")
    test: dict[str, Any] = {"components": components, "comparisons": comparisons, "against_model": against_model}
    test["methods"] = methods
    plans = []
    for seeds in offered:

        def enough(items: int, seeds: int = seeds) -> bool:
            documents = math.ceil(items / items_a_document)
            smallest = detectable_difference(np.full(documents, items / documents), seeds, **test)
            return smallest is not None and smallest <= difference

        low, high = 1, 64
        while high <= MOST_ITEMS and not enough(high):
            low, high = high, 2 * high
        if high > MOST_ITEMS:
            continue
        while high - low > max(1, high // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        plans.append(SamplePlan(seeds, high, math.ceil(high / items_a_document), difference, POWER))
    return plans


def items_needed(effect: float, differing: float, *, design: float = 1.0, family: int = 1, power: float = POWER) -> int:
    """The number of paired items that detect a true difference `effect` between two single models with the given power.

    `differing` is the share of items on which exactly one of the two models is right. Over n items the sum of differences (+1,
    0 or -1) has mean n x effect and variance n x (differing - effect^2); under sign flips its variance is n x differing. So n is
    the least with

        n x effect >= z(1 - 0.05 / (2 x family)) x sqrt(n x differing) + z(power) x sqrt(n x (differing - effect^2))

    (Connor's sample size for McNemar's test), times `design`: the clustered variance over that of independent items. `family` is
    the number of comparisons that Holm adjusts together, taken at its hardest step.
    """
    if not 0 < effect <= differing <= 1:
        raise ValueError(f"An effect of {effect} cannot come from a share of {differing} differing items.")
    z_level, z_power = NORMAL.inv_cdf(1 - (1 - LEVEL) / (2 * family)), NORMAL.inv_cdf(power)
    reach = z_level * math.sqrt(differing) + z_power * math.sqrt(differing - effect**2)
    return math.ceil(design * (reach / effect) ** 2)


def _per_run(a: int, b: int | None) -> float:
    """The variance of the difference of two means over runs, in units of that of one run; None runs are a fixed model."""
    return 1 / a + (1 / b if b else 0.0)


def _simulated(
    counts: Floats, seeds: int, components: Components, comparisons: int, against_model: bool, methods: int
) -> tuple[Floats, float]:
    """The half widths of simulated intervals, and the true standard error of the difference, on documents of so many items."""
    sides = 1 if against_model else 2
    runs, level = sides / seeds, 1 - (1 - LEVEL) / comparisons
    items = float(counts.sum())
    flips = components.flips**2 * runs / items
    documents = components.items**2 / items + flips
    whole = components.seeds**2 * runs
    rng = np.random.default_rng(0)
    means = [rng.normal(0, math.sqrt((whole + flips) / runs), (_DRAWS, seeds)) for _ in range(max(sides, methods))]
    over_seeds, degrees = seeds_of(means[:sides], means[sides:])
    test, known = _imagined(rng, counts / items, documents), np.full(_DRAWS, documents)
    spread = Spread(test, known, 1.0, over_seeds, np.full(_DRAWS, flips), degrees, seeds, seeds)
    return spread.reach(level, up=False), math.sqrt(documents + whole)


def _imagined(rng: np.random.Generator, shares: Floats, variance: float) -> DocumentTest:
    """The document test on differences that nobody has seen, of documents with these shares of the items."""
    order = np.sort(shares)[::-1]
    count = min(LARGEST, max(int((order >= LARGE).sum()), LARGEST if len(order) <= LARGEST else 0))
    first, others = order[:count], order[count:]
    large = rng.normal(0, 1, (_DRAWS, count)) * np.sqrt(variance * first)
    powers = [float((others**power).sum()) for power in range(5)]
    known = max(1.0, powers[1] ** 2 / powers[2]) if powers[2] else 1.0
    squares = variance * powers[1] * rng.chisquare(known, _DRAWS) / known
    products = rng.normal(0, math.sqrt(variance * powers[3]), _DRAWS)
    nought = np.zeros(_DRAWS)
    second = [squares, products, nought + powers[2]]
    fourth = [nought + 3 * variance**2 * powers[2], nought, nought + variance * powers[3], nought, nought + powers[4]]
    difference = large.sum(axis=1) + rng.normal(0, math.sqrt(variance * powers[1]), _DRAWS)
    error, differing = np.full(_DRAWS, math.sqrt(variance)), np.full(_DRAWS, len(shares))
    moments = np.stack(second, axis=-1), np.stack(fourth, axis=-1)
    return DocumentTest(difference, large, first, *moments, error, len(shares), differing)


def _power(difference: float, halves: Floats, error: float) -> float:
    return float(np.mean([NORMAL.cdf((abs(difference) - half) / error) for half in halves]))


@dataclass(frozen=True, slots=True)
class Look(Record):
    """An interim analysis: this many pairs are judged at this nominal level, two-sided."""

    pairs: int
    level: float


@dataclass(frozen=True, slots=True)
class SequentialVerdict(Record):
    """The verdict of a look. `interval` is at the level of the look; `most` is the one-sided 95% upper bound on the gain.

    `decision`: better or worse is shown; futile: a relevant gain is excluded; open: more pairs may tell; not shown: none left.
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
    """Four looks, the last at `pairs`; one for fewer than twelve pairs. Levels are divided by `comparisons` (Bonferroni)."""
    if pairs < _MIN_PAIRS:
        return (Look(pairs, _SINGLE_LEVEL / comparisons),)
    return tuple(Look(math.ceil(share * pairs), level / comparisons) for share, level in _LOOKS)


def judged(
    per_seed: ArrayLike,
    document_error: float,
    level: float,
    *,
    min_effect: float,
    last: bool,
    items: int,
    documents: int = 10_000,
    spread: float = PRIOR_SPREAD,
) -> SequentialVerdict:
    """The verdict of a look at this nominal level; after the `last` look no decision is "open".

    `document_error` is the standard error over documents of the mean of these pairs, `documents` their effective number;
    `min_effect` is the smallest gain that matters.
    """
    differences: Floats = np.asarray(per_seed, np.float64)
    k, mean = len(differences), float(differences.mean())
    variance = float(differences.var(ddof=1)) if k > 1 else 0.0
    seed_degrees = PRIOR_DEGREES + k - 1
    by_seeds = (PRIOR_DEGREES * spread**2 + (k - 1) * variance) / seed_degrees / k
    total = by_seeds + document_error**2
    per_degree = by_seeds**2 / seed_degrees + document_error**4 / max(1, documents - 1)
    degrees = max(1, min(200, int(total**2 / per_degree)))
    error = math.sqrt(total)
    half = t_quantile(1 - level / 2, degrees) * error
    most = mean + t_quantile(_ONE_SIDED, degrees) * error
    decision: Decision = "better" if mean > half else "worse" if mean < -half else "futile" if most < min_effect else "open"
    if decision == "open" and last:
        decision = "not shown"
    return SequentialVerdict(mean, Estimate(mean, mean - half, mean + half, items), most, k, decision)


@dataclass(frozen=True, slots=True)
class Paired:
    """Runs of two settings, paired by seed: their differences, the standard error of the mean over documents, the documents'
    effective number, and the number of items."""

    per_seed: tuple[float, ...]
    error: float
    documents: int
    items: int

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Paired:
        """From differences on items, one column per pair; the parts (tasks) have documents of their own."""
        values = [np.asarray(part.values, np.float64) for part in parts]
        means = [Part(of_part.mean(axis=1), part.clusters) for of_part, part in zip(values, parts, strict=True)]
        per_seed = np.sum([of_part.mean(axis=0) for of_part in values], axis=0)
        items = sum(map(len, values))
        return cls(tuple(per_seed.tolist()), float(standard_error(means)[0]), round(1 / concentration(means)), items)

    def judged(self, level: float, *, min_effect: float, last: bool) -> SequentialVerdict:
        sizes = {"items": self.items, "documents": self.documents}
        return judged(self.per_seed, self.error, level, min_effect=min_effect, last=last, **sizes)


def ceiling(gains: ArrayLike, errors: ArrayLike, shared: float, *, level: float = _ONE_SIDED) -> float:
    """The gain that none of several settings exceeds with this confidence: a quantile of the largest, less its selection bias.

    `errors` are the standard errors of the settings, `shared` that of the reference they are all compared with.
    """
    means, spreads = np.asarray(gains, np.float64), np.asarray(errors, np.float64)
    rng = np.random.default_rng(0)
    largest = (means + spreads * rng.standard_normal((_CEILING_DRAWS, len(means)))).max(axis=1)
    luck = float(largest.mean() - means.max())
    return float(np.quantile(largest - shared * rng.standard_normal(_CEILING_DRAWS), level)) - luck
