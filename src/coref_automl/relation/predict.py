"""Predictions on new rows. In: a run, and a file or one sentence with two entities. Out: submission.csv, or ranked labels.

The seed that its own slice of train scored best answers; with `ensemble` the probabilities of all finished seeds are averaged.
One seed's model by itself (the best-model of a study) answers as a run of one seed does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.config import choose
from coref_automl.corpus.batch import Answered, RowProblem, Task, answer_rows
from coref_automl.decoder import read_stored
from coref_automl.errors import RelationDataError
from coref_automl.fingerprints import fingerprint
from coref_automl.models.model_files import folder_fingerprint
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.data import RowCache, bad_rows, raw_rows
from coref_automl.relation.evaluate import seeds_of
from coref_automl.relation.markers import SCHEMES
from coref_automl.relation.results import RelationSeed
from coref_automl.relation.rows import LABELS, TYPES, BadRow, Entity, RelationRow, parse_row, with_marks
from coref_automl.relation.scoring import seed_probabilities
from coref_automl.relation.settings import AGAIN, ModelSettings, model_of, settings_of
from coref_automl.say import say

KIND = "relation predictions"
SUBMISSION = "submission.csv"


@dataclass(frozen=True, slots=True)
class TextPrediction(Record):
    """One sentence's answer: every label with its probability, the most probable first. A type that was not given is empty."""

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
    """`submission.csv` with id, pred_label, probs (a JSON list in the order of KLUE's labels); the same command resumes."""
    seeds = _seeds(run, ensemble)

    def answer(rows: Sequence[RelationRow]) -> list[dict[str, Any] | str]:
        kept, probabilities, problems = _predict(seeds, tuple(rows), True, device)
        found: dict[int, dict[str, Any] | str] = {problem.row: problem.reason for problem in problems}
        for row, line in zip(kept, probabilities, strict=True):
            probs = [round(float(p), 6) for p in line]
            found[row.number] = {"id": row.guid, "pred_label": LABELS[int(line.argmax())], "probs": probs}
        return [found[row.number] for row in rows]

    task = Task(
        KIND,
        check=lambda number, raw: parse_row(raw, number=number, labels=LABELS, labelled=False),
        reject=BadRow,
        answer=answer,
        refused=lambda problems: bad_rows(data, problems),
        at_once=512,
    )
    weights = fingerprint([folder_fingerprint(model_of(seed)) for seed in seeds])
    rows, progress = partial(raw_rows, data), progress or quiet()
    return answer_rows(rows, task, out, SUBMISSION, {"weights": weights}, skip_bad=skip_bad, progress=progress)


def predict_text(
    run: Path,
    sentence: str,
    subject: str,
    object_: str,
    *,
    types: tuple[str | None, str | None] = (None, None),
    starts: tuple[int | None, int | None] = (None, None),
    ensemble: bool = False,
    device: str = "auto",
) -> TextPrediction:
    """The relation between two words of a sentence. A word that occurs more than once needs its offset."""
    asked: dict[str, Any] = {"sentence": sentence, "subject": subject, "object": object_}
    asked |= {"subject_type": types[0], "object_type": types[1], "subject_start": starts[0], "object_start": starts[1]}
    return predict_texts(run, [asked], ensemble=ensemble, device=device)[0]


def predict_texts(
    run: Path, asked: Sequence[Mapping[str, Any]], *, ensemble: bool = False, device: str = "auto"
) -> list[TextPrediction]:
    """The relations of several sentences, each with sentence, subject and object, and where needed their types and starts.

    A run whose scheme or label mask reads entity types needs both; to any other they change nothing and may be left out.
    """
    seeds = _seeds(run, ensemble)
    settings = [settings_of(seed) for seed in seeds]
    typed = _reader_of_types(settings[0])
    rows = [_row(run, typed, number, one) for number, one in enumerate(asked, 1)]
    if not rows:
        return []
    _, probabilities, _ = _predict(seeds, tuple(rows), False, device)
    found = []
    for one, row, line in zip(asked, rows, probabilities, strict=True):
        ranked = tuple((LABELS[int(label)], float(line[label])) for label in np.argsort(-line, kind="stable"))
        subject = replace(row.subject, type=one.get("subject_type") or "")
        object_ = replace(row.object, type=one.get("object_type") or "")
        found.append(TextPrediction(row.sentence, subject, object_, ranked, tuple(one.seed for one in settings)))
    return found


def _reader_of_types(settings: ModelSettings) -> str:
    """What of a model depends on entity types; empty when nothing does."""
    if choose(settings.scheme, SCHEMES, "scheme").marks in ("typed", "typed-punct"):
        return f"scheme {settings.scheme}"
    return f"label mask {settings.label_mask}" if settings.label_mask != "off" else ""


def _row(run: Path, typed: str, number: int, asked: Mapping[str, Any]) -> RelationRow:
    """A row of one sentence. It must have types: one left out is filled in only for a run that does not look at it."""
    lost = [name for name in ("sentence", "subject", "object") if not isinstance(asked.get(name), str)]
    if lost:
        raise RelationDataError(f"Text {number} has no {lost[0]}; give sentence, subject and object as strings.")
    raw: dict[str, Any] = {"guid": f"text {number}", "sentence": asked["sentence"]}
    for role in ("subject", "object"):
        kind = asked.get(f"{role}_type")
        if kind is None and typed:
            raise RelationDataError(
                f"{run} reads entity types ({typed}); pass --subject-type and --object-type, each one of {', '.join(TYPES)}."
            )
        start = asked.get(f"{role}_start")
        start = _only_place(asked["sentence"], asked[role], role) if start is None else start
        raw[f"{role}_entity"] = {
            "word": asked[role], "start_idx": start, "end_idx": start + len(asked[role]) - 1, "type": kind or TYPES[0]
        }  # fmt: skip
    try:
        return parse_row(raw, number=number, labels=LABELS, labelled=False)
    except BadRow as error:
        raise RelationDataError(f"Invalid input: {error}.") from error


def _only_place(sentence: str, word: str, role: str) -> int:
    """Where a word is; nothing is guessed if it occurs more than once."""
    found = [at for at in range(len(sentence)) if word and sentence.startswith(word, at)]
    if not found:
        raise RelationDataError(f"The {role} {word!r} does not occur in the text; give it as it is written there.")
    if len(found) > 1:
        raise RelationDataError(f"The {role} {word!r} occurs at {', '.join(map(str, found))}; say which one with --{role}-start.")
    return found[0]


def render(found: TextPrediction, *, top: int = 5) -> str:
    """The sentence with both entities in brackets, which name role and type; then the first labels with their probabilities."""
    roles = {say("주체", "subject"): found.subject, say("대상", "object"): found.object}
    marks = [(one.start, one.end, "[", f"]({f'{role} {one.type}'.rstrip()})") for role, one in roles.items()]
    width = max(len(label) for label, _ in found.ranked[:top])
    shown = [f"{label:<{width}}  {100 * p:5.1f}%" for label, p in found.ranked[:top]]
    return "\n".join([with_marks(found.sentence, marks), *shown])


def _predict(
    seeds: list[Path], rows: tuple[RelationRow, ...], skip_bad: bool, device: str
) -> tuple[tuple[RelationRow, ...], NDArray[np.float32], list[RowProblem]]:
    """(the rows that can be marked, their probabilities averaged over seeds, what could not be marked)"""
    cache, found = RowCache(), list[NDArray[np.float32]]()
    for seed in seeds:
        kept, own, problems = seed_probabilities(seed, rows, device=device, progress=quiet(), cache=cache, skip_bad=skip_bad)
        found.append(own)
    return kept, np.mean(found, axis=0), problems


def _seeds(run: Path, ensemble: bool) -> list[Path]:
    seeds = seeds_of(run)
    if ensemble or len(seeds) == 1:
        return seeds
    return [max(seeds, key=lambda seed: read_stored(seed / "result.json", RelationSeed, remedy=AGAIN).validation.micro_f1)]
