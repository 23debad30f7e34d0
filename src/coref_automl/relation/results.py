"""Results of relation extraction. In: scores of seeds. Out: the records of re_results.json, and of rows.npz beside it.

Three facts per row determine micro-F1: whether it has a relation, whether one was predicted, whether it was the right one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.runs import TaskFiles
from coref_automl.decoder import NOT_FINITE
from coref_automl.records import SCHEMA, Estimate, Record, Tabular
from coref_automl.relation.rows import NO_RELATION
from coref_automl.say import align, say
from coref_automl.statistics.intervals import DRAWS
from coref_automl.statistics.resampling import resampled_f1

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scores(Record):
    micro_f1: float
    auprc: float
    accuracy: float
    n: int


@dataclass(frozen=True, slots=True)
class LabelScore(Record):
    """One line of the per-label table. `given` counts the labels given to its rows: a line of the confusion matrix.

    `confused_with` is the wrong one among them that is given most often.
    """

    label: str
    gold: int
    predicted: int
    precision: float
    recall: float
    f1: float
    auprc: float | None
    confused_with: str
    given: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RelationSeed(Record):
    """One seed. `validation` is the slice of train that chose the epoch; `scores` are on the split, None when there is none."""

    seed: int
    best_step: int
    best_epoch: int
    epochs_run: int
    validation: Scores
    validation_loss: float = field(metadata=NOT_FINITE)
    seconds: float
    rows_per_second: float
    scores: Scores | None = None


@dataclass(frozen=True, slots=True)
class RelationResult(Tabular, Record):
    """The mean over seeds, on the split that is named. Numbers are points of 100 (KLUE's scale); `estimates` are fractions.

    `spread` is the standard deviation over seeds, None for one seed. `without_overlap` leaves out rows whose sentence occurs in
    train; `share` is the part of that file's rows that was trained on. With no evaluation file the split is the slice of train
    that also chose the epoch, and says so. One seed's model alone knows nothing of its training: `seeds` is empty then, and
    `train_rows`, `validation_rows` and `share` are None.
    """

    run: str
    split: str
    n: int
    micro_f1: float
    auprc: float
    accuracy: float
    spread: dict[str, float] | None
    estimates: dict[str, Estimate]
    seeds: tuple[RelationSeed, ...]
    scheme: str
    head: str
    model: str
    train_rows: int | None = None
    validation_rows: int | None = None
    without_overlap: Scores | None = None
    labels: tuple[LabelScore, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprints: dict[str, str] = field(default_factory=dict)
    share: float | None = None
    schema: int = SCHEMA

    def __repr__(self) -> str:
        return f"{self.run}: micro-F1 {self.micro_f1:.2f}, AUPRC {self.auprc:.2f} on {self.split} ({self.n:,} rows)"

    def measures(self) -> dict[str, Estimate | None]:
        names = {"micro-F1": "micro_f1", "AUPRC": "auprc", say("정확도", "accuracy"): "accuracy"}
        return {label: self.estimates.get(name) for label, name in names.items()}

    def to_rows(self) -> list[dict[str, Any]]:
        ends = ("low", "high")
        return [
            {"metric": name, "value": getattr(self, name), **{end: 100 * getattr(self.estimates[name], end) for end in ends}}
            for name in ("micro_f1", "auprc", "accuracy")
        ]

    def lines(self) -> list[str]:
        count = len(self.seeds)
        rows = [
            (say("데이터", "split"), say(f"{self.split}, 행 {self.n:,}개", f"{self.split}, {self.n:,} rows")),
            ("micro-F1", f"{self.micro_f1:.2f} {_interval(self.estimates['micro_f1'])}"),
            ("AUPRC", f"{self.auprc:.2f} {_interval(self.estimates['auprc'])}"),
            (say("정확도", "accuracy"), f"{self.accuracy:.2f} {_interval(self.estimates['accuracy'])}"),
        ]
        shown = align(rows)
        spread = f"{self.spread['micro_f1']:.2f}" if self.spread else ""
        seeds = say(f"시드 {count}개의 평균 (micro-F1 표준편차 {spread}). ", f"Mean of {count} seeds (SD of micro-F1 {spread}). ")
        interval = say(
            "대괄호: 문장 단위 부트스트랩 95% 신뢰구간.", "Brackets: 95% bootstrap confidence interval over sentences."
        )
        shown.append(seeds + interval if spread else interval)
        if self.without_overlap is not None:
            other, rest = self.without_overlap, self.n - self.without_overlap.n
            scores = f"micro-F1 {other.micro_f1:.2f}, AUPRC {other.auprc:.2f}"
            shown.append(
                say(
                    f"학습 데이터에 같은 문장이 있는 행 {rest:,}개를 빼면: {scores}",
                    f"Without the {rest:,} rows whose sentence is in train: {scores}",
                )
            )
        return [*shown, *self.notes]

    def label_lines(self) -> list[str]:
        """A line for each of the 30 labels, over the mean of the seeds' probabilities."""
        count = len(self.seeds)
        head = (say("레이블", "label"), say("정답", "gold"), say("예측", "predicted"), "P", "R", "F1", "AUPRC")
        rows: list[tuple[str, ...]] = [head]
        often = [say("가장 많이 혼동한 레이블", "most often confused with")]
        for line in self.labels:
            occurs = line.gold or line.predicted
            scores = (line.precision, line.recall, line.f1, line.auprc) if occurs else (None,) * 4
            rows.append(
                (line.label, str(line.gold), str(line.predicted), *("-" if one is None else f"{one:.1f}" for one in scores))
            )
            often.append(f"{line.confused_with} ({line.given[line.confused_with]})" if line.confused_with else "")
        told = say(
            f"레이블별 점수는 시드 {count}개의 확률을 평균해 구했습니다 (위의 점수는 시드별 점수의 평균).",
            f"By label, from the averaged probabilities of {count} seeds (the scores above average the seeds' scores).",
        )
        table = [f"{cells}  {last}".rstrip() for cells, last in zip(align(rows, right=True), often, strict=True)]
        return [*([told] if count > 1 else []), *table]


def _interval(estimate: Estimate) -> str:
    return f"[{100 * estimate.low:.2f}, {100 * estimate.high:.2f}]"


@dataclass(frozen=True, slots=True, eq=False)
class RowFacts:
    """Rows of the scored split: `gold` [n]; `right` and `given` (predicted) [n, seeds]; the number of each row's sentence."""

    gold: Bools
    right: Bools
    given: Bools
    sentences: NDArray[Any]

    @classmethod
    def answered(cls, gold: NDArray[np.int64], predicted: NDArray[np.int64], sentences: NDArray[Any]) -> Self:
        """The facts of labels as indices: gold [n], predicted [n, seeds]."""
        relation = gold != NO_RELATION
        return cls(relation, (predicted == gold[:, None]) & relation[:, None], predicted != NO_RELATION, sentences)

    @property
    def count(self) -> int:
        return int(self.right.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"gold": self.gold, "right": self.right, "given": self.given, "sentences": self.sentences}

    @classmethod
    def of_arrays(cls, held: Mapping[str, NDArray[Any]]) -> Self:
        return cls(held["gold"], held["right"], held["given"], held["sentences"])

    def f1(self) -> NDArray[np.float64]:
        """Micro-F1 of each seed, a fraction."""
        both = self.given.sum(0) + self.gold.sum()
        return np.asarray(2 * self.right.sum(0) / np.maximum(both, 1), np.float64)

    def draws(self, seed: int, sentences: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Micro-F1 of resampled sentences, averaged over the seeds."""
        sentences = self.sentences if sentences is None else sentences
        return np.asarray(resampled_f1(self.right, self.given, self.gold, sentences, seed=seed, draws=DRAWS).mean(1))

    def of(self, columns: Sequence[int]) -> RowFacts:
        return RowFacts(self.gold, self.right[:, columns], self.given[:, columns], self.sentences)


RELATION_FILES = TaskFiles("relation", "re_results.json", "rows.npz", RelationResult, RowFacts)
