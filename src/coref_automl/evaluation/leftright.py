"""A check of `word`: the same candidates, piece by piece from left to right. In: a model and a set. Out: how far they agree.

Left to right costs a row for every piece of every candidate, so it runs on a fixed sample of each task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.evaluation.words import sample
from coref_automl.records import Estimate, Record, Task
from coref_automl.statistics.intervals import bootstrap_mean

if TYPE_CHECKING:
    from coref_automl.evaluation.evalset import EvalSet
    from coref_automl.models.load import LoadedModel


@dataclass(frozen=True, slots=True)
class LeftToRight(Record):
    """On the items of one task's sample: `word` by masks, `word` from left to right, and the share of items with the same hit."""

    task: Task
    masks: Estimate
    left_to_right: Estimate
    agreement: float

    def __str__(self) -> str:
        return (
            f"{self.task}: word by masks {self.masks}, left to right {self.left_to_right}, "
            f"same answer on {100 * self.agreement:.1f}% of {self.masks.n} items"
        )


def check_left_to_right(
    loaded: LoadedModel, evalset: EvalSet, *, seq_len: int, dtype: str = "float32", budget: int | None = None, seed: int = 0
) -> list[LeftToRight]:
    from coref_automl.evaluation.scorer import Scorer, collect

    scorer = Scorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=seq_len, dtype=dtype, budget=budget)
    checks = []
    for task, items in evalset.items.items():
        ids = sample(item for item in items if len(item.candidates) > 1)
        chosen = [item for item in items if item.id in ids]
        if not chosen:
            continue
        clusters = np.array([item.cluster for item in chosen])
        ways = []
        for stepwise in (False, True):
            scores = collect(scorer.score(chosen, evalset.documents, words=ids, left_to_right=stepwise))
            ways.append(np.array([scores[item.id].word_rank == 1 for item in chosen]))
        estimates = [bootstrap_mean(hit, clusters, seed=seed) for hit in ways]
        checks.append(LeftToRight(task, estimates[0], estimates[1], float((ways[0] == ways[1]).mean())))
    return checks
