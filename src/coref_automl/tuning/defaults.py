"""The space where none is given. In: lengths, family, budget. Out: ranges that hold the recommended settings.

The seed ranges are those of the search behind the published runs; length and family narrow or move them, and what would do
nothing is left out (noun chains that are not there, memory that nobody is short of).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coref_automl.models.families import PRE_NORM
from coref_automl.training.recipe import FROM_SCRATCH, recommended

_LONG = 1024


def masked_space(
    *, lengths: Sequence[int], rows: int, families: Sequence[str], scratch: bool, chains: bool, minutes: bool
) -> dict[str, Any]:
    """What to vary in continued pretraining (or, with `scratch`, in training from random weights).

    `rows` are those of the smallest dataset: a batch of all of them leaves a step an epoch, and a larger one changes nothing.
    """
    longest = max(lengths)
    batch = min((FROM_SCRATCH if scratch else recommended(longest)).batch, 1 << max(1, max(4, rows // 4).bit_length() - 1))
    when_masked = {"when": {"objective": ["mlm", "combined"]}} if chains else {}
    when_entity = {"when": {"objective": ["entity", "combined"]}}
    space: dict[str, Any] = {"objective": ["mlm", "entity", "combined"]} if chains else {}
    space |= {
        "learning_rate": {**_rates(longest, families, scratch), "log": True},
        "weight_decay": {"low": 0.0, "high": 0.1},
        "warmup": {"low": 0.0, "high": 0.2},
        "min_prob": {"low": 0.05, "high": 0.2 if scratch else 0.15, **when_masked},
        "max_prob": {"low": 0.2, "high": 0.35 if longest <= 512 else 0.5, **when_masked},
        "batch": [batch // 2, batch, batch * 2],
    }
    if not scratch:
        space["layer_decay"] = {"low": 0.85, "high": 1.0}
    if chains:
        space |= {
            "entity_rate": {"low": 0.15, "high": 0.6, **when_entity},
            "background": {"low": 0.02, "high": 0.15, **when_entity},
            "ratio": {"low": 0.2, "high": 0.8, "when": {"objective": ["combined"]}},
        }
    if minutes and longest >= _LONG:
        space["gradient_checkpointing"] = [False, True]  # changes how far a budget in minutes goes, and nothing else
    return space


def _rates(longest: int, families: Sequence[str], scratch: bool) -> dict[str, float]:
    gentle = any(name not in PRE_NORM for name in families)
    if scratch:
        return {"low": 2e-5, "high": 4e-4} if gentle else {"low": 1e-4, "high": 4e-3}
    high = 2e-4 if gentle else 1e-3
    return {"low": 5e-6, "high": high / 2 if longest > 1536 else high}


def relation_space(hidden: int) -> dict[str, Any]:
    """What to vary in relation extraction; small encoders want a larger rate."""
    small = hidden < 512
    return {
        "learning_rate": {"low": 5e-5 if small else 1e-5, "high": 1e-3 if small else 1e-4, "log": True},
        "weight_decay": {"low": 0.0, "high": 0.1},
        "warmup": {"low": 0.0, "high": 0.2},
        "layer_decay": {"low": 0.75, "high": 1.0},
        "dropout": {"low": 0.0, "high": 0.3},
        "batch_size": [16, 32, 64],
        "scheme": ["typed", "typed-punct", "punct"],
        "label_smoothing": {"low": 0.0, "high": 0.1},
    }
