"""Coreference results. In: answers on disk. Out: records that other rooms read from there, and the lines that a terminal shows.

RUN/coref_results.json                    CoreferenceResult: what the run scores on its test documents
RUN/seed-0/result.json                    SeedResult: how that seed was trained
RUN/seed-0/answers/<split>.jsonl          one line per document: Answer, its chains under both modes, and its sums
RUN/seed-0/evaluated/<name>-<key>.jsonl   the same for documents of `coref evaluate`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coref_automl.comparison.coreference_runs import RESULTS as RESULTS
from coref_automl.coreference.baseline import same_nouns, same_string
from coref_automl.coreference.conventions import Convention
from coref_automl.coreference.data import CorefDocument
from coref_automl.coreference.metrics import METRICS, Ratio, added, estimates, score_document
from coref_automl.decoder import read_stored_rows
from coref_automl.progress import duration
from coref_automl.records import Estimate, Record
from coref_automl.say import language, say
from coref_automl.store import write_jsonl
from coref_automl.tabular import align

VERSION = "resolver 3"
"""How chains are made from scores, and scored; answers of another version are made anew."""
AGAIN = "the file was edited: train it again"
MODES = ("gold", "found")
"""The mentions are given, or the model finds them."""
WAYS = tuple((mode, singletons) for mode in MODES for singletons in (True, False))
HEADS = "found_heads"
"""Found mentions, matched by their heads: two that end alike are one."""
STRING = {mode: f"{mode}_same_string" for mode in MODES}
"""The baseline: mentions, or nouns, of one string are one entity."""
SHOWN = {"conll": "CoNLL", "muc": "MUC", "b_cubed": "B-cubed", "ceaf_e": "CEAF-e", "lea": "LEA", "mention": "mentions"}
Chains = tuple[tuple[tuple[int, int], ...], ...]


def way(mode: str, singletons: bool) -> str:
    return mode if singletons else f"{mode}_without_singletons"


@dataclass(frozen=True, slots=True)
class Answer(Record):
    """One document's chains as character spans, and its sums: way, then metric, then the four numbers of a Ratio."""

    document: str
    mentions: int
    key: Chains
    gold: Chains
    found: Chains
    sums: dict[str, dict[str, Ratio]]
    version: str = VERSION


@dataclass(frozen=True, slots=True)
class SeedResult(Record):
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
    CoNLL lies above the head that was trained further, by mode, on the documents that neither had seen."""

    run: str
    model: str
    split: str
    documents: int
    mentions: int
    seeds: tuple[SeedResult, ...]
    estimates: dict[str, dict[str, Estimate]]
    recall: dict[str, dict[str, float]]
    precision: dict[str, dict[str, float]]
    fingerprints: dict[str, str]
    notes: tuple[str, ...] = ()
    gain: dict[str, Estimate] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """A terminal's table: with singletons, then without."""
        count = len(self.seeds)
        modes = {"gold": say("정답 언급", "gold mentions"), "found": say("찾은 언급", "found mentions")}
        names = [name if name != "mentions" else say("언급", name) for name in SHOWN.values()]
        rows: list[tuple[str, ...]] = [("F1 (%)", *names)]
        for mode, singletons in WAYS:
            own = self.estimates[way(mode, singletons)]
            label = modes[mode] + ("" if singletons else say(", 단독 언급 제외", ", without singletons"))
            rows.append(_row(label, own))
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
        for seed in (one for one in self.seeds if one.seconds):
            took, memory = duration(seed.seconds, language()), f"{seed.peak_gigabytes:.2f} GB"
            shown.append(
                say(
                    f"시드 {seed.seed}: {took}, 초당 {seed.tokens_per_second:,.0f}토큰, 최대 메모리 {memory} ({seed.device})",
                    f"seed {seed.seed}: {took}, {seed.tokens_per_second:,.0f} tokens/s, peak {memory} on {seed.device}",
                )
            )
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


def answer(document: CorefDocument, gold: Chains, found: Chains, convention: Convention) -> Answer:
    """The document's own convention is that of its mentions and of the chains that are given."""
    key, given = document.chains, {"gold": gold, "found": found}
    sums = {way(mode, single): score_document(key, given[mode], singletons=single) for mode, single in WAYS}
    sums[HEADS] = score_document(_ends(key), _ends(found))
    sums[STRING["gold"]] = score_document(key, same_string(document.text, [mention.span for mention in document.mentions]))
    if (nouns := same_nouns(document, convention)) is not None:
        sums[STRING["found"]] = score_document(key, nouns)
    return Answer(document.id, len(document.mentions), key, gold, found, sums)


def _ends(chains: Chains) -> list[list[int]]:
    return [[end for _, end in chain] for chain in chains]


def write_answers(path: Path, answers: Sequence[Answer]) -> None:
    write_jsonl(path, (each.to_json() for each in answers))


def read_answers(path: Path) -> list[Answer]:
    return list(read_stored_rows(path, Answer, remedy=AGAIN))


def summed(seeds: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    """Estimates, recall and precision by way and metric; the seeds answer the same documents in the same order."""
    found: dict[str, Any] = {"estimates": {}, "recall": {}, "precision": {}}
    held = [set(each.sums) for answers in seeds for each in answers]
    for name in [name for name in seeds[0][0].sums if all(name in one for one in held)]:
        scored = [[each.sums[name] for each in answers] for answers in seeds]
        totals = [added(one) for one in scored]
        found["estimates"][name] = estimates(scored)
        found["recall"][name] = {metric: sum(total[metric].recall for total in totals) / len(totals) for metric in METRICS}
        found["precision"][name] = {metric: sum(total[metric].precision for total in totals) / len(totals) for metric in METRICS}
    return found
