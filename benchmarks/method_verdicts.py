"""False verdicts about methods on real documents. In: benchmarks/sample. Out: the shares that docs/statistics.md states.

python benchmarks/method_verdicts.py        a minute on one core

The null is made of real differences: those of two runs, with the sign of every document drawn anew, so that documents stay as
large and as alike inside as they are. Seeds share 70% of the items; each also shifts all items by an amount of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.scores import Group
from coref_automl.statistics.methods import seed_paired_verdicts

SAMPLE = Path(__file__).resolve().parent / "sample"
RUNS = ("entity-512-s0", "mlm-512-s0")
SETS, ALIKE = 2_000, 0.7
Floats = NDArray[np.float64]


def observed(group: Group, metric: str) -> tuple[Floats, NDArray[np.int64]]:
    """The items' differences on confirm, and the document of each."""
    last = [max((entry for entry in group.entries if entry.run == run), key=lambda entry: entry.tokens) for run in RUNS]
    part = group.columns(metric, half="confirm", entries=last).parts[0]
    values = np.asarray(part.values, np.float64)
    return values[:, 0] - values[:, 1], np.unique(part.clusters, return_inverse=True)[1]


def null(rng: np.random.Generator, seen: Floats, documents: NDArray[np.int64], seeds: int, shift: float) -> Floats:
    """Differences of `seeds` pairs of runs of two methods that are equally good."""
    shared = rng.choice([-1.0, 1.0], documents.max() + 1)[documents] * seen
    rows = []
    for _ in range(seeds):
        alike = rng.random(len(seen)) < ALIKE
        own = rng.permutation(seen) * rng.choice([-1.0, 1.0], len(seen))
        rows.append(np.where(alike, shared, own) + rng.normal() * shift)
    return np.stack(rows)


def main() -> None:
    group, rng = read_groups([str(SAMPLE)])[0], np.random.default_rng(0)
    for metric in ("real1_strict", "gold_word", "lambada_top1_strict"):
        seen, documents = observed(group, metric)
        spread = float(np.sqrt((np.bincount(documents, weights=seen - seen.mean()) ** 2).sum())) / len(seen)
        for ratio in (0.0, 0.5, 1.0):
            for seeds in (2, 3, 5):
                shift = ratio * spread * seeds**0.5
                pairs = [null(rng, seen, documents, seeds, shift) for _ in range(SETS)]
                found = seed_paired_verdicts(pairs, documents, seed=1)
                shown = [100 * np.mean([one.shown for one in found])]
                for name in ("over_documents", "over_seeds"):
                    held = [interval for one in found if (interval := getattr(one, name)) is not None]
                    shown.append(100 * sum(interval.low > 0 or interval.high < 0 for interval in held) / len(found))
                told = ", ".join(
                    f"{word} {share:.1f}%" for word, share in zip(("shown", "documents", "seeds"), shown, strict=True)
                )
                print(f"{metric}, {documents.max() + 1} documents, seeds over documents {ratio}, {seeds} seeds: {told}")


if __name__ == "__main__":
    main()
