"""Predictions on new rows. In: a run, and a file or one sentence with two entities. Out: submission.csv, or ranked labels.

The seed that its own slice of train scored best answers; with `ensemble` the probabilities of all finished seeds are averaged.
One seed's model by itself (the best-model of a study) answers as a run of one seed does.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.decoder import read_stored
from coref_automl.engine.binding import check_binding
from coref_automl.errors import FolderError, RelationDataError
from coref_automl.locks import claimed
from coref_automl.machine import pick_device
from coref_automl.models.model_files import folder_print
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record
from coref_automl.relation.data import RowCache, RowProblem, read_relations
from coref_automl.relation.evaluate import seeds_of
from coref_automl.relation.labels import LABELS
from coref_automl.relation.markers import SCHEMES
from coref_automl.relation.results import SeedResult
from coref_automl.relation.rows import TYPES, BadRow, Entity, RelationRow, parse_row
from coref_automl.relation.scoring import rows_fingerprint, run_model, run_settings, settings_of
from coref_automl.relation.stored import AGAIN, SubmissionManifest
from coref_automl.say import say
from coref_automl.store import MANIFEST, State, fingerprint, state_of, write_json, write_text

KIND = "relation predictions"
SUBMISSION = "submission.csv"


@dataclass(frozen=True, slots=True)
class Submission(Record):
    path: str
    rows: int
    seeds: tuple[int, ...]
    problems: tuple[RowProblem, ...]


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
) -> Submission:
    """`submission.csv` with id, pred_label, probs (a JSON list in the order of KLUE's labels).

    Made again from the same weights and rows it takes its own place; one of anything else is left alone, before any work.
    """
    read, seeds = read_relations(data, labelled=False, skip_bad=skip_bad), _seeds(run, ensemble)
    made_from = {
        "weights": fingerprint([folder_print(run_settings(seed).parent) for seed in seeds]),
        "rows": rows_fingerprint(read.rows),
    }
    with claimed(out, KIND):
        _refuse_another(out, made_from)
        rows, probabilities, problems = _predict(seeds, read.rows, skip_bad, device, progress or quiet())
        named = {"run": str(run), "data": data, "seeds": list(_numbers(seeds))}
        write_json(out / MANIFEST, {"kind": KIND, **named, "binding": made_from})
        write_text(out / SUBMISSION, _table(rows, probabilities))
    return Submission(str(out / SUBMISSION), len(rows), _numbers(seeds), (*read.problems, *problems))


def _table(rows: Sequence[RelationRow], probabilities: Any) -> str:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("id", "pred_label", "probs"))
    for row, line in zip(rows, probabilities, strict=True):
        writer.writerow((row.guid, LABELS[int(line.argmax())], json.dumps([round(float(p), 6) for p in line])))
    return table.getvalue()


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
    """The relation between two words of a sentence. A word that occurs more than once needs its offset.

    A run whose scheme or label mask reads entity types needs both; to any other they change nothing and may be left out.
    """
    seeds = _seeds(run, ensemble)
    if None in types and (reader := _reader_of_types(seeds)):
        raise RelationDataError(
            f"{run} reads entity types ({reader}); pass --subject-type and --object-type, each one of {', '.join(TYPES)}."
        )
    raw = {
        "guid": "text",
        "sentence": sentence,
        "subject_entity": _entity(sentence, subject, types[0], starts[0], "subject"),
        "object_entity": _entity(sentence, object_, types[1], starts[1], "object"),
    }
    try:
        row = parse_row(raw, number=1, labels=LABELS, labelled=False)
    except BadRow as error:
        raise RelationDataError(f"Invalid input: {error}.") from error
    _, probabilities, _ = _predict(seeds, (row,), False, device, quiet())
    order = np.argsort(-probabilities[0], kind="stable")
    ranked = tuple((LABELS[int(label)], float(probabilities[0, label])) for label in order)
    shown = [replace(entity, type=kind or "") for entity, kind in zip((row.subject, row.object), types, strict=True)]
    return TextPrediction(row.sentence, shown[0], shown[1], ranked, _numbers(seeds))


def render(found: TextPrediction, *, top: int = 5) -> str:
    """The sentence with both entities in brackets, which name role and type; then the first labels with their probabilities."""
    width = max(len(label) for label, _ in found.ranked[:top])
    return "\n".join([_bracketed(found), *(f"{label:<{width}}  {100 * p:5.1f}%" for label, p in found.ranked[:top])])


def _roles(found: TextPrediction) -> tuple[tuple[str, Entity], ...]:
    return ("subject", found.subject), ("object", found.object)


def _role(role: str) -> str:
    return say({"subject": "주체", "object": "대상"}[role], role)


def _named(role: str, entity: Entity) -> str:
    return f"{_role(role)} {entity.type}".rstrip()


def _bracketed(found: TextPrediction) -> str:
    """Closings come before openings; of two closings the inner entity's comes first, of two openings the outer one's."""
    edges = []
    for role, entity in _roles(found):
        edges += [(entity.start, 1, -entity.end, "["), (entity.end, 0, -entity.start, f"]({_named(role, entity)})")]
    text = found.sentence
    for at, _, _, mark in sorted(edges, reverse=True):
        text = text[:at] + mark + text[at:]
    return text


def _predict(
    seeds: list[Path], rows: tuple[RelationRow, ...], skip_bad: bool, device: str, progress: Progress
) -> tuple[tuple[RelationRow, ...], NDArray[np.float32], list[RowProblem]]:
    device, cache = pick_device(device), RowCache()
    found: list[Any] = []
    kept: tuple[RelationRow, ...] = rows
    problems: list[RowProblem] = []
    for seed in seeds:
        folder = run_settings(seed).parent
        model, marker, settings = _loaded(folder, device, state_of(folder))
        kept, marked, problems = cache.mark(rows, marker, progress=progress, skip_bad=skip_bad)
        if not kept:
            raise RelationDataError(
                f"No row can be marked ({problems[0]}); pass other rows, or a run trained with another max_length or scheme."
            )
        found.append(run_model(model, marker, kept, marked, settings, device, progress))
    return kept, np.mean(found, axis=0), problems


@lru_cache(maxsize=2)
def _loaded(folder: Path, device: str, _state: State) -> tuple[Any, Any, Any]:
    """A model that was used just now is not loaded again, unless its files have changed."""
    from coref_automl.relation.model import load_model

    return load_model(folder, device)


def _refuse_another(out: Path, made_from: dict[str, str]) -> None:
    """Nothing is written over a submission of other weights or rows, nor over one that does not say what it is of."""
    path, remedy = out / SUBMISSION, "choose another --out, or remove it first"
    if not path.is_file():
        return
    if not (out / MANIFEST).is_file():
        raise FolderError(f"{path} exists and does not say what it was made from; {remedy}.")
    held = read_stored(out / MANIFEST, SubmissionManifest)
    whose = f"{path} ({held['run']}, seeds {', '.join(map(str, held['seeds']))}, on {held['data']})"
    check_binding(whose, {"fingerprints": held["binding"]}, {"fingerprints": made_from}, remedy)


def _seeds(run: Path, ensemble: bool) -> list[Path]:
    seeds = seeds_of(run)
    if ensemble or len(seeds) == 1:
        return seeds
    return [max(seeds, key=lambda seed: read_stored(seed / "result.json", SeedResult, remedy=AGAIN).validation.micro_f1)]


def _numbers(seeds: list[Path]) -> tuple[int, ...]:
    return tuple(settings_of(seed)["seed"] for seed in seeds)


def _reader_of_types(seeds: list[Path]) -> str:
    """What of a run depends on entity types; empty when nothing does."""
    settings = settings_of(seeds[0])
    if SCHEMES[settings["scheme"]].marks in ("typed", "typed-punct"):
        return f"scheme {settings['scheme']}"
    return f"label mask {settings.get('label_mask')}" if settings.get("label_mask", "off") != "off" else ""


def _entity(sentence: str, word: str, kind: str | None, start: int | None, role: str) -> dict[str, Any]:
    """The entity in KLUE's shape; where the word occurs more than once, nothing is guessed.

    A row must have a type: one that was left out is filled in here only for runs that do not look at it.
    """
    kind = TYPES[0] if kind is None else kind
    if kind not in TYPES:
        raise RelationDataError(f"--{role}-type must be one of {', '.join(TYPES)}, not {kind!r}.")
    if start is None:
        places = [at for at in range(len(sentence)) if word and sentence.startswith(word, at)]
        if not places:
            raise RelationDataError(f"The {role} {word!r} does not occur in the text; give it as it is written there.")
        if len(places) > 1:
            listed = ", ".join(map(str, places))
            raise RelationDataError(f"The {role} {word!r} occurs at {listed}; say which one with --{role}-start.")
        start = places[0]
    return {"word": word, "start_idx": start, "end_idx": start + len(word) - 1, "type": kind}
