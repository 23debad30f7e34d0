"""The recipe of a training run. In: YAML keys or options. Out: TrainRecipe, defaults filled in from a table with its sources."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from coref_automl.config import choose, typed
from coref_automl.errors import RecipeError
from coref_automl.models.build import NEW, SHAPES
from coref_automl.models.families import LONGEST, PRE_NORM
from coref_automl.say import say
from coref_automl.training.masking import FAR, OBJECTIVES, MentionLoss, Objective

Schedule = Literal["linear", "cosine", "wsd", "constant"]

DEFAULT_EPOCHS = 5.0


@dataclass(frozen=True, slots=True)
class TrainRecipe:
    """Everything a run depends on. A field that is None is filled by `settle`; every other value, 0 included, stays as given."""

    model: str
    dataset: str
    out: str
    objective: Objective = "mlm"
    tokenizer: str | None = None
    words_from: str | None = None
    epochs: float | None = None
    max_tokens: int | None = None
    max_minutes: float | None = None
    seed: int = 0
    learning_rate: float | None = None
    weight_decay: float | None = None
    warmup: float | None = None
    schedule: Schedule = "linear"
    layer_decay: float = 1.0
    clip: float = 1.0
    batch: int | None = None
    micro_batch: int | None = None
    min_prob: float | None = None
    max_prob: float | None = None
    rates: Literal["length", "drawn"] = "length"
    whole_word: bool = False
    replacement: Literal["mask", "80-10-10"] = "mask"
    entity_rate: float = 0.3
    background: float = 0.07
    ratio: float = 0.5
    far_weight: float | None = None
    copy_weight: float | None = None
    link_weight: float | None = None
    temperature: float | None = None
    cross_document: bool = False
    seq_len: int | None = None
    policy: Literal["clamp", "rescale"] = "clamp"
    new_head: bool = False
    dropout: float | None = None
    attention: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    compile: bool = False
    gradient_checkpointing: bool = False
    workers: int | None = None
    save_every: float = 0.5
    checkpoints: int | None = None
    keep_states: bool = False
    eval_set: str | None = None
    eval_words: Literal["all", "gold", "sample", "none"] = "all"
    metric: str = "real1_strict"
    margin: float = 2.0
    stop_when_flat: bool = False
    keep_best: bool = False
    log_every: int = 10
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        typed(self)

    @property
    def shape(self) -> str | None:
        """The shape of a model that starts from random weights."""
        return self.model.removeprefix(NEW) if self.model.startswith(NEW) else None


HELP = {
    "model": "Hub id, folder, bundled:ko-mini, or new:SHAPE for random weights.",
    "dataset": "Folder made by `coref-automl prepare`.",
    "out": "Folder of the run; must be empty or from the same command.",
    "objective": "mlm, entity, combined, copy, link or copy+link.",
    "tokenizer": "Tokenizer of a new:SHAPE model.",
    "words_from": "Initialise the word embeddings and mask head of a new:SHAPE from this model (same tokenizer and width).",
    "epochs": "Number of epochs; may be fractional. Default 5 if no other budget is given.",
    "max_tokens": "Stop after this many real (unpadded) tokens.",
    "max_minutes": "Stop after this many minutes; the learning-rate decay ends with them.",
    "seed": "Random seed.",
    "learning_rate": "Peak learning rate. Default depends on sequence length.",
    "weight_decay": "Weight decay, except for norms and biases. Default depends on sequence length.",
    "warmup": "Fraction of the run with a rising learning rate. Default depends on sequence length.",
    "schedule": "linear, cosine, wsd or constant.",
    "layer_decay": "Factor between the learning rates of a layer and the one above it.",
    "clip": "Gradient norm clipping; 0 turns it off.",
    "batch": "Effective batch size in rows. Default depends on sequence length.",
    "micro_batch": "Rows per forward pass; halved when memory runs out. Default depends on the device.",
    "min_prob": "Masking rate of a very short document. Default depends on sequence length.",
    "max_prob": "Masking rate of a document that fills its row. Default depends on sequence length.",
    "rates": "length: the masking rate grows with the document's length; drawn: it is drawn uniformly per document.",
    "whole_word": "Mask whole words.",
    "replacement": "What replaces masked tokens: mask, or 80-10-10.",
    "entity_rate": "Fraction of later mentions that are masked.",
    "background": "Rate of ordinary masking in entity rows.",
    "ratio": "Fraction of entity rows in combined.",
    "far_weight": f"Factor on --entity-rate for mentions over {FAR} tokens from the nearest other one of their chain. Default 1.",
    "copy_weight": "Weight of the copy loss beside the masked-token loss, for copy and copy+link. Default 1.",
    "link_weight": "Weight of the contrastive loss beside the masked-token loss, for link and copy+link. Default 1.",
    "temperature": "Temperature of the contrastive loss, for link and copy+link. Default 0.07.",
    "cross_document": "Let documents in one block attend to each other.",
    "seq_len": "Row length; blocks are cut to it if longer.",
    "policy": "How DeBERTa is lengthened: clamp or rescale.",
    "new_head": "Allow a newly initialised mask head.",
    "dropout": "Override the model's dropout.",
    "attention": "auto, sdpa, eager, fused (DeBERTa-v2 on CUDA) or flex (DeBERTa-v2 and ModernBERT on CUDA).",
    "dtype": "auto (bfloat16 on CUDA), float32 or bfloat16; weights stay float32.",
    "device": "auto, cpu or cuda.",
    "compile": "Compile the training step; pays off on CUDA in runs of several minutes.",
    "gradient_checkpointing": "Use less memory and about a third more time.",
    "workers": "Data-loading processes. Default depends on the device.",
    "save_every": "Epochs between checkpoints; 0 saves only at the end.",
    "checkpoints": "Number of evenly spaced checkpoints; replaces --save-every.",
    "keep_states": "Keep every checkpoint resumable, not just the newest; three times the disk space.",
    "eval_set": "Evaluation set to score every checkpoint on.",
    "eval_words": "Word candidates at checkpoints: all, gold, sample or none (fastest).",
    "metric": "Metric that chooses the best checkpoint.",
    "margin": "Difference that does not matter, in points.",
    "stop_when_flat": "Stop when further training no longer improves the select half.",
    "keep_best": "Remove checkpoints that are neither recommended, the best nor the newest.",
    "log_every": "Steps between log entries.",
    "report_to": "tensorboard, trackio, wandb ...; repeatable.",
}
"""What each field means: the help of `coref-automl train`, which has an option for every field."""

FREE = frozenset(
    {
        "out",
        "micro_batch",
        "workers",
        "keep_states",
        "log_every",
        "report_to",
        "device",
        "eval_set",
        "eval_words",
        "metric",
        "margin",
    }
)
"""Fields that may change between the beginning of a run and its resumption: none of them changes what is learned."""


def settle(recipe: TrainRecipe, seq_len: int) -> tuple[TrainRecipe, list[str]]:
    """Fill what was left open for blocks of this length; the notes say which values were filled and why."""
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
                f"{seq_len:,}토큰의 추천 설정: {values} ({advice.origin}).",
                f"Recommended for {seq_len:,} tokens: {values} ({advice.provenance}).",
            )
        )
    if recipe.epochs is None and recipe.max_tokens is None and recipe.max_minutes is None:
        filled["epochs"] = DEFAULT_EPOCHS
    losses = OBJECTIVES[recipe.objective].losses
    filled |= {name: value for name, (loss, value) in _OF_LOSSES.items() if loss in losses and getattr(recipe, name) is None}
    settled = dataclasses.replace(recipe, seq_len=seq_len, **filled)
    check(settled)
    return settled, notes


def check(recipe: TrainRecipe) -> None:
    """Values that cannot be meant are an error before anything is loaded."""
    from coref_automl.comparison.recommendation import checked_margin

    for name, low, high in _RANGES:
        value = getattr(recipe, name)
        if value is not None and not low <= value <= high:
            bound = f"from {low:,g} to {high:,g}" if high < _HUGE else f"at least {low:g}"
            raise RecipeError(f"{name} should be {bound}, not {value:g}; correct it.")
    checked_margin(recipe.margin)
    for name in ("epochs", "max_minutes", "max_tokens"):
        value = getattr(recipe, name)
        if value is not None and value <= 0:
            raise RecipeError(f"{name} should be above 0, not {value:g}; correct it.")
    if recipe.min_prob is not None and recipe.max_prob is not None and recipe.min_prob > recipe.max_prob:
        raise RecipeError(f"min_prob {recipe.min_prob:g} is above max_prob {recipe.max_prob:g}; swap them.")
    if recipe.shape is not None and recipe.tokenizer is None:
        raise RecipeError(f"{recipe.model} starts from random weights and needs a tokenizer; pass --tokenizer FOLDER.")
    if recipe.words_from is not None and recipe.shape is None:
        raise RecipeError(f"{recipe.model} is a trained model; --words-from is for --model new:SHAPE.")
    _check_losses(recipe)
    if (recipe.stop_when_flat or recipe.keep_best) and recipe.eval_set is None:
        wanted = "stop-when-flat" if recipe.stop_when_flat else "keep-best"
        raise RecipeError(f"--{wanted} needs an evaluation set; pass --eval-set FOLDER.")


_OF_LOSSES: dict[str, tuple[MentionLoss, float]] = {
    "copy_weight": ("copy", 1.0),
    "link_weight": ("link", 1.0),
    "temperature": ("link", 0.07),
}
"""Settings of the losses between mentions: whose they are, and their defaults."""


def _check_losses(recipe: TrainRecipe) -> None:
    """A setting that would change nothing under this objective is refused, and so is one that leaves its loss nothing."""
    way = OBJECTIVES[recipe.objective]
    for name, (loss, _) in _OF_LOSSES.items():
        value, option = getattr(recipe, name), f"--{name.replace('_', '-')}"
        if value is not None and loss not in way.losses:
            others = " or ".join(other for other, held in OBJECTIVES.items() if loss in held.losses)
            raise RecipeError(f"{option} changes nothing under --objective {recipe.objective}; it is for {others}.")
        if value == 0 and name != "temperature":
            raise RecipeError(f"{option} 0 leaves the {loss} loss out; choose an --objective without it, such as entity.")
    if recipe.far_weight is not None and way.entity_rows == 0:
        raise RecipeError(f"--far-weight changes nothing under --objective {recipe.objective}, which hides no mentions as such.")
    if way.losses and recipe.entity_rate == 0:
        raise RecipeError(f"--entity-rate 0 hides no mention, and {recipe.objective} is about hidden ones; raise it.")


_HUGE = 1e18
_RANGES = (
    ("learning_rate", 0.0, 1.0),
    ("weight_decay", 0.0, 1.0),
    ("warmup", 0.0, 1.0),
    ("layer_decay", 0.01, 1.0),
    ("clip", 0.0, _HUGE),
    ("batch", 1, _HUGE),
    ("micro_batch", 1, _HUGE),
    ("min_prob", 0.0, 0.9),
    ("max_prob", 0.0, 0.9),
    ("entity_rate", 0.0, 1.0),
    ("background", 0.0, 0.9),
    ("ratio", 0.0, 1.0),
    ("far_weight", 0.0, 1000.0),
    ("copy_weight", 0.0, 1000.0),
    ("link_weight", 0.0, 1000.0),
    ("temperature", 0.001, 100.0),
    ("dropout", 0.0, 0.9),
    ("workers", 0, 256),
    ("save_every", 0.0, _HUGE),
    ("checkpoints", 1, _HUGE),
    ("log_every", 1, _HUGE),
    ("seed", 0, 2**63 - 1),
    ("seq_len", 8, LONGEST),
)


@dataclass(frozen=True, slots=True)
class Recommended:
    """Settings for a length, and where they come from. `up_to` is the longest block they are meant for."""

    up_to: int
    learning_rate: float
    weight_decay: float
    warmup: float
    min_prob: float
    max_prob: float
    batch: int
    provenance: str
    origin: str
    """The provenance in Korean."""


# fmt: off
RECOMMENDED = (
    Recommended(
        512, 5e-5, 0.01, 0.1, 0.15, 0.3, 32,
        "usual values for continued pretraining at 512 tokens; not tuned here",
        "512토큰 추가 사전학습에 흔히 쓰는 값, 여기서 탐색하지 않음",
    ),
    Recommended(
        1536, 8e-5, 0.045, 0.16, 0.118, 0.36, 128,
        "the search behind the published runs at 1,536 tokens (batch 32 x 4)",
        "공개된 1,536토큰 실행의 탐색 결과, 배치 32 x 4",
    ),
    Recommended(
        1 << 30, 2.3e-5, 0.046, 0.195, 0.136, 0.475, 128,
        "the search behind the published runs at 2,048 tokens (batch 16 x 8)",
        "공개된 2,048토큰 실행의 탐색 결과, 배치 16 x 8",
    ),
)
# fmt: on
FROM_SCRATCH = Recommended(
    1 << 30,
    1e-3,
    0.01,
    0.06,
    0.2,
    0.2,
    128,
    "an 18M pre-norm encoder that learned in minutes on one GPU",
    "GPU 한 장에서 몇 분 만에 학습된 18M pre-norm 인코더의 값",
)
FROM_SCRATCH_POST_NORM = dataclasses.replace(
    FROM_SCRATCH,
    learning_rate=1e-4,
    provenance="the rate at which a post-norm encoder left the unigram loss; at 3e-4 it did not move",
    origin="post-norm 인코더가 유니그램 손실을 벗어난 학습률, 3e-4에서는 벗어나지 못함",
)
FROM_WORDS_POST_NORM = dataclasses.replace(
    FROM_SCRATCH,
    learning_rate=4e-4,
    provenance="with the words of another model a DeBERTa-v2 learned at once at 4e-4 and at 8e-4",
    origin="다른 모델의 단어 벡터로 시작한 DeBERTa-v2가 4e-4와 8e-4에서 바로 학습됨",
)


def recommended(seq_len: int, model: str = "", *, words: bool = False) -> Recommended:
    """For blocks of this length, and for the family of a new:SHAPE model; `words` says that it begins with those of another."""
    if not model.startswith(NEW):
        return next(entry for entry in RECOMMENDED if seq_len <= entry.up_to)
    family = choose(model.removeprefix(NEW), SHAPES, "shape").family
    if family in PRE_NORM:
        return FROM_SCRATCH
    return FROM_WORDS_POST_NORM if words else FROM_SCRATCH_POST_NORM
