"""False verdicts where every start is tuned with the same seeds. In: nothing. Out: the table of docs/statistics.md.

python benchmarks/shared_seeds.py        a minute on one core

Two methods that are equally good. A difference in micro-F1 is the luck of a pair of starts, that of a tuning seed (the same for
all pairs) and that of the one run; the spreads are those of the study in results/carry-over, in points.
"""

from __future__ import annotations

import numpy as np

from coref_automl.records import Estimate
from coref_automl.statistics.methods import method_verdict

SETS = 10_000
OF_SEEDS, OF_RUNS = 0.9, 1.6
SENTENCES = Estimate(0.0, 0.0, 0.0, 3_919)
"""They add nothing here: what is judged is the part of seeds."""


def main() -> None:
    rng = np.random.default_rng(0)
    for starts, seeds in ((3, 2), (3, 3), (5, 3), (8, 2), (8, 3), (8, 4)):
        false = np.zeros(2)
        for _ in range(SETS):
            table = rng.normal(0, OF_SEEDS, (1, seeds)) + rng.normal(0, OF_RUNS, (starts, seeds))
            for way, differences in enumerate((table.mean(axis=1), table)):
                p = method_verdict(differences, SENTENCES, 0.0).p_seeds
                false[way] += p is not None and p < 0.05
        alone, crossed = 100 * false / SETS
        print(f"| {starts} x {seeds} | {alone:.1f}% | {crossed:.1f}% |")


if __name__ == "__main__":
    main()
