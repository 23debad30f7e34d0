"""Do intervals cover, do verdicts keep their level, is the stated power there? In: a count of simulated sets. Out: a table.

    python benchmarks/statistics_simulation.py --runs 1000

A simulated model answers an item when document difficulty + item difficulty + its own luck is above 0; documents hold a few items
each (or many, as novels do), so that items of one document stand or fall together. True values are known in closed form.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.intervals import (
    bootstrap_mean,
    composite,
    detectable_difference,
    difference_intervals,
    sign_flip_p,
    sign_flip_ps,
    simultaneous_bounds,
)
from coref_automl.statistics.methods import seed_paired_verdict
from coref_automl.statistics.resampling import Part

DRAWS = 1_000
"""Of the bootstrap, in a simulated set; the package draws 10,000."""
_SPREAD = math.sqrt(3)
_BY_DOCUMENT = 0.1
"""Of a model's own luck, the share that all items of a document have in common."""


@dataclass(frozen=True)
class Population:
    """Sets of `documents` documents with `least` to `most` items each; `share` is what a model without gain gets right.

    Sizes are evenly spread, or, where they are `unequal`, lognormal with this spread of the logarithm.
    """

    name: str
    documents: int
    least: int
    most: int
    share: float
    unequal: float = 0.0

    @property
    def centre(self) -> float:
        return _SPREAD * NormalDist().inv_cdf(self.share)

    def true(self, gain: float) -> float:
        return NormalDist().cdf((self.centre + gain) / _SPREAD)

    def gain_for(self, difference: float) -> float:
        """The gain whose true difference from a model without gain is this."""
        return _SPREAD * NormalDist().inv_cdf(self.share + difference) - self.centre

    def sizes(self, rng: np.random.Generator) -> NDArray[np.int64]:
        if not self.unequal:
            return np.asarray(rng.integers(self.least, self.most + 1, size=self.documents), np.int64)
        drawn = rng.lognormal(math.log(self.least * self.most) / 2, self.unequal, size=self.documents)
        return np.asarray(np.rint(drawn.clip(self.least, self.most)), np.int64)

    def draw(self, rng: np.random.Generator, gains: NDArray[np.float64]) -> Part:
        clusters = np.repeat(np.arange(self.documents), self.sizes(rng))
        shared = rng.normal(size=self.documents)[clusters] + rng.normal(size=len(clusters))
        own = math.sqrt(1 - _BY_DOCUMENT) * rng.normal(size=(len(clusters), len(gains))) + gains
        own += math.sqrt(_BY_DOCUMENT) * rng.normal(size=(self.documents, len(gains)))[clusters]
        return Part((self.centre + shared[:, None] + own > 0).astype(float), clusters)


TITLES = Population("38 titles, 1-100 items, unequal, 30%", 38, 1, 100, 0.3, unequal=1.1)
POPULATIONS = (
    TITLES,
    Population("38 titles alike, 18 items, 30%", 38, 18, 18, 0.3),
    Population("14 novels, 15-100 items, 45%", 14, 15, 100, 0.45),
    Population("40 documents, 1-6 items, 40%", 40, 1, 6, 0.4),
    Population("200 documents, 1-3 items, 35%", 200, 1, 3, 0.35),
    Population("700 documents, 1-3 items, 35%", 700, 1, 3, 0.35),
    Population("200 documents, 1-3 items, 8%", 200, 1, 3, 0.08),
    Population("30 novels, 10-60 items, 50%", 30, 10, 60, 0.5),
)


def mean_covered(population: Population, rng: np.random.Generator, run: int) -> bool:
    part = population.draw(rng, np.zeros(1))
    found = bootstrap_mean(np.asarray(part.values)[:, 0], part.clusters, seed=run, draws=DRAWS)
    return found.low <= population.true(0) <= found.high


def difference_covered(population: Population, rng: np.random.Generator, run: int) -> bool:
    part = population.draw(rng, np.array([0.0, 0.2]))
    values = np.asarray(part.values)
    found = difference_intervals([Part(values[:, 1] - values[:, 0], part.clusters)], seed=run, draws=DRAWS)[0]
    return found.low <= population.true(0.2) - population.true(0) <= found.high


def composite_covered(population: Population, rng: np.random.Generator, run: int) -> bool:
    """Seven tenths of the set, three tenths of few titles."""
    first, second = population.draw(rng, np.zeros(1)), TITLES.draw(rng, np.zeros(1))
    parts = [Part(0.7 * np.asarray(first.values), first.clusters), Part(0.3 * np.asarray(second.values), second.clusters)]
    found = composite(parts, seed=run, draws=DRAWS)[0]
    return found.low <= 0.7 * population.true(0) + 0.3 * TITLES.true(0) <= found.high


def bounds_hold(gains: NDArray[np.float64]) -> Callable[[Population, np.random.Generator, int], bool]:
    def held(population: Population, rng: np.random.Generator, run: int) -> bool:
        true = np.array([population.true(gain) for gain in gains])
        bounds = simultaneous_bounds([population.draw(rng, gains)], seed=run, draws=DRAWS).upper
        return bool(np.all(bounds >= true.max() - true))

    return held


def false_in_ten(population: Population, rng: np.random.Generator, run: int) -> bool:
    """Eleven equal models: is any of ten called different from the first?"""
    part = population.draw(rng, np.zeros(11))
    values = np.asarray(part.values)
    return bool(holm(sign_flip_ps([Part(values[:, 1:] - values[:, :1], part.clusters)], seed=run, family=10)).min() < 0.05)


def false_alone(population: Population, rng: np.random.Generator, run: int) -> bool:
    """Two equal models: does the sign-flip test tell them apart?"""
    values = np.asarray((part := population.draw(rng, np.zeros(2))).values)
    return sign_flip_p(values[:, 1], values[:, 0], part.clusters, seed=run) < 0.05


def false_method(population: Population, rng: np.random.Generator, run: int) -> bool:
    """Two equal methods of three seeds, each seed with its own skill: is a difference shown?"""
    skills = rng.normal(0, 0.15, size=6)
    part = population.draw(rng, skills)
    values = np.asarray(part.values).T
    return seed_paired_verdict(list(values[:3]), list(values[3:]), part.clusters, seed=run).shown


def power(population: Population, rng: np.random.Generator, runs: int) -> tuple[float, float]:
    """The share of sets that show a difference which sets like them call detectable; and that difference."""

    def stated(gain: float, count: int) -> float:
        found = []
        for _ in range(count):
            values = np.asarray((part := population.draw(rng, np.array([0.0, gain]))).values)
            found.append(detectable_difference(values[:, 1], values[:, 0], part.clusters) or 0.0)
        return float(np.mean(found))

    gain = 0.0
    for _ in range(4):
        gain = population.gain_for(stated(gain, 100))
    shown = 0
    for run in range(runs):
        values = np.asarray((part := population.draw(rng, np.array([0.0, gain]))).values)
        shown += sign_flip_p(values[:, 1], values[:, 0], part.clusters, seed=run) < 0.05
    return shown / runs, population.true(gain) - population.true(0)


QUESTIONS: dict[str, Callable[[Population, np.random.Generator, int], bool]] = {
    "interval of a value covers": mean_covered,
    "interval of a paired difference covers": difference_covered,
    "interval of a composite covers": composite_covered,
    "bounds of the best hold, eight equal": bounds_hold(np.zeros(8)),
    "bounds of the best hold, a rising run of eight": bounds_hold(np.linspace(0, 0.35, 8)),
    "bounds of the best hold, two far apart": bounds_hold(np.array([0.0, 1.0])),
    "false verdict in a family of ten": false_in_ten,
    "false verdict about two models": false_alone,
    "false verdict about a method, three seeds": false_method,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began = time.monotonic()
    error = 100 * math.sqrt(0.0475 / arguments.runs)
    print(f"{arguments.runs} simulated sets a cell; one standard error near 5% is {error:.1f} points\n")
    print("| | " + " | ".join(population.name for population in POPULATIONS) + " |")
    print("|---|" + "---:|" * len(POPULATIONS))
    for number, (name, question) in enumerate(QUESTIONS.items()):
        cells = []
        for place, population in enumerate(POPULATIONS):
            rng = np.random.default_rng((arguments.seed, number, place))
            share = sum(question(population, rng, run) for run in range(arguments.runs)) / arguments.runs
            cells.append(f"{100 * share:.1f}%")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    cells = []
    for place, population in enumerate(POPULATIONS):
        found, difference = power(population, np.random.default_rng((arguments.seed, 99, place)), arguments.runs)
        cells.append(f"{100 * found:.1f}% at {100 * difference:.1f} points")
    print("| power at the stated difference (80% stated) | " + " | ".join(cells) + " |")
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
