"""What relation data hold. In: one split, or two. Out: counts, lengths, duplicates, conflicts, the shift between splits; and rows
that cannot be marked with a model's tokenizer."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record, grouped
from coref_automl.base.say import align, say
from coref_automl.corpus.batch import RowProblem
from coref_automl.extras.relation.data import RelationData, RowCache, sentence_key
from coref_automl.extras.relation.markers import Marker
from coref_automl.extras.relation.rows import LABELS, TYPES, RelationRow
from coref_automl.models.load import load_tokenizer
from coref_automl.models.model_files import detect_seq_len

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_TOP = 5
"""Labels listed on a terminal."""


@dataclass(frozen=True, slots=True)
class Conflict(Record):
    guids: tuple[str, ...]
    labels: tuple[str, ...]
    sentence: str
    subject: str = ""
    object: str = ""


@dataclass(frozen=True, slots=True)
class SplitFacts(Record):
    """Facts about a split. `lengths` and `distances` are quantiles in characters."""

    split: str
    rows: int
    sentences: int
    labels: dict[str, int]
    pairs: dict[str, int]
    sources: dict[str, int]
    lengths: tuple[float, ...]
    distances: tuple[float, ...]
    subject_first: float
    nested: int
    blank_edges: tuple[str, ...]
    not_composed: tuple[str, ...]
    duplicates: int
    conflicts: tuple[Conflict, ...]
    problems: tuple[RowProblem, ...]


@dataclass(frozen=True, slots=True)
class RelationExploration(Record):
    """`label_shift` and `pair_shift` are total variation distances: the fraction of rows that would have to change."""

    splits: tuple[SplitFacts, ...]
    shared_sentences: int = 0
    shared_rows: int = 0
    label_shift: float = 0.0
    pair_shift: float = 0.0

    def lines(self) -> list[str]:
        lines = list(chain.from_iterable(_lines(facts) for facts in self.splits))
        if len(self.splits) > 1:
            first, second = self.splits[:2]
            both = f"{first.split} / {second.split}"
            labels, pairs = f"{100 * self.label_shift:.1f}%", f"{100 * self.pair_shift:.1f}%"
            rows, sentences = f"{self.shared_rows:,}", f"{self.shared_sentences:,}"
            lines += [
                say(
                    f"{both}: 분포 차이(총변동거리) 레이블 {labels}, 유형 쌍 {pairs}",
                    f"{both}: total variation distance of labels {labels}, of type pairs {pairs}",
                ),
                say(
                    f"{second.split}의 행 {rows}개는 {first.split}에도 있는 문장 {sentences}개에서 나왔습니다.",
                    f"{rows} rows of {second.split} share {sentences} sentences with {first.split}.",
                ),
            ]
        return lines


def explore(splits: Sequence[RelationData]) -> RelationExploration:
    facts = tuple(_facts(data) for data in splits)
    if len(splits) < 2:
        return RelationExploration(facts)
    first, second = splits[0], splits[1]
    seen = {sentence_key(row.sentence) for row in first.rows}
    shared = [key for row in second.rows if (key := sentence_key(row.sentence)) in seen]
    return RelationExploration(
        facts,
        shared_sentences=len(set(shared)),
        shared_rows=len(shared),
        label_shift=_shift(facts[0].labels, facts[1].labels),
        pair_shift=_shift(facts[0].pairs, facts[1].pairs),
    )


def _facts(data: RelationData) -> SplitFacts:
    rows = data.rows
    labels, pairs = Counter(row.label for row in rows), Counter(f"{row.subject.type}-{row.object.type}" for row in rows)
    lengths = [len(row.sentence) for row in rows]
    distances = [entity_distance(row) for row in rows]
    groups = _repeated(rows)
    return SplitFacts(
        split=data.split,
        rows=len(rows),
        sentences=len({sentence_key(row.sentence) for row in rows}),
        labels={label: labels[label] for label in LABELS},
        pairs={f"{a}-{b}": pairs[f"{a}-{b}"] for a in TYPES for b in TYPES if pairs[f"{a}-{b}"]},
        sources=dict(Counter(row.source for row in rows).most_common()),
        lengths=_quantiles(lengths),
        distances=_quantiles(distances),
        subject_first=float(np.mean([row.subject.start < row.object.start for row in rows])) if rows else 0.0,
        nested=sum(distance < 0 for distance in distances),
        blank_edges=tuple(row.guid for row in rows if any(word != word.strip() for word in (row.subject.word, row.object.word))),
        not_composed=tuple(row.guid for row in rows if not unicodedata.is_normalized("NFC", row.sentence)),
        duplicates=sum(len(group) - 1 for group in groups),
        conflicts=tuple(_conflict(group) for group in groups if len({row.label for row in group}) > 1),
        problems=data.problems,
    )


def entity_distance(row: RelationRow) -> int:
    """Characters between the two entities; -1 if one lies inside the other."""
    return max(-1, max(row.subject.start, row.object.start) - min(row.subject.end, row.object.end))


def _repeated(rows: Sequence[RelationRow]) -> list[list[RelationRow]]:
    """Group rows that ask the same question: the same sentence, subject and object."""
    groups = grouped(rows, lambda row: (sentence_key(row.sentence), *((e.start, e.end) for e in (row.subject, row.object))))
    return [group for group in groups.values() if len(group) > 1]


def _conflict(group: list[RelationRow]) -> Conflict:
    first, labels = group[0], tuple(row.label or "" for row in group)
    return Conflict(tuple(row.guid for row in group), labels, first.sentence, first.subject.word, first.object.word)


def _quantiles(values: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(values, QUANTILES)) if values else ()


def _shift(a: dict[str, int], b: dict[str, int]) -> float:
    total_a, total_b = sum(a.values()) or 1, sum(b.values()) or 1
    return sum(abs(a.get(key, 0) / total_a - b.get(key, 0) / total_b) for key in {*a, *b}) / 2


def _lines(facts: SplitFacts) -> list[str]:
    def quantiles(values: tuple[float, ...]) -> str:
        return ", ".join(f"{value:.0f}" for value in (values[2], *values[4:])) if values else "-"

    def most(counts: dict[str, int], limit: int) -> list[tuple[str, int]]:
        return [entry for entry in sorted(counts.items(), key=lambda entry: -entry[1]) if entry[1]][:limit]

    labels = [f"{label} {100 * count / max(1, facts.rows):.1f}%" for label, count in most(facts.labels, _TOP)]
    more = ["..."] if sum(map(bool, facts.labels.values())) > _TOP else []
    lengths, distances, first = quantiles(facts.lengths), quantiles(facts.distances), f"{100 * facts.subject_first:.1f}%"
    edges, conflicts = len(facts.blank_edges), len(facts.conflicts)
    rows = {
        say("레이블", "labels"): " ".join([", ".join(labels), *more]),
        say("유형 쌍", "type pairs"): ", ".join(f"{pair} {count:,}" for pair, count in most(facts.pairs, 6)),
        say("글자 수", "characters"): say(
            f"중앙값, 90%, 99%, 최대: {lengths}; 두 개체 사이: {distances}",
            f"median, 90%, 99%, longest: {lengths}; between the entities: {distances}",
        ),
        say("개체", "entities"): say(
            f"주체가 먼저 {first}, 중첩 {facts.nested:,}개, 경계에 공백 {edges:,}개",
            f"subject first in {first}, nested {facts.nested:,}, blanks at an edge {edges:,}",
        ),
        say("반복", "repeats"): say(
            f"같은 물음의 행 {facts.duplicates:,}개, 그중 레이블이 서로 다른 물음 {conflicts:,}개",
            f"repeated questions {facts.duplicates:,}, of which with conflicting labels {conflicts:,}",
        ),
        say("문자", "text"): say(
            f"NFC가 아닌 문장 {len(facts.not_composed):,}개", f"sentences not in NFC {len(facts.not_composed):,}"
        ),
    }
    bad = len(facts.problems)
    head = say(
        f"{facts.split}: 행 {facts.rows:,}개, 문장 {facts.sentences:,}개, 잘못된 행 {bad:,}개",
        f"{facts.split}: {facts.rows:,} rows, {facts.sentences:,} sentences, {bad:,} bad rows",
    )
    return [head, *(f"  {line}" for line in align(list(rows.items())))]


@dataclass(frozen=True, slots=True)
class CheckResult(Record):
    """A scheme applied to all rows of a split: `cut` counts truncated sentences, `unknown` those with an unknown token."""

    scheme: str
    rows: int
    cut: int
    unknown: int
    longest: int
    problems: tuple[RowProblem, ...]
    split: str = ""

    def lines(self) -> list[str]:
        errors = len(self.problems)
        head = f"{self.split}, {self.scheme}: " + say(
            f"행 {self.rows:,}개 검사, 오류 {errors:,}개, 잘린 행 {self.cut:,}개, 미등록 토큰이 있는 행 {self.unknown:,}개, "
            f"최대 {self.longest}토큰",
            f"{self.rows:,} rows checked, {errors:,} errors, {self.cut:,} truncated, {self.unknown:,} with an unknown token, "
            f"longest {self.longest} tokens",
        )
        return [head, *(f"  {problem.in_words()}" for problem in self.problems)]


def check_files(
    splits: Sequence[RelationData], model: str, schemes: Sequence[str], *, max_length: int, progress: Progress | None = None
) -> list[CheckResult]:
    """Mark every row of every split under every scheme with a model's tokenizer."""
    limit, cache, results = min(max_length, detect_seq_len(model)), RowCache(), list[CheckResult]()
    for data in splits:
        for scheme in schemes:
            marker = Marker(load_tokenizer(model), scheme, limit)
            _, marked, problems = cache.mark(data.rows, marker, progress=progress or quiet(), skip_bad=True)
            unknown_id, cut = marker.tokenizer.unk_token_id, sum(row.cut for row in marked)
            unknown = sum(unknown_id in row.ids.tolist() for row in marked)
            longest = max((len(row.ids) for row in marked), default=0)
            results.append(CheckResult(scheme, len(data.rows), cut, unknown, longest, tuple(problems), data.split))
    return results
