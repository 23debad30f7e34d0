"""The recipe of a training run. In: YAML keys or options. Out: a TrainRecipe, its defaults from a table with their sources."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from coref_automl.base.config import Setting, choose, free_fields, parse_weights, typed
from coref_automl.base.errors import RecipeError
from coref_automl.base.records import Objective
from coref_automl.base.say import in_korean, say
from coref_automl.comparison.study_data import checked_margin
from coref_automl.models.build import NEW, SHAPES
from coref_automl.models.families import LONGEST, PRE_NORM
from coref_automl.training.masking import FAR, OBJECTIVES, MentionLoss

Schedule = Literal["linear", "cosine", "wsd", "constant"]
Rates = Literal["length", "drawn", "falling"]
Dtype = Literal["auto", "float32", "bfloat16"]
BY = "Default depends on sequence length."
DEFAULT_EPOCHS = 5.0
_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class TrainRecipe:
    """Everything a run depends on. `settle` fills fields that are None; every other value, including 0, is kept."""

    model: Annotated[str, Setting("Hub id, folder, bundled:ko-mini, or new:SHAPE for random weights.")]
    dataset: Annotated[str, Setting("Folder made by `coref-automl prepare`.")]
    out: Annotated[str, Setting("Folder of the run; must be empty or from the same command.", free=True)]
    objective: Annotated[Objective, Setting(f"{', '.join(OBJECTIVES)}.")] = "mlm"
    tokenizer: Annotated[str | None, Setting("Tokenizer of a new:SHAPE model.")] = None
    words_from: Annotated[str | None, Setting("Take word embeddings and mask head of a new:SHAPE from this model.")] = None
    epochs: Annotated[float | None, Setting("Epochs; may be fractional. Default 5 if no other budget is given.", above=0)] = None
    max_tokens: Annotated[int | None, Setting("Stop after this many real (unpadded) tokens.", above=0)] = None
    max_minutes: Annotated[float | None, Setting("Stop after this many minutes; the rate decays to that end.", above=0)] = None
    seed: Annotated[int, Setting("Random seed.", 0, 2**63 - 1)] = 0
    learning_rate: Annotated[float | None, Setting(f"Peak learning rate. {BY}", 0.0, 1.0)] = None
    weight_decay: Annotated[float | None, Setting(f"Weight decay, except for norms and biases. {BY}", 0.0, 1.0)] = None
    warmup: Annotated[float | None, Setting(f"Fraction of the run with a rising rate. {BY}", 0.0, 1.0)] = None
    schedule: Annotated[Schedule, Setting("linear, cosine, wsd or constant.")] = "linear"
    layer_decay: Annotated[float, Setting("Factor between the learning rates of a layer and the one above it.", 0.01, 1.0)] = 1.0
    clip: Annotated[float, Setting("Gradient norm clipping; 0 turns it off.", 0.0)] = 1.0
    batch: Annotated[int | None, Setting(f"Effective batch size in rows. {BY}", 1)] = None
    micro_batch: Annotated[int | None, Setting("Rows per forward pass; halved when memory runs out.", 1, free=True)] = None
    min_prob: Annotated[float | None, Setting(f"Masking rate of a very short document. {BY}", 0.0, 0.9)] = None
    max_prob: Annotated[float | None, Setting(f"Masking rate of a document that fills its row. {BY}", 0.0, 0.9)] = None
    rates: Annotated[Rates, Setting("Masking rate: by document length, drawn per document, or falling over the run.")] = "length"
    whole_word: Annotated[bool, Setting("Mask whole words.")] = False
    replacement: Annotated[Literal["mask", "80-10-10"], Setting("What replaces masked tokens: mask, or 80-10-10.")] = "mask"
    entity_rate: Annotated[float, Setting("Fraction of later mentions that are masked.", 0.0, 1.0)] = 0.3
    background: Annotated[float, Setting("Rate of ordinary masking in entity rows.", 0.0, 0.9)] = 0.07
    ratio: Annotated[float, Setting("Fraction of entity rows in combined.", 0.0, 1.0)] = _RATIO
    far_weight: Annotated[float | None, Setting(f"Factor on --entity-rate for mentions {FAR} tokens apart.", 0.0, 1000.0)] = None
    copy_weight: Annotated[float | None, Setting("Weight of the loss of copy and copy+link. Default 1.", 0.0, 1000.0)] = None
    link_weight: Annotated[float | None, Setting("Weight of the loss of link and copy+link. Default 1.", 0.0, 1000.0)] = None
    temperature: Annotated[float | None, Setting("Temperature of the contrastive loss. Default 0.07.", 0.001, 100.0)] = None
    cross_document: Annotated[bool, Setting("Let documents in one block attend to each other.")] = False
    mix: Annotated[str, Setting("How often sources are read, such as wiki=2,news=.5; others count 1.")] = ""
    curriculum: Annotated[float, Setting("Share of the run, within its first epoch, from short documents to long.", 0, 1)] = 0.0
    seq_len: Annotated[int | None, Setting("Row length; blocks are cut to it if longer.", 8, LONGEST)] = None
    policy: Annotated[Literal["clamp", "rescale"], Setting("How DeBERTa is lengthened: clamp or rescale.")] = "clamp"
    new_head: Annotated[bool, Setting("Allow a newly initialised mask head.")] = False
    dropout: Annotated[float | None, Setting("Dropout in training. Default 0; configs keep the model's own.", 0.0, 0.9)] = None
    attention: Annotated[str, Setting("auto, packed, sdpa, eager or fused (DeBERTa-v2 on CUDA).")] = "auto"
    dtype: Annotated[Dtype, Setting("auto (bfloat16 on CUDA), float32 or bfloat16; weights stay float32.")] = "auto"
    device: Annotated[str, Setting("auto, cpu or cuda.", free=True)] = "auto"
    compile: Annotated[bool | None, Setting("Compile the layers. Default: in CUDA runs long enough to gain from it.")] = None
    gradient_checkpointing: Annotated[bool, Setting("Use less memory and about a third more time.")] = False
    workers: Annotated[int | None, Setting("Data-loading processes. Default depends on the device.", 0, 256, free=True)] = None
    save_every: Annotated[float, Setting("Epochs between checkpoints; 0 saves only at the end.", 0.0)] = 0.5
    checkpoints: Annotated[int | None, Setting("Number of evenly spaced checkpoints; replaces --save-every.", 1)] = None
    average: Annotated[int | None, Setting("Average this many last checkpoints into OUT/average.", 2, free=True)] = None
    keep_states: Annotated[bool, Setting("Keep every checkpoint resumable; three times the disk space.", free=True)] = False
    eval_set: Annotated[str | None, Setting("Evaluation set to score every checkpoint on.", free=True)] = None
    metric: Annotated[
        str | None, Setting("Metric that chooses the best checkpoint. Default: Noun@1, or the first that the set has.", free=True)
    ] = None
    margin: Annotated[float, Setting("Difference that does not matter, in points.", free=True)] = 2.0
    stop_when_flat: Annotated[bool, Setting("Stop when further training no longer improves the select half.")] = False
    log_every: Annotated[int, Setting("Steps between log entries.", 1, free=True)] = 10
    report_to: Annotated[tuple[str, ...], Setting("tensorboard, trackio, wandb ...; repeatable.", free=True)] = ()
    method: Annotated[str, Setting("", free=True)] = ""
    """The name that a study gives to the method of this run."""

    def __post_init__(self) -> None:
        typed(self)

    @property
    def shape(self) -> str | None:
        return self.model.removeprefix(NEW) if self.model.startswith(NEW) else None


FREE = free_fields(TrainRecipe)


def settle(recipe: TrainRecipe, seq_len: int) -> tuple[TrainRecipe, list[str]]:
    """Fill the fields that are None for blocks of this length; the notes name these values and their source."""
    advice = recommended(seq_len, recipe.model, words=recipe.words_from is not None)
    names = ("learning_rate", "weight_decay", "warmup", "min_prob", "max_prob", "batch")
    filled: dict[str, Any] = {name: getattr(advice, name) for name in names if getattr(recipe, name) is None}
    if recipe.min_prob is None and recipe.max_prob is not None:
        filled["min_prob"] = min(advice.min_prob, recipe.max_prob)
    if recipe.max_prob is None and recipe.min_prob is not None:
        filled["max_prob"] = max(advice.max_prob, recipe.min_prob)
    notes = []
    if filled:
        values = ", ".join(f"{name} {value:g}" for name, value in filled.items())
        notes.append(
            say(
                f"{seq_len:,}토큰의 추천 설정: {values} ({in_korean(advice.provenance)}).",
                f"Recommended for {seq_len:,} tokens: {values} ({advice.provenance}).",
            )
        )
    if recipe.epochs is None and recipe.max_tokens is None and recipe.max_minutes is None:
        filled["epochs"] = DEFAULT_EPOCHS
    losses = OBJECTIVES[recipe.objective].losses
    filled |= {name: value for name, (loss, value) in LOSS_SETTINGS.items() if loss in losses and getattr(recipe, name) is None}
    settled = dataclasses.replace(recipe, seq_len=seq_len, **filled)
    check(settled)
    return settled, notes


def check(recipe: TrainRecipe) -> None:
    """Refuse settings that contradict each other, before anything is loaded."""
    if recipe.min_prob is not None and recipe.max_prob is not None and recipe.min_prob > recipe.max_prob:
        raise RecipeError(f"min_prob {recipe.min_prob:g} is above max_prob {recipe.max_prob:g}; swap them.")
    if recipe.shape is not None and recipe.tokenizer is None:
        raise RecipeError(f"{recipe.model} starts from random weights and needs a tokenizer; pass --tokenizer FOLDER.")
    if recipe.words_from is not None and recipe.shape is None:
        raise RecipeError(f"{recipe.model} is a trained model; --words-from is for --model new:SHAPE.")
    _check_losses(recipe)
    parse_weights(recipe.mix, "--mix")
    planned = "--rates falling" if recipe.rates == "falling" else "--curriculum" if recipe.curriculum else ""
    if planned and recipe.max_minutes is not None and not (recipe.epochs or recipe.max_tokens):
        raise RecipeError(f"{planned} needs a run of known length; give --epochs or --max-tokens.")
    if recipe.stop_when_flat and recipe.eval_set is None:
        raise RecipeError("--stop-when-flat needs an evaluation set; pass --eval-set FOLDER.")
    checked_margin(recipe.margin)


LOSS_SETTINGS: dict[str, tuple[MentionLoss, float]] = {
    "copy_weight": ("copy", 1.0),
    "link_weight": ("link", 1.0),
    "temperature": ("link", 0.07),
}
"""Settings of the mention losses: the loss and the default of each."""


def _check_losses(recipe: TrainRecipe) -> None:
    """Refuse settings that have no effect under this objective, and those that leave a loss without weight or targets."""
    objective = OBJECTIVES[recipe.objective]
    for name, (loss, _) in LOSS_SETTINGS.items():
        value, option = getattr(recipe, name), f"--{name.replace('_', '-')}"
        if value is not None and loss not in objective.losses:
            others = " or ".join(key for key, kind in OBJECTIVES.items() if loss in kind.losses)
            raise RecipeError(f"{option} changes nothing under --objective {recipe.objective}; it is for {others}.")
        if value == 0 and name != "temperature":
            raise RecipeError(f"{option} 0 leaves the {loss} loss out; choose an --objective without it, such as entity.")
    if recipe.far_weight is not None and objective.entity_rows == 0:
        raise RecipeError(f"--far-weight changes nothing under --objective {recipe.objective}, which hides no mentions as such.")
    if recipe.ratio != _RATIO and objective.entity_rows is not None:
        raise RecipeError(f"--ratio changes nothing under --objective {recipe.objective}; it is for combined.")
    if objective.losses and recipe.entity_rate == 0:
        raise RecipeError(f"--entity-rate 0 hides no mention, and {recipe.objective} is about hidden ones; raise it.")


@dataclass(frozen=True, slots=True)
class Recommended:
    """Recommended settings and their source. `up_to` is the longest block they are for."""

    up_to: int
    learning_rate: float
    weight_decay: float
    warmup: float
    min_prob: float
    max_prob: float
    batch: int
    provenance: str


_ANY = 1 << 30
# fmt: off
RECOMMENDED = (
    Recommended(512, 5e-5, 0.01, 0.1, 0.15, 0.3, 32, "usual values for continued pretraining at 512 tokens; not tuned here"),
    Recommended(
        1536, 8e-5, 0.045, 0.16, 0.118, 0.36, 128, "the search behind the published runs at 1,536 tokens (batch 32 x 4)"
    ),
    Recommended(
        _ANY, 2.3e-5, 0.046, 0.195, 0.136, 0.475, 128, "the search behind the published runs at 2,048 tokens (batch 16 x 8)"
    ),
)
# fmt: on
FROM_SCRATCH = Recommended(_ANY, 1e-3, 0.01, 0.06, 0.2, 0.2, 128, "an 18M pre-norm encoder that learned in minutes on one GPU")
_UNIGRAM = "the rate at which a post-norm encoder left the unigram loss; at 3e-4 it did not move"
_WORDS = "with the words of another model a DeBERTa-v2 learned at once at 4e-4 and at 8e-4"
FROM_SCRATCH_POST_NORM = dataclasses.replace(FROM_SCRATCH, learning_rate=1e-4, provenance=_UNIGRAM)
FROM_WORDS_POST_NORM = dataclasses.replace(FROM_SCRATCH, learning_rate=4e-4, provenance=_WORDS)


def recommended(seq_len: int, model: str = "", *, words: bool = False) -> Recommended:
    """Return the settings for blocks of this length and for a new:SHAPE model's family; `words`: it inherits word embeddings."""
    if not model.startswith(NEW):
        return next(entry for entry in RECOMMENDED if seq_len <= entry.up_to)
    family = choose(model.removeprefix(NEW), SHAPES, "shape").family
    if family in PRE_NORM:
        return FROM_SCRATCH
    return FROM_WORDS_POST_NORM if words else FROM_SCRATCH_POST_NORM
