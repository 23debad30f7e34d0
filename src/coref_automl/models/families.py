"""The supported encoder families. In: a config, or its `model_type`. Out: how positions are encoded, which length is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from coref_automl.base.config import short_repr
from coref_automl.base.errors import ModelError

Positions = Literal["absolute", "offset", "relative", "rotary"]


@dataclass(frozen=True, slots=True)
class Family:
    """`positions`: a table with one row per position (absolute), the same after some unused rows (offset: RoBERTa's padding), a
    table of distances (relative), or no table (rotary). `pooler`: the encoder class builds one by default."""

    positions: Positions
    pooler: bool = False


FAMILIES: dict[str, Family] = {
    "bert": Family("absolute", pooler=True),
    "electra": Family("absolute"),
    "distilbert": Family("absolute"),
    "roberta": Family("offset", pooler=True),
    "xlm-roberta": Family("offset", pooler=True),
    "camembert": Family("offset", pooler=True),
    "deberta-v2": Family("relative"),
    "modernbert": Family("rotary"),
}

LONGEST = 131_072
"""Tokens of the longest row or window: sixteen times the longest of these families. Anything longer is taken for a typo."""

PRE_NORM = frozenset({"modernbert"})
"""Families whose residual stream is not normalized, so that they train at a learning rate several times larger."""


def family(name: str, where: str = "The model") -> Family:
    """Return the family of a `model_type`, or raise an error that lists the supported ones."""
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ModelError(f"{where} is of the family {name!r}, which is not supported; choose a model of one of these: {known}.")
    return FAMILIES[name]


def first_row(config: Any) -> int:
    """Return the row of the position table that the first token uses: 0, or the one after RoBERTa's padding row."""
    settings = _as_dict(config)
    if family(settings["model_type"]).positions != "offset":
        return 0
    return _integer(settings, "pad_token_id", 1) + 1


def length_of(config: Any) -> int:
    """Return how many tokens a model of this config (an object, or the dict of config.json) reads."""
    settings = _as_dict(config)
    default = 512 + first_row(settings)  # files from before transformers 4 omit defaults
    return _integer(settings, "max_position_embeddings", default) - first_row(settings)


def too_long(seq_len: int) -> str | None:
    """Return why a length is not supported, as the end of a sentence; None if it is."""
    return (
        f"should be {LONGEST:,} tokens or fewer, not {seq_len:,}; pass --seq-len 512 or another length"
        if seq_len > LONGEST
        else None
    )


def _integer(settings: dict[str, Any], key: str, default: int) -> int:
    value = settings.get(key)
    try:
        return default if value is None else int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"config.json has a {key} of {short_repr(value)}, which is not a whole number; correct it.") from error


def _as_dict(config: Any) -> dict[str, Any]:
    if isinstance(config, dict):
        return config
    names = ("model_type", "pad_token_id", "max_position_embeddings")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}
