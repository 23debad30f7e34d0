"""The five reasons for entity markers, tested. In: folders of relation runs, the rows they were scored on. Out: scores by variant
beside what its tokenizer makes of entities, and a verdict on each reason.

Each reason names rows on which markers, types, a label mask or hard negatives should help: long sentences, many candidate nouns,
several entities of a type, entities in many pieces, particles glued to an entity. A finding compares two variants there. Verdicts
cross runs with sentences and are corrected for the number of findings (Benjamini-Hochberg).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from coref_automl.comparison.claims import ALPHA
from coref_automl.errors import ModelError
from coref_automl.korean import PRONOUN, Tagger, default_cache
from coref_automl.models.load import load_tokenizer
from coref_automl.models.segmentation import span_facts
from coref_automl.models.vocabulary import tokenize_all
from coref_automl.records import Estimate, Record
from coref_automl.relation.data import RelationData, sentence_key, sentence_numbers
from coref_automl.relation.outcomes import Answers, Bools, Floats, Ints, Outcomes, f1_values, find_answers, level
from coref_automl.relation.rows import NO_RELATION, RelationRow, pair_index
from coref_automl.say import say
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.intervals import benjamini_hochberg

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Metric = Literal["micro_f1", "false_relations", "impossible"]
Pair = tuple[str, str]
GAINS: tuple[Pair, ...] = (("plain", "none"), ("typed", "plain"))
"""What markers add, and what types add to them."""
MANY_PIECES = 3
"""Tokens from which on an entity counts as fragmented."""
_LEAST_ROWS = 20


@dataclass(frozen=True, slots=True)
class TokenizerColumns(Record):
    """What a table of scores says of a tokenizer: mean pieces per entity, and shares of rows and of entities."""

    entries: int
    pieces: float
    unknown: float
    edges: float


def tokenizer_facts(rows: Sequence[RelationRow], tokenizer: PreTrainedTokenizerFast) -> tuple[TokenizerColumns, dict[str, Bools]]:
    """What a tokenizer makes of rows: the columns of a table, and groups of rows by the pieces of their two entities."""
    unknown, read = tokenizer.unk_token_id, tokenize_all(tokenizer, [row.sentence for row in rows])
    facts = [
        span_facts(row.sentence, pieces, [(one.start, one.end) for one in (row.subject, row.object)], unknown)
        for row, pieces in zip(rows, read, strict=True)
    ]
    pieces, edges, glued = (np.stack([getattr(one, name) for one in facts]) for name in ("pieces", "on_edges", "glued"))
    lost = float(np.mean([unknown is not None and unknown in one.ids for one in read]))
    columns = TokenizerColumns(len(tokenizer), float(pieces.mean()), lost, float(edges.mean()))
    return columns, {"fragmented": pieces.max(axis=1) >= MANY_PIECES, "glued": glued.any(axis=1)}


def sentence_groups(rows: Sequence[RelationRow]) -> dict[str, Bools]:
    """Rows by their sentences; nouns only where the tagger is installed. Long and many mean the upper third of these rows."""
    groups = {"long": _upper_third([len(row.sentence) for row in rows]), "same types": _same_types(rows)}
    if find_spec("kiwipiepy") is not None:
        tagged = Tagger(default_cache()).tag(row.sentence for row in rows)
        groups["nouns"] = _upper_third([int((tags.kinds != PRONOUN).sum()) for tags in tagged])
    return groups


def _upper_third(values: Sequence[int]) -> Bools:
    return np.asarray(np.array(values) > np.quantile(values, 2 / 3))


def _same_types(rows: Sequence[RelationRow]) -> Bools:
    """Another entity of the sentence has the type of the subject or of the object, as far as these rows say."""
    entities: dict[str, set[tuple[int, int, str]]] = {}
    for row in rows:
        entities.setdefault(sentence_key(row.sentence), set()).update((e.start, e.end, e.type) for e in (row.subject, row.object))
    count = {sentence: Counter(kind for _, _, kind in found) for sentence, found in entities.items()}
    return np.array(
        [any(count[sentence_key(row.sentence)][e.type] > 1 for e in (row.subject, row.object)) for row in rows], np.bool_
    )


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Variant a minus b on the rows `about`; `adjusted` is p corrected for all findings. Less is better where mistakes count."""

    reason: int
    about: str
    metric: Metric
    a: str
    b: str
    rows: int
    values: tuple[float, float]
    here: CrossedVerdict
    adjusted: float = 1.0

    @property
    def sign(self) -> int:
        """1: a is shown to be better on these rows, -1: worse, 0: no difference shown."""
        if not self.here.shown or self.adjusted >= ALPHA:
            return 0
        return (1 if self.here.difference > 0 else -1) * (1 if self.metric == "micro_f1" else -1)


@dataclass(frozen=True, slots=True)
class Reasons(Record):
    """All findings of one experiment; `seeds` by variant. `missing` are the reasons that no runs here can test."""

    model: str
    split: str
    rows: int
    seeds: dict[str, int]
    findings: tuple[Finding, ...]
    missing: tuple[int, ...]


def judge_reasons(outcomes: Outcomes, answers: Sequence[Answers], groups: dict[str, Bools]) -> Reasons:
    """Test each reason on the variants of one experiment; `groups` are rows by name, without those that are not known."""
    variants, gold, forbidden = {one.variant: one for one in answers}, outcomes.gold, _forbidden(outcomes, answers)
    groups = {**groups, "all": np.ones(len(gold), np.bool_), "no_relation": gold == NO_RELATION}
    sentences, found = sentence_numbers(outcomes.data.rows), list[Finding]()
    for reason, about, metric, (a, b) in _questions(variants):
        among = groups.get(about)
        if a not in variants or b not in variants or among is None or among.sum() < _LEAST_ROWS:
            continue
        if (metric == "micro_f1" and not gold[among].any()) or (metric == "impossible" and forbidden is None):
            continue
        ours, theirs = (_values(metric, gold, variants[name].predicted, forbidden, among) for name in (a, b))
        verdict = crossed_verdict(ours, theirs, sentences[among])
        means = float(ours.mean()), float(theirs.mean())
        found.append(Finding(reason, about, metric, a, b, int(among.sum()), means, verdict))
    adjusted = benjamini_hochberg([one.here.p for one in found]).tolist() if found else []
    return Reasons(
        model=answers[0].model,
        split=outcomes.data.split,
        rows=len(outcomes.data.rows),
        seeds={one.variant: len(one.by_seed) for one in answers},
        findings=tuple(replace(one, adjusted=p) for one, p in zip(found, adjusted, strict=True)),
        missing=tuple(reason for reason in range(1, 6) if reason not in {one.reason for one in found}),
    )


def _questions(variants: dict[str, Answers]) -> Iterator[tuple[int, str, Metric, Pair]]:
    """Reason, group of rows, metric, the two variants: in the order of the table."""
    masks = [(name, one.scheme) for name, one in variants.items() if one.label_mask != "off" and not one.hard_negatives]
    harder = [(name, one.scheme) for name, one in variants.items() if one.hard_negatives and one.label_mask == "off"]
    table: dict[int, tuple[tuple[str, ...], tuple[Metric, ...], Sequence[Pair]]] = {
        1: (("long", "nouns"), ("micro_f1",), GAINS),
        2: (("same types",), ("micro_f1",), GAINS),
        3: (("all",), ("micro_f1", "impossible"), [GAINS[1], *masks]),
        4: (("no_relation",), ("false_relations",), [*GAINS, *harder]),
        5: (("fragmented", "glued"), ("micro_f1",), GAINS),
    }
    for reason, (groups, metrics, pairs) in table.items():
        yield from ((reason, group, metric, pair) for group in groups for pair in pairs for metric in metrics)


def _values(metric: Metric, gold: Ints, predicted: Ints, forbidden: Bools | None, among: Bools) -> Floats:
    """One value per run and row."""
    if metric == "impossible" and forbidden is not None:
        return np.asarray(np.take_along_axis(forbidden[among], predicted[:, among].T, axis=1).T, np.float64)
    if metric == "false_relations":
        return np.asarray(predicted[:, among] != NO_RELATION, np.float64)
    return f1_values(gold[among], predicted[:, among])


def _forbidden(outcomes: Outcomes, answers: Sequence[Answers]) -> Bools | None:
    """For each row and label: does the hard mask of one of the variants rule the label out for the row's pair of types?"""
    mask = next((one.mask for one in answers if one.mask is not None and one.mask.kind == "hard"), None)
    return None if mask is None else np.asarray(mask.bias[[pair_index(row) for row in outcomes.data.rows]] < 0)


@dataclass(frozen=True, slots=True)
class VariantScore(Record):
    """One variant of one start: micro-F1 with its interval, and its tokenizer in numbers where it could be loaded."""

    model: str
    variant: str
    runs: tuple[str, ...]
    seeds: int
    micro_f1: Estimate
    tokenizer: TokenizerColumns | None


@dataclass(frozen=True, slots=True)
class Assessment(Record):
    split: str
    rows: int
    variants: tuple[VariantScore, ...]
    reasons: tuple[Reasons, ...]
    notes: tuple[str, ...]


def assess(paths: Sequence[str | Path], data: RelationData) -> Assessment:
    """Everything that stored predictions say about markers and tokenizers."""
    outcomes = find_answers(paths, data)
    gold, sentences, shared = outcomes.gold, sentence_numbers(data.rows), sentence_groups(data.rows)
    columns, groups, notes = dict[str, TokenizerColumns](), dict[str, dict[str, Bools]](), list[str]()
    for model in dict.fromkeys(one.model for one in outcomes.answers):
        groups[model] = shared
        try:
            columns[model], own = tokenizer_facts(data.rows, load_tokenizer(model))
            groups[model] = shared | own
        except ModelError as error:
            notes.append(say(f"{model}의 토크나이저 열이 없습니다: {error}", f"No tokenizer columns for {model}: {error}"))
    scores = [level(f1_values(gold, one.predicted), sentences) for one in outcomes.answers]
    return Assessment(
        split=data.split,
        rows=len(data.rows),
        variants=tuple(
            VariantScore(one.model, one.variant, one.runs, len(one.by_seed), score, columns.get(one.model))
            for one, score in zip(outcomes.answers, scores, strict=True)
        ),
        reasons=tuple(
            judge_reasons(outcomes, variants, groups[variants[0].model])
            for variants in outcomes.experiments
            if len({one.variant for one in variants}) > 1
        ),
        notes=(*notes, *outcomes.left_out),
    )
