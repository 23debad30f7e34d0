"""A trained seed on rows. In: a seed's kept weights and labelled rows. Out: probabilities, on disk with whose they are.

Predictions are kept with a fingerprint of the rows they were made for, and are not made twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.errors import ModelError
from coref_automl.machine import pick_device
from coref_automl.models.model_files import folder_print
from coref_automl.progress import Progress
from coref_automl.relation.data import RelationData, RowCache
from coref_automl.relation.labels import LabelMask, gold_indices
from coref_automl.relation.metrics import Scores, score
from coref_automl.relation.results import write_compact, write_predictions
from coref_automl.relation.rows import RelationRow
from coref_automl.relation.stored import ModelSettings, read_scores, read_settings
from coref_automl.store import fingerprint, write_json

VERSION = 1
"""Of everything that decides a prediction beside the model and the rows; predictions of another version are made again."""
MODEL = ("relation.json", "head.safetensors")
"""What tells a seed's model from any other folder of weights."""


def is_model(folder: Path) -> bool:
    """Whether a folder is one seed's model by itself, as a run's seed-N/model and the best-model of a study are."""
    return all((folder / name).is_file() for name in MODEL)


def rows_fingerprint(rows: Sequence[RelationRow]) -> str:
    """A short name of everything in the rows that a score depends on."""
    lines = (
        f"{r.guid}\t{r.sentence}\t{r.subject.start}:{r.subject.end}:{r.subject.type}"
        f"\t{r.object.start}:{r.object.end}:{r.object.type}\t{r.label}"
        for r in rows
    )
    return fingerprint("\n".join(lines).encode("utf-8", "surrogatepass"))


def settings_of(seed: Path) -> ModelSettings:
    """What a seed's model was trained with."""
    return read_settings(run_settings(seed))


def has_predictions(seed: Path, data: RelationData) -> bool:
    """Are these rows labelled, by the model that the seed has now? Without kept weights nothing can have changed."""
    path = seed / "predictions" / f"{data.split}.json"
    if not path.is_file():
        return False
    held, now = read_scores(path)[0], folder_print(seed / "model")
    same = held["rows"] == rows_fingerprint(data.rows) and held.get("version", 1) == VERSION
    return same and now in ("", held.get("model"))


def store_predictions(seed: Path, data: RelationData, probabilities: Any, *, compact: bool = False) -> Scores:
    """Predictions first, then the file that says whose they are: a kill in between leaves nothing that looks whole."""
    folder = seed / "predictions"
    for kind in ("json", "jsonl", "npy"):  # of other rows, perhaps, and in the other form
        (folder / f"{data.split}.{kind}").unlink(missing_ok=True)
    if compact:
        write_compact(folder / f"{data.split}.npy", probabilities)
    else:
        write_predictions(folder / f"{data.split}.jsonl", data.rows, probabilities)
    scores = score(gold_indices(data.rows), probabilities)
    whose = {"rows": rows_fingerprint(data.rows), "model": folder_print(seed / "model"), "version": VERSION}
    write_json(folder / f"{data.split}.json", {**whose, **scores.to_json()})
    return scores


def run_settings(seed: Path) -> Path:
    """The settings file of a seed that kept its weights; its model is beside it, and may also come alone."""
    if is_model(seed):
        return seed / MODEL[0]
    path = seed / "model" / "relation.json"
    if not path.is_file():
        raise ModelError(f"{seed} kept no weights, so it cannot score new rows; train again with --keep-weights.")
    return path


def predict_seed(seed: Path, data: RelationData, *, device: str, progress: Progress, cache: RowCache) -> None:
    """Score rows with a seed's kept weights, and keep the predictions beside them."""
    store_predictions(seed, data, seed_probabilities(seed, data, device=device, progress=progress, cache=cache))


def seed_probabilities(seed: Path, data: RelationData, *, device: str, progress: Progress, cache: RowCache) -> Any:
    """What a seed's kept weights say of rows."""
    from coref_automl.relation.model import load_model

    model, marker, settings = load_model(run_settings(seed).parent, pick_device(device))
    rows, marked, _ = cache.mark(data.rows, marker, progress=progress, name=data.split)
    return run_model(model, marker, rows, marked, settings, pick_device(device), progress)


def run_model(
    model: Any,
    marker: Any,
    rows: Sequence[RelationRow],
    marked: Any,
    settings: ModelSettings,
    device: str,
    progress: Progress | None = None,
) -> Any:
    """Probabilities of marked rows under a trained model, its label mask included."""
    from coref_automl.relation.tensors import LabelledRows, RowTensors, probabilities

    bias = None
    if settings.get("label_mask", "off") != "off":
        bias = mask_rows(LabelMask(settings["label_mask"], np.array(settings["mask_bias"], np.float32)), rows, device)
    tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
    side = LabelledRows(tensors, np.zeros(len(rows), np.int64), bias)
    return probabilities(model, side, settings.get("precision", "auto"), progress=progress)


def mask_rows(mask: LabelMask, rows: Sequence[RelationRow], device: str) -> Any:
    import torch

    from coref_automl.relation.labels import pair_index

    return torch.from_numpy(mask.bias[[pair_index(row) for row in rows]]).to(device)
