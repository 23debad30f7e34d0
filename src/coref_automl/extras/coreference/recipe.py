"""The recipe of a coreference run, and the settings of its model. In: YAML or options, a model's folder. Out: frozen records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from coref_automl.base.config import Setting, choose, free_fields, typed
from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import ModelError, RecipeError
from coref_automl.base.records import Record
from coref_automl.extras.coreference.conventions import Edges, EdgesOrAuto
from coref_automl.extras.coreference.documents import GENERAL
from coref_automl.extras.coreference.results import RETRAIN

Precision = Literal["auto", "float32", "bfloat16"]
RATE, FROM = ("--lr", "--learning-rate"), ("--from", "--start")
BUNDLED = "bundled:ko-mini-coref"
FILE = "a .jsonl, .conll or .conllu file (also .xz)"


@dataclass(frozen=True, slots=True)
class CoreferenceRecipe:
    """`data` is an annotated file, `more` are others. An annotation scheme says what is marked, and whether singletons are: files
    of another scheme are given as SCHEME=FILE, and the model learns each by its name. `split` names the sides (fixed, koconovel,
    or a JSON file); without it a fraction `holdout` of the documents, by hash, selects the epoch and nothing is tested. `folds`
    above 0 cross-fits instead: every document is tested once by a model that never saw it, after the last epoch, unselected.

    `rank` 0 trains the whole encoder, another number a LoRA adapter of that rank. `segment` is how many tokens of one document a
    mention can look back over in training, `batch_tokens` the size of a step. `start` is a head to train further, which brings
    its encoder, schemes and size along; without a split it is cross-fitted, compared with the starting head, and trained on all
    documents at the end. `learning_rate` None: 2e-4 for a small encoder (hidden size below 512), 3e-5 for others; 2e-3 for an
    adapter, 5e-4 if it is trained further. The head has `head_rate`.
    """

    data: Annotated[str, Setting(f"Annotated texts: {FILE}, or SCHEME=FILE.")]
    out: Annotated[str, Setting("Folder of the run; must be empty or from the same command.", free=True)]
    model: Annotated[str, Setting("Hub id, folder, or bundled:ko-mini; with --from, where its encoder lies now.")] = ""
    start: Annotated[str, Setting("Head to train further: a run, a model, bundled:ko-mini-coref.", flags=FROM)] = ""
    more: Annotated[tuple[str, ...], Setting("More annotated texts: FILE, or SCHEME=FILE for another scheme; repeatable.")] = ()
    convention: Annotated[EdgesOrAuto, Setting("How far mentions reach: bare, words (with particles), heads, or auto.")] = "auto"
    split: Annotated[str | None, Setting("fixed (by hash), koconovel, or a JSON file with train, dev and test.")] = None
    folds: Annotated[int, Setting("Cross-fitting: test every document once, in this many folds; 0 uses the split.", 0, 1000)] = 0
    holdout: Annotated[float, Setting("Without a split: fraction of documents held out to choose the epoch.", 0.001, 0.5)] = 0.1
    seeds: Annotated[int, Setting("Number of seeds.", 1, 1_000, free=True)] = 1
    first_seed: Annotated[int, Setting("First seed.", 0, 2**31, flags=("--seed", "--first-seed"))] = 0
    epochs: Annotated[int, Setting("Number of epochs.", 1)] = 8
    rank: Annotated[int, Setting("Train a low-rank change (LoRA) of this rank; 0 trains the whole encoder.", 0, 1024)] = 0
    learning_rate: Annotated[float | None, Setting("Encoder's rate. Default depends on its size.", 1e-8, 1.0, flags=RATE)] = None
    head_rate: Annotated[float, Setting("Learning rate of the head.", 1e-8, 1.0, flags=("--head-lr", "--head-rate"))] = 1e-3
    weight_decay: Annotated[float, Setting("Weight decay.", 0.0, 1.0)] = 0.01
    warmup: Annotated[float, Setting("Fraction of steps with a rising learning rate.", 0.0, 1.0)] = 0.1
    dropout: Annotated[float, Setting("Dropout of the head.", 0.0, 0.9)] = 0.3
    size: Annotated[int, Setting("Width of the head.", 8, 4096)] = 192
    window: Annotated[int, Setting("Tokens per encoder window.", 32, 8192)] = 512
    segment: Annotated[int, Setting("Tokens a mention can look back over in training.", 64)] = 2048
    batch_tokens: Annotated[int, Setting("Tokens per step.", 64)] = 2048
    skip_bad: Annotated[bool, Setting("Skip bad rows; they are counted and listed.")] = False
    device: Annotated[str, Setting("cpu, cuda, cuda:1, or auto.", free=True)] = "auto"
    precision: Annotated[Precision, Setting("auto (bfloat16 on CUDA), float32 or bfloat16.")] = "auto"
    note: Annotated[str, Setting("One sentence about the model's training data; predict shows it.")] = ""

    def __post_init__(self) -> None:
        typed(self)
        if not self.model and not self.start:
            raise RecipeError("What should be trained? Pass an encoder with --model, or a head to train further with --from.")
        if self.folds == 1:
            raise RecipeError("folds must be 0 (the split) or at least 2, not 1.")
        if self.folds and self.split:
            raise RecipeError("folds and split exclude each other: cross-fitting tests every document; give one of them.")


FREE = free_fields(CoreferenceRecipe)


SETTINGS = "coreference.json"
HEAD = "head.safetensors"
VERSION = 2


@dataclass(frozen=True, slots=True)
class AnnotationScheme(Record):
    """The rules some training data were annotated under: their name, whether singletons are marked, the logit from which a span
    counts as a mention, the convention of mention boundaries, and the weights of `keep`, which replace that logit."""

    name: str
    singletons: bool = True
    threshold: float = 0.0
    convention: Edges = "bare"
    keep: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class HeadSettings(Record):
    """Settings of a saved model. `base` is the encoder it started from, `base_prints` that encoder's fingerprints, `weights` the
    one of its weights; `note` describes the training data in a sentence. The first scheme is the default."""

    base: str
    weights: str
    window: int
    size: int
    dropout: float
    rank: int = 0
    schemes: tuple[AnnotationScheme, ...] = (AnnotationScheme(GENERAL),)
    seed: int = 0
    note: str = ""
    base_prints: dict[str, str] = field(default_factory=dict)
    version: int = VERSION


def read_settings(folder: Path) -> HeadSettings:
    if not (folder / SETTINGS).is_file():
        raise ModelError(f"{folder} is not a coreference model; pass the RUN folder of `coref-automl coref train`.")
    settings = read_stored(folder / SETTINGS, HeadSettings, error=ModelError, remedy=RETRAIN)
    if settings.version != VERSION or not settings.schemes:
        raise ModelError(f"{folder} was written by another version, or edited; train it again with this one.")
    return settings


def encoder_path(folder: Path, settings: HeadSettings, base: str | None) -> str:
    """Where the encoder lies: for an adapter, `base` or where it was trained; otherwise in the folder."""
    if settings.rank:
        return base or settings.base
    if base is not None:
        raise ModelError(f"{folder} holds its whole encoder, and {base} would not be read; leave --base out.")
    return str(folder)


def scheme_for(schemes: Sequence[AnnotationScheme], name: str | None) -> AnnotationScheme:
    return choose(name, {scheme.name: scheme for scheme in schemes}, "scheme") if name is not None else schemes[0]
