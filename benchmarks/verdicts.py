"""Do verdicts keep their level, and what can they show? In: a count of simulated sets. Out: the tables of docs/statistics.md.

    python benchmarks/verdicts.py --sets 4000            all tables
    python benchmarks/verdicts.py levels six --sets 4000      some of them

Items that every run hits or misses carry nothing, so only the others are drawn: their difficulty is shared, a method has its own
luck with each, a run the rest, a tenth of either common to a document. So many flip from run to run, and so far do methods differ
on single documents, as in the archives under results/. A run may also be better or worse as a whole, by a spread given in points.
Methods are equal in truth unless it is said otherwise.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Estimate
from coref_automl.statistics.crossed import Crossed, crossed
from coref_automl.statistics.intervals import difference_intervals, step_down_max_t
from coref_automl.statistics.methods import method_verdict
from coref_automl.statistics.planning import Components, detectable_difference
from coref_automl.statistics.resampling import Gathered, Part
from coref_automl.statistics.shrinkage import method_means

Floats = NDArray[np.float64]
Row = tuple[str, ...]
KEPT, REACH, LASTING = 0.28, 2.2, 0.5
"""The share of items that are neither always hit nor always missed, how far their difficulty reaches, and the share of a
method's luck with an item that all its runs have in common."""
MOVES = 100 * KEPT / (2 * REACH)
"""The points that a run gains by an advantage of 1."""
COMPARISONS = (1, 2, 3, 6, 15)
SEEDS = (2, 3, 8)
CELLS = {"0.4 / 0.4": (0.4, 0.4), "1.6 / 1.6": (1.6, 1.6), "1.6 / 0": (1.6, 0.0)}
"""How far runs of the two methods vary as a whole, in points."""


def sizes_of(documents: int) -> Floats:
    return np.resize(np.array([1.0, 2.0, 3.0]), documents)


def draw(rng: np.random.Generator, sizes: Floats, sets: int, runs: Sequence[int], spreads: Sequence[float]) -> list[Floats]:
    """Hits by document of each method, shape (sets, runs, documents)."""
    every = np.repeat(np.arange(len(sizes)), sizes.astype(int))
    out = [np.zeros((sets, count, len(sizes))) for count in runs]
    for start in range(0, sets, step := max(1, -(-sets // 40))):
        count = min(step, sets - start)
        documents, first, place = np.unique(every[rng.random(len(every)) < KEPT], return_index=True, return_inverse=True)
        difficulty = rng.uniform(-REACH, REACH, (count, 1, len(place))).astype(np.float32)
        for held, spread in zip(out, spreads, strict=True):
            shift = spread / MOVES
            luck = math.sqrt(1 + shift**2) * difficulty + math.sqrt(LASTING) * _luck(rng, (count, 1), place, len(documents))
            luck = luck + math.sqrt(1 - LASTING) * _luck(rng, (count, held.shape[1]), place, len(documents))
            luck += np.float32(shift) * rng.standard_normal((count, held.shape[1], 1), dtype=np.float32)
            held[start : start + count, :, documents] = np.add.reduceat((luck > 0).astype(np.float32), first, axis=-1)
    return out


def _luck(rng: np.random.Generator, shape: tuple[int, ...], place: NDArray[np.int64], documents: int) -> NDArray[np.float32]:
    alone, common = (rng.standard_normal((*shape, count), dtype=np.float32) for count in (len(place), documents))
    return np.float32(math.sqrt(0.9)) * alone + (np.float32(math.sqrt(0.1)) * common)[..., place]


def share(found: Crossed, level: float = 0.95, gain: float = 0.0) -> float:
    """How often a difference is shown: false ones, or those of methods that differ by `gain` points."""
    return 100 * float(np.mean(np.abs(found.difference + gain / 100) > found.half_width(level) + 1e-12))


def levels(sets: int) -> Iterator[Row]:
    """False verdicts at 0.05; the most that any corrected level gives, times the number of comparisons; power."""
    told = [f"{what}, {cell}" for what in ("false %", "corrected, at most %") for cell in CELLS]
    yield ("documents", "seeds", *told, "power at 1 / 2 points, 0.4 / 0.4")
    for documents in (30, 100, 700):
        for seeds in SEEDS:
            sizes, alone, corrected, power = sizes_of(documents), [], [], ""
            for number, spreads in enumerate(CELLS.values()):
                rng = np.random.default_rng((documents, seeds, number))
                a, b = draw(rng, sizes, sets, (seeds, seeds), spreads)
                found = crossed([a], [b], [sizes])
                alone.append(f"{share(found):.1f}")
                corrected.append(f"{max(many * share(found, 1 - 0.05 / many) for many in COMPARISONS[1:]):.1f}")
                power = power or f"{share(found, gain=1.0):.0f} / {share(found, gain=2.0):.0f}%"
            yield (str(documents), str(seeds), *alone, *corrected, power)


def six(sets: int) -> Iterator[Row]:
    """Six equal methods: a false pair among fifteen after Holm."""
    yield ("seeds", "all 0.4", "all 1.6", "one 1.6, others 0.4")
    sizes = sizes_of(700)
    for seeds in SEEDS:
        cells = []
        for number, spreads in enumerate(([0.4] * 6, [1.6] * 6, [1.6, *[0.4] * 5])):
            sides = draw(np.random.default_rng((6, seeds, number)), sizes, sets, (seeds,) * 6, spreads)
            pairs = [crossed([sides[a]], [sides[b]], [sizes]) for a, b in combinations(range(6), 2)]
            false = np.any([np.abs(one.difference) > one.half_width(1 - 0.05 / 15) + 1e-12 for one in pairs], axis=0)
            cells.append(f"{100 * false.mean():.1f}%")
        yield (str(seeds), *cells)


def margins(sets: int) -> Iterator[Row]:
    """Called equivalent within 2 points: methods that differ by 2 points (false), and equal ones."""
    yield ("seeds", *(f"{what}, {cell}" for what in ("false", "equal methods") for cell in CELLS))
    sizes = sizes_of(700)
    for seeds in SEEDS:
        cells: list[list[str]] = [[], []]
        for number, spreads in enumerate(CELLS.values()):
            rng = np.random.default_rng((7, seeds, number))
            a, b = draw(rng, sizes, sets, (seeds, seeds), spreads)
            found = crossed([a], [b], [sizes])
            for row, gain in zip(cells, (0.02, 0.0), strict=True):
                within = np.abs(found.difference + gain) + found.half_width(0.90) < 0.02
                row.append(f"{100 * float(np.mean(within)):.1f}%")
        yield (str(seeds), *cells[0], *cells[1])


def winner(sets: int) -> Iterator[Row]:
    """How far the gain over the base of the best of six methods is overstated, in points: its mean, and as believed."""
    yield ("documents", "seeds", "spread of runs", "equal: mean", "believed", "methods spread by 1 point: mean", "believed")
    for documents, seeds, spread in ((700, 2, 0.4), (700, 3, 0.4), (700, 8, 0.4), (700, 2, 1.6), (700, 3, 1.6), (700, 8, 1.6)):
        cells = [str(documents), str(seeds), f"{spread:g}"]
        for between in (0.0, 0.01):
            rng, sizes = np.random.default_rng((8, seeds, round(10 * spread))), sizes_of(documents)
            drawn = np.concatenate(draw(rng, sizes, sets, (seeds,) * 6 + (1,), [spread] * 6 + [0.0]), axis=1)
            over = []
            for true, runs in zip(rng.normal(0, between, (sets, 6)), drawn, strict=True):
                held = Gathered((runs[:-1] - runs[-1:]).T, sizes)
                gains, moves = held.means() + np.repeat(true, seeds), held.jackknife()
                means = gains.reshape(6, seeds).mean(axis=1)
                best = int(means.argmax())
                believed = method_means(gains, moves.T @ moves, methods=np.repeat(np.arange(6), seeds).tolist())
                over.append((means[best] - true[best], believed[best] - true[best]))
            cells += [f"{100 * one:+.2f}" for one in np.mean(over, axis=0)]
        yield tuple(cells)


def curves(sets: int) -> Iterator[Row]:
    """Flat curves that are told "train longer": the last of 2, 4 or 10 steps is shown. One seed never is."""
    yield ("seeds", "2 points", "4 points", "10 points")
    sizes = sizes_of(300)
    for seeds in (2, 3, 5, 8):
        cells = []
        for points in (2, 4, 10):
            rng = np.random.default_rng((9, seeds, points))
            before, after = draw(rng, sizes, sets, (seeds, seeds), (0.3, 0.3))  # the same runs, of which half is new each time
            found = crossed([after - before], [np.zeros_like(after[:, :1])], [sizes])
            cells.append(f"{100 * float(np.mean(found.difference > found.half_width() + 1e-12)):.1f}%")
        yield (str(seeds), *cells)


def plans(sets: int) -> Iterator[Row]:
    """How often a difference is shown that `detectable_difference` states for 80%."""
    yield ("seeds", "60 documents", "300", "1,200")
    spreads = Components(0.18, 0.12, 0.003)
    for seeds in SEEDS:
        cells = []
        for documents in (60, 300, 1200):
            rng = np.random.default_rng((10, seeds, documents))
            gain = detectable_difference(np.ones(documents), seeds, components=spreads)
            over = rng.normal(gain or 0.0, spreads.items, (sets // 4, 1, documents))
            sides = [
                one
                + rng.normal(0, spreads.flips, (sets // 4, seeds, documents))
                + rng.normal(0, spreads.seeds, (sets // 4, seeds, 1))
                for one in (over, np.zeros_like(over))
            ]
            found = crossed([sides[0]], [sides[1]], [np.ones(documents)])
            cells.append(f"{100 * float(np.mean(found.difference > found.half_width())):.0f}%")
        yield (str(seeds), *cells)


def relations(sets: int) -> Iterator[Row]:
    """Two equal methods whose starts were all tuned with the same seeds, by the spreads of results/carry-over: false verdicts."""
    yield ("starts x shared seeds", "one number per start", "crossed", "crossed, Holm of 3: largest x 3", "of 10: largest x 10")
    for starts, seeds in ((3, 2), (3, 3), (8, 2), (8, 3)):
        rng, ps = np.random.default_rng((11, starts, seeds)), []
        for _ in range(sets):
            table = rng.normal(0, 0.9, (1, seeds)) + rng.normal(0, 1.6, (starts, seeds))
            mean = float(table.mean())
            sentences = Estimate(mean, mean, mean, 3_919)  # they add nothing here: what is judged is the part of seeds
            ps.append([method_verdict(way, sentences, 0.0).p for way in (table.mean(axis=1), table)])
        alone, both = np.array(ps).T
        false = [float(np.mean(one < level)) for one, level in ((alone, 0.05), (both, 0.05), (both, 0.05 / 3), (both, 0.005))]
        yield (f"{starts} x {seeds}", *(f"{100 * many * one:.1f}%" for one, many in zip(false, (1, 1, 3, 10), strict=True)))


def documents(sets: int) -> Iterator[Row]:
    """Two models on few documents of unequal size: does the interval cover, and how often are equal ones told apart?"""
    yield ("documents", "say as much as", "interval misses", "sign flips, false")
    shapes = {
        "38 titles of LAMBADA": 3 * np.exp(1.5 * np.linspace(-1.6, 1.9, 38)),
        "14 novels of 10-116": np.linspace(10, 116, 14),
        "20, lognormal": 10 * np.exp(np.linspace(-1.9, 1.9, 20)),
        "300, lognormal": 3 * np.exp(np.linspace(-2.2, 2.2, 300)),
        "14 alike": np.full(14, 20.0),
    }
    for number, (name, shape) in enumerate(shapes.items()):
        rng, sizes = np.random.default_rng((12, number)), np.maximum(1, shape.round()).astype(int)
        clusters = np.repeat(np.arange(len(sizes)), sizes)
        few = max(40, sets)
        values = rng.normal(size=(len(clusters), few)) + 0.4 * rng.normal(size=(len(sizes), few))[clusters]
        held = [Part(values, clusters)]
        missed = np.mean([one.low > 0 or one.high < 0 for one in difference_intervals(held, seed=0, draws=1000)])
        flips = np.mean(step_down_max_t(held, seed=0).alone < 0.05)
        alike = sizes.sum() ** 2 / (sizes**2).sum()
        yield (name, f"{alike:.0f}", f"{100 * missed:.1f}%", f"{100 * flips:.1f}%")


TABLES: dict[str, Callable[[int], Iterator[Row]]] = {
    one.__name__: one for one in (levels, six, margins, winner, curves, plans, relations, documents)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"Of {', '.join(TABLES)}. Default: all.")
    parser.add_argument("--sets", type=int, default=4000)
    arguments = parser.parse_args()
    error = 100 * math.sqrt(0.0475 / arguments.sets)
    print(f"{arguments.sets} sets a cell; one standard error near 5% is {error:.1f} points")
    for name in arguments.tables or TABLES:
        began, table = time.monotonic(), TABLES[name](arguments.sets // 10 if name == "winner" else arguments.sets)
        head = next(table)
        print(f"\n{TABLES[name].__doc__}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
        for row in table:
            print(f"| {' | '.join(row)} |", flush=True)
        print(f"\n{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
