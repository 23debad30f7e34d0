"""The encoder families this package knows. In: a config's `model_type`. Out: where its positions live, which attention it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from coref_automl.config import short_repr
from coref_automl.errors import ModelError

Positions = Literal["absolute", "offset", "relative", "rotary"]


@dataclass(frozen=True, slots=True)
class Family:
    """`positions`: a table with one row per position (absolute), the same with rows before the first (offset, RoBERTa's padding
    row), a table of distances (relative), or none at all (rotary). `pooler`: the encoder class builds one by default."""

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
"""Tokens of the longest row or window: sixteen times what the longest of these families read. More is a slip of the hand."""

PRE_NORM = frozenset({"modernbert"})
"""Families whose residual path is not normalised: they bear a rate several times larger."""


def family(name: str, where: str = "The model") -> Family:
    """The family of a `model_type`, or an error that lists the known ones."""
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ModelError(f"{where} is of the family {name!r}, which is not supported; choose a model of one of these: {known}.")
    return FAMILIES[name]


def first_row(config: Any) -> int:
    """The row of the position table that the first token uses: 0, or the one after RoBERTa's padding row."""
    known = _as_dict(config)
    if family(known["model_type"]).positions != "offset":
        return 0
    return _whole(known, "pad_token_id", 1) + 1


def length_of(config: Any) -> int:
    """How many tokens a model of this config (an object, or the dict of config.json) reads."""
    known = _as_dict(config)
    usual = 512 + first_row(known)  # config.json leaves out nothing since transformers 4; older files may
    return _whole(known, "max_position_embeddings", usual) - first_row(known)


def too_long(seq_len: int) -> str | None:
    """Why a length cannot be meant, as the end of a sentence; None where it can."""
    return (
        f"should be {LONGEST:,} tokens or fewer, not {seq_len:,}; pass --seq-len 512 or another length"
        if seq_len > LONGEST
        else None
    )


def _whole(known: dict[str, Any], key: str, usual: int) -> int:
    value = known.get(key)
    try:
        return usual if value is None else int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(
            f"The model's config.json has a {key} of {short_repr(value)}, which is not a whole number; correct it."
        ) from error


def _as_dict(config: Any) -> dict[str, Any]:
    if isinstance(config, dict):
        return config
    names = ("model_type", "pad_token_id", "max_position_embeddings")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}
