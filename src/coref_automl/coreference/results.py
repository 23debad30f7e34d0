"""Results of coreference. In: answers of seeds. Out: the records of coref_results.json, and of documents.npz beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.runs import TaskFiles
from coref_automl.records import Estimate, Provenance, Record
from coref_automl.say import align, say
from coref_automl.statistics.methods import by_document
from coref_automl.statistics.resampling import Floats

CONLL = ("muc", "b_cubed", "ceaf_e")
"""Their F1s' mean is the CoNLL score."""
MODES = ("gold", "found")
"""Mentions are given, or the model finds them; a verdict is about the first, the second stands beside it."""
WAYS = {mode + suffix: (mode, not suffix) for mode in MODES for suffix in ("", "_without_singletons")}
"""By the name of its scores: the mentions, and whether entities that are mentioned once count."""
HEADS = "found_heads"
"""Found mentions, matched by their heads: two that end alike are one."""
STRING = {mode: f"{mode}_same_string" for mode in MODES}
"""The baseline: mentions, or nouns, of one string are one entity."""
AGAIN = "the file was edited: train it again"
"""What to do where a file of a run cannot be read."""
SHOWN = {"conll": "CoNLL", "muc": "MUC", "b_cubed": "B-cubed", "ceaf_e": "CEAF-e", "lea": "LEA", "mention": "mentions"}


@dataclass(frozen=True, slots=True)
class CoreferenceSeed(Record):
    """How one seed was trained; `dev_...` are CoNLL scores of the documents that chose, 0 where nothing was chosen."""

    seed: int
    best_epoch: int
    epochs: int
    dev_gold: float
    dev_found: float
    threshold: float
    seconds: float
    tokens_per_second: float
    peak_gigabytes: float
    device: str


@dataclass(frozen=True, slots=True)
class CoreferenceResult(Record):
    """What a run scores on some documents, the mean over its seeds. Values are fractions; `estimates` are F1s. `gain` is how far
    CoNLL lies above the head that was trained further, by mode, on the documents that neither had seen. `conditions` must be
    shared to compare two runs; `pretraining` is how the encoder was trained, where known. Both are those of a run."""

    run: str
    model: str
    split: str
    documents: int
    mentions: int
    seeds: tuple[CoreferenceSeed, ...]
    estimates: dict[str, dict[str, Estimate]]
    recall: dict[str, dict[str, float]]
    precision: dict[str, dict[str, float]]
    fingerprints: dict[str, str]
    notes: tuple[str, ...] = ()
    gain: dict[str, Estimate] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)
    pretraining: Provenance | None = None

    def measures(self) -> dict[str, Estimate | None]:
        own = {SHOWN[name]: self.estimates["gold"][name] for name in CONLL}
        gold, found = (self.estimates[mode]["conll"] for mode in MODES)
        return {say("정답 언급 CoNLL", "gold-mention CoNLL"): gold, say("찾은 언급 CoNLL", "found-mention CoNLL"): found, **own}

    def lines(self) -> list[str]:
        count = len(self.seeds)
        modes = {"gold": say("정답 언급", "gold mentions"), "found": say("찾은 언급", "found mentions")}
        names = [name if name != "mentions" else say("언급", name) for name in SHOWN.values()]
        rows: list[tuple[str, ...]] = [("F1 (%)", *names)]
        for name, (mode, singletons) in WAYS.items():
            label = modes[mode] + ("" if singletons else say(", 단독 언급 제외", ", without singletons"))
            rows.append(_row(label, self.estimates[name]))
        others = {
            HEADS: modes["found"] + say(", 핵어 일치", ", head match"),
            **{name: modes[mode] + say(": 같은 문자열", ": same string") for mode, name in STRING.items()},
        }
        rows += [_row(label, self.estimates[name]) for name, label in others.items() if name in self.estimates]
        shown = [
            say(
                f"{self.model}, {self.split}: 문서 {self.documents}개, 언급 {self.mentions:,}개, 시드 {count}개",
                f"{self.model} on {self.split}: {self.documents} documents, {self.mentions:,} mentions, "
                f"{count} seed{'s' if count > 1 else ''}",
            ),
            *align(rows, right=True),
        ]
        for mode in MODES:
            found = self.estimates[mode]["conll"]
            value = f"CoNLL, {modes[mode]}: {100 * found.value:.2f} [{100 * found.low:.2f}, {100 * found.high:.2f}]"
            shown.append(value + say(" (문서 단위 95% 신뢰구간)", " (95% confidence interval over documents)"))
        return [*shown, *(self._gain_line(mode, modes[mode]) for mode in self.gain), *self.notes]

    def _gain_line(self, mode: str, label: str) -> str:
        found = self.gain[mode]
        value = f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"
        better = found.low > 0, found.high < 0
        return say(
            f"출발한 모델 대비 CoNLL, {label}: {value}, 학습에 쓰지 않은 문서 {found.n}개 (교차 검증): "
            + {(True, False): "개선 확인", (False, True): "악화 확인"}.get(better, "유의한 차이 미확인"),
            f"CoNLL against the starting head, {label}: {value} on {found.n} documents that neither had seen (cross-fitted): "
            + {(True, False): "better", (False, True): "worse"}.get(better, "no difference shown"),
        )


def _row(label: str, own: dict[str, Estimate]) -> tuple[str, ...]:
    return label, *(f"{100 * own[name].value:.2f}" for name in SHOWN)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentSums:
    """Scored documents in one order: a mark of each name, its gold mentions, and `sums[mode]` [seed, document, metric, 4]."""

    marks: tuple[str, ...]
    mentions: NDArray[np.int64]
    sums: dict[str, Floats]

    @property
    def count(self) -> int:
        return len(self.sums[MODES[0]])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"marks": np.array(self.marks), "mentions": self.mentions, **self.sums}

    @classmethod
    def of_arrays(cls, held: Mapping[str, NDArray[Any]]) -> Self:
        return cls(tuple(held["marks"].tolist()), held["mentions"], {mode: held[mode] for mode in MODES})

    @property
    def sizes(self) -> Floats:
        """What a document weighs. One without mentions still counts: its false ones do."""
        return np.maximum(1, self.mentions).astype(np.float64)

    def values(self, mode: str, seed: int) -> Floats:
        """CoNLL of one seed (a column), as a value per document."""
        return by_document(self.sums[mode][seed], self.sizes)


COREFERENCE_FILES = TaskFiles("coreference", "coref_results.json", "documents.npz", CoreferenceResult, DocumentSums)
