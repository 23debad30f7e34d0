"""What does a recommendation cost? In: benchmarks/sample. Out: regret, training saved and kept plans, for docs/statistics.md.

python benchmarks/recommendation.py --sets 200        some minutes on one core

True curves are invented; what documents add to them is not: documents of the sample are drawn with replacement, so that
checkpoints, runs and methods err together as they do. Runs of one method differ by a tenth of a point in level and in slope,
checkpoints by 0.08 points of their own. Regret is how far the chosen checkpoint lies under the best in truth.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.groups import read_groups
from coref_automl.statistics.intervals import Bounds, simultaneous_bounds
from coref_automl.statistics.resampling import Part
from coref_automl.statistics.shrinkage import accepted_loss, covariance, earliest_within, posterior_means, times_as_many

SAMPLE = Path(__file__).resolve().parent / "sample"
STEPS, DRAWS, MARGIN = 6, 400, 0.02
Floats = NDArray[np.float64]
T = np.arange(1, STEPS + 1, dtype=float)
SHAPES = {
    "rising": 2 * (1 - np.exp(-T / 2)),
    "flat": 0 * T,
    "over-fitting": 2 * (T / 2) * np.exp(1 - T / 2),
    "rising to the end": 0.35 * T,
}
STUDIES: dict[str, tuple[tuple[float, ...], int]] = {
    "one run": ((1.0,), 1),
    "one method, three seeds": ((1.0,), 3),
    "three methods, three seeds": ((0.0, 1.5, 2.0), 3),
}


def errors_of_documents() -> tuple[Floats, Floats]:
    """Sums by document of nine runs at 2,048 tokens, six checkpoints each, less the mean; and the documents' sizes."""
    group = read_groups([str(SAMPLE)])[0]
    names = [f"{method}-2048-s{seed}" for method in ("mlm", "combined", "entity") for seed in range(3)]
    entries = sorted((one for one in group.entries if one.run in names), key=lambda one: (names.index(one.run), one.tokens))
    part = group.columns("real1_strict", entries=entries).parts[0]
    documents = np.unique(np.asarray(part.clusters), return_inverse=True)[1]
    values = np.asarray(part.values, float)
    sums = np.zeros((documents.max() + 1, values.shape[1]))
    np.add.at(sums, documents, values - values.mean(axis=0))
    return sums, np.bincount(documents).astype(float)


def truth(rng: np.random.Generator, shape: str, levels: tuple[float, ...], seeds: int) -> Floats:
    """Fractions, method by method, seed by seed."""
    out = []
    for level in levels:
        for _ in range(seeds):
            own = rng.normal(0, 0.1) + rng.normal(0, 0.1) * (T - T.mean()) / T.std() + rng.normal(0, 0.08, STEPS)
            out.append((SHAPES[shape] if level else 0.3 * SHAPES[shape]) + level + own)
    return np.concatenate(out) / 100


def observed(rng: np.random.Generator, true: Floats, errors: Floats, sizes: Floats, documents: int) -> Part:
    """One row per drawn document, as if each held one item: its sum over the mean size."""
    drawn = rng.integers(0, len(sizes), documents)
    return Part(0.45 + true + errors[drawn][:, : len(true)] / sizes.mean(), np.arange(documents))


def earlier_rule(bounds: Bounds, values: Floats, tokens: Floats) -> int:
    """The rule before: the earliest checkpoint within the margin of the best at 95% confidence, else the best."""
    order = np.argsort(tokens, kind="stable")
    best = int(order[values[order].argmax()])
    within = next((int(one) for one in order if bounds.upper[one] <= MARGIN), best)
    return best if tokens[best] <= tokens[within] else within


def chosen(part: Part, levels: tuple[float, ...], seeds: int, seed: int) -> dict[str, tuple[int, Floats]]:
    """The checkpoint each rule chooses, and the method's mean curve it believes in."""
    values = np.asarray(part.values).mean(axis=0)
    tokens = np.tile(T, len(levels) * seeds)
    methods, runs = np.repeat(np.arange(len(levels)), seeds * STEPS), np.repeat(np.arange(len(levels) * seeds), STEPS)
    believed = posterior_means(values, covariance([part]), methods=methods.tolist(), runs=runs.tolist(), training=tokens)
    bounds = simultaneous_bounds([part], seed=seed, draws=DRAWS)
    curves = believed.reshape(len(levels), seeds, STEPS).mean(axis=1)
    ours = np.where(methods == curves.max(axis=1).argmax(), believed, -1.0)  # the method over its seeds, then its highest
    return {
        "highest": (int(values.argmax()), values),
        "earlier rule": (earlier_rule(bounds, values, tokens), values),
        "posterior mean": (int(believed.argmax()), believed),
        "method, then posterior mean": (int(ours.argmax()), believed),
    }


def regrets(sets: int, errors: Floats, sizes: Floats) -> None:
    print(
        "| study | true curve | documents | "
        + " | ".join(f"regret, {one}" for one in ("highest", "earlier rule", "posterior mean", "method, then posterior mean"))
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    overall: dict[str, list[float]] = {}
    ahead: list[list[list[float]]] = []
    for number, (study, (levels, seeds)) in enumerate(STUDIES.items()):
        first = 2 if len(levels) == 1 else 0  # errors of entity alone, or of all three
        for place, shape in enumerate(SHAPES):
            for documents in (100, 450, 900):
                rng = np.random.default_rng((number, place, documents))
                found: dict[str, list[float]] = {}
                for run in range(sets):
                    true = truth(rng, shape, levels, seeds)
                    part = observed(rng, true, errors[:, 18 * first :], sizes, documents)
                    rules = chosen(part, levels, seeds, run)
                    for name, (at, _) in rules.items():
                        found.setdefault(name, []).append(100 * (true.max() - true[at]))
                    ahead.append(next_time(part, true, rules["method, then posterior mean"], seeds, run))
                for name, seen in found.items():
                    overall.setdefault(name, []).append(float(np.mean(seen)))
                told = " | ".join(f"{np.mean(seen):.2f}" for seen in found.values())
                print(f"| {study} | {shape} | {documents} | {told} |", flush=True)
    print("| mean | | | " + " | ".join(f"{np.mean(seen):.2f}" for seen in overall.values()) + " |\n")
    for name, (lost, saved, kept, accepted) in zip(("by value", "at 95% confidence"), np.mean(ahead, axis=0), strict=True):
        print(f"next time, {name}: {100 * saved:.0f}% of training saved, {lost:.2f} points lost in truth, ", end="")
        print(f"{100 * kept:.0f}% within the accepted loss ({accepted:.2f} points on average)")


def next_time(part: Part, true: Floats, rule: tuple[int, Floats], seeds: int, seed: int) -> list[list[float]]:
    """What training until a point of the method's mean curve loses in truth, and the share of training it saves: where the curve
    itself is within the accepted loss, or where it is so at 95% confidence. Whether that was kept, and the accepted loss."""
    at, believed = rule
    method = at // (seeds * STEPS)
    rows = slice(method * seeds * STEPS, (method + 1) * seeds * STEPS)
    curve, real = (values[rows].reshape(seeds, STEPS).mean(axis=0) for values in (believed, true))
    loss = accepted_loss(MARGIN, float(real.max()))  # the base stands at 0
    columns = np.asarray(part.values)[:, rows].reshape(-1, seeds, STEPS).mean(axis=1)
    upper = simultaneous_bounds([Part(columns, part.clusters)], seed=seed, draws=DRAWS).upper
    sure = next((one for one in range(STEPS) if upper[one] <= loss), int(curve.argmax()))
    points = (earliest_within(curve, loss), min(sure, int(curve.argmax())))
    lost = [float(real.max() - real[point]) for point in points]
    return [[100 * one, 1 - T[point] / T[-1], float(one <= loss), 100 * loss] for one, point in zip(lost, points, strict=True)]


def plans(sets: int, errors: Floats, sizes: Floats) -> None:
    """An early checkpoint is said to need so many times the documents: was it settled once they were there?"""
    rng, came = np.random.default_rng(7), {"half": [0, 0], "80%": [0, 0]}
    for run in range(sets):
        gaps = np.array([0.0, rng.uniform(0, MARGIN)])
        first = observed(rng, gaps, errors[:, [36, 41]], sizes, 300)
        bounds = simultaneous_bounds([first], seed=run, draws=DRAWS)
        room = MARGIN - bounds.gaps[:, 0]
        old = float(((bounds.reach[:, 0] / room) ** 2).max()) if np.all(room > 0) else 0.0
        for name, factor in (("half", old if 1 < old <= 30 else None), ("80%", times_as_many(bounds, 0, MARGIN))):
            if factor is None or not 1 < factor <= 30:
                continue
            more = observed(rng, gaps, errors[:, [36, 41]], sizes, round(300 * (factor - 1)) + 1)
            values = np.concatenate([np.asarray(first.values), np.asarray(more.values)])
            settled = simultaneous_bounds([Part(values, np.arange(len(values)))], seed=run, draws=DRAWS).upper[0] <= MARGIN
            came[name][0] += int(settled)
            came[name][1] += 1
    for name, (true, planned) in came.items():
        print(f"plans for {name}: {planned} made, {100 * true / max(1, planned):.0f}% came true")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    arguments = parser.parse_args()
    began = time.monotonic()
    errors, sizes = errors_of_documents()
    plans(5 * arguments.sets, errors, sizes)
    regrets(arguments.sets, errors, sizes)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
