"""Results of coreference. In: answers of seeds. Out: the records of coref_results.json, and of documents.npz beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.records import Estimate, Provenance, Record
from coref_automl.base.say import align, say
from coref_automl.comparison.runs import TaskFiles
from coref_automl.statistics.methods import by_document
from coref_automl.statistics.resampling import Floats

CONLL = ("muc", "b_cubed", "ceaf_e")
"""The CoNLL score is the mean of their F1s."""
MODES = ("gold", "found")
"""Gold mentions are given, or the model finds mentions; verdicts are about the first, the second is reported beside it."""
VARIANTS = {mode + suffix: (mode, not suffix) for mode in MODES for suffix in ("", "_without_singletons")}
"""By the name of the scores: the mode, and whether singletons count."""
HEAD_MATCH = "found_heads"
"""Found mentions, matched by their heads: two that end alike are one."""
SAME_STRING = {mode: f"{mode}_same_string" for mode in MODES}
"""The baseline: mentions, or nouns, of one string are one entity."""
RETRAIN = "the file was edited: train it again"
"""The remedy for a file of a run that cannot be read."""
METRIC_LABELS = {"conll": "CoNLL", "muc": "MUC", "b_cubed": "B-cubed", "ceaf_e": "CEAF-e", "lea": "LEA", "mention": "mentions"}


@dataclass(frozen=True, slots=True)
class CoreferenceSeed(Record):
    """How one seed was trained; `dev_...` are CoNLL scores on the documents that selected the epoch, 0 without selection."""

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
    """Scores of a run on some documents, the mean over its seeds. Values are fractions; `estimates` are F1s. `gain` is CoNLL
    minus that of the starting head, by mode, on documents that neither had seen. Two runs are comparable if their `conditions`
    are equal; `pretraining` is the provenance of the encoder, if known. Both are set for a run's own test documents only."""

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
        labels = {"gold": say("정답 언급 CoNLL", "gold-mention CoNLL"), "found": say("찾은 언급 CoNLL", "found-mention CoNLL")}
        conll = {labels[mode]: self.estimates[mode]["conll"] for mode in MODES}
        return {**conll, **{METRIC_LABELS[name]: self.estimates["gold"][name] for name in CONLL}}

    def lines(self) -> list[str]:
        count = len(self.seeds)
        modes = {"gold": say("정답 언급", "gold mentions"), "found": say("찾은 언급", "found mentions")}
        names = [name if name != "mentions" else say("언급", name) for name in METRIC_LABELS.values()]
        rows: list[tuple[str, ...]] = [("F1 (%)", *names)]
        for name, (mode, singletons) in VARIANTS.items():
            label = modes[mode] + ("" if singletons else say(", 단독 언급 제외", ", without singletons"))
            rows.append(_row(label, self.estimates[name]))
        others = {
            HEAD_MATCH: modes["found"] + say(", 핵어 일치", ", head match"),
            **{name: modes[mode] + say(": 같은 문자열", ": same string") for mode, name in SAME_STRING.items()},
        }
        rows += [_row(label, self.estimates[name]) for name, label in others.items() if name in self.estimates]
        lines = [
            say(
                f"{self.model}, {self.split}: 문서 {self.documents}개, 언급 {self.mentions:,}개, 시드 {count}개",
                f"{self.model} on {self.split}: {self.documents} documents, {self.mentions:,} mentions, "
                f"{count} seed{'s' if count > 1 else ''}",
            ),
            *align(rows, right=True),
        ]
        for mode in MODES:
            conll = self.estimates[mode]["conll"]
            value = f"CoNLL, {modes[mode]}: {100 * conll.value:.2f} [{100 * conll.low:.2f}, {100 * conll.high:.2f}]"
            lines.append(value + say(" (문서 단위 95% 신뢰구간)", " (95% confidence interval over documents)"))
        return [*lines, *(self._gain_line(mode, modes[mode]) for mode in self.gain), *self.notes]

    def _gain_line(self, mode: str, label: str) -> str:
        gain = self.gain[mode]
        value = f"{100 * gain.value:+.2f} [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"
        signs = gain.low > 0, gain.high < 0
        return say(
            f"출발한 모델 대비 CoNLL, {label}: {value}, 학습에 쓰지 않은 문서 {gain.n}개 (교차 검증): "
            + {(True, False): "개선 확인", (False, True): "악화 확인"}.get(signs, "유의한 차이 미확인"),
            f"CoNLL against the starting head, {label}: {value} on {gain.n} documents that neither had seen (cross-fitted): "
            + {(True, False): "better", (False, True): "worse"}.get(signs, "no difference shown"),
        )


def _row(label: str, estimates: dict[str, Estimate]) -> tuple[str, ...]:
    return label, *(f"{100 * estimates[name].value:.2f}" for name in METRIC_LABELS)


@dataclass(frozen=True, slots=True, eq=False)
class DocumentSums:
    """Scored documents: fingerprints of their names (`marks`), gold mentions, and `sums[mode]` [seed, document, metric, 4]."""

    marks: tuple[str, ...]
    mentions: NDArray[np.int64]
    sums: dict[str, Floats]

    @property
    def count(self) -> int:
        return len(self.sums[MODES[0]])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"marks": np.array(self.marks), "mentions": self.mentions, **self.sums}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(tuple(arrays["marks"].tolist()), arrays["mentions"], {mode: arrays[mode] for mode in MODES})

    @property
    def sizes(self) -> Floats:
        """Weights of documents. One without gold mentions still counts for its false positives."""
        return np.maximum(1, self.mentions).astype(np.float64)

    def values(self, mode: str, seed: int) -> Floats:
        """Linearize CoNLL of one seed (a column) into a value per document."""
        return by_document(self.sums[mode][seed], self.sizes)


COREFERENCE_FILES = TaskFiles("coreference", "coref_results.json", "documents.npz", CoreferenceResult, DocumentSums)
