"""Coreference by pretraining method. In: coreference runs of one kind. Out: methods, and verdicts between them.

Runs are crossed with documents: other novels would move a difference, and so would other seeds. Where a method has several
starts, a start counts once, with the mean over its coreference seeds, so that luck in pretraining counts. A single start (the
base, one checkpoint) is counted by its coreference seeds, and a verdict is then about that checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from coref_automl.comparison.arms import OBJECTIVES, method_name
from coref_automl.comparison.choice import MARGIN
from coref_automl.comparison.claims import BASE, COREFERENCE, Caveat, Claim
from coref_automl.comparison.coreference_runs import WAYS, CoreferenceRun, Documents, unlike
from coref_automl.comparison.judging import Judged, few_documents, settled
from coref_automl.comparison.relation_runs import place_of
from coref_automl.comparison.scores import Entry, is_equal_training, model_label
from coref_automl.errors import ComparisonError
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.records import Estimate, Provenance, Record
from coref_automl.say import say
from coref_automl.statistics.crossed import CrossedVerdict
from coref_automl.statistics.ratios import ratio_verdict
from coref_automl.statistics.resampling import Floats

_SEED = re.compile(r"[-_](?:(?:seed|s)[-_]?(\d+)|(\d{1,2}))$")
"""The end of a run's name that is its seed: mlm-0, entity_512-s2. A longer bare number is a length."""
Made = Callable[[CoreferenceRun], Provenance | None]


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """Runs from encoders trained alike: columns (seed, run) by start; `objective` is empty for an un-adapted encoder."""

    name: str
    objective: str
    made: Provenance | None
    starts: dict[str, list[tuple[int, CoreferenceRun]]] = field(default_factory=dict)
    seeds: dict[int, str] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        return len(self.starts) > 1

    @property
    def first(self) -> CoreferenceRun:
        return next(iter(self.starts.values()))[0][1]

    def runs(self, way: str) -> list[Floats]:
        """Values by document, one array per start, or per coreference seed of the only one."""
        found = [[run.documents.values(way, column) for column, run in columns] for columns in self.starts.values()]
        return [np.mean(values, axis=0) for values in found] if self.several else found[0]


@dataclass(frozen=True, slots=True)
class CoreferenceAnswer(Record):
    """A claim about gold mentions; `found` is the difference with mentions that the model finds, which is descriptive."""

    claim: Claim
    found: Estimate


@dataclass(frozen=True, slots=True)
class MethodScore(Record):
    """CoNLL of one method by way, and the number of runs behind it: starts, or coreference seeds of a single start."""

    name: str
    objective: str
    runs: int
    conll: dict[str, float]


@dataclass(frozen=True, slots=True)
class CoreferenceComparison(Record):
    """Methods with their scores, the verdicts between them, and what was left out and why."""

    documents: int
    mentions: int
    methods: tuple[MethodScore, ...]
    answers: tuple[CoreferenceAnswer, ...]
    notes: tuple[str, ...] = ()


def compare_coreference(
    runs: Sequence[CoreferenceRun], made: Made = lambda run: run.pretraining, *, margin: float = MARGIN, notes: Sequence[str] = ()
) -> CoreferenceComparison:
    """Verdicts between all methods that may be compared; runs of unlike conditions are refused."""
    if not runs:
        raise ComparisonError("No finished coreference run is given; make one with: coref-automl coref train --folds 5 ...")
    for run in runs[1:]:
        if why := unlike(runs[0], run):
            raise ComparisonError(
                f"{runs[0].name} and {run.name} cannot be compared: {'; '.join(why[:3])}. "
                "Train both on the same documents and folds with the same settings."
            )
    found, told = methods_of(runs, made)
    asked = []
    for one, other in combinations(found, 2):
        if unfair := _unfair(other, one, found):
            told.append(unfair)
        else:
            asked.append((other, one))
    documents = runs[0].documents
    verdicts = [{way: ratio_verdict(a.runs(way), b.runs(way), documents.sizes) for way in WAYS} for a, b in asked]
    judged = [_judged(a, b, one["gold"], documents) for (a, b), one in zip(asked, verdicts, strict=True)]
    claims = settled(judged, "bh", margin)
    answers = [CoreferenceAnswer(claim, one["found"].interval) for claim, one in zip(claims, verdicts, strict=True)]
    scores = [
        MethodScore(one.name, one.objective, len(one.runs(WAYS[0])), {way: _score(one, way, documents) for way in WAYS})
        for one in found
    ]
    return CoreferenceComparison(
        len(documents.marks), int(documents.mentions.sum()), tuple(scores), tuple(answers), (*notes, *dict.fromkeys(told))
    )


def pretraining_in(entries: Sequence[Entry]) -> Made:
    """How a run's encoder was trained: by its evaluation among these, or else by what the run itself recorded."""

    def made(run: CoreferenceRun) -> Provenance | None:
        entry = next((entry for entry in entries if entry.is_of(run.model, run.weights)), None)
        return entry.evaluation.provenance if entry is not None and entry.evaluation.provenance else run.pretraining

    return made


def methods_of(runs: Sequence[CoreferenceRun], made: Made) -> tuple[list[Method], list[str]]:
    """Methods, un-adapted encoders first, then by objective; and a sentence for each run that counts for none."""
    held: dict[tuple[object, ...], Method] = {}
    told = []
    known = sorted(((made(run), run) for run in runs), key=lambda pair: -(pair[0].tokens if pair[0] else 0))
    bases = {start.base_bytes for start, _ in known if start is not None}
    for start, run in known:
        key, method, seed = _placed(start, run, run.weights in bases)
        method = held.setdefault(key, method)
        if method.seeds.setdefault(seed, run.weights) != run.weights:
            told.append(
                say(
                    f"{run.name} 제외: {method.name}에 시드 {seed}의 다른 시작 모델이 있습니다.",
                    f"{run.name} is left out: {method.name} has another start of seed {seed}.",
                )
            )
            continue
        columns = method.starts.setdefault(run.weights, [])
        taken = {one.seeds[column] for column, one in columns}
        columns += [(column, run) for column, seed in enumerate(run.seeds) if seed not in taken]
        if taken & set(run.seeds):
            told.append(
                say(
                    f"{run.name}: 같은 인코더의 상호참조 시드가 겹쳐 한 번만 셉니다.",
                    f"{run.name} repeats coreference seeds from the same encoder; each counts once.",
                )
            )
    ordered = sorted(held.values(), key=lambda method: (_rank(method.objective), method.name))
    names = [method.name for method in ordered]
    return [replace(m, name=f"{m.name} ({model_label(m.first.model)})") if names.count(m.name) > 1 else m for m in ordered], told


def _placed(start: Provenance | None, run: CoreferenceRun, is_base: bool) -> tuple[tuple[object, ...], Method, int]:
    """The method of a run and its pretraining seed: from the record of its encoder's training, or else from the model's name."""
    folder, _, last = model_label(run.model).rpartition("/")
    if is_base or not (CHECKPOINT.fullmatch(last) or (start and start.step)):
        return (run.weights,), Method(place_of(run.model), "", None), 0
    if start is not None:
        own = method_name(start) or start.objective
        key = (own, start.objective, start.seq_len, start.base_bytes or start.base, start.data)
        return key, Method(f"{own} {start.seq_len:,}", start.objective, start), start.seed
    seed = _SEED.search(folder)
    stem = folder[: seed.start()] if seed else folder
    objective = next((name for name in reversed(OBJECTIVES) if name in re.split(r"[-_]", stem)), stem)
    return (stem, last), Method(stem, objective, None), int(seed[1] or seed[2]) if seed else 0


def _unfair(a: Method, b: Method, methods: Sequence[Method]) -> str:
    """Why two methods are not compared; empty if they are."""
    both = say(f"{a.name} - {b.name}: 비교하지 않습니다", f"{a.name} and {b.name} are not compared")
    if not a.objective and not b.objective:
        return both + say(" (어느 쪽도 다른 쪽에서 학습하지 않음).", ": neither is trained from the other.")
    if not b.objective:
        bases = [method for method in methods if not method.objective]
        if a.made is None:
            unknown = say(f" ({a.name}의 시작 인코더 기록 없음).", f": no record says which encoder {a.name} started from.")
            return "" if len(bases) == 1 else both + unknown
        begun = model_label(a.made.base) == model_label(b.first.model)
        if a.made.base_bytes and b.first.weights:
            begun = a.made.base_bytes == b.first.weights
        return "" if begun else both + say(f" ({a.name}의 시작 인코더가 다름).", f": {a.name} started from another encoder.")
    if a.made is None or b.made is None:
        return ""
    if (a.made.base_bytes or a.made.base) != (b.made.base_bytes or b.made.base):
        return both + say(" (시작 인코더가 다름).", ": they started from different encoders.")
    if a.made.seq_len != b.made.seq_len:
        return both + say(" (학습 길이가 다름).", ": they were trained at different lengths.")
    if not is_equal_training(a.made.tokens, b.made.tokens):
        counts = f"{a.made.tokens:,}", f"{b.made.tokens:,}"
        told = f" (학습 토큰 {counts[0]}개와 {counts[1]}개).", f": they were trained on {counts[0]} and {counts[1]} tokens."
        return both + say(*told)
    return ""


def _judged(a: Method, b: Method, found: CrossedVerdict, documents: Documents) -> Judged:
    about: tuple[Caveat, ...] = () if a.several and (b.several or not b.objective) else ("checkpoint",)
    lost: tuple[Caveat, ...] = (found.reason,) if found.reason not in ("", "same") else ()  # type: ignore[assignment]
    claim = Claim(
        "coreference",
        a.name,
        b.name if b.objective else BASE,
        COREFERENCE,
        "texts",
        len(documents.marks),
        found.seeds,
        found.interval,
        "crossed",
        "same" if found.reason == "same" else "not judged",
        (_score(a, "gold", documents), _score(b, "gold", documents)),
        detectable=found.detectable,
        against=(*about, *lost, *few_documents(len(documents.marks))),
    )
    return Judged(claim, None if found.reason else found.p, found.interval_at)


def _score(method: Method, way: str, documents: Documents) -> float:
    return float(np.mean([np.average(values, weights=documents.sizes) for values in method.runs(way)]))


def _rank(objective: str) -> int:
    return 0 if not objective else 1 + (OBJECTIVES.index(objective) if objective in OBJECTIVES else len(OBJECTIVES))
