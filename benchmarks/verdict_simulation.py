"""Do verdicts keep their level, and what can they show? In: a count of simulated sets. Out: Markdown tables, and JSON.

    python benchmarks/verdict_simulation.py                                all tables
    python benchmarks/verdict_simulation.py documents methods --sets 4000     some of them
    python benchmarks/verdict_simulation.py --json verdicts.json              also as JSON

Items that every run hits or misses carry nothing, so only the others are drawn: their difficulty is shared, a method has its
own luck with each, a run the rest, a fifth of either common to a document. So many flip from run to run, and so far do methods
differ on single documents, as in the archives under results/. A run may also be better or worse as a whole, by a spread given
in points. Methods are equal in truth unless it is said otherwise. Each rate of false verdicts stands with its one-sided 99%
upper bound. Two tests that were in use before are drawn beside: `t` (Student over effective documents, runs crossed with
documents) and `flips` (random signs of documents, a p of at least as large; seeds do not count).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.statistics.closed_forms import NORMAL, satterthwaite, t_quantile, t_quantiles, wilson
from coref_automl.statistics.crossed import crossed, spread_of
from coref_automl.statistics.documents import DocumentTest
from coref_automl.statistics.families import judge_columns, methods_not_told_from_best, not_told_from_best
from coref_automl.statistics.planning import Components, detectable_difference
from coref_automl.statistics.resampling import Gathered, Part
from coref_automl.statistics.runs import diverged
from coref_automl.statistics.shrinkage import method_means

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Row = tuple[str, ...]
KEPT, REACH, LASTING, COMMON = 0.28, 2.2, 0.5, 0.2
"""The share of items that are neither always hit nor always missed, how far their difficulty reaches, the share of a method's
luck with an item that all its runs have in common, and the share of luck that a document has in common."""
MOVES = 100 * KEPT / (2 * REACH)
"""The points that a run gains by an advantage of 1."""
SEEDS = (2, 3, 5, 8, 14)
MANY = (3, 15)
"""Numbers of comparisons at whose corrected levels false verdicts are counted."""
LIMIT = 6.0
_CELLS = 12_000_000
_FLIPS, _POWERS = 2_000, 4_000


def shape(name: str) -> Floats:
    """Items by document. "20 even" are 1 to 3 times the least, "20 lognormal" differ 36-fold, "20 novel" has one with 40%."""
    count, kind = name.split()
    documents, least = int(count), max(1, 200 // int(count))
    if kind == "lognormal":
        return np.maximum(1, np.round(3 * np.exp(np.linspace(-1.8, 1.8, documents)) * least / 2))
    sizes = np.resize(np.array([1.0, 2.0, 3.0]), documents) * least
    return np.append(sizes[1:], np.round(sizes[1:].sum() * 2 / 3)) if kind == "novel" else sizes


def luck(rng: np.random.Generator, kind: str, size: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers of mean 0 and variance 1."""
    if kind == "skewed":
        return rng.standard_exponential(size, np.float32) - np.float32(1)
    if kind == "heavy":
        return np.asarray(rng.standard_t(3, size) / math.sqrt(3), np.float32)
    return rng.standard_normal(size, np.float32)


def draws(
    seed: object, sizes: Floats, sets: int, runs: Sequence[int], spreads: Sequence[float], *, of: str = "", documents: str = ""
) -> Iterator[list[Floats]]:
    """Blocks of hits by document of each method, shape (sets, runs, documents); `of` is the kind of luck of seeds."""
    rng = np.random.default_rng(list(repr(seed).encode()))
    every = np.repeat(np.arange(len(sizes)), sizes.astype(int))
    step = max(1, min(-(-sets // 10), _CELLS // (sum(runs) * max(len(sizes), int(KEPT * len(every))))))
    for start in range(0, sets, step):
        count = min(step, sets - start)
        held, first, place = np.unique(every[rng.random(len(every)) < KEPT], return_index=True, return_inverse=True)

        def items(
            shape: tuple[int, ...], place: NDArray[np.int64] = place, held: NDArray[np.int64] = held
        ) -> NDArray[np.float32]:
            alone, common = luck(rng, "", (*shape, len(place))), luck(rng, documents, (*shape, len(held)))
            return np.float32(math.sqrt(1 - COMMON)) * alone + (np.float32(math.sqrt(COMMON)) * common)[..., place]

        difficulty = rng.uniform(-REACH, REACH, (count, 1, len(place))).astype(np.float32)
        out = []
        for many, spread in zip(runs, spreads, strict=True):
            shift = np.float32(spread / MOVES)
            total = np.float32(math.sqrt(1 + shift**2)) * difficulty + np.float32(math.sqrt(LASTING)) * items((count, 1))
            total = total + np.float32(math.sqrt(1 - LASTING)) * items((count, many)) + shift * luck(rng, of, (count, many, 1))
            sums = np.zeros((count, many, len(sizes)))
            sums[..., held] = np.add.reduceat((total > 0).astype(np.float32), first, axis=-1)
            out.append(sums)
        yield out


def before(a: Floats, b: Floats, sizes: Floats, level: float) -> Floats:
    """The half width of `t`: two Student quantiles, of effective documents and of these runs alone, widened by fixed factors."""
    found, alike = spread_of([a], [b], [sizes]), float(sizes.sum() ** 2 / (sizes**2).sum())
    by_documents = t_quantile((1 + level) / 2, max(1, min(200, int(alike - 1))))
    sides = [side for side in (a, b) if side.shape[-2] > 1]
    variances = [side.sum(axis=-1).var(axis=-1, ddof=1) / sizes.sum() ** 2 / side.shape[-2] for side in sides]
    fewest = min((side.shape[-2] for side in sides), default=1)
    if not sides:
        return np.asarray(by_documents * np.sqrt(found.documents))
    total = sum(variances, np.zeros_like(variances[0]))
    freedom = satterthwaite(variances, [side.shape[-2] - 1 for side in sides], np.zeros_like(total))
    student, usual = (t_quantiles((1 + each) / 2, np.clip(freedom, 1, 200)) for each in (level, 0.95))
    if alike < 6:
        degrees = satterthwaite([total, found.documents], [max(1, fewest - 1), max(1.0, alike - 1)])
        over_runs = t_quantile((1 + level) / 2, max(1, fewest - 1)) * np.sqrt(total)
        over_both = t_quantiles((1 + level) / 2, np.clip(degrees, 1, 200)) * np.sqrt(total + found.documents)
        over_documents = t_quantile((1 + level) / 2, len(sizes) - 1) * np.sqrt(found.documents)
        return np.asarray(np.maximum.reduce([over_runs, over_both, over_documents]))
    normal = NORMAL.inv_cdf((1 + level) / 2) / NORMAL.inv_cdf(0.975)
    removed = 1.0 if fewest > 2 else 0.5
    beyond = student**2 * total - np.minimum(student, usual * normal) ** 2 * removed * found.flips
    return np.asarray((1.05 if alike < 100 else 1.0) * np.sqrt(by_documents**2 * found.documents + np.maximum(0.0, beyond)))


def random_flips(rng: np.random.Generator, moved: Floats) -> Floats:
    signs = rng.choice(np.array([-1, 1], np.float32), (_FLIPS, moved.shape[1]))
    flipped = np.abs(moved.astype(np.float32) @ signs.T)
    return np.asarray((1 + (flipped >= np.abs(moved.sum(axis=1))[:, None] - 1e-4).sum(axis=1)) / (1 + _FLIPS))


@dataclass
class Counts:
    """How often something happened, by name."""

    hits: dict[str, int] = field(default_factory=dict)
    of: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, happened: Bools) -> None:
        self.hits[name] = self.hits.get(name, 0) + int(np.sum(happened))
        self.of[name] = self.of.get(name, 0) + int(np.size(happened))

    def share(self, name: str) -> float:
        return 100 * self.hits[name] / self.of[name]

    def bounded(self, name: str, times: int = 1) -> str:
        """The percentage, and its 99% upper bound; a cross if that is over the limit."""
        upper = 100 * wilson(self.hits[name], self.of[name], 0.98).high
        return f"{times * self.share(name):.1f} (<{times * upper:.1f}){' ✗' if times * upper >= LIMIT else ''}"

    def tell(self, names: Sequence[str]) -> str:
        return " / ".join(f"{self.share(name):.0f}" for name in names)


def judge(counts: Counts, rng: np.random.Generator, a: Floats, b: Floats, sizes: Floats, others: Sequence[Floats] = ()) -> None:
    """Count what each test shows of a pair: at 5%, at corrected levels, and with a true gain of 2 and 3 standard errors."""
    means = [side.sum(axis=-1) / sizes.sum() for side in others]
    moved = a.mean(axis=1) - b.mean(axis=1)
    error = float(moved.sum(axis=1).std() / sizes.sum())
    found, levels = spread_of([a], [b], [sizes], others=means), {"": 0.95} | {f" of {many}": 1 - 0.05 / many for many in MANY}
    halves = {end: before(a, b, sizes, level) for end, level in levels.items()}
    for gain in (0.0, 2.0, 3.0) if counts.of.get("new 2", 0) < _POWERS else (0.0,):
        values = moved + gain * error * sizes
        spread = replace(found, test=DocumentTest.of([values], [sizes]))
        size, judged = np.abs(spread.test.difference), ~spread.test.few
        counts.add(f"flips {gain:g}", random_flips(rng, values) < 0.05)
        for end, level in levels.items():
            counts.add(f"new {gain:g}{end}", (size > spread.reach(level)) & judged)
            counts.add(f"t {gain:g}{end}", size > halves[end])


def documents(sets: int) -> Iterator[Row]:
    """Two checkpoints, no seeds: false verdicts in percent, and power at a true gain of 2 / 3 standard errors"""
    yield (
        "documents",
        "luck of documents",
        "new",
        "new, of 3 x 3",
        "of 15 x 15",
        "t",
        "flips",
        "power: new",
        "t",
        "flips",
        "of 15: new",
        "t",
    )
    shapes = (
        "5 even",
        "7 even",
        "8 even",
        "10 even",
        "10 lognormal",
        "20 even",
        "20 novel",
        "50 lognormal",
        "50 novel",
        "100 even",
    )
    for name in (*shapes, "300 novel", "700 even", "700 novel"):
        for kind in ("normal", "skewed"):
            counts, rng, sizes = Counts(), np.random.default_rng(1), shape(name)
            for a, b in draws(("documents", name, kind), sizes, sets, (1, 1), (0, 0), documents=kind):
                judge(counts, rng, a, b, sizes)
            corrected = [f"{many * counts.share(f'new 0 of {many}'):.1f}" for many in MANY]
            powers = [counts.tell([f"{test} 2", f"{test} 3"]) for test in ("new", "t", "flips")]
            more = [counts.tell([f"{test} 2 of 15", f"{test} 3 of 15"]) for test in ("new", "t")]
            levels = [counts.bounded(f"{test} 0") for test in ("new", "t", "flips")]
            yield (name, kind, levels[0], *corrected, *levels[1:], *powers, *more)


SPREADS = {
    "0.4 / 0.4": (0.4, 0.4, ""),
    "1.6 / 1.6": (1.6, 1.6, ""),
    "1.6 / 0": (1.6, 0.0, ""),
    "1.6 skewed": (1.6, 1.6, "skewed"),
}


def methods(sets: int) -> Iterator[Row]:
    """Two methods, runs crossed with documents: false verdicts in percent, and power at 2 / 3 standard errors"""
    yield (
        "documents",
        "spread of runs",
        "seeds",
        "new",
        "of 3 x 3",
        "of 15 x 15",
        "t",
        "flips",
        "power: new",
        "t",
        "of 15: new",
        "t",
    )
    for name in ("7 even", "10 lognormal", "20 novel", "100 even", "700 novel", "700 even"):
        sizes = shape(name)
        for spread, (one, other, kind) in SPREADS.items():
            counts = {k: Counts() for k in SEEDS}
            rng = np.random.default_rng(2)
            for a, b in draws(("methods", name, spread), sizes, sets, (SEEDS[-1],) * 2, (one, other), of=kind):
                for k in SEEDS:
                    judge(counts[k], rng, a[:, :k], b[:, :k], sizes)
            for k in SEEDS:
                yield (name, spread, str(k), *_row(counts[k]))


def _row(counts: Counts) -> Row:
    corrected = [f"{many * counts.share(f'new 0 of {many}'):.1f}" for many in MANY]
    powers = [counts.tell([f"{test} 2{end}", f"{test} 3{end}"]) for end in ("", " of 15") for test in ("new", "t")]
    return (counts.bounded("new 0"), *corrected, counts.bounded("t 0"), counts.bounded("flips 0"), *powers)


POOLS = {
    "all 0.4": ([0.4] * 6, ""),
    "all 1.6": ([1.6] * 6, ""),
    "all 0.8, heavy tails": ([0.8] * 6, "heavy"),
    "all 1.6, skewed": ([1.6] * 6, "skewed"),
    "one 1.6, others 0.4": ([1.6] + [0.4] * 5, ""),
    "one 1.6, others 0": ([1.6] + [0.0] * 5, ""),
}


def pooled(sets: int) -> Iterator[Row]:
    """Two of six methods, whose variance over seeds is pooled; the first pair has the noisy one"""
    yield (
        "documents",
        "spread of runs",
        "pair",
        "seeds",
        "new",
        "of 3 x 3",
        "of 15 x 15",
        "t",
        "flips",
        "power: new",
        "t",
        "of 15: new",
        "t",
    )
    for name in ("100 even", "700 even"):
        sizes = shape(name)
        for cell, (spreads, kind) in POOLS.items():
            for pair in ((0, 1), (1, 2)) if cell.startswith("one") else ((0, 1),):
                counts, rng = {k: Counts() for k in (2, 3, 5)}, np.random.default_rng(3)
                for sides in draws(("pooled", name, cell), sizes, sets, (5,) * 6, spreads, of=kind):
                    for k, each in counts.items():
                        runs = [side[:, :k] for side in sides]
                        others = [side for n, side in enumerate(runs) if n not in pair]
                        judge(each, rng, runs[pair[0]], runs[pair[1]], sizes, others)
                for k, each in counts.items():
                    yield (name, cell, "noisy" if cell.startswith("one") and 0 in pair else "equal", str(k), *_row(each))


def uneven(sets: int) -> Iterator[Row]:
    """Unequal numbers of seeds, and methods against a fixed model (0 seeds)"""
    yield (
        "documents",
        "spread of runs",
        "seeds",
        "new",
        "of 3 x 3",
        "of 15 x 15",
        "t",
        "flips",
        "power: new",
        "t",
        "of 15: new",
        "t",
    )
    for name in ("20 novel", "700 even"):
        sizes = shape(name)
        for spread, (one, other, kind) in SPREADS.items():
            cells = {pair: Counts() for pair in ((2, 5), (5, 2), (3, 14), (14, 3), (2, 0), (3, 0), (8, 0))}
            rng = np.random.default_rng(4)
            for a, b, model in draws(("uneven", name, spread), sizes, sets, (14, 14, 1), (one, other, 0.0), of=kind):
                for (ours, theirs), counts in cells.items():
                    judge(counts, rng, a[:, :ours], b[:, :theirs] if theirs else model, sizes)
            for (ours, theirs), counts in cells.items():
                yield (name, spread, f"{ours} / {theirs}", *_row(counts))


def families(sets: int) -> Iterator[Row]:
    """A false verdict among six equal checkpoints against a seventh (max-T), and among fifteen pairs of six methods (Holm)"""
    yield ("documents", "checkpoints: max-T", "each alone, Holm", "methods of 2 seeds", "of 3", "of 8")
    for name in ("10 lognormal", "20 novel", "100 even", "700 even"):
        sizes, counts = shape(name), Counts()
        for sides in draws(("family", name), sizes, sets // 10, (1,) * 7, [0.0] * 7):
            for each in range(len(sides[0])):
                columns = np.stack([side[each, 0] - sides[0][each, 0] for side in sides[1:]], axis=1)
                found = judge_columns([Gathered(columns, sizes)])
                counts.add("max", np.array([min(one.adjusted for one in found) < 0.05]))
                counts.add("holm", np.array([min(one.p for one in found) < 0.05 / 6]))
        for sides in draws(("holm", name), sizes, sets, (8,) * 6, [0.8] * 6):
            for k in (2, 3, 8):
                runs = [side[:, :k] for side in sides]
                means = [side.sum(axis=-1) / sizes.sum() for side in runs]
                false = [
                    np.abs(found.test.difference) > found.reach(1 - 0.05 / 15)
                    for i, j in combinations(range(6), 2)
                    for found in [
                        spread_of([runs[i]], [runs[j]], [sizes], others=[means[n] for n in range(6) if n not in (i, j)])
                    ]
                ]
                counts.add(f"{k}", np.any(false, axis=0))
        yield (name, *(counts.bounded(each) for each in ("max", "holm", "2", "3", "8")))


def best(sets: int) -> Iterator[Row]:
    """The set that cannot be told from the best: how often it misses the best in percent, and how many of six it holds"""
    yield ("documents", "truth", "checkpoints: missed", "held", "methods of 3 seeds: missed", "held")
    truths = {
        "all equal": (0.0,) * 6,
        "best by 1 point": (1.0, 0, 0, 0, 0, 0),
        "two best by 3": (3.0, 3, 0, 0, 0, 0),
        "steps of 1": (5.0, 4, 3, 2, 1, 0),
    }
    for name in ("10 lognormal", "20 novel", "100 even", "700 even"):
        sizes = shape(name)
        for truth, gains in truths.items():
            missed, held = Counts(), []
            for sides in draws(("best", name), sizes, sets // 20, (3,) * 6, [0.4] * 6):
                runs = [side + gain / 100 * sizes for side, gain in zip(sides, gains, strict=True)]
                means = [side.sum(axis=-1) / sizes.sum() for side in runs]
                ps, leads = np.ones((len(runs[0]), 6, 6)), np.zeros((len(runs[0]), 6, 6))
                for i, j in permutations(range(6), 2):
                    if i > j:
                        continue
                    found = spread_of([runs[i]], [runs[j]], [sizes], others=[means[n] for n in range(6) if n not in (i, j)])
                    leads[:, i, j], leads[:, j, i] = found.test.difference, -found.test.difference
                    shown = np.abs(found.test.difference) > found.reach(1 - 2 * 0.05 / 5)
                    ps[:, i, j] = ps[:, j, i] = np.where(shown, 0.0, 1.0)
                for each in range(len(runs[0])):
                    one = not_told_from_best([Part(*_items(np.stack([side[each, 0] for side in runs], axis=1), sizes))])
                    several = methods_not_told_from_best(leads[each], ps[each])
                    for what, found_set in (("one", one), ("several", several)):
                        missed.add(what, np.array([0 not in found_set.members]))
                    held.append((len(one.members), len(several.members)))
            sizes_held = np.mean(held, axis=0)
            yield (name, truth, missed.bounded("one"), f"{sizes_held[0]:.1f}", missed.bounded("several"), f"{sizes_held[1]:.1f}")


def _items(sums: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Values by item with these sums: an item of a document is its mean."""
    every = np.repeat(np.arange(len(sizes)), sizes.astype(int))
    return (sums / sizes[:, None])[every], every.astype(np.float64)


def copied(sets: int) -> Iterator[Row]:
    """Two seeds of each method, of which the first is there five times (`crossed`, 100 documents): false verdicts in percent"""
    yield ("spread of runs", "two seeds", "with four copies on one side", "on both", "the same verdicts")
    sizes = shape("100 even")
    for spread in (0.4, 1.6):
        counts = Counts()
        for a, b in draws(("copied", spread), sizes, sets // 10, (2, 2), (spread, spread)):
            for ours, theirs in zip(a, b, strict=True):
                (x, every), (y, _) = (_items(side.T, sizes) for side in (ours, theirs))
                verdicts = [
                    crossed([x.T[list(first)]], [y.T[list(second)]], [every])
                    for first, second in (((0, 1), (0, 1)), ((0, 1, 0, 0, 0, 0), (0, 1)), ((0, 1, 0, 0, 0, 0),) * 2)
                ]
                for name, verdict in zip(("none", "one", "both"), verdicts, strict=True):
                    counts.add(name, np.array([verdict.shown]))
                counts.add("same", np.array([len({verdict.p for verdict in verdicts}) == 1]))
        yield (f"{spread:g}", *(f"{counts.share(name):.1f}" for name in ("none", "one", "both")), f"{counts.share('same'):.0f}%")


def off(sets: int) -> Iterator[Row]:
    """Studies in which a run is named as diverged, in percent: none is, in truth, or the first is by so many deviations"""
    yield ("methods x seeds", "none, normal", "none, heavy tails", "6 off", "10 off", "20 off")
    for many, seeds in ((1, 4), (2, 2), (2, 3), (3, 2), (3, 3), (6, 2), (6, 3), (3, 8)):
        cells, rng = [], np.random.default_rng((14, many, seeds))
        for kind, by in (("", 0), ("heavy", 0), ("", 6), ("", 10), ("", 20)):
            counts = Counts()
            for runs in luck(rng, kind, (sets // 20, many, seeds)).astype(np.float64):
                runs[0, 0] -= by
                found = diverged(list(runs), floor=0.5)
                counts.add("named", np.array([(0, 0) in found if by else bool(found)]))
            cells.append(f"{counts.share('named'):.1f}")
        yield (f"{many} x {seeds}", *cells)


def margins(sets: int) -> Iterator[Row]:
    """Called equivalent within 2 points: methods that differ by 2 points (false), and equal ones, in percent"""
    cells = [name for name in SPREADS if not name.endswith("skewed")]
    yield ("seeds", *(f"{what}, {cell}" for what in ("false", "equal methods") for cell in cells))
    sizes = shape("700 even")
    for seeds in (2, 3, 8):
        false, equal = [], []
        for cell in cells:
            counts, (one, other, _) = Counts(), SPREADS[cell]
            for a, b in draws(("margins", seeds, cell), sizes, sets, (seeds, seeds), (one, other)):
                for name, gain in (("false", 0.02), ("equal", 0.0)):
                    found = spread_of([a + gain * sizes], [b], [sizes])
                    down, up = (found.reach(0.90, up=side) for side in (False, True))
                    value = found.test.difference
                    counts.add(name, (value - down > -0.02) & (value + up < 0.02))
            false.append(counts.bounded("false"))
            equal.append(f"{counts.share('equal'):.1f}")
        yield (str(seeds), *false, *equal)


def winner(sets: int) -> Iterator[Row]:
    """How far the gain over the base of the best of six methods is overstated, in points: its mean, and as believed."""
    yield ("documents", "seeds", "spread of runs", "equal: mean", "believed", "methods spread by 1 point: mean", "believed")
    for documents, seeds, spread in ((700, 2, 0.4), (700, 3, 0.4), (700, 8, 0.4), (700, 2, 1.6), (700, 3, 1.6), (700, 8, 1.6)):
        cells = [str(documents), str(seeds), f"{spread:g}"]
        for between in (0.0, 0.01):
            rng, sizes = np.random.default_rng((8, seeds, round(10 * spread))), shape(f"{documents} even")
            blocks = draws(("winner", documents, seeds, spread), sizes, sets, (seeds,) * 6 + (1,), [spread] * 6 + [0.0])
            drawn = np.concatenate([np.concatenate(block, axis=1) for block in blocks])
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
    """Flat curves that are told "train longer", in percent: the last change is shown and positive. One seed never is"""
    yield ("seeds", "300 documents")
    sizes = shape("300 even")
    for seeds in (2, 3, 5, 8):
        counts = Counts()
        for before_it, after in draws(("curves", seeds), sizes, sets, (seeds, seeds), (0.3, 0.3)):  # half of a run is new
            found = spread_of([after - before_it], [np.zeros_like(after[:, :1])], [sizes])
            counts.add("longer", found.test.difference > found.reach())
        yield (str(seeds), counts.bounded("longer"))


def plans(sets: int) -> Iterator[Row]:
    """How often a difference is shown that `detectable_difference` states for 80%."""
    yield ("seeds", "60 documents", "300", "1,200")
    spreads = Components(0.18, 0.12, 0.003)
    for seeds in (2, 3, 8):
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
            found = spread_of([sides[0]], [sides[1]], [np.ones(documents)])
            cells.append(f"{100 * float(np.mean(found.test.difference > found.reach())):.0f}%")
        yield (str(seeds), *cells)


TABLES: dict[str, Callable[[int], Iterator[Row]]] = {
    one.__name__: one for one in (documents, methods, uneven, pooled, families, best, copied, off, margins, winner, curves, plans)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"Of {', '.join(TABLES)}. Default: all.")
    parser.add_argument("--sets", type=int, default=20_000)
    parser.add_argument("--json", type=Path, help="Write the tables to this file, too.")
    arguments = parser.parse_args()
    error, held = 100 * math.sqrt(0.0475 / arguments.sets), {}
    print(f"{arguments.sets} sets a cell; one standard error near 5% is {error:.2f} points")
    for name in arguments.tables or TABLES:
        began, table = time.monotonic(), TABLES[name](arguments.sets // 40 if name == "winner" else arguments.sets)
        head = next(table)
        print(f"\n{TABLES[name].__doc__}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
        rows = []
        for row in table:
            print(f"| {' | '.join(row)} |", flush=True)
            rows.append(dict(zip(head, row, strict=True)))
        held[name] = {"title": TABLES[name].__doc__, "sets": arguments.sets, "rows": rows}
        print(f"\n{name}: {time.monotonic() - began:.0f} s", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
