"""The whole line as settings. In: YAML or options. Out: a frozen LineRecipe, a part a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from coref_automl.config import from_mapping, nearest, read_yaml
from coref_automl.errors import RecipeError
from coref_automl.models.families import too_long
from coref_automl.records import Task

Objective = Literal["mlm", "combined", "entity"]


@dataclass(frozen=True, slots=True)
class PrepareStage:
    """The texts that are learned from. `limit` is documents a file; the held-out share serves the evaluation set."""

    sources: tuple[str, ...]
    seq_len: int = 512
    limit: int | None = None
    holdout: float = 0.02
    near_duplicates: bool = True

    def __post_init__(self) -> None:
        if why := too_long(self.seq_len):
            raise RecipeError(f"seq_len {why}.")


@dataclass(frozen=True, slots=True)
class TrainStage:
    """One run an objective, all on the same blocks for equally many tokens."""

    objectives: tuple[Objective, ...] = ("mlm", "combined", "entity")
    epochs: float = 1.0
    batch: int | None = None
    micro_batch: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    warmup: float | None = None
    min_prob: float | None = None
    max_prob: float | None = None
    save_every: float = 0.5


@dataclass(frozen=True, slots=True)
class EvaluateStage:
    """`set` is a folder or "bundled"; None makes one from the held-out documents and the bundled cloze passages.

    `per_source`, `per_document` and `single_entry` are those of `prepare eval`.
    """

    set: str | None = None
    tasks: tuple[Task, ...] = ("real", "lambada")
    per_source: int = 1_600
    per_document: int = 3
    single_entry: bool = False
    words: Literal["all", "sample", "none"] = "all"
    metric: str | None = None
    margin: float = 0.02


@dataclass(frozen=True, slots=True)
class RelationStage:
    """`train` is a file of relation rows or "bundled" (generated rows, so many); `dev` is scored once at the end."""

    train: str = "bundled"
    dev: str | None = None
    rows: int = 1_000
    epochs: int = 3
    seeds: int = 1
    batch_size: int = 16
    scheme: str = "typed"


@dataclass(frozen=True, slots=True)
class LineRecipe:
    """What `demo` and `adapt` run. `relation: null` leaves relation extraction out."""

    model: str
    prepare: PrepareStage
    train: TrainStage = field(default_factory=TrainStage)
    evaluate: EvaluateStage = field(default_factory=EvaluateStage)
    relation: RelationStage | None = None
    tokenizer: str | None = None
    seed: int = 0
    lang: Literal["ko", "en"] = "ko"


def line_recipe(path: Path | None, asked: Mapping[str, Any]) -> LineRecipe:
    """A recipe from a YAML file, from options, or from both; an option that was given wins."""
    data = read_yaml(path) if path else {}
    for key, value in asked.items():
        if isinstance(value, Mapping):
            given = {name: entry for name, entry in value.items() if entry is not None}
            if given:
                data[key] = {**(data.get(key) or {}), **given}
        elif value is not None:
            data[key] = value
    for key in data:
        if key not in LineRecipe.__dataclass_fields__:
            raise RecipeError(f"{path}: unknown key {key!r}. {nearest(key, LineRecipe.__dataclass_fields__)}")
    if "model" not in data:
        raise RecipeError("Name the model to adapt with --model, for example --model bundled:ko-mini.")
    if not data.get("prepare", {}).get("sources"):
        raise RecipeError("Name the texts with --source, for example --source local:articles.jsonl.")
    return from_mapping(LineRecipe, data, str(path or "options"))
