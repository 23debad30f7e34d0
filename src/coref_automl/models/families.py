"""The encoder families this package knows. In: a config's `model_type`. Out: where its positions live and which attention it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from coref_automl.errors import ModelError

Positions = Literal["absolute", "offset", "relative", "rotary"]


@dataclass(frozen=True, slots=True)
class Family:
    """`positions`: a table with a row a position (absolute), the same with rows before the first one (offset, RoBERTa's padding
    row), a table of distances (relative), or none at all (rotary). `pooler`: the encoder class builds a pooler unless told not to."""

    positions: Positions
    sdpa: bool = True
    pooler: bool = False


FAMILIES: dict[str, Family] = {
    "bert": Family("absolute", pooler=True),
    "electra": Family("absolute"),
    "distilbert": Family("absolute"),
    "roberta": Family("offset", pooler=True),
    "xlm-roberta": Family("offset", pooler=True),
    "camembert": Family("offset", pooler=True),
    "deberta-v2": Family("relative", sdpa=False),
    "modernbert": Family("rotary"),
}


def family(name: str, where: str = "The model") -> Family:
    """The family of a `model_type`, or an error that lists the known ones."""
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ModelError(f"{where} is of the family {name!r}, which is not supported; choose a model of one of these: {known}.")
    return FAMILIES[name]


def first_row(config: Any) -> int:
    """The row of the position table that the first token uses: 0, or the one after RoBERTa's padding row."""
    value = config.get if isinstance(config, dict) else lambda key, default=None: getattr(config, key, default)
    if family(value("model_type")).positions != "offset":
        return 0
    padding = value("pad_token_id")
    return (1 if padding is None else int(padding)) + 1


def length_of(config: Any) -> int:
    """How many tokens a model of this config (an object, or the dict of config.json) reads."""
    rows = config["max_position_embeddings"] if isinstance(config, dict) else config.max_position_embeddings
    return int(rows) - first_row(config)
