"""A trained seed on rows. In: a seed's saved weights and labelled rows. Out: probabilities, stored with their provenance.

Stored predictions carry fingerprints of their rows and model, and are not computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import InputError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.folders import State, state_of
from coref_automl.base.machine import pick_device
from coref_automl.base.progress import Progress
from coref_automl.base.store import read_jsonl, write_json, write_jsonl
from coref_automl.corpus.batch import RowProblem
from coref_automl.extras.relation.data import RelationData, RowCache, sentence_fingerprint
from coref_automl.extras.relation.metrics import score
from coref_automl.extras.relation.recipe import RETRAIN, ModelSettings, model_of
from coref_automl.extras.relation.results import Scores
from coref_automl.extras.relation.rows import INDEX, LABELS, Ints, RelationRow, gold_indices
from coref_automl.models.model_files import folder_fingerprint

VERSION = 1
"""Of the code that predicts; predictions of another version are computed again."""


@dataclass(frozen=True, slots=True)
class StoredScores(Scores):
    """The exact scores of a seed's predictions, and fingerprints of the rows and of the model, if it was saved."""

    rows: str = ""
    model: str = ""
    version: int = 1


def rows_fingerprint(rows: Sequence[RelationRow]) -> str:
    """Fingerprint everything in the rows that a score depends on."""
    lines = (
        f"{r.guid}\t{r.sentence}\t{r.subject.start}:{r.subject.end}:{r.subject.type}"
        f"\t{r.object.start}:{r.object.end}:{r.object.type}\t{r.label}"
        for r in rows
    )
    return fingerprint("\n".join(lines).encode("utf-8", "surrogatepass"))


def has_predictions(seed: Path, data: RelationData) -> bool:
    """Whether predictions of the seed's current model for these rows are stored; without saved weights it cannot have changed."""
    path = seed / "predictions" / f"{data.split}.json"
    if not path.is_file():
        return False
    stored, current = read_scores(path), folder_fingerprint(seed / "model")
    return stored.rows == rows_fingerprint(data.rows) and stored.version == VERSION and current in ("", stored.model)


def read_scores(path: Path) -> StoredScores:
    return read_stored(path, StoredScores, remedy=RETRAIN)


def predict_seed(seed: Path, data: RelationData, *, device: str, progress: Progress, cache: RowCache) -> None:
    """Score rows with a seed's saved weights, and store the predictions beside them."""
    scored = seed_probabilities(seed, data.rows, device=device, progress=progress, cache=cache, name=data.split)
    store_predictions(seed, data, scored.probabilities)


class ScoredRows(NamedTuple):
    """The rows that could be marked, their probabilities, and problems with the others."""

    rows: tuple[RelationRow, ...]
    probabilities: NDArray[np.float32]
    problems: list[RowProblem]


def seed_probabilities(
    seed: Path, rows: Sequence[RelationRow], *, device: str, progress: Progress, cache: RowCache, **marking: Any
) -> ScoredRows:
    """Score rows with a seed's saved weights; `marking` are options of `RowCache.mark`."""
    from coref_automl.extras.relation.model import LabelledRows, probabilities

    folder, device = model_of(seed), pick_device(device)
    model, marker, settings = _loaded(folder, device, state_of(folder))
    kept, marked, problems = cache.mark(rows, marker, progress=progress, **marking)
    if not kept:
        return ScoredRows((), np.zeros((0, len(LABELS)), np.float32), problems)
    tensors = LabelledRows.of(kept, marked, marker, settings.mask, device)
    return ScoredRows(kept, probabilities(model, tensors, settings.precision, progress=progress), problems)


@lru_cache(maxsize=2)
def _loaded(folder: Path, device: str, _state: State) -> tuple[Any, Any, ModelSettings]:
    """Load a model, once until its files change."""
    from coref_automl.extras.relation.model import load_model

    return load_model(folder, device)


def store_predictions(seed: Path, data: RelationData, probabilities: NDArray[np.float32]) -> Scores:
    """Write predictions first, then their scores and provenance: a kill in between leaves nothing that looks complete.

    One line per row: id, sentence fingerprint, gold, prediction, and the probabilities in label order, to full precision. The
    fingerprint tells which rows share a sentence, so that predictions can be compared without their data file.
    """
    folder = seed / "predictions"
    (folder / f"{data.split}.json").unlink(missing_ok=True)  # may be of other rows
    predicted = probabilities.argmax(1)
    lines = (
        {
            "guid": row.guid,
            "sentence": sentence_fingerprint(row.sentence),
            "gold": row.label,
            "pred": LABELS[best],
            "probs": [float(f"{p:.9g}") for p in line],
        }
        for row, best, line in zip(data.rows, predicted.tolist(), probabilities.tolist(), strict=True)
    )
    write_jsonl(folder / f"{data.split}.jsonl", lines)
    scores = score(gold_indices(data.rows), probabilities)
    provenance = {"rows": rows_fingerprint(data.rows), "model": folder_fingerprint(seed / "model"), "version": VERSION}
    write_json(folder / f"{data.split}.json", {**provenance, **scores.to_json()})
    return scores


def read_predictions(path: Path) -> tuple[list[str], Ints, NDArray[np.float32]]:
    """Read (ids, gold as indices with -1 for none, probabilities), in the order of the file."""
    lines: list[dict[str, Any]] = list(read_jsonl(path))
    try:
        gold = np.array([INDEX[line["gold"]] if line["gold"] else -1 for line in lines], np.int64)
        probabilities = np.array([line["probs"] for line in lines], np.float32).reshape(-1, len(LABELS))
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} has no relation predictions ({error}); it was written by something else.") from error
    return [line["guid"] for line in lines], gold, probabilities


def read_probabilities(seed: Path, split: str) -> NDArray[np.float32]:
    return read_predictions(seed / "predictions" / f"{split}.jsonl")[2]
