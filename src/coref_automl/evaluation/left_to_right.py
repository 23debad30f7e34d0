"""The check behind `--words l2r`. In: a model and a set. Out: `word` by masks and from left to right on a sample of each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coref_automl.evaluation.scorer import Scorer, collect
from coref_automl.evaluation.words import sample
from coref_automl.records import Estimate, Record, Task
from coref_automl.say import say
from coref_automl.statistics.intervals import bootstrap_mean

if TYPE_CHECKING:
    from coref_automl.evaluation.evalset import EvalSet
    from coref_automl.models.load import LoadedModel


@dataclass(frozen=True, slots=True)
class LeftToRight(Record):
    """`word` by masks and from left to right on the sample of one task, and the share of items on which they agree."""

    task: Task
    masks: Estimate
    left_to_right: Estimate
    agreement: float

    def __str__(self) -> str:
        same = f"{100 * self.agreement:.1f}%"
        return say(
            f"{self.task}: 단어 점수 (마스크) {self.masks}, (왼쪽부터) {self.left_to_right}, 문항 {self.masks.n}개의 {same} 일치",
            f"{self.task}: word by masks {self.masks}, left to right {self.left_to_right}, same answer on {same} of "
            f"{self.masks.n} items",
        )


@dataclass(frozen=True, slots=True)
class LeftToRightChecks(Record):
    """What l2r.json holds: the checks, and the key of the evaluation they belong to."""

    key: str
    checks: tuple[LeftToRight, ...]


def check_left_to_right(
    loaded: LoadedModel, evalset: EvalSet, *, seq_len: int, dtype: str = "float32", budget: int | None = None, seed: int = 0
) -> list[LeftToRight]:
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
