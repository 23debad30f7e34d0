"""A trained seed on rows. In: a seed's kept weights and labelled rows. Out: probabilities, on disk with whose they are.

Predictions are kept with a fingerprint of the rows they were made for, and are not made twice. Where the recipe asks for it, the
label prior is corrected: train and the rows to label may hold relations in other shares (KLUE-RE: no_relation 29% and 60%). The
share of no_relation among the new rows is estimated from the model's own answers to them, by expectation maximisation (Saerens,
Latinne and Decaestecker, 2002); no label of theirs is looked at. It is one number, and the relations keep their proportions: in
our one trial, estimating all 30 shares did worse at every temperature. The model is calibrated first, by one temperature on the
slice of train that chose the epoch. The trial, with every setting tried, is in docs/relation-extraction.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import ModelError
from coref_automl.machine import pick_device
from coref_automl.models.model_files import folder_print
from coref_automl.progress import Progress
from coref_automl.relation.data import RelationData, RowCache
from coref_automl.relation.labels import NO_RELATION, LabelMask, gold_indices
from coref_automl.relation.metrics import Scores, score
from coref_automl.relation.results import write_compact, write_predictions
from coref_automl.relation.rows import RelationRow
from coref_automl.relation.stored import ModelSettings, Prior, read_scores, read_settings
from coref_automl.store import fingerprint, write_json

Floats = NDArray[np.float64]
LEAST_ROWS = 200
"""Fewer rows say too little about a share: their answers are left as they are."""

_STEPS = 1_000
_CLOSE = 1e-6


def share(gold: NDArray[np.int64]) -> float:
    """How much of the rows is no_relation; never none or all, as if one more row of each kind were there."""
    return float((np.count_nonzero(gold == NO_RELATION) + 1) / (len(gold) + 2))


def temperature(probabilities: NDArray[np.floating], gold: NDArray[np.int64]) -> float:
    """What the logits should be divided by for the gold labels to be most probable; above 1 for an over-confident model."""
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-30))

    def loss(power: float) -> float:
        scaled = _normal(logs / 2.0**power)
        return float(-np.log(np.maximum(scaled[np.arange(len(gold)), gold], 1e-30)).mean())

    low, high = -2.0, 3.0
    golden = (5**0.5 - 1) / 2
    while high - low > 1e-4:  # the loss has one valley in 1 / temperature: golden section finds it
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return float(2.0 ** ((low + high) / 2))


def corrected(probabilities: NDArray[np.floating], heat: float, source: float) -> tuple[NDArray[np.float32], float]:
    """(probabilities under the prior of these rows, their share of no_relation). `source` is that share in train."""
    calibrated = _normal(np.log(np.maximum(probabilities.astype(np.float64), 1e-30)) / heat)
    none = calibrated[:, NO_RELATION]
    target = source
    for _ in range(_STEPS):
        here, there = none * target / source, (1 - none) * (1 - target) / (1 - source)
        before, target = target, float((here / (here + there)).mean())
        if abs(target - before) < _CLOSE:
            break
    ratio = np.full(calibrated.shape[1], (1 - target) / (1 - source))
    ratio[NO_RELATION] = target / source
    weighted = calibrated * ratio
    return (weighted / weighted.sum(1, keepdims=True)).astype(np.float32), target


def _normal(logs: Floats) -> Floats:
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


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
    """Probabilities of marked rows under a trained model, its label mask and the correction of the label prior included."""
    from coref_automl.relation.tensors import RowTensors, Side, probabilities

    bias = None
    if settings.get("label_mask", "off") != "off":
        bias = mask_rows(LabelMask(settings["label_mask"], np.array(settings["mask_bias"], np.float32)), rows, device)
    tensors = RowTensors(marked, marker.tokenizer.pad_token_id or 0, device)
    side = Side(tensors, np.zeros(len(rows), np.int64), bias)
    found = probabilities(model, side, settings.get("precision", "auto"), progress=progress)
    if (known := settings.get("prior")) and len(rows) >= LEAST_ROWS:
        found, _ = corrected(found, known["temperature"], known["source"])
    return found


def settle_prior(probabilities: Any, gold: Any, train: Any) -> Prior:
    """What correcting the prior needs: the temperature that the held-out slice asks for, and train's share of no_relation."""
    return {"temperature": temperature(probabilities, gold), "source": share(train)}


def mask_rows(mask: LabelMask, rows: Sequence[RelationRow], device: str) -> Any:
    import torch

    from coref_automl.relation.labels import pair_index

    return torch.from_numpy(mask.bias[[pair_index(row) for row in rows]]).to(device)
