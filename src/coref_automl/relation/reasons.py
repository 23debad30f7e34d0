"""The five reasons for entity markers, tested. In: relation runs and the rows they were scored on. Out: a verdict on each.

Runs that differ in markers, label mask and hard negatives alone are variants of one experiment and can be compared. Each reason
names rows on which markers, types, a label mask or hard negatives should help: long sentences, many candidate nouns, several
entities of a type, entities in many pieces, particles glued to an entity. A finding compares two variants there, runs crossed
with sentences, corrected for the number of findings (Benjamini-Hochberg). Micro-F1 is a ratio of sums, not a mean over rows: each
row gets the value by which it moves the ratio, and their mean is micro-F1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.claims import ALPHA
from coref_automl.comparison.reader import find_runs
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.superseded import copies_note
from coref_automl.errors import CorefError, ModelError, RelationDataError
from coref_automl.fingerprints import fingerprint
from coref_automl.folders import MANIFEST
from coref_automl.korean import PRONOUN, Tagger, default_cache
from coref_automl.models.load import load_tokenizer
from coref_automl.models.segmentation import span_facts
from coref_automl.models.vocabulary import FastTokenizer, tokenize_all
from coref_automl.records import Estimate, Record, grouped
from coref_automl.relation.data import RelationData, sentence_key, sentence_numbers
from coref_automl.relation.evaluate import finished_seeds, read_manifest
from coref_automl.relation.markers import SCHEMES
from coref_automl.relation.rows import NO_RELATION, LabelMask, RelationRow, gold_indices, pair_index
from coref_automl.relation.scoring import has_predictions, read_probabilities
from coref_automl.say import say
from coref_automl.statistics.crossed import CrossedVerdict, crossed_verdict
from coref_automl.statistics.intervals import benjamini_hochberg
from coref_automl.statistics.methods import by_document

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
VARIED = ("scheme", "label_mask", "hard_negatives", "first_seed")
"""Settings in which the runs of one experiment differ: the variant, and the seed."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What the seeds of one variant answered: `by_seed` holds one label index per row. `runs` are the folders.

    `experiment` is the same for variants that can be compared: same start, training rows and other settings.
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
    """Answers of all variants to the same rows; `left_out` says of each other run why it has none."""

    data: RelationData
    answers: tuple[Answers, ...]
    left_out: tuple[str, ...]

    @property
    def gold(self) -> Ints:
        return gold_indices(self.data.rows)

    @property
    def experiments(self) -> list[tuple[Answers, ...]]:
        """Variants that can be compared, the most first."""
        return sorted(map(tuple, grouped(self.answers, lambda one: one.experiment).values()), key=len, reverse=True)


def find_answers(paths: Sequence[str | Path], data: RelationData) -> Outcomes:
    """The runs under the paths that have predictions for these rows; seeds of one variant are put together, each once."""
    found = find_runs([str(path) for path in paths])
    runs, by_variant = found.checks["relation"], dict[tuple[str, str], Answers]()
    if not runs:
        none = f"No relation run under {', '.join(map(str, paths))}; make one with: coref-automl re train"
        raise RelationDataError(next(iter(found.damaged.values()), none))
    left_out = [*found.unread, *copies_note((copy, run.name) for run in runs for copy in run.copies)]
    for run in runs:
        try:
            own = _answers(run, data)
        except CorefError as error:
            left_out.append(str(error))
            continue
        earlier = by_variant.setdefault((own.experiment, own.variant), own)
        if earlier is not own:
            by_seed = dict(sorted({**own.by_seed, **earlier.by_seed}.items()))
            by_variant[own.experiment, own.variant] = replace(earlier, runs=(*earlier.runs, run.name), by_seed=by_seed)
        if earlier is not own and own.by_seed.keys() & earlier.by_seed.keys():
            left_out.append(f"{run.folder} repeats seeds of another run of its settings; each counts once.")
    if not by_variant:
        raise RelationDataError(f"No run has predictions for these rows; the first: {left_out[0]}")
    experiments, schemes = list(dict.fromkeys(name for name, _ in by_variant)), list(SCHEMES)

    def place(one: Answers) -> tuple[int, int, float, bool]:
        """Experiments as they were found; within one, no markers first, then plain and typed, then what is added to them."""
        return experiments.index(one.experiment), schemes.index(one.scheme), one.hard_negatives, one.label_mask != "off"

    return Outcomes(data, tuple(sorted(by_variant.values(), key=place)), tuple(left_out))


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
    """One value per run and row, [runs, rows]; the mean over rows is the run's micro-F1, a fraction."""
    relation = gold != NO_RELATION
    values = []
    for one in predicted:
        right, given = (one == gold) & relation, one != NO_RELATION
        sums = np.stack([right, relation, right, given], axis=1)
        values.append(by_document(sums[:, None, :], np.ones(len(gold))))
    return np.stack(values)


def level(values: Floats, sentences: Ints) -> Estimate:
    """The mean over runs with its interval, runs crossed with sentences."""
    return crossed_verdict(values, np.zeros((1, values.shape[1])), sentences, against_model=True).interval.within(0.0, 1.0)


Metric = Literal["micro_f1", "false_relations", "impossible"]
Pair = tuple[str, str]
GAINS: tuple[Pair, ...] = (("plain", "none"), ("typed", "plain"))
"""What markers add, and what types add to them."""
MANY_PIECES = 3
"""Tokens from which on an entity counts as fragmented."""
_LEAST_ROWS = 20


def token_groups(rows: Sequence[RelationRow], tokenizer: FastTokenizer) -> dict[str, Bools]:
    """Rows by what a tokenizer makes of their two entities."""
    unknown, read = tokenizer.unk_token_id, tokenize_all(tokenizer, [row.sentence for row in rows])
    facts = [
        span_facts(row.sentence, pieces, [(one.start, one.end) for one in (row.subject, row.object)], unknown)
        for row, pieces in zip(rows, read, strict=True)
    ]
    pieces, glued = (np.stack([getattr(one, name) for one in facts]) for name in ("pieces", "glued"))
    return {"fragmented": pieces.max(axis=1) >= MANY_PIECES, "glued": glued.any(axis=1)}


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
    """Everything that stored predictions say about markers and tokenizers."""
    outcomes = find_answers(paths, data)
    gold, sentences, shared = outcomes.gold, sentence_numbers(data.rows), sentence_groups(data.rows)
    groups, notes = dict[str, dict[str, Bools]](), list[str]()
    for model in dict.fromkeys(one.model for one in outcomes.answers):
        groups[model] = shared
        try:
            groups[model] = shared | token_groups(data.rows, load_tokenizer(model))
        except ModelError as error:
            notes.append(say(f"{model}의 토크나이저를 읽을 수 없습니다: {error}", f"Reason 5 is not tested for {model}: {error}"))
    scores = [level(f1_values(gold, one.predicted), sentences) for one in outcomes.answers]
    return Assessment(
        split=data.split,
        rows=len(data.rows),
        variants=tuple(
            VariantScore(one.model, one.variant, one.runs, len(one.by_seed), score)
            for one, score in zip(outcomes.answers, scores, strict=True)
        ),
        reasons=tuple(
            judge_reasons(outcomes, variants, groups[variants[0].model])
            for variants in outcomes.experiments
            if len({one.variant for one in variants}) > 1
        ),
        notes=(*notes, *outcomes.left_out),
    )
