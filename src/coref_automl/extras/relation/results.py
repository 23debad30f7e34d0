"""Results of relation extraction. In: scores of seeds. Out: the records of re_results.json, and of rows.npz beside it.

Three facts per row determine micro-F1: whether it has a relation, whether one was predicted, whether it was correct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.decoder import NOT_FINITE
from coref_automl.base.records import SCHEMA, Estimate, Record, Tabular
from coref_automl.base.say import align, say
from coref_automl.comparison.runs import TaskFiles
from coref_automl.extras.relation.rows import NO_RELATION, Ints
from coref_automl.statistics.intervals import DRAWS
from coref_automl.statistics.resampling import Bools, resampled_f1


@dataclass(frozen=True, slots=True)
class Scores(Record):
    micro_f1: float
    auprc: float
    accuracy: float
    n: int


@dataclass(frozen=True, slots=True)
class LabelScore(Record):
    """One row of the per-label table. `given` counts the predictions for the label's rows: a row of the confusion matrix.

    `confused_with` is the most frequent wrong one among them.
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
    """One seed. `validation` are scores on the part of train that selected the epoch, `scores` on the split, if there is one."""

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
    """The mean over seeds on a split. Scores are points of 100 (KLUE's scale); `estimates` are fractions.

    `spread` is the standard deviation over seeds, None for one seed. `without_overlap` excludes rows whose sentence occurs in
    train; `share` is the fraction of that file's rows used for training. Without an evaluation file the split is the part of
    train that also selected the epoch, and a note says so. A lone model has no record of its training: `seeds` is empty, and
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
        lines = align(rows)
        spread = f"{self.spread['micro_f1']:.2f}" if self.spread else ""
        seeds = say(f"시드 {count}개의 평균 (micro-F1 표준편차 {spread}). ", f"Mean of {count} seeds (SD of micro-F1 {spread}). ")
        interval = say(
            "대괄호: 문장 단위 부트스트랩 95% 신뢰구간.", "Brackets: 95% bootstrap confidence interval over sentences."
        )
        lines.append(seeds + interval if spread else interval)
        if self.without_overlap is not None:
            unseen, overlap = self.without_overlap, self.n - self.without_overlap.n
            scores = f"micro-F1 {unseen.micro_f1:.2f}, AUPRC {unseen.auprc:.2f}"
            lines.append(
                say(
                    f"학습 데이터에 같은 문장이 있는 행 {overlap:,}개를 빼면: {scores}",
                    f"Without the {overlap:,} rows whose sentence is in train: {scores}",
                )
            )
        return [*lines, *self.notes]

    def label_lines(self) -> list[str]:
        """Format one line per label, from the mean of the seeds' probabilities."""
        count = len(self.seeds)
        head = (say("레이블", "label"), say("정답", "gold"), say("예측", "predicted"), "P", "R", "F1", "AUPRC")
        rows: list[tuple[str, ...]] = [head]
        confused = [say("가장 많이 혼동한 레이블", "most often confused with")]
        for label in self.labels:
            occurs = label.gold or label.predicted
            scores = (label.precision, label.recall, label.f1, label.auprc) if occurs else (None,) * 4
            cells = ("-" if value is None else f"{value:.1f}" for value in scores)
            rows.append((label.label, str(label.gold), str(label.predicted), *cells))
            confused.append(f"{label.confused_with} ({label.given[label.confused_with]})" if label.confused_with else "")
        note = say(
            f"레이블별 점수는 시드 {count}개의 확률을 평균해 구했습니다 (위의 점수는 시드별 점수의 평균).",
            f"By label, from the averaged probabilities of {count} seeds (the scores above average the seeds' scores).",
        )
        table = [f"{columns}  {last}".rstrip() for columns, last in zip(align(rows, right=True), confused, strict=True)]
        return [*([note] if count > 1 else []), *table]


def _interval(estimate: Estimate) -> str:
    return f"[{100 * estimate.low:.2f}, {100 * estimate.high:.2f}]"


@dataclass(frozen=True, slots=True, eq=False)
class RowFacts:
    """For each row of the scored split: whether it has a relation (`gold` [n]), whether the correct one (`right`) or any one
    (`given`) was predicted [n, seeds], and the number of its sentence."""

    gold: Bools
    right: Bools
    given: Bools
    sentences: NDArray[Any]

    @classmethod
    def answered(cls, gold: Ints, predicted: Ints, sentences: NDArray[Any]) -> Self:
        """Reduce labels as indices, gold [n] and predicted [n, seeds], to these facts."""
        relation = gold != NO_RELATION
        return cls(relation, (predicted == gold[:, None]) & relation[:, None], predicted != NO_RELATION, sentences)

    @property
    def count(self) -> int:
        return int(self.right.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"gold": self.gold, "right": self.right, "given": self.given, "sentences": self.sentences}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(arrays["gold"], arrays["right"], arrays["given"], arrays["sentences"])

    def f1(self) -> NDArray[np.float64]:
        """Micro-F1 of each seed, a fraction."""
        total = self.given.sum(0) + self.gold.sum()
        return np.asarray(2 * self.right.sum(0) / np.maximum(total, 1), np.float64)

    def draws(self, seed: int, sentences: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Micro-F1 of resampled sentences, averaged over the seeds."""
        sentences = self.sentences if sentences is None else sentences
        return np.asarray(resampled_f1(self.right, self.given, self.gold, sentences, seed=seed, draws=DRAWS).mean(1))

    def of(self, columns: Sequence[int]) -> RowFacts:
        return RowFacts(self.gold, self.right[:, columns], self.given[:, columns], self.sentences)


RELATION_FILES = TaskFiles("relation", "re_results.json", "rows.npz", RelationResult, RowFacts)
