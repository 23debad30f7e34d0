"""Predictions on new rows. In: a run, and a file or one sentence with two entities. Out: submission.csv, or ranked labels.

The seed with the best validation score answers; with `ensemble` the probabilities of all finished seeds are averaged. A single
seed's model (the best-model of a study) answers like a run of one seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.config import choose
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import RelationDataError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import Record
from coref_automl.base.say import say
from coref_automl.corpus.batch import Answered, RowTask, answer_rows
from coref_automl.corpus.clean import with_marks
from coref_automl.extras.relation.data import RowCache, bad_rows, raw_rows
from coref_automl.extras.relation.evaluate import seeds_of
from coref_automl.extras.relation.markers import SCHEMES
from coref_automl.extras.relation.recipe import RETRAIN, ModelSettings, model_of, settings_of
from coref_automl.extras.relation.results import RelationSeed
from coref_automl.extras.relation.rows import LABELS, TYPES, BadRow, Entity, RelationRow, parse_row
from coref_automl.extras.relation.scoring import ScoredRows, seed_probabilities
from coref_automl.models.model_files import folder_fingerprint

KIND = "relation predictions"
SUBMISSION = "submission.csv"


@dataclass(frozen=True, slots=True)
class TextPrediction(Record):
    """The labels of a sentence with their probabilities, the most probable first. An entity type that was not given is empty."""

    sentence: str
    subject: Entity
    object: Entity
    ranked: tuple[tuple[str, float], ...]
    seeds: tuple[int, ...]


def predict_file(
    run: Path,
    data: str,
    out: Path,
    *,
    ensemble: bool = False,
    skip_bad: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> Answered:
    """Write `submission.csv` with id, pred_label, probs (a JSON list in KLUE's label order); the same command resumes."""
    seeds = _seeds(run, ensemble)

    def answer(rows: Sequence[RelationRow]) -> list[dict[str, Any] | str]:
        kept, probabilities, problems = _predict(seeds, tuple(rows), True, device)
        answers: dict[int, dict[str, Any] | str] = {problem.row: problem.reason for problem in problems}
        for row, distribution in zip(kept, probabilities, strict=True):
            probs = [round(float(p), 6) for p in distribution]
            answers[row.number] = {"id": row.guid, "pred_label": LABELS[int(distribution.argmax())], "probs": probs}
        return [answers[row.number] for row in rows]

    task = RowTask(
        KIND,
        check=lambda number, raw: parse_row(raw, number=number, labels=LABELS, labelled=False),
        reject=BadRow,
        answer=answer,
        refused=lambda problems: bad_rows(data, problems),
        batch_size=512,
    )
    weights = fingerprint([folder_fingerprint(model_of(seed)) for seed in seeds])
    rows, progress = partial(raw_rows, data), progress or quiet()
    return answer_rows(rows, task, out, SUBMISSION, {"weights": weights}, skip_bad=skip_bad, progress=progress)


def predict_texts(
    run: Path, texts: Sequence[Mapping[str, Any]], *, ensemble: bool = False, device: str = "auto"
) -> list[TextPrediction]:
    """Predict the relations of several texts, each with sentence, subject and object, and if needed their types and starts.

    A run whose scheme or label mask uses entity types needs both; for any other they change nothing and may be left out.
    """
    seeds = _seeds(run, ensemble)
    settings = [settings_of(seed) for seed in seeds]
    typed = _use_of_types(settings[0])
    rows = [_row(run, typed, number, text) for number, text in enumerate(texts, 1)]
    if not rows:
        return []
    _, probabilities, _ = _predict(seeds, tuple(rows), False, device)
    predictions = []
    for text, row, distribution in zip(texts, rows, probabilities, strict=True):
        ranked = tuple((LABELS[int(label)], float(distribution[label])) for label in np.argsort(-distribution, kind="stable"))
        subject = replace(row.subject, type=text.get("subject_type") or "")
        object_ = replace(row.object, type=text.get("object_type") or "")
        predictions.append(TextPrediction(row.sentence, subject, object_, ranked, tuple(model.seed for model in settings)))
    return predictions


def _use_of_types(settings: ModelSettings) -> str:
    """Name the part of a model that uses entity types; empty if none does."""
    if choose(settings.scheme, SCHEMES, "scheme").marks in ("typed", "typed-punct"):
        return f"scheme {settings.scheme}"
    return f"label mask {settings.label_mask}" if settings.label_mask != "off" else ""


def _row(run: Path, typed: str, number: int, text: Mapping[str, Any]) -> RelationRow:
    """Build the row of a text. Rows must have types: a missing one is filled in only if the run does not use it."""
    missing = [name for name in ("sentence", "subject", "object") if not isinstance(text.get(name), str)]
    if missing:
        raise RelationDataError(f"Text {number} has no {missing[0]}; give sentence, subject and object as strings.")
    raw: dict[str, Any] = {"guid": f"text {number}", "sentence": text["sentence"]}
    for role in ("subject", "object"):
        kind = text.get(f"{role}_type")
        if not kind and typed:
            raise RelationDataError(
                f"{run} reads entity types ({typed}); pass --subject-type and --object-type, each one of {', '.join(TYPES)}."
            )
        start = text.get(f"{role}_start")
        start = _only_occurrence(text["sentence"], text[role], role) if start is None else start
        raw[f"{role}_entity"] = {
            "word": text[role], "start_idx": start, "end_idx": start + len(text[role]) - 1, "type": kind or TYPES[0]
        }  # fmt: skip
    try:
        return parse_row(raw, number=number, labels=LABELS, labelled=False)
    except BadRow as error:
        raise RelationDataError(f"Invalid input: {error}.") from error


def _only_occurrence(sentence: str, word: str, role: str) -> int:
    """Find a word; raise if it occurs more than once."""
    found = [start for start in range(len(sentence)) if word and sentence.startswith(word, start)]
    if not found:
        raise RelationDataError(f"The {role} {word!r} does not occur in the text; give it as it is written there.")
    if len(found) > 1:
        raise RelationDataError(f"The {role} {word!r} occurs at {', '.join(map(str, found))}; say which one with --{role}-start.")
    return found[0]


def render(prediction: TextPrediction, *, top: int = 5) -> str:
    """Render the sentence with both entities in brackets, with role and type; then the top labels with their probabilities."""
    roles = {say("주체", "subject"): prediction.subject, say("대상", "object"): prediction.object}
    marks = [(entity.start, entity.end, "[", f"]({f'{role} {entity.type}'.rstrip()})") for role, entity in roles.items()]
    width = max(len(label) for label, _ in prediction.ranked[:top])
    labels = [f"{label:<{width}}  {100 * p:5.1f}%" for label, p in prediction.ranked[:top]]
    return "\n".join([with_marks(prediction.sentence, marks), *labels])


def _predict(seeds: list[Path], rows: tuple[RelationRow, ...], skip_bad: bool, device: str) -> ScoredRows:
    """Score rows with each seed and average the probabilities."""
    cache = RowCache()
    by_seed = [seed_probabilities(seed, rows, device=device, progress=quiet(), cache=cache, skip_bad=skip_bad) for seed in seeds]
    return by_seed[0]._replace(probabilities=np.mean([scored.probabilities for scored in by_seed], axis=0))


def _seeds(run: Path, ensemble: bool) -> list[Path]:
    seeds = seeds_of(run)
    if ensemble or len(seeds) == 1:
        return seeds
    return [max(seeds, key=lambda seed: read_stored(seed / "result.json", RelationSeed, remedy=RETRAIN).validation.micro_f1)]
