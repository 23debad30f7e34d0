"""Runs assessed together. In: folders of relation runs, the rows they were scored on. Out: scores by variant with what the
tokenizer makes of the entities, and the five reasons for markers, tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from coref_automl.errors import ModelError
from coref_automl.korean import Tagger, default_cache
from coref_automl.models.load import load_tokenizer
from coref_automl.records import Estimate, Record
from coref_automl.relation.data import RelationData
from coref_automl.relation.outcomes import Answers, Bools, Outcomes, f1_values, find_answers, level
from coref_automl.relation.reasons import Reasons, judge_reasons
from coref_automl.relation.row_groups import RowPieces, TokenizerColumns, long_sentences, many_nouns, same_types
from coref_automl.say import say


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
    pieces, notes = _pieces(outcomes)
    return Assessment(
        split=data.split,
        rows=len(data.rows),
        variants=tuple(_score(one, outcomes, pieces.get(one.model)) for one in outcomes.answers),
        reasons=tuple(
            judge_reasons(outcomes, some, _groups(data, pieces.get(some[0].model)))
            for some in outcomes.experiments
            if len({one.variant for one in some}) > 1
        ),
        notes=(*notes, *outcomes.left_out),
    )


def _pieces(outcomes: Outcomes) -> tuple[dict[str, RowPieces], list[str]]:
    """The rows as the tokenizer of each start reads them; a sentence for each that cannot be loaded here."""
    found, notes = dict[str, RowPieces](), []
    for model in dict.fromkeys(one.model for one in outcomes.answers):
        try:
            found[model] = RowPieces.of(outcomes.data.rows, load_tokenizer(model))
        except ModelError as error:
            notes.append(say(f"{model}의 토크나이저 열이 없습니다: {error}", f"No tokenizer columns for {model}: {error}"))
    return found, notes


def _score(one: Answers, outcomes: Outcomes, pieces: RowPieces | None) -> VariantScore:
    value = level(f1_values(outcomes.gold, one.predicted), outcomes.sentences)
    return VariantScore(one.model, one.variant, one.runs, one.seeds, value, pieces.columns if pieces else None)


def _groups(data: RelationData, pieces: RowPieces | None) -> dict[str, Bools]:
    """Rows by what reasons are about; nouns only where the tagger is installed."""
    found = {"long": long_sentences(data.rows), "same types": same_types(data.rows)}
    if find_spec("kiwipiepy") is not None:
        found["nouns"] = many_nouns(data.rows, Tagger(default_cache()))
    if pieces is not None:
        found |= {"fragmented": pieces.fragmented, "glued": pieces.any_glued}
    return found
