"""The JSON files of relation runs, typed. In: paths. Out: checked objects, or an error of one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict

from coref_automl.decoder import read_stored
from coref_automl.relation.labels import MaskKind
from coref_automl.relation.metrics import Scores

AGAIN = "the file was edited: train that seed again"


class Binding(TypedDict):
    """What a run was begun with."""

    settings: dict[str, Any]
    fingerprints: dict[str, str]


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


class PredictionsOf(TypedDict):
    """What is stored beside a seed's predictions: a fingerprint of their rows, and the scores before rounding."""

    rows: str
    micro_f1: float
    auprc: float
    accuracy: float
    n: int


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


def read_scores(path: Path) -> tuple[str, Scores]:
    """The fingerprint of the rows that were scored, and their scores."""
    held = read_stored(path, PredictionsOf, remedy=AGAIN)
    return held["rows"], Scores(held["micro_f1"], held["auprc"], held["accuracy"], held["n"])
