"""The recipes of relation extraction, one run or a grid, and the settings of a saved model. In: YAML, options, a model's folder.
Out: frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from coref_automl.base.config import Setting, choose, free_fields, typed
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import ModelError, RecipeError
from coref_automl.base.records import Record
from coref_automl.extras.relation.markers import SCHEMES
from coref_automl.extras.relation.rows import LabelMask, MaskKind

HeadKind = Literal["cls", "starts", "both"]
Head = Literal["auto", "cls", "starts", "both"]
ChooseBy = Literal["micro_f1", "auprc", "loss"]
Precision = Literal["auto", "float32", "bfloat16"]
RATE = ("--lr", "--learning-rate")
FILE = "a .json, .jsonl, .csv or .parquet file (also .xz, .gz), hub:klue/re:train, hub:OWNER/NAME:SPLIT, or bundled:relations"
"""Sources of relation rows."""


@dataclass(frozen=True, slots=True)
class RelationRecipe:
    """`train` and `dev` are files or named sources. `dev` is scored once, with the weights selected on a held-out part of train.

    `learning_rate` None: 3e-4 below a hidden size of 512, else 5e-5. `head` auto: [CLS] for a scheme without start marks, else
    [CLS] and both start marks. `threshold` is in points of 100 (in the loss's own unit where that chooses); `patience`
    counts epochs, 0 never stops. Techniques are off unless measured to help.
    """

    model: Annotated[str, Setting("Hub id, folder, or bundled:ko-mini.")]
    train: Annotated[str, Setting(f"Training rows: {FILE}.")]
    out: Annotated[str, Setting("Folder of the run; must be empty or from the same command.", free=True)]
    dev: Annotated[str | None, Setting("Rows to score at the end; never used for selection.", free=True)] = None
    scheme: Annotated[str, Setting("Marker scheme.")] = "typed"
    head: Annotated[Head, Setting("Input of the classification head: auto, cls, starts or both.")] = "auto"
    seeds: Annotated[int, Setting("Number of seeds.", 1, 1_000, free=True)] = 3
    first_seed: Annotated[int, Setting("First seed.", 0, 2**31, flags=("--seed", "--first-seed"))] = 0
    epochs: Annotated[int, Setting("Maximum number of epochs.", 1)] = 5
    batch_size: Annotated[int, Setting("Rows per step.", 1)] = 32
    learning_rate: Annotated[float | None, Setting("Peak rate. Default depends on model size.", 1e-8, 1.0, flags=RATE)] = None
    weight_decay: Annotated[float, Setting("Weight decay.", 0.0, 1.0)] = 0.01
    warmup: Annotated[float, Setting("Fraction of steps with a rising learning rate.", 0.0, 1.0)] = 0.1
    layer_decay: Annotated[float, Setting("Factor between the learning rates of a layer and the one above it.", 0.1, 1.0)] = 1.0
    dropout: Annotated[float, Setting("Dropout of the head.", 0.0, 0.9)] = 0.1
    max_length: Annotated[int, Setting("Tokens per row; longer rows are cut around the entities.", 16, 8192)] = 256
    max_rows: Annotated[int | None, Setting("Use at most this many training rows, always the same ones.", 2)] = None
    redraw: Annotated[bool, Setting("Draw max_rows rows anew for each seed; needs dev.")] = False
    holdout: Annotated[float, Setting("Fraction of training sentences held out to choose the epoch.", 0.001, 0.5)] = 0.05
    choose_by: Annotated[ChooseBy, Setting("Metric on the held-out sentences: micro_f1, auprc or loss.")] = "micro_f1"
    patience: Annotated[int, Setting("Epochs without improvement before stopping; 0 never stops.", 0)] = 2
    threshold: Annotated[float, Setting("Smallest improvement that counts, in points.")] = 0.0
    label_smoothing: Annotated[float, Setting("Label smoothing.", 0.0, 0.9)] = 0.0
    label_mask: Annotated[MaskKind, Setting("Mask labels by entity-type pair: off, hard or soft.")] = "off"
    mask_support: Annotated[int, Setting("Training rows a label needs with a type pair to be allowed.", 1)] = 1
    hard_negatives: Annotated[float, Setting("Fraction of no_relation rows, the hardest, that come again.", 0.0, 1.0)] = 0.0
    distance: Annotated[bool, Setting("Give the head the distance between the entities.")] = False
    encoder_dropout: Annotated[float | None, Setting("Override the encoder's dropout.", 0.0, 0.9)] = None
    skip_bad: Annotated[bool, Setting("Skip bad rows; they are counted and listed.")] = False
    device: Annotated[str, Setting("cpu, cuda, cuda:1, or auto.", free=True)] = "auto"
    precision: Annotated[Precision, Setting("auto (bfloat16 on CUDA), float32 or bfloat16.")] = "auto"
    graphs: Annotated[bool, Setting("On CUDA, record a step once and replay it (CUDA graphs).", free=True)] = True
    keep_weights: Annotated[bool, Setting("Keep the best weights of each seed.", free=True)] = True
    epoch_checkpoints: Annotated[bool, Setting("Save after each epoch; an interrupted seed resumes there.", free=True)] = True

    def __post_init__(self) -> None:
        typed(self)
        scheme = choose(self.scheme, SCHEMES, "scheme")
        if self.head in ("starts", "both") and not scheme.has_starts:
            raise RecipeError(f"The scheme {self.scheme!r} has no start marks for the head {self.head!r} to read; use head: cls.")
        if self.distance and not scheme.has_starts:
            raise RecipeError(f"The scheme {self.scheme!r} has no marks in the sentence to measure a distance between.")
        if self.redraw and (self.max_rows is None or self.dev is None or self.label_mask != "off"):
            raise RecipeError("redraw (--redraw) needs rows to draw (--max-rows), others to score (--dev) and no label mask.")

    @property
    def head_kind(self) -> HeadKind:
        if self.head != "auto":
            return self.head
        return "both" if SCHEMES[self.scheme].has_starts else "cls"


FREE = free_fields(RelationRecipe)


@dataclass(frozen=True, slots=True)
class GridRecipe:
    """Each list is one axis of the grid; `settings` are fields of a relation recipe that all cells share."""

    models: Annotated[tuple[str, ...], Setting("Model; repeatable.", flags=("--model",))]
    train: Annotated[str, Setting(f"Training rows: {FILE}.")]
    out: Annotated[str, Setting("Folder of the grid; must be empty or from the same command.")]
    dev: Annotated[str | None, Setting("Rows to score; never used for selection.")] = None
    learning_rates: Annotated[tuple[float, ...], Setting("Learning rate; repeatable.", flags=RATE)] = (5e-5,)
    batch_sizes: Annotated[tuple[int, ...], Setting("Rows per step; repeatable.", flags=("--batch-size",))] = (32,)
    epochs: Annotated[tuple[int, ...], Setting("Maximum number of epochs; repeatable.", flags=("--epochs",))] = (5,)
    schemes: Annotated[tuple[str, ...], Setting("Marker scheme; repeatable.", flags=("--scheme",))] = ("typed",)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("models", "learning_rates", "batch_sizes", "epochs", "schemes"):
            if not getattr(self, name):
                raise RecipeError(f"The grid's {name} are empty; name at least one.")


def default_learning_rate(hidden_size: int) -> float:
    """Small encoders need a larger rate: the one our measurements used for them."""
    return 3e-4 if hidden_size < 512 else 5e-5


SETTINGS, HEAD = "relation.json", "head.safetensors"
"""The files that make a folder of weights a seed's model."""
RETRAIN = "the file was edited: train that seed again"


@dataclass(frozen=True, slots=True)
class ModelSettings(Record):
    """How a seed's model was built; `base` is its encoder."""

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
    """Whether a folder is a single seed's model, such as seed-N/model of a run or best-model of a study."""
    return all((folder / name).is_file() for name in (SETTINGS, HEAD))


def model_of(seed: Path) -> Path:
    """The folder of a seed's saved weights, which is the folder itself if it is a model."""
    if is_model(seed):
        return seed
    if not (seed / "model" / SETTINGS).is_file():
        raise ModelError(f"{seed} kept no weights, so it cannot score new rows; train again with --keep-weights.")
    return seed / "model"


def settings_of(seed: Path) -> ModelSettings:
    return read_stored(model_of(seed) / SETTINGS, ModelSettings, remedy=RETRAIN)
