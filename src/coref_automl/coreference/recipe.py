"""The recipe of a coreference run. In: YAML or options. Out: a frozen recipe whose values are possible together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coref_automl.coreference.conventions import Asked
from coref_automl.errors import RecipeError

FILE = "a .jsonl, .conll or .conllu file (also .xz)"

FREE = ("out", "seeds", "device")
"""What may change between two calls on one folder: it decides where and how often, not what one seed computes."""


@dataclass(frozen=True, slots=True)
class CoreferenceRecipe:
    """`data` is an annotated file, `more` are others. What is marked, and whether entities mentioned once are, is a scheme: files
    of another one are given as SCHEME=FILE, and the model learns each by its name. `split` names the sides (fixed, koconovel, or
    a JSON file); without it a share `holdout` of the documents, by hash, chooses the epoch and nothing is tested. `folds` above 0
    cross-fits instead: every document is tested once by a model that never saw it, the last epoch is taken, nothing is chosen.

    `rank` 0 trains the whole encoder, another number a low-rank change of it. `segment` is how many tokens of one document a
    mention can look back over in training, `batch_tokens` how many a step reads. `start` is a head to train further, which brings
    its encoder, its schemes and its size along; without a split it is cross-fitted, compared with what it began from, and trained
    on all documents at the end. Rates None: 2e-4 for a small encoder (hidden size below 512) and 3e-5 for others, 2e-3 for a
    low-rank change and 5e-4 where it is trained further; the head has `head_rate`.
    """

    data: str
    out: str
    model: str = ""
    start: str = ""
    more: tuple[str, ...] = ()
    convention: Asked = "auto"
    split: str | None = None
    folds: int = 0
    holdout: float = 0.1
    seeds: int = 1
    first_seed: int = 0
    epochs: int = 8
    rank: int = 0
    learning_rate: float | None = None
    head_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.1
    dropout: float = 0.3
    size: int = 192
    window: int = 512
    segment: int = 2048
    batch_tokens: int = 2048
    skip_bad: bool = False
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    note: str = ""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RecipeError(f"{name} must lie between {low:g} and {high:g}, not {value:g}.")
        if not self.model and not self.start:
            raise RecipeError("What should be trained? Pass an encoder with --model, or a head to train further with --from.")
        if self.folds == 1:
            raise RecipeError("folds must be 0 (the split) or at least 2, not 1.")
        if self.folds and self.split:
            raise RecipeError("folds and split exclude each other: cross-fitting tests every document; give one of them.")


_RANGES = (
    ("folds", 0, 1000),
    ("holdout", 0.001, 0.5),
    ("seeds", 1, 1e6),
    ("first_seed", 0, 2**31),
    ("epochs", 1, 1e6),
    ("rank", 0, 1024),
    ("learning_rate", 1e-8, 1.0),
    ("head_rate", 1e-8, 1.0),
    ("weight_decay", 0.0, 1.0),
    ("warmup", 0.0, 1.0),
    ("dropout", 0.0, 0.9),
    ("size", 8, 4096),
    ("window", 32, 8192),
    ("segment", 64, 1e6),
    ("batch_tokens", 64, 1e7),
)


HELP = {
    "model": "Hub id, folder, or bundled:ko-mini; with --from, where its encoder lies now.",
    "start": "Train this head further: a run, one seed's model, or bundled:ko-mini-coref.",
    "data": f"Annotated texts: {FILE}, or SCHEME=FILE.",
    "more": "More annotated texts, of the same or another scheme: FILE or SCHEME=FILE; repeatable.",
    "convention": "How far mentions reach: bare, words (whole words with particles), heads, or auto.",
    "out": "Folder of the run; must be empty or from the same command.",
    "split": "fixed (by hash of each document), koconovel, or a JSON file with train, dev and test.",
    "folds": "Cross-fitting: test every document once, in this many folds; 0 uses the split.",
    "holdout": "Without a split: fraction of documents held out to choose the epoch.",
    "seeds": "Number of seeds.",
    "first_seed": "First seed.",
    "epochs": "Number of epochs.",
    "rank": "Train a low-rank change (LoRA) of this rank instead of the whole encoder; 0 trains the whole encoder.",
    "learning_rate": "Learning rate of the encoder. Default depends on its size.",
    "head_rate": "Learning rate of the head.",
    "weight_decay": "Weight decay.",
    "warmup": "Fraction of steps with a rising learning rate.",
    "dropout": "Dropout of the head.",
    "size": "Width of the head.",
    "window": "Tokens per encoder window.",
    "segment": "Tokens a mention can look back over in training.",
    "batch_tokens": "Tokens per step.",
    "skip_bad": "Skip bad rows; they are counted and listed.",
    "device": "cpu, cuda, cuda:1, or auto.",
    "precision": "auto (bfloat16 on CUDA), float32 or bfloat16.",
    "note": "One sentence about the model's training data; predict shows it.",
}
"""What each field means: the help of `coref-automl coref train`."""
