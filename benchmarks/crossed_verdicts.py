"""False verdicts and power of the crossed test. In: a count of simulated sets. Out: the tables of docs/statistics.md.

python benchmarks/crossed_verdicts.py --sets 2000        some minutes on one core

Items that every run hits or misses carry nothing, so only the others are drawn: their difficulty is shared, a method has its own
luck with each (half of it, or nine tenths), a run the rest; a tenth of either is common to a document. Each run may also be
better or worse as a whole, by 0 to 3 times what documents make the difference spread: in both methods alike, in one alone, or in
one that is set beside its base. Given its difficulty an item is hit as often by either method: they are equal in truth.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from coref_automl.statistics.closed_forms import t_quantile
from coref_automl.statistics.crossed import Crossed, crossed

Floats = NDArray[np.float64]
KEPT, REACH = 0.28, 2.2
"""The share of items that are neither always hit nor always missed, and how far their difficulty reaches."""
MOVES = KEPT / (2 * REACH)
"""What a run that is better by 1 gains in hits."""
EFFECT = 3.0
"""The difference at which power is measured, in true standard errors."""


def lognormal(documents: int, spread: float, middle: int) -> Floats:
    places = (np.arange(documents) + 0.5) / documents
    return np.array([max(1, round(middle * math.exp(spread * NormalDist().inv_cdf(place)))) for place in places], float)


def repeated(documents: int, sizes: tuple[int, ...]) -> Floats:
    return np.resize(np.array(sizes, float), documents)


SHAPES = {
    "10 of 20": repeated(10, (20,)),
    "12, one holds half": np.array([200, 60, 40, 20, 20, 10, 10, 10, 5, 5, 5, 5], float),
    "14 of 10-116": np.array([116, 100, 80, 70, 60, 50, 40, 35, 30, 25, 20, 15, 12, 10], float),
    "38, lognormal": lognormal(38, 1.3, 10),
    "40 of 1-6": repeated(40, (1, 2, 3, 4, 5, 6)),
    "76, lognormal": lognormal(76, 1.1, 10),
    "100 of 1-3": repeated(100, (1, 2, 3)),
    "300, lognormal": lognormal(300, 1.0, 3),
    "300 of 1-3": repeated(300, (1, 2, 3)),
    "900 of 1-3": repeated(900, (1, 2, 3)),
}


@dataclass(frozen=True)
class Cell:
    """Who varies, and by how much: `ratio` is the standard error of the mean over runs over that over documents."""

    kind: str
    ratio: float
    lasting: float = 0.5
    others: int = 0
    """How many runs the other method has, if not as many."""


CELLS = (
    Cell("alike", 0),
    Cell("alike", 0, 0.9),
    Cell("alike", 0.5),
    Cell("alike", 1),
    Cell("alike", 3),
    Cell("one", 1),
    Cell("one", 3),
    Cell("base", 0),
    Cell("base", 2),
)


UNEVEN = ("40 of 1-6", "100 of 1-3", "300 of 1-3")


def uneven(few: int, more: int) -> list[tuple[int, Cell]]:
    """The runs of the method that varies as a whole, and how much: that of few runs, that of more, or neither."""
    cells = [(few, Cell("one", ratio, others=more)) for ratio in (1, 3)]
    return [*cells, *((more, Cell("one", ratio, others=few)) for ratio in (1, 3)), (few, Cell("alike", 0, others=more))]


def draw(
    rng: np.random.Generator, sizes: Floats, sets: int, seeds: int, cell: Cell, shifts: tuple[float, float], blocks: int = 10
) -> tuple[Floats, Floats]:
    """Sums by document of either method, shape (sets, runs, documents)."""
    every = np.repeat(np.arange(len(sizes)), sizes.astype(int))
    a, b = np.zeros((sets, seeds, len(sizes))), np.zeros((sets, 1 if cell.kind == "base" else cell.others or seeds, len(sizes)))
    for start in range(0, sets, step := -(-sets // blocks)):
        count = min(step, sets - start)
        documents, first, place = np.unique(every[rng.random(len(every)) < KEPT], return_index=True, return_inverse=True)
        if not len(documents):
            continue
        difficulty = rng.uniform(-REACH, REACH, (count, len(place))).astype(np.float32)
        for out, shift in ((a, shifts[0]), (b, shifts[1])):
            whole = math.sqrt(1 + shift**2)
            own, run = math.sqrt(cell.lasting), math.sqrt(1 - cell.lasting)
            base = whole * difficulty + own * _by_document(rng, (count,), place, len(documents))
            luck = run * _by_document(rng, (count, out.shape[1]), place, len(documents))
            luck += base[:, None, :] + np.float32(shift) * _normal(rng, count, out.shape[1], 1)
            out[start : start + count, :, documents] = np.add.reduceat((luck > 0).astype(np.float32), first, axis=-1)
    return a, b


def _normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.standard_normal(shape, dtype=np.float32)


def _by_document(
    rng: np.random.Generator, shape: tuple[int, ...], place: NDArray[np.int64], documents: int
) -> NDArray[np.float32]:
    """Luck of variance 1, a tenth of it common to a document."""
    alone, common = _normal(rng, *shape, len(place)), _normal(rng, *shape, documents)
    return np.float32(math.sqrt(0.9)) * alone + (np.float32(math.sqrt(0.1)) * common)[..., place]


def judged(rng: np.random.Generator, sizes: Floats, sets: int, seeds: int, cell: Cell) -> tuple[Crossed, Floats, float]:
    """What the sets say, the old rule's half widths, and the true standard error of the difference."""
    a, b = draw(rng, sizes, 400, seeds, cell, (0.0, 0.0))
    spread = float((a.sum(axis=-1).mean(axis=1) - b.sum(axis=-1).mean(axis=1)).std()) / sizes.sum()
    shift = cell.ratio * spread * math.sqrt(seeds) / MOVES
    a, b = draw(rng, sizes, sets, seeds, cell, (shift / math.sqrt(2),) * 2 if cell.kind == "alike" else (shift, 0.0))
    found = crossed(a, b, sizes)
    alike = min(a.shape[1], b.shape[1]) if cell.others else a.shape[1]
    pairs = (a.sum(axis=-1)[:, :alike] - b.sum(axis=-1)[:, :alike]) / sizes.sum()
    return found, three_intervals(found, pairs, len(sizes)), float(np.std(found.difference))


def three_intervals(found: Crossed, pairs: Floats, documents: int) -> Floats:
    """The rule before this one: Student's interval over the pairs of runs, that over documents, and that of both variances.

    The document bootstrap is represented by the t interval that it follows.
    """
    seeds = pairs.shape[1]
    over = pairs.var(axis=1, ddof=1) / seeds
    both = over + found.documents
    spent = over**2 / (seeds - 1) + found.documents**2 / found.document_degrees
    degrees = np.divide(both**2, spent, out=np.ones_like(both), where=spent > 0).clip(1, 200).astype(int)
    quantiles = np.array([0.0] + [t_quantile(0.975, one) for one in range(1, 201)])
    widest: Floats = np.maximum.reduce(
        [
            quantiles[seeds - 1] * np.sqrt(over),
            t_quantile(0.975, documents - 1) * np.sqrt(found.documents),
            quantiles[degrees] * np.sqrt(both),
        ]
    )
    return widest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began, limit = time.monotonic(), 5 + 200 * math.sqrt(0.0475 / arguments.sets)
    print(f"{arguments.sets} sets a cell; allowed are 5% plus two simulation errors: {limit:.1f}%\n")
    print("| documents | seeds | false, worst: old / new | false, mean | power, seeds add nothing | half as much | as much |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    over = 0
    for number, (name, sizes) in enumerate(SHAPES.items()):
        for seeds in (2, 3, 5, 8):
            false: list[tuple[float, float]] = []
            power: dict[float, tuple[float, float]] = {}
            for place, cell in enumerate(CELLS):
                rng = np.random.default_rng((arguments.seed, number, seeds, place))
                found, old, error = judged(rng, sizes, arguments.sets, seeds, cell)
                halves = (old, found.half_width)
                false.append(tuple(100 * float(np.mean(np.abs(found.difference) > half + 1e-12)) for half in halves))  # type: ignore[arg-type]
                if cell.kind == "alike" and cell.ratio <= 1 and cell.lasting == 0.5:
                    moved = np.abs(found.difference + EFFECT * error)
                    power[cell.ratio] = tuple(100 * float(np.mean(moved > half + 1e-12)) for half in halves)  # type: ignore[assignment]
            over += sum(new > limit for _, new in false)
            worst, mean = np.max(false, axis=0), np.mean(false, axis=0)
            cells = [f"{worst[0]:.1f} / {worst[1]:.1f}%", f"{mean[0]:.1f} / {mean[1]:.1f}%"]
            cells += [f"{old:.0f} / {new:.0f}%" for old, new in power.values()]
            print(f"| {name} | {seeds} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{over} cells of the new rule above {limit:.1f}%; {time.monotonic() - began:.0f} s")
    print("\n| documents | runs | false, either varies, worst |\n|---|---:|---:|")
    for number, name in enumerate(UNEVEN):
        for few, more in ((2, 3), (2, 5), (2, 8), (3, 5), (3, 8)):
            worst = 0.0
            for place, (runs, cell) in enumerate(uneven(few, more)):
                rng = np.random.default_rng((arguments.seed, number, few, more, place))
                found = judged(rng, SHAPES[name], arguments.sets, runs, cell)[0]
                worst = max(worst, 100 * float(np.mean(np.abs(found.difference) > found.half_width + 1e-12)))
            print(f"| {name} | {few} and {more} | {worst:.1f}% |", flush=True)


if __name__ == "__main__":
    main()
