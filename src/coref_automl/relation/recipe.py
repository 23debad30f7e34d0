"""The recipes of relation extraction, one run or a grid. In: YAML or options. Out: settings that are possible together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from coref_automl.config import choose, typed
from coref_automl.errors import RecipeError
from coref_automl.relation.labels import MaskKind
from coref_automl.relation.markers import SCHEMES

Head = Literal["auto", "cls", "starts", "both"]
Loss = Literal["cross-entropy", "focal", "class-balanced"]
Prior = Literal["off", "em"]
ChooseBy = Literal["micro_f1", "auprc", "loss"]

FILE = "a .json, .jsonl, .csv or .parquet file (also .xz, .gz), hub:klue/re:train, hub:OWNER/NAME:SPLIT, or bundled:relations"
"""Where relation rows can come from."""

FREE = ("out", "seeds", "device", "graphs", "epoch_checkpoints", "keep_weights", "compact", "dev")
"""What may change between two calls on one folder: it decides where and how often, not what one seed computes."""


@dataclass(frozen=True, slots=True)
class RelationRecipe:
    """`train` and `dev` are files or named sources. `dev` is scored once, with the weights that a slice of train chose.

    `learning_rate` None: 3e-4 below a hidden size of 512, else 5e-5. `head` auto: [CLS] for a scheme without start marks, else
    [CLS] and both start marks. `threshold` is in points of 100 (in the loss's own unit when `choose_by` is loss); `patience`
    counts epochs, 0 never stops. `compact` keeps the probabilities of the scored file alone, as one small array.
    Techniques are off unless our own ablation shows a gain.
    """

    model: str
    train: str
    out: str
    dev: str | None = None
    scheme: str = "typed"
    head: Head = "auto"
    seeds: int = 3
    first_seed: int = 0
    epochs: int = 5
    batch_size: int = 32
    learning_rate: float | None = None
    weight_decay: float = 0.01
    warmup: float = 0.1
    layer_decay: float = 1.0
    dropout: float = 0.1
    max_length: int = 256
    max_rows: int | None = None
    holdout: float = 0.05
    choose_by: ChooseBy = "micro_f1"
    patience: int = 2
    threshold: float = 0.0
    loss: Loss = "cross-entropy"
    focal_gamma: float = 2.0
    balance_beta: float = 0.9999
    label_smoothing: float = 0.0
    r_drop: float = 0.0
    label_mask: MaskKind = "off"
    mask_support: int = 1
    hard_negatives: float = 0.0
    fgm: float = 0.0
    ema: float = 0.0
    distance: bool = False
    encoder_dropout: float | None = None
    prior: Prior = "off"
    skip_bad: bool = False
    device: str = "auto"
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    graphs: bool = True
    keep_weights: bool = True
    epoch_checkpoints: bool = True
    compact: bool = False

    def __post_init__(self) -> None:
        typed(self)
        scheme = choose(self.scheme, SCHEMES, "scheme")
        if self.head in ("starts", "both") and not scheme.has_starts:
            raise RecipeError(f"The scheme {self.scheme!r} has no start marks for the head {self.head!r} to read; use head: cls.")
        if self.distance and not (scheme.inline and scheme.has_starts):
            raise RecipeError(f"The scheme {self.scheme!r} has no marks in the sentence to measure a distance between.")
        for name in ("seeds", "epochs", "batch_size", "mask_support"):
            if getattr(self, name) < 1:
                raise RecipeError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RecipeError(f"{name} must lie between {low:g} and {high:g}, not {value:g}.")

    @property
    def head_kind(self) -> Literal["cls", "starts", "both"]:
        if self.head != "auto":
            return self.head
        return "both" if SCHEMES[self.scheme].has_starts else "cls"


_RANGES = (
    ("learning_rate", 1e-8, 1.0),
    ("weight_decay", 0.0, 1.0),
    ("warmup", 0.0, 1.0),
    ("layer_decay", 0.1, 1.0),
    ("dropout", 0.0, 0.9),
    ("max_length", 16, 8192),
    ("max_rows", 2, 1e9),
    ("holdout", 0.001, 0.5),
    ("patience", 0, 1e6),
    ("label_smoothing", 0.0, 0.9),
    ("r_drop", 0.0, 100.0),
    ("hard_negatives", 0.0, 1.0),
    ("focal_gamma", 0.0, 10.0),
    ("balance_beta", 0.0, 0.9999999),
    ("fgm", 0.0, 10.0),
    ("ema", 0.0, 0.99999),
    ("encoder_dropout", 0.0, 0.9),
    ("first_seed", 0, 2**31),
)

HELP = {
    "model": "Hub id, folder, or bundled:ko-mini.",
    "train": f"Training rows: {FILE}.",
    "dev": "Rows to score at the end; never used for selection.",
    "out": "Folder of the run; must be empty or from the same command.",
    "scheme": "Marker scheme.",
    "head": "Input of the classification head: auto, cls, starts or both.",
    "seeds": "Number of seeds.",
    "first_seed": "First seed.",
    "epochs": "Maximum number of epochs.",
    "batch_size": "Rows per step.",
    "learning_rate": "Peak learning rate. Default 3e-4 for small encoders, else 5e-5.",
    "weight_decay": "Weight decay.",
    "warmup": "Fraction of steps with a rising learning rate.",
    "layer_decay": "Factor between the learning rates of a layer and the one above it.",
    "dropout": "Dropout of the head.",
    "max_length": "Tokens per row; longer rows are cut around the entities.",
    "max_rows": "Use at most this many training rows, always the same ones.",
    "holdout": "Fraction of training sentences held out to choose the epoch.",
    "choose_by": "Metric on the held-out sentences: micro_f1, auprc or loss.",
    "patience": "Epochs without improvement before stopping; 0 never stops.",
    "threshold": "Smallest improvement that counts, in points.",
    "loss": "cross-entropy, focal or class-balanced.",
    "focal_gamma": "Focusing parameter of the focal loss.",
    "balance_beta": "Beta of the class-balanced loss (effective number of samples).",
    "label_smoothing": "Label smoothing.",
    "r_drop": "Weight of the R-Drop loss; 0 turns it off.",
    "label_mask": "Mask labels by entity-type pair: off, hard or soft.",
    "mask_support": "Training rows a label needs with a type pair to be allowed.",
    "hard_negatives": "Fraction of no_relation rows, the hardest, repeated in the next epoch.",
    "fgm": "Length of the adversarial perturbation (FGM) of word embeddings; 0 turns it off.",
    "ema": "Decay of the moving average of weights that is scored, e.g. 0.999; 0 turns it off.",
    "distance": "Give the head the distance between the entities.",
    "encoder_dropout": "Override the encoder's dropout.",
    "prior": "em: correct the label prior of the rows scored; or off.",
    "skip_bad": "Skip bad rows; they are counted and listed.",
    "device": "cpu, cuda, cuda:1, or auto.",
    "precision": "auto, float32, tf32 or bfloat16.",
    "graphs": "On CUDA, record a step once and replay it (CUDA graphs).",
    "keep_weights": "Keep the best weights of each seed.",
    "epoch_checkpoints": "Save after each epoch, so that an interrupted seed resumes there.",
    "compact": "Store only the probabilities of the scored file, in a small array.",
}
"""What each field means: the help of `coref-automl re train`."""


@dataclass(frozen=True, slots=True)
class GridRecipe:
    """Each list is one side of the grid; `settings` holds what all cells share, in the words of a relation recipe.

    `keep_weights` keeps those of every cell, so that other rows can be scored later; without it the best cell alone has some.
    """

    models: tuple[str, ...]
    train: str
    out: str
    dev: str | None = None
    learning_rates: tuple[float, ...] = (5e-5,)
    batch_sizes: tuple[int, ...] = (32,)
    epochs: tuple[int, ...] = (5,)
    schemes: tuple[str, ...] = ("typed",)
    settings: dict[str, Any] = field(default_factory=dict)
    keep_weights: bool = False

    def __post_init__(self) -> None:
        for name in ("models", "learning_rates", "batch_sizes", "epochs", "schemes"):
            if not getattr(self, name):
                raise RecipeError(f"The grid's {name} are empty; name at least one.")
        if self.keep_weights and self.settings.get("keep_weights") is False:
            raise RecipeError("The grid keeps weights and its settings say keep_weights: false; leave one of the two out.")


GRID_HELP = {
    "models": "Model; repeatable.",
    "train": f"Training rows: {FILE}.",
    "out": "Folder of the grid; must be empty or from the same command.",
    "dev": "Rows to score; never used for selection.",
    "learning_rates": "Learning rate; repeatable.",
    "batch_sizes": "Rows per step; repeatable.",
    "epochs": "Maximum number of epochs; repeatable.",
    "schemes": "Marker scheme; repeatable.",
    "keep_weights": "Keep the weights of every cell, not just the best, to score another --dev later.",
}
"""What each side of the grid means: the help of `coref-automl re grid`; `settings` can only be given in a recipe."""
