"""The space of a study. In: YAML that a person can edit. Out: dimensions that Optuna draws from, each checked against the recipe.

    learning_rate: {low: 5e-6, high: 2e-4, log: true}
    objective: [mlm, entity, combined]
    ratio: {low: 0.2, high: 0.8, when: {objective: [combined]}}

A dimension with `when` is drawn only where it does something: no trial differs from another in a value that has no effect.

Where no space is given, `masked_space` and `relation_space` make one around the recommended settings. The seed ranges are those
of the search behind the published runs; length and family narrow or move them, and what would do nothing is left out (noun chains
that are not there, memory that nobody is short of).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coref_automl.config import nearest, shown
from coref_automl.errors import RecipeError
from coref_automl.models.families import PRE_NORM
from coref_automl.training.masking import OBJECTIVES, MentionLoss
from coref_automl.training.recipe import FROM_SCRATCH, recommended
from coref_automl.tuning.recipe import TuneRecipe, TuneTask

TUNABLE: dict[TuneTask, dict[str, type]] = {
    "mlm": {
        "model": str,
        "dataset": str,
        "objective": str,
        "learning_rate": float,
        "weight_decay": float,
        "warmup": float,
        "schedule": str,
        "layer_decay": float,
        "clip": float,
        "batch": int,
        "min_prob": float,
        "max_prob": float,
        "whole_word": bool,
        "replacement": str,
        "entity_rate": float,
        "background": float,
        "ratio": float,
        "far_weight": float,
        "copy_weight": float,
        "link_weight": float,
        "temperature": float,
        "cross_document": bool,
        "policy": str,
        "dropout": float,
        "gradient_checkpointing": bool,
    },
    "re": {
        "model": str,
        "scheme": str,
        "head": str,
        "learning_rate": float,
        "weight_decay": float,
        "warmup": float,
        "layer_decay": float,
        "dropout": float,
        "batch_size": int,
        "max_length": int,
        "label_smoothing": float,
        "r_drop": float,
        "label_mask": str,
        "mask_support": int,
        "hard_negatives": float,
    },
}
"""What a study may vary: fields of the recipe that change what is learned. Where and how it runs is not among them."""

_WITH_MENTIONS = tuple(name for name, way in OBJECTIVES.items() if way.entity_rows != 0)


def _having(loss: MentionLoss) -> tuple[str, ...]:
    return tuple(name for name, way in OBJECTIVES.items() if loss in way.losses)


COUNTS_UNDER: dict[str, tuple[str, tuple[str, ...]]] = {
    "ratio": ("objective", ("combined",)),
    "entity_rate": ("objective", _WITH_MENTIONS),
    "background": ("objective", _WITH_MENTIONS),
    "far_weight": ("objective", _WITH_MENTIONS),
    "copy_weight": ("objective", _having("copy")),
    "link_weight": ("objective", _having("link")),
    "temperature": ("objective", _having("link")),
    "min_prob": ("objective", ("mlm", "combined")),
    "max_prob": ("objective", ("mlm", "combined")),
    "mask_support": ("label_mask", ("hard", "soft")),
}
"""Settings that change nothing unless another has one of these values."""

_KEYS = {"low", "high", "log", "choices", "when"}


@dataclass(frozen=True, slots=True)
class Dimension:
    """A range (low, high) or a set of choices; `when` names earlier dimensions and the values under which this one counts."""

    name: str
    kind: type
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def holds(self, chosen: Mapping[str, Any]) -> bool:
        return all(chosen.get(name) in values for name, values in self.when)

    def suggest(self, trial: Any) -> Any:
        """Draw a value from an Optuna trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.kind is int:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)

    def nearest(self, value: Any) -> Any:
        """The value of this dimension that is closest to a recommended one."""
        if self.choices:
            if value in self.choices:
                return value
            numbers = [choice for choice in self.choices if isinstance(choice, int | float) and not isinstance(choice, bool)]
            if not numbers or not isinstance(value, int | float):
                return self.choices[0]
            return min(numbers, key=lambda choice: abs(choice - value))
        return self.kind(min(self.high, max(self.low, value)))

    def ends(self) -> tuple[Any, ...]:
        """Values that represent the whole dimension when it is checked."""
        return self.choices or (self.kind(self.low), self.kind(self.high))

    def plain(self) -> Any:
        """As YAML holds it."""
        when = {"when": {name: list(values) for name, values in self.when}} if self.when else {}
        if self.choices:
            return {"choices": list(self.choices), **when} if when else list(self.choices)
        return {"low": self.kind(self.low), "high": self.kind(self.high), **({"log": True} if self.log else {}), **when}


@dataclass(frozen=True, slots=True)
class Space:
    dimensions: tuple[Dimension, ...]

    def __iter__(self) -> Any:
        return iter(self.dimensions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dimension.name for dimension in self.dimensions)

    def suggest(self, trial: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """The values of one trial. `fixed` are settings that a `when` may look at."""
        chosen: dict[str, Any] = {}
        for dimension in self.dimensions:
            if dimension.holds({**fixed, **chosen}):
                chosen[dimension.name] = dimension.suggest(trial)
        return chosen

    def point(self, wanted: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        """The point of the space that is nearest to some recommended values."""
        chosen: dict[str, Any] = {}
        for dimension in self.dimensions:
            if dimension.holds({**fixed, **chosen}):
                value = wanted.get(dimension.name)
                chosen[dimension.name] = dimension.ends()[0] if value is None else dimension.nearest(value)
        return chosen

    def plain(self) -> dict[str, Any]:
        return {dimension.name: dimension.plain() for dimension in self.dimensions}


def read_space(data: Mapping[str, Any], task: TuneTask, where: str = "space") -> Space:
    """The dimensions of a YAML mapping; an unknown name, an empty range or a condition that cannot hold is an error."""
    dimensions: list[Dimension] = []
    for name, entry in data.items():
        dimension = _dimension(name, entry, task, where)
        known = {earlier.name: earlier for earlier in dimensions}
        for other, values in dimension.when:
            if other not in TUNABLE[task]:
                raise RecipeError(f"{where}: {name} depends on the unknown {shown(other)}. {nearest(other, TUNABLE[task])}")
            if other in known and not set(values) & set(known[other].choices):
                raise RecipeError(
                    f"{where}: {name} counts only when {other} is {values[0]!r}, which {other} never is; correct its `when`."
                )
            if other not in known and other in data:
                raise RecipeError(f"{where}: {name} depends on {other}, which comes after it; put {other} first.")
        dimensions.append(dimension)
    if not dimensions:
        raise RecipeError(f"{where} is empty; name at least one of {', '.join(TUNABLE[task])}.")
    space = Space(tuple(dimensions))
    _check_rates(space, where)
    return space


def refuse_idle(space: Space, fixed: Mapping[str, Any], recipe: TuneRecipe) -> None:
    """A dimension that changes nothing wherever it is drawn wastes trials."""
    known = {dimension.name: dimension for dimension in space}
    if "gradient_checkpointing" in known and recipe.max_minutes is None:
        raise RecipeError(
            "space: gradient_checkpointing changes nothing but time and memory under a budget in tokens or epochs; "
            "put it in settings, or give --max-minutes."
        )
    for name in [name for name in space.names if name in COUNTS_UNDER]:
        other, wanted = COUNTS_UNDER[name]
        values = known[other].choices if other in known else (fixed.get(other),)
        drawn = set(dict(known[name].when).get(other, values)) & set(values)
        if drawn and not drawn & set(wanted):
            raise RecipeError(
                f"space: {name} changes nothing where {other} is {' or '.join(sorted(map(str, drawn)))}; leave it out, "
                f"or let {other} be {wanted[0]}."
            )


def _dimension(name: str, entry: Any, task: TuneTask, where: str) -> Dimension:
    if name not in TUNABLE[task]:
        raise RecipeError(f"{where}: unknown name {shown(name)}. {nearest(name, TUNABLE[task])}")
    kind = TUNABLE[task][name]
    if isinstance(entry, list | tuple):
        entry = {"choices": list(entry)}
    if not isinstance(entry, Mapping):
        raise RecipeError(f"{where}: {name} should be a list of choices or {{low: ..., high: ...}}, not {shown(entry)}.")
    for key in entry:
        if key not in _KEYS:
            raise RecipeError(f"{where}: {name} has the unknown key {shown(key)}. {nearest(key, _KEYS)}")
    when = _condition(entry.get("when") or {}, f"{where}: {name}")
    if "choices" in entry:
        if not isinstance(entry["choices"] or [], list | tuple):
            raise RecipeError(f"{where}: the choices of {name} should be a list, not {shown(entry['choices'])}.")
        choices = tuple(_typed(value, kind, f"{where}: {name}") for value in entry["choices"] or ())
        if not choices or len(set(choices)) != len(choices):
            raise RecipeError(f"{where}: {name} {'has no choices' if not choices else 'names a choice twice'}; correct its list.")
        return Dimension(name, kind, choices=choices, when=when)
    if kind not in (float, int) or not {"low", "high"} <= set(entry):
        raise RecipeError(f"{where}: {name} should {'have low and high' if kind in (float, int) else 'be a list of choices'}.")
    low, high = (_typed(entry[key], kind, f"{where}: {name}.{key}") for key in ("low", "high"))
    log = bool(entry.get("log", False))
    if not low < high:
        raise RecipeError(f"{where}: the range of {name} from {low:g} to {high:g} is empty; low must be under high.")
    if log and low <= 0:
        raise RecipeError(f"{where}: {name} is logarithmic and cannot start at {low:g}; raise low, or leave out log.")
    return Dimension(name, kind, low=low, high=high, log=log, when=when)


def _condition(when: Any, where: str) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    if not isinstance(when, Mapping):
        raise RecipeError(f"{where} has a `when` that is {shown(when)}; write it as {{name: value}} or {{name: [values]}}.")
    pairs = tuple(
        (str(other), tuple(values) if isinstance(values, list | tuple) else (values,)) for other, values in when.items()
    )
    for other, values in pairs:
        if not values or any(isinstance(value, list | tuple | Mapping) for value in values):
            raise RecipeError(f"{where} counts when {other} is {shown(values)}; name one value or a list of values.")
    return pairs


def _typed(value: Any, kind: type, where: str) -> Any:
    try:
        if kind is float and not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
        if kind is int and not isinstance(value, bool) and float(value) == int(float(value)):
            return int(float(value))
    except (TypeError, ValueError, OverflowError):
        pass
    if kind in (str, bool) and isinstance(value, kind):
        return value
    words = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    raise RecipeError(f"{where} should be {words[kind]}, not {shown(value)}.")


def _check_rates(space: Space, where: str) -> None:
    """A masking rate for short documents above the one for long ones would be refused by training."""
    known = {dimension.name: dimension for dimension in space}
    if {"min_prob", "max_prob"} <= set(known) and max(known["min_prob"].ends()) > min(known["max_prob"].ends()):
        raise RecipeError(f"{where}: the ranges of min_prob and max_prob overlap; end min_prob where max_prob begins.")


_LONG = 1024


def masked_space(
    *, lengths: Sequence[int], rows: int, families: Sequence[str], scratch: bool, chains: bool, minutes: bool
) -> dict[str, Any]:
    """What to vary in continued pretraining (or, with `scratch`, in training from random weights).

    `rows` are those of the smallest dataset: a batch of all of them leaves one step per epoch, and a larger one changes nothing.
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
