"""What a relation run leaves behind. In: seeds' scores. Out: records that read from and write to re_results.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.arrays import read_array
from coref_automl.decoder import NOT_FINITE
from coref_automl.errors import InputError
from coref_automl.records import SCHEMA, Estimate, Record
from coref_automl.relation.data import sentence_mark
from coref_automl.relation.labels import INDEX, LABELS
from coref_automl.relation.metrics import LabelScore, Scores
from coref_automl.relation.rows import RelationRow
from coref_automl.say import say
from coref_automl.store import read_jsonl, write_jsonl, written_whole
from coref_automl.tabular import Tabular, align

RESULTS, ROWS = "re_results.json", "rows.npz"


@dataclass(frozen=True, slots=True)
class SeedResult(Record):
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
    train. With no evaluation file the split is the slice of train that also chose the epoch, and says so. One seed's model alone
    knows nothing of its training: `seeds` is empty then, and `train_rows` and `validation_rows` are None.
    """

    run: str
    split: str
    n: int
    micro_f1: float
    auprc: float
    accuracy: float
    spread: dict[str, float] | None
    estimates: dict[str, Estimate]
    seeds: tuple[SeedResult, ...]
    scheme: str
    head: str
    model: str
    train_rows: int | None
    validation_rows: int | None
    without_overlap: Scores | None = None
    labels: tuple[LabelScore, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprints: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def __repr__(self) -> str:
        return f"{self.run}: micro-F1 {self.micro_f1:.2f}, AUPRC {self.auprc:.2f} on {self.split} ({self.n:,} rows)"

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per metric, in points of 100."""
        ends = ("low", "high")
        return [
            {"metric": name, "value": getattr(self, name), **{end: 100 * getattr(self.estimates[name], end) for end in ends}}
            for name in ("micro_f1", "auprc", "accuracy")
        ]

    def lines(self) -> list[str]:
        """The result as a person reads it."""
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


def write_predictions(path: Path, rows: tuple[RelationRow, ...], probabilities: NDArray[np.float32]) -> None:
    """One line per row: id, a mark of its sentence, gold, prediction, and the probabilities in label order, to all their digits.

    The mark tells which rows share a sentence, so that predictions can be compared without the file they were made for.
    """
    predicted = probabilities.argmax(1)
    write_jsonl(
        path,
        (
            {
                "guid": row.guid,
                "sentence": sentence_mark(row.sentence),
                "gold": row.label,
                "pred": LABELS[best],
                "probs": [float(f"{p:.9g}") for p in line],
            }
            for row, best, line in zip(rows, predicted.tolist(), probabilities.tolist(), strict=True)
        ),
    )


def read_predictions(path: Path) -> tuple[list[str], NDArray[np.int64], NDArray[np.float32]]:
    """(ids, gold as indices with -1 for none, probabilities), in the order of the file."""
    lines: list[dict[str, Any]] = list(read_jsonl(path))
    try:
        gold = np.array([INDEX[line["gold"]] if line["gold"] else -1 for line in lines], np.int64)
        probabilities = np.array([line["probs"] for line in lines], np.float32).reshape(-1, len(LABELS))
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} has no relation predictions ({error}); it was written by something else.") from error
    return [line["guid"] for line in lines], gold, probabilities


def write_compact(path: Path, probabilities: NDArray[np.float32]) -> None:
    """The probabilities alone, as logarithms in half precision less its last three bits, label after label: a tenth of the lines.

    Logarithms keep apart what is nearly 0 as well as what is nearly 1; ties there would lift AUPRC. The most probable label is
    rounded up and the others down, so that it stays the prediction.
    """
    bits = np.log(np.maximum(probabilities, 1e-30)).astype(np.float16).view(np.uint16)
    best = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
    with written_whole(path, "wb") as handle:
        np.save(handle, np.where(best, bits & 0xFFF8, (bits | 7) + 1).astype(np.uint16).T)


def read_probabilities(folder: Path, split: str) -> NDArray[np.float32]:
    """What a seed keeps of a split, as lines or compact."""
    compact = folder / f"{split}.npy"
    if not compact.is_file():
        return read_predictions(folder / f"{split}.jsonl")[2]
    try:
        logs: NDArray[np.float16] = read_array(compact).T.view(np.float16)
    except (InputError, ValueError, TypeError) as error:
        raise InputError(f"{compact} is damaged ({error}); run re evaluate again.") from error
    return np.exp(logs.astype(np.float32))
