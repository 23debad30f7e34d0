"""Settings to begin with. In: a length, a model. Out: rate, masking and batch for it, and where they come from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from coref_automl.config import choose
from coref_automl.models.build import NEW, SHAPES
from coref_automl.models.families import PRE_NORM


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


RECOMMENDED = (
    Recommended(512, 5e-5, 0.01, 0.1, 0.15, 0.3, 32, "usual values for continued pretraining at 512 tokens; not tuned here"),
    Recommended(1536, 8e-5, 0.045, 0.16, 0.118, 0.36, 128, "the search behind the published runs at 1,536 tokens (batch 32 x 4)"),
    Recommended(
        1 << 30, 2.3e-5, 0.046, 0.195, 0.136, 0.475, 128, "the search behind the published runs at 2,048 tokens (batch 16 x 8)"
    ),
)
FROM_SCRATCH = Recommended(
    1 << 30,
    1e-3,
    0.01,
    0.06,
    0.2,
    0.2,
    128,
    "an 18M pre-norm encoder that learned in minutes on one GPU",
)
FROM_SCRATCH_POST_NORM = dataclasses.replace(
    FROM_SCRATCH,
    learning_rate=1e-4,
    provenance="the rate at which a post-norm encoder left the unigram loss; at 3e-4 it stood still",
)
FROM_WORDS_POST_NORM = dataclasses.replace(
    FROM_SCRATCH,
    learning_rate=4e-4,
    provenance="with the words of another model a DeBERTa-v2 learned at once at 4e-4 and at 8e-4",
)


def recommended(seq_len: int, model: str = "", *, words: bool = False) -> Recommended:
    """For blocks of this length, and for the family of a new:SHAPE model; `words` says that it begins with those of another."""
    if not model.startswith(NEW):
        return next(entry for entry in RECOMMENDED if seq_len <= entry.up_to)
    family = choose(model.removeprefix(NEW), SHAPES, "shape").family
    if family in PRE_NORM:
        return FROM_SCRATCH
    return FROM_WORDS_POST_NORM if words else FROM_SCRATCH_POST_NORM
