"""The five reasons for entity markers, tested. In: relation runs and the rows they were scored on. Out: a verdict on each.

Runs that differ only in markers, label mask and hard negatives are variants of one experiment and can be compared. Each reason
names rows on which markers, types, a label mask or hard negatives should help: long sentences, many candidate nouns, several
entities of a type, fragmented entities, particles attached to an entity. A finding compares two variants on such rows, runs
crossed with sentences, corrected for the number of findings (Benjamini-Hochberg). Micro-F1 is a ratio of sums, not a mean over
rows: each row gets its linearized contribution to the ratio, and the mean of these is micro-F1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from coref_automl.base.errors import CorefError, ModelError, RelationDataError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import MANIFEST
from coref_automl.base.korean import PRONOUN, Tagger, default_cache
from coref_automl.base.records import Estimate, Record, grouped
from coref_automl.base.say import say
from coref_automl.comparison.claims import ALPHA
from coref_automl.comparison.reader import find_runs
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.superseded import copies_note
from coref_automl.extras.relation.data import RelationData, sentence_key, sentence_numbers
from coref_automl.extras.relation.evaluate import finished_seeds, read_manifest
from coref_automl.extras.relation.markers import SCHEMES
from coref_automl.extras.relation.rows import NO_RELATION, Ints, LabelMask, RelationRow, gold_indices, pair_index
from coref_automl.extras.relation.scoring import has_predictions, read_probabilities
from coref_automl.models.load import load_tokenizer
from coref_automl.models.spans import span_facts
from coref_automl.models.vocabulary import FastTokenizer, tokenize_all
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.intervals import benjamini_hochberg
from coref_automl.statistics.methods import by_document
from coref_automl.statistics.resampling import Bools, Floats

VARIED = ("scheme", "label_mask", "hard_negatives", "first_seed")
"""Settings in which the runs of an experiment differ: the variant, and the seed."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers of a variant's seeds: `by_seed` has one label index per row. `runs` are the folders.

    `experiment` is equal for variants that can be compared: same start, training rows and other settings.
    """

    runs: tuple[str, ...]
    model: str
    experiment: str
    scheme: str
    label_mask: str
    hard_negatives: float
    by_seed: dict[int, Ints]
    mask: LabelMask | None = None

    @property
    def variant(self) -> str:
        """`typed`, `typed + hard mask`, `typed + hard negatives 0.2`."""
        mask = [f"{self.label_mask} mask"] if self.label_mask != "off" else []
        return " + ".join([self.scheme, *mask, *([f"hard negatives {self.hard_negatives:g}"] if self.hard_negatives else [])])

    @property
    def predicted(self) -> Ints:
        """[seeds, rows]"""
        return np.stack(list(self.by_seed.values()))


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Answers of all variants to the same rows; `left_out` has the reason for every other run."""

    data: RelationData
    answers: tuple[Answers, ...]
    left_out: tuple[str, ...]

    @property
    def gold(self) -> Ints:
        return gold_indices(self.data.rows)

    @property
    def experiments(self) -> list[tuple[Answers, ...]]:
        """Groups of variants that can be compared, the largest first."""
        return sorted(map(tuple, grouped(self.answers, lambda answers: answers.experiment).values()), key=len, reverse=True)


def find_answers(paths: Sequence[str | Path], data: RelationData) -> Outcomes:
    """Read the runs under the paths that have predictions for these rows; seeds of one variant are merged, each once."""
    results = find_runs([str(path) for path in paths])
    runs, by_variant = results.checks["relation"], dict[tuple[str, str], Answers]()
    if not runs:
        none = f"No relation run under {', '.join(map(str, paths))}; make one with: coref-automl re train"
        raise RelationDataError(next(iter(results.damaged.values()), none))
    left_out = [*results.unread, *copies_note((copy, run.name) for run in runs for copy in run.copies)]
    for run in runs:
        try:
            answers = _answers(run, data)
        except CorefError as error:
            left_out.append(str(error))
            continue
        earlier = by_variant.setdefault((answers.experiment, answers.variant), answers)
        if earlier is answers:
            continue
        by_seed = dict(sorted({**answers.by_seed, **earlier.by_seed}.items()))
        by_variant[answers.experiment, answers.variant] = replace(earlier, runs=(*earlier.runs, run.name), by_seed=by_seed)
        if answers.by_seed.keys() & earlier.by_seed.keys():
            left_out.append(f"{run.folder} repeats seeds of another run of its settings; each counts once.")
    if not by_variant:
        raise RelationDataError(f"No run has predictions for these rows; the first: {left_out[0]}")
    experiments, schemes = list(dict.fromkeys(name for name, _ in by_variant)), list(SCHEMES)

    def rank(variant: Answers) -> tuple[int, int, float, bool]:
        """Order experiments as found; within one, no markers first, then plain and typed, then with mask or negatives."""
        scheme = schemes.index(variant.scheme)
        return experiments.index(variant.experiment), scheme, variant.hard_negatives, variant.label_mask != "off"

    return Outcomes(data, tuple(sorted(by_variant.values(), key=rank)), tuple(left_out))


def _answers(run: TaskRun, data: RelationData) -> Answers:
    folder = Path(run.folder or run.name)
    seeds = [seed for seed in finished_seeds(folder) if has_predictions(seed, data)]
    if not seeds:
        raise RelationDataError(
            f"{folder} has no predictions for these rows of {data.split}; make them with: "
            f"coref-automl re evaluate {folder} --data FILE"
        )
    manifest = read_manifest(folder)
    settings, fingerprints = manifest["binding"]["settings"], manifest["binding"]["fingerprints"]
    shared = {key: value for key, value in settings.items() if key not in VARIED}
    return Answers(
        runs=(run.name,),
        model=run.model,
        experiment=fingerprint([shared, fingerprints]),
        scheme=run.result.scheme,
        label_mask=manifest["label_mask"],
        hard_negatives=float(settings.get("hard_negatives", 0.0)),
        by_seed={int(seed.name.rpartition("-")[2]): read_probabilities(seed, data.split).argmax(1) for seed in seeds},
        mask=LabelMask.stored(manifest["label_mask"], manifest["mask_bias"], MANIFEST),
    )


def f1_values(gold: Ints, predicted: Ints) -> Floats:
    """Linearize micro-F1 into values [runs, rows]; the mean over rows is the run's micro-F1, a fraction."""
    relation = gold != NO_RELATION
    values = []
    for answers in predicted:
        right, given = (answers == gold) & relation, answers != NO_RELATION
        sums = np.stack([right, relation, right, given], axis=1)
        values.append(by_document(sums[:, None, :], np.ones(len(gold))))
    return np.stack(values)


def crossed_mean(values: Floats, sentences: Ints) -> Estimate:
    """Estimate the mean over runs, runs crossed with sentences."""
    return crossed_verdict(values, np.zeros((1, values.shape[1])), sentences, against_model=True).interval.within(0.0, 1.0)


Metric = Literal["micro_f1", "false_relations", "impossible"]
Pair = tuple[str, str]
GAINS: tuple[Pair, ...] = (("plain", "none"), ("typed", "plain"))
"""Variants that show the gain of markers, and of types in them."""
MANY_PIECES = 3
"""Tokens from which on an entity counts as fragmented."""
_LEAST_ROWS = 20


def token_groups(rows: Sequence[RelationRow], tokenizer: FastTokenizer) -> dict[str, Bools]:
    """Group rows by how a tokenizer splits their two entities."""
    unknown, tokenized = tokenizer.unk_token_id, tokenize_all(tokenizer, [row.sentence for row in rows])
    facts = [
        span_facts(row.sentence, pieces, [(entity.start, entity.end) for entity in (row.subject, row.object)], unknown)
        for row, pieces in zip(rows, tokenized, strict=True)
    ]
    pieces, glued = (np.stack([getattr(spans, name) for spans in facts]) for name in ("pieces", "glued"))
    return {"fragmented": pieces.max(axis=1) >= MANY_PIECES, "glued": glued.any(axis=1)}


def sentence_groups(rows: Sequence[RelationRow]) -> dict[str, Bools]:
    """Group rows by their sentences; by nouns only if the tagger is installed. Long and many mean the upper third of the rows."""
    groups = {"long": _upper_third([len(row.sentence) for row in rows]), "same types": _same_types(rows)}
    if find_spec("kiwipiepy") is not None:
        tagged = Tagger(default_cache()).tag(row.sentence for row in rows)
        groups["nouns"] = _upper_third([int((tags.kinds != PRONOUN).sum()) for tags in tagged])
    return groups


def _upper_third(values: Sequence[int]) -> Bools:
    return np.asarray(np.array(values) > np.quantile(values, 2 / 3))


def _same_types(rows: Sequence[RelationRow]) -> Bools:
    """Whether another entity of the sentence, in any of these rows, has the type of the subject or of the object."""
    entities: dict[str, set[tuple[int, int, str]]] = {}
    for row in rows:
        entities.setdefault(sentence_key(row.sentence), set()).update((e.start, e.end, e.type) for e in (row.subject, row.object))
    count = {sentence: Counter(kind for _, _, kind in spans) for sentence, spans in entities.items()}
    return np.array(
        [any(count[sentence_key(row.sentence)][e.type] > 1 for e in (row.subject, row.object)) for row in rows], np.bool_
    )


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Variant a minus b on the rows `about`; `adjusted` is p corrected for all findings. Metrics of mistakes: less is better."""

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
        """1 if a is shown to be better on these rows, -1 worse, 0 neither."""
        if not self.here.shown or self.adjusted >= ALPHA:
            return 0
        return (1 if self.here.difference > 0 else -1) * (1 if self.metric == "micro_f1" else -1)


@dataclass(frozen=True, slots=True)
class Reasons(Record):
    """All findings of one experiment; `seeds` by variant. `missing` are reasons that these runs cannot test."""

    model: str
    split: str
    rows: int
    seeds: dict[str, int]
    findings: tuple[Finding, ...]
    missing: tuple[int, ...]


def judge_reasons(outcomes: Outcomes, variants: Sequence[Answers], groups: dict[str, Bools]) -> Reasons:
    """Test each reason on the variants of one experiment; `groups` select rows by name, as far as they are known."""
    by_name, gold, forbidden = {answers.variant: answers for answers in variants}, outcomes.gold, _forbidden(outcomes, variants)
    groups = {**groups, "all": np.ones(len(gold), np.bool_), "no_relation": gold == NO_RELATION}
    sentences, findings = sentence_numbers(outcomes.data.rows), list[Finding]()
    for reason, about, metric, (a, b) in _questions(by_name):
        group = groups.get(about)
        if a not in by_name or b not in by_name or group is None or group.sum() < _LEAST_ROWS:
            continue
        if (metric == "micro_f1" and not gold[group].any()) or (metric == "impossible" and forbidden is None):
            continue
        ours, theirs = (_values(metric, gold, by_name[name].predicted, forbidden, group) for name in (a, b))
        verdict = crossed_verdict(ours, theirs, sentences[group])
        means = float(ours.mean()), float(theirs.mean())
        findings.append(Finding(reason, about, metric, a, b, int(group.sum()), means, verdict))
    adjusted = benjamini_hochberg([finding.here.p for finding in findings]).tolist() if findings else []
    return Reasons(
        model=variants[0].model,
        split=outcomes.data.split,
        rows=len(outcomes.data.rows),
        seeds={answers.variant: len(answers.by_seed) for answers in variants},
        findings=tuple(replace(finding, adjusted=p) for finding, p in zip(findings, adjusted, strict=True)),
        missing=tuple(reason for reason in range(1, 6) if reason not in {finding.reason for finding in findings}),
    )


def _questions(variants: dict[str, Answers]) -> Iterator[tuple[int, str, Metric, Pair]]:
    """List (reason, group of rows, metric, variants) in the order of the table."""
    masked = [(name, run.scheme) for name, run in variants.items() if run.label_mask != "off" and not run.hard_negatives]
    harder = [(name, run.scheme) for name, run in variants.items() if run.hard_negatives and run.label_mask == "off"]
    table: dict[int, tuple[tuple[str, ...], tuple[Metric, ...], Sequence[Pair]]] = {
        1: (("long", "nouns"), ("micro_f1",), GAINS),
        2: (("same types",), ("micro_f1",), GAINS),
        3: (("all",), ("micro_f1", "impossible"), [GAINS[1], *masked]),
        4: (("no_relation",), ("false_relations",), [*GAINS, *harder]),
        5: (("fragmented", "glued"), ("micro_f1",), GAINS),
    }
    for reason, (groups, metrics, pairs) in table.items():
        yield from ((reason, group, metric, pair) for group in groups for pair in pairs for metric in metrics)


def _values(metric: Metric, gold: Ints, predicted: Ints, forbidden: Bools | None, group: Bools) -> Floats:
    if metric == "impossible" and forbidden is not None:
        return np.asarray(np.take_along_axis(forbidden[group], predicted[:, group].T, axis=1).T, np.float64)
    if metric == "false_relations":
        return np.asarray(predicted[:, group] != NO_RELATION, np.float64)
    return f1_values(gold[group], predicted[:, group])


def _forbidden(outcomes: Outcomes, variants: Sequence[Answers]) -> Bools | None:
    """For each row and label, whether the hard mask of one of the variants rules the label out for the row's pair of types."""
    masks = (answers.mask for answers in variants)
    mask = next((mask for mask in masks if mask is not None and mask.kind == "hard"), None)
    return None if mask is None else np.asarray(mask.bias[[pair_index(row) for row in outcomes.data.rows]] < 0)


@dataclass(frozen=True, slots=True)
class VariantScore(Record):
    model: str
    variant: str
    runs: tuple[str, ...]
    seeds: int
    micro_f1: Estimate


@dataclass(frozen=True, slots=True)
class Assessment(Record):
    split: str
    rows: int
    variants: tuple[VariantScore, ...]
    reasons: tuple[Reasons, ...]
    notes: tuple[str, ...]


def assess(paths: Sequence[str | Path], data: RelationData) -> Assessment:
    """Judge markers and tokenizers from stored predictions."""
    outcomes = find_answers(paths, data)
    gold, sentences, shared = outcomes.gold, sentence_numbers(data.rows), sentence_groups(data.rows)
    groups, notes = dict[str, dict[str, Bools]](), list[str]()
    for model in dict.fromkeys(answers.model for answers in outcomes.answers):
        groups[model] = shared
        try:
            groups[model] = shared | token_groups(data.rows, load_tokenizer(model))
        except ModelError as error:
            notes.append(say(f"{model}의 토크나이저를 읽을 수 없습니다: {error}", f"Reason 5 is not tested for {model}: {error}"))
    scores = [crossed_mean(f1_values(gold, answers.predicted), sentences) for answers in outcomes.answers]
    return Assessment(
        split=data.split,
        rows=len(data.rows),
        variants=tuple(
            VariantScore(answers.model, answers.variant, answers.runs, len(answers.by_seed), score)
            for answers, score in zip(outcomes.answers, scores, strict=True)
        ),
        reasons=tuple(
            judge_reasons(outcomes, variants, groups[variants[0].model])
            for variants in outcomes.experiments
            if len({answers.variant for answers in variants}) > 1
        ),
        notes=(*notes, *outcomes.left_out),
    )
