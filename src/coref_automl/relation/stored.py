"""The JSON files of relation runs, typed. In: paths. Out: checked objects, or an error of one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

from coref_automl.decoder import read_stored
from coref_automl.engine.binding import Binding
from coref_automl.relation.labels import MaskKind
from coref_automl.relation.metrics import Scores

AGAIN = "the file was edited: train that seed again"


class RunManifest(TypedDict):
    """manifest.json of a run. Of one seed's model alone, `train_rows`, `validation_rows` and `binding` are not known."""

    model: str
    scheme: str
    head: str
    train: str
    train_rows: int | None
    validation_rows: int | None
    notes: list[str]
    binding: Binding | None
    label_mask: MaskKind
    mask_bias: list[list[float]] | None
    train_sentences: list[str]


class _Needed(TypedDict):
    scheme: str
    head: Literal["cls", "starts", "both"]
    dropout: float
    max_length: int
    labels: list[str]
    base: str
    seed: int


class ModelSettings(_Needed, total=False):
    """relation.json beside a seed's weights."""

    distance: bool
    precision: str
    label_mask: MaskKind
    mask_bias: list[list[float]]


class _Scored(TypedDict):
    rows: str
    micro_f1: float
    auprc: float
    accuracy: float
    n: int


class PredictionsOf(_Scored, total=False):
    """What is stored beside a seed's predictions: whose they are (rows, and the model if it was kept), and the exact scores."""

    model: str
    version: int


class SubmissionManifest(TypedDict):
    """What a submission was made from."""

    binding: dict[str, str]
    seeds: list[int]
    run: str
    data: str


def read_manifest(run: Path) -> RunManifest:
    return read_stored(run / "manifest.json", RunManifest)


def read_settings(path: Path) -> ModelSettings:
    return read_stored(path, ModelSettings, remedy=AGAIN)


def read_scores(path: Path) -> tuple[PredictionsOf, Scores]:
    """What was scored, and the scores."""
    held = read_stored(path, PredictionsOf, remedy=AGAIN)
    return held, Scores(held["micro_f1"], held["auprc"], held["accuracy"], held["n"])
