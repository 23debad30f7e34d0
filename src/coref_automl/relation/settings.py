"""What a seed's model was made with. In: the folder of a seed or of its model. Out: its ModelSettings, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coref_automl.decoder import read_stored
from coref_automl.errors import ModelError
from coref_automl.records import Record
from coref_automl.relation.recipe import HeadKind
from coref_automl.relation.rows import LabelMask, MaskKind

SETTINGS, HEAD = "relation.json", "head.safetensors"
"""What tells a seed's model from any other folder of weights."""
AGAIN = "the file was edited: train that seed again"


@dataclass(frozen=True, slots=True)
class ModelSettings(Record):
    scheme: str
    head: HeadKind
    dropout: float
    max_length: int
    labels: tuple[str, ...]
    base: str
    seed: int
    distance: bool = False
    precision: str = "auto"
    label_mask: MaskKind = "off"
    mask_bias: tuple[tuple[float, ...], ...] | None = None

    @property
    def mask(self) -> LabelMask | None:
        return LabelMask.stored(self.label_mask, self.mask_bias, SETTINGS)


def is_model(folder: Path) -> bool:
    """Whether a folder is one seed's model by itself, as a run's seed-N/model and the best-model of a study are."""
    return all((folder / name).is_file() for name in (SETTINGS, HEAD))


def model_of(seed: Path) -> Path:
    """The folder of a seed's kept weights, which may also come alone."""
    if is_model(seed):
        return seed
    if not (seed / "model" / SETTINGS).is_file():
        raise ModelError(f"{seed} kept no weights, so it cannot score new rows; train again with --keep-weights.")
    return seed / "model"


def settings_of(seed: Path) -> ModelSettings:
    return read_stored(model_of(seed) / SETTINGS, ModelSettings, remedy=AGAIN)
