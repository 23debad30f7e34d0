"""How often do intervals miss where documents are few and of unequal size? In: benchmarks/sample. Out: a table.

python benchmarks/unequal_documents.py        a minute on two cores

Sizes are those of the sample, or lognormal; values have a true mean of 0 and a part in common within a document. Every
column is a set of its own, so that thousands of sets are judged at once.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.groups import read_groups
from coref_automl.statistics.closed_forms import t_quantile
from coref_automl.statistics.intervals import difference_intervals, sign_flip_ps, standard_error
from coref_automl.statistics.resampling import Part, gather, resampled_means

SAMPLE = Path(__file__).resolve().parent / "sample"
SETS, DRAWS = 3_000, 2_000
IN_COMMON = (0.0, 0.03, 0.2, 1.0)
"""Shares of a value's variance that all items of a document have in common."""
Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]


def sizes_in_sample(task: str, source: str | None = None) -> Sizes:
    """Items a document on confirm."""
    items = read_groups([str(SAMPLE)])[0].items
    rows = (items.facts["task"] == task) & (items.halves == "confirm")
    rows &= True if source is None else items.facts["source"] == source
    return np.unique(items.facts["cluster"][rows], return_counts=True)[1]


def lognormal(documents: int, spread: float, middle: int) -> Sizes:
    places = (np.arange(documents) + 0.5) / documents
    return np.array([max(1, round(middle * math.exp(spread * NormalDist().inv_cdf(place)))) for place in places])


def draw(rng: np.random.Generator, sizes: Sizes, common: float) -> Part:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    shared = math.sqrt(common) * rng.normal(size=(len(sizes), SETS))
    return Part(shared[clusters] + math.sqrt(1 - common) * rng.normal(size=(len(clusters), SETS)), clusters)


def by_count(part: Part, documents: int) -> tuple[float, float]:
    """Misses and mean width where documents are counted as if they were alike: Hesterberg's expanded percentile."""
    reach = math.sqrt(documents / (documents - 1)) * t_quantile(0.975, documents - 1)
    tail = NormalDist().cdf(-reach)
    low, high = np.quantile(resampled_means([gather(part)], seed=0, draws=DRAWS), [tail, 1 - tail], axis=0)
    return float(np.mean((low > 0) | (high < 0))), float(np.mean(high - low))


def judged(part: Part, documents: int, alike: float) -> list[float]:
    found = difference_intervals([part], seed=0, draws=DRAWS)
    missed, width = by_count(part, documents)
    ours = float(np.mean([one.low > 0 or one.high < 0 for one in found]))
    wider = float(np.mean([one.high - one.low for one in found])) / width
    means, errors = np.asarray(part.values).mean(axis=0), standard_error([part])
    student = float(np.mean(np.abs(means) > t_quantile(0.975, max(1, int(alike - 1 + 1e-6))) * errors))
    return [missed, ours, wider, student, float(np.mean(sign_flip_ps([part], seed=0) < 0.05))]


def main() -> None:
    sets = {
        "LAMBADA": sizes_in_sample("lambada"),
        "LAMBADA, fairy tales": sizes_in_sample("lambada", "fairytale"),
        "LAMBADA, novels": sizes_in_sample("lambada", "koconovel"),
        "gold": sizes_in_sample("gold"),
        "lognormal, spread 1.5": lognormal(40, 1.5, 8),
        "lognormal, spread 1": lognormal(20, 1.0, 15),
        "lognormal, spread 1, many": lognormal(300, 1.0, 3),
        "38 alike": np.full(38, 18),
        "14 alike": np.full(14, 40),
        "300 alike": np.full(300, 3),
    }
    rng = np.random.default_rng(0)
    error = 100 * math.sqrt(0.0475 / SETS / len(IN_COMMON))
    print(f"{SETS} sets for each of {len(IN_COMMON)} shares in common; one standard error near 5% is {error:.1f} points\n")
    print("| sizes | documents | say as much as | misses, by count | misses | wider by | t over documents | sign flips |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, sizes in sets.items():
        alike = sizes.sum() ** 2 / (sizes**2).sum()
        found = np.mean([judged(draw(rng, sizes, common), len(sizes), alike) for common in IN_COMMON], axis=0)
        count, ours, wider, student, flips = found
        told = f"{100 * count:.1f}% | {100 * ours:.1f}% | {100 * (wider - 1):.0f}% | {100 * student:.1f}% | {100 * flips:.1f}%"
        print(f"| {name} | {len(sizes)} | {alike:.0f} | {told} |", flush=True)


if __name__ == "__main__":
    main()
