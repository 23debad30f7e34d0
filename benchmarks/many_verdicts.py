"""How many false verdicts does a page hold? In: benchmarks/sample. Out: the numbers on corrections in docs/statistics.md.

python benchmarks/many_verdicts.py --sets 400        some minutes on one core

The null is made of the sample: the two sides of every comparison change places, document by document, at the throw of a
coin. So documents stay as large, and comparisons as alike, as they are, and no method is better than another.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.scores import Entry, Group
from coref_automl.evaluation.metrics import METRICS as TASKS
from coref_automl.statistics.closed_forms import holm
from coref_automl.statistics.contrasts import reciprocal
from coref_automl.statistics.corrections import benjamini_hochberg, step_down_max_t
from coref_automl.statistics.crossed import crossed
from coref_automl.statistics.intervals import sign_flip_ps
from coref_automl.statistics.resampling import Part, gather

SAMPLE = Path(__file__).resolve().parent / "sample"
PAIRS = (
    ("entity-512", "mlm-512"),
    ("entity-2048", "mlm-2048"),
    ("combined-512", "mlm-512"),
    ("combined-2048", "mlm-2048"),
    ("entity-2048", "entity-512"),
    ("mlm-2048", "mlm-512"),
)
METRICS = ("real1_strict", "real_far1_strict", "lambada_top1_strict", "gold_word")
Floats = NDArray[np.float64]


def last(group: Group, method: str) -> list[Entry]:
    runs = [[one for one in group.entries if one.run == f"{method}-s{seed}"] for seed in range(3)]
    return [max(entries, key=lambda one: one.tokens) for entries in runs]


def measures(group: Group) -> list[tuple[str, NDArray[np.bool_] | None]]:
    """Every metric on all its items, and on those of each source."""
    facts = group.items.facts
    found: list[tuple[str, NDArray[np.bool_] | None]] = [(metric, None) for metric in METRICS]
    for source in ("court_precedents", "kowiki", "wikinews_ko"):
        found.append(("real1_strict", facts["source"] == source))
    return [*found, *(("lambada_top1_strict", facts["source"] == source) for source in ("fairytale", "koconovel"))]


def table(group: Group, rng: np.random.Generator, sets: int) -> Floats:
    """p-values of a table of equal methods: one row per set, one column per cell."""
    out = []
    for metric, among in measures(group):
        for first, second in PAIRS:
            columns = group.columns(metric, entries=[*last(group, first), *last(group, second)], among=among)
            held = gather(columns.parts[0])
            a, b = held.sums[:, :3].T, held.sums[:, 3:].T
            swap = rng.random((sets, 1, held.documents)) < 0.5
            out.append(crossed(np.where(swap, b, a), np.where(swap, a, b), held.sizes).ps)
    return np.stack(out, axis=1)


def levels(group: Group, rng: np.random.Generator, sets: int) -> dict[str, list[float]]:
    """False verdicts between equal methods, by hits and by reciprocal ranks: the first five pairs on every task."""
    out: dict[str, list[float]] = {"hit@1": [], "MRR": []}
    for metric in METRICS:
        rows = group.items.facts["task"] == TASKS[metric].task
        for first, second in PAIRS[:5]:
            ranks = np.stack(
                [one.ranks[TASKS[metric].rule][rows] for side in (first, second) for one in last(group, side)], axis=1
            )
            for name, values in (("hit@1", (ranks == 1).astype(float)), ("MRR", reciprocal(ranks))):
                held = gather(Part(values, group.items.facts["cluster"][rows]))
                a, b = held.sums[:, :3].T, held.sums[:, 3:].T
                swap = rng.random((sets, 1, held.documents)) < 0.5
                found = crossed(np.where(swap, b, a), np.where(swap, a, b), held.sizes)
                out[name].append(100 * float(np.mean(np.abs(found.difference) > found.half_width)))
    return out


def checkpoints(group: Group, rng: np.random.Generator, sets: int) -> tuple[float, float]:
    """How often any of many equal checkpoints is shown to differ from the base: Holm, and step-down max-T."""
    base = next(one for one in group.entries if not one.trained and one.evaluation.seq_len == 2048)
    trained = [one for one in group.entries if one.trained and one.evaluation.seq_len == 2048]
    columns = group.columns("real1_strict", half="confirm", entries=[base, *trained])
    part = columns.differences(range(1, len(trained) + 1), [0] * len(trained))[0]
    values, documents = np.asarray(part.values), np.unique(np.asarray(part.clusters), return_inverse=True)[1]
    shown = np.zeros(2)
    for run in range(sets):
        drawn = Part(values * rng.choice([-1.0, 1.0], documents.max() + 1)[documents][:, None], part.clusters)
        ps = sign_flip_ps([drawn], seed=run, family=len(trained))
        shown += [holm(ps).min() < 0.05, step_down_max_t([drawn], seed=run).adjusted.min() < 0.05]
    return float(shown[0] / sets), float(shown[1] / sets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=400)
    arguments = parser.parse_args()
    began, group, rng = time.monotonic(), read_groups([str(SAMPLE)])[0], np.random.default_rng(0)
    ps = table(group, rng, arguments.sets)
    alone, kept = (ps < 0.05).sum(axis=1), np.array([(benjamini_hochberg(row) < 0.05).sum() for row in ps])
    print(f"a table of {ps.shape[1]} verdicts on equal methods, {arguments.sets} tables")
    for name, found in (("each alone", alone), ("Benjamini-Hochberg", kept)):
        any_false, five = 100 * np.mean(found > 0), 100 * np.mean(found >= 5)
        print(f"  {name}: {found.mean():.2f} false on average, any in {any_false:.0f}% of tables, five or more in {five:.0f}%")
    primary = ps[:, :5]
    found = [100 * np.mean(one) for one in ((primary < 0.05).any(axis=1), [holm(row).min() < 0.05 for row in primary])]
    print(f"  five primary verdicts: any false in {found[0]:.1f}% of studies, after Holm in {found[1]:.1f}%")
    for name, shares in levels(group, rng, arguments.sets).items():
        print(f"  {name}: {min(shares):.1f} to {max(shares):.1f}% of equal methods shown, five pairs on four tasks")
    each, stepped = checkpoints(group, rng, arguments.sets // 4)
    print(f"54 equal checkpoints against the base, {arguments.sets // 4} sets: any shown by Holm in {100 * each:.0f}%, ", end="")
    print(f"by max-T in {100 * stepped:.0f}%\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
