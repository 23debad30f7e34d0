"""The space of a study. In: YAML that a person can edit. Out: dimensions that Optuna draws from, each checked against the recipe.

    learning_rate: {low: 5e-6, high: 2e-4, log: true}
    objective: [mlm, entity, combined]
    ratio: {low: 0.2, high: 0.8, when: {objective: [combined]}}

A dimension is sampled only where it has an effect, as its `when` says or as `COUNTS_UNDER` knows, so that no two trials differ in
a value without effect.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coref_automl.base.config import from_mapping, nearest, short_repr
from coref_automl.base.decoder import hints_of
from coref_automl.base.errors import RecipeError
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.tune.recipe import TuneRecipe, TuneTask
from coref_automl.training.masking import OBJECTIVES, MentionLoss
from coref_automl.training.recipe import TrainRecipe, check

Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


def _kinds(recipe: type, names: str) -> dict[str, type]:
    """Return the plain type of each of these fields of a recipe: text for a Literal, and without None."""
    hints = {name: (*typing.get_args(hints_of(recipe)[name]), hints_of(recipe)[name])[0] for name in names.split()}
    return {name: hint if isinstance(hint, type) else str for name, hint in hints.items()}


TUNABLE: dict[TuneTask, dict[str, type]] = {
    "mlm": _kinds(
        TrainRecipe,
        "model dataset objective learning_rate weight_decay warmup schedule layer_decay clip batch min_prob max_prob rates "
        "whole_word replacement entity_rate background ratio far_weight copy_weight link_weight temperature cross_document "
        "policy dropout mix curriculum gradient_checkpointing",
    ),
    "re": _kinds(
        RelationRecipe,
        "model scheme head learning_rate weight_decay warmup layer_decay dropout batch_size max_length label_smoothing "
        "label_mask mask_support hard_negatives",
    ),
}
"""What a study may vary: fields of the recipe that change what is learned, not where or how it runs."""

_WITH_MENTIONS = tuple(name for name, objective in OBJECTIVES.items() if objective.entity_rows != 0)


def _with_loss(loss: MentionLoss) -> tuple[str, ...]:
    return tuple(name for name, objective in OBJECTIVES.items() if loss in objective.losses)


COUNTS_UNDER: dict[str, tuple[str, tuple[str, ...]]] = {
    "ratio": ("objective", ("combined",)),
    **dict.fromkeys(("entity_rate", "background", "far_weight"), ("objective", _WITH_MENTIONS)),
    "copy_weight": ("objective", _with_loss("copy")),
    **dict.fromkeys(("link_weight", "temperature"), ("objective", _with_loss("link"))),
    **dict.fromkeys(("min_prob", "max_prob", "rates"), ("objective", ("mlm", "combined"))),
    "mask_support": ("label_mask", ("hard", "soft")),
}
"""Settings that have an effect only if another setting has one of these values."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A range (low, high) or a set of choices; `when` names earlier dimensions and the values under which this one is sampled."""

    name: str
    kind: type
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    when: Conditions = ()

    def counts(self, chosen: Mapping[str, Any]) -> bool:
        return all(chosen.get(name) in values for name, values in self.when)

    def suggest(self, trial: Any) -> Any:
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.kind is int:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)

    def nearest(self, value: Any) -> Any:
        """Return the value of this dimension that is closest to a recommended one."""
        if not self.choices:
            return self.kind(min(self.high, max(self.low, value)))
        if value in self.choices or self.kind not in (int, float):
            return value if value in self.choices else self.choices[0]
        return min(self.choices, key=lambda choice: abs(choice - value))

    def offers(self, value: Any) -> bool:
        return value in self.choices if self.choices else isinstance(value, int | float) and self.low <= value <= self.high

    def ends(self) -> tuple[Any, ...]:
        """Return the values that represent the whole dimension when it is checked."""
        return self.choices or (self.kind(self.low), self.kind(self.high))

    def plain(self) -> Any:
        when = {"when": {name: list(values) for name, values in self.when}} if self.when else {}
        if self.choices:
            return {"choices": list(self.choices), **when} if when else list(self.choices)
        return {"low": self.kind(self.low), "high": self.kind(self.high), **({"log": True} if self.log else {}), **when}


@dataclass(frozen=True, slots=True)
class Space:
    dimensions: tuple[Dimension, ...]

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dimensions)

    def get(self, name: str) -> Dimension | None:
        return next((dimension for dimension in self.dimensions if dimension.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dimension.name for dimension in self.dimensions)

    def suggest(self, trial: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Sample the values of one trial. `fixed` are settings that a `when` may refer to."""
        return self._filled(fixed, lambda dimension: dimension.suggest(trial))

    def point(self, wanted: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the point of the space that is nearest to some recommended values."""

        def value(dimension: Dimension) -> Any:
            recommended = wanted.get(dimension.name)
            return dimension.ends()[0] if recommended is None else dimension.nearest(recommended)

        return self._filled(fixed, value)

    def _filled(self, fixed: Mapping[str, Any], value: Callable[[Dimension], Any]) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for dimension in self.dimensions:
            if dimension.counts({**fixed, **chosen}):
                chosen[dimension.name] = value(dimension)
        return chosen

    def plain(self) -> dict[str, Any]:
        return {dimension.name: dimension.plain() for dimension in self.dimensions}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A dimension as a person writes it."""

    low: Any = None
    high: Any = None
    log: bool = False
    choices: tuple[Any, ...] | None = None
    when: dict[str, tuple[bool | int | float | str, ...] | bool | int | float | str] = field(default_factory=dict)


def read_space(data: Mapping[str, Any], task: TuneTask) -> Space:
    """Read the dimensions of a YAML mapping; an unknown name, an empty range or a condition that never holds is an error."""
    known: dict[str, Dimension] = {}
    for name, entry in data.items():
        if name not in TUNABLE[task]:
            raise RecipeError(f"space: unknown name {short_repr(name)}. {nearest(name, TUNABLE[task])}")
        if not isinstance(entry, list | tuple | Mapping):
            raise RecipeError(f"space: {name} should be a list of choices or {{low: ..., high: ...}}, not {short_repr(entry)}.")
        parsed = from_mapping(_Entry, entry if isinstance(entry, Mapping) else {"choices": entry}, f"space: {name}")
        known[name] = _dimension(name, TUNABLE[task][name], parsed, _conditions(name, parsed, known, data, TUNABLE[task]))
    if not known:
        raise RecipeError(f"space is empty; name at least one of {', '.join(TUNABLE[task])}.")
    if {"min_prob", "max_prob"} <= set(known) and max(known["min_prob"].ends()) > min(known["max_prob"].ends()):
        raise RecipeError("space: the ranges of min_prob and max_prob overlap; end min_prob where max_prob begins.")
    return Space(tuple(known.values()))


def _dimension(name: str, kind: type, entry: _Entry, when: Conditions) -> Dimension:
    if entry.choices is not None:
        choices: tuple[Any, ...] = tuple(from_mapping(kind, value, f"space: {name}") for value in entry.choices)
        if not choices or len(set(choices)) != len(choices):
            raise RecipeError(f"space: {name} {'has no choices' if not choices else 'names a choice twice'}; correct its list.")
        return Dimension(name, kind, choices=choices, when=when)
    if kind not in (float, int) or entry.low is None or entry.high is None:
        raise RecipeError(f"space: {name} should {'have low and high' if kind in (float, int) else 'be a list of choices'}.")
    low, high = (from_mapping(kind, end, f"space: {name}.{key}") for key, end in (("low", entry.low), ("high", entry.high)))
    if not low < high:
        raise RecipeError(f"space: the range of {name} from {low:g} to {high:g} is empty; low must be under high.")
    if entry.log and low <= 0:
        raise RecipeError(f"space: {name} is logarithmic and cannot start at {low:g}; raise low, or leave out log.")
    return Dimension(name, kind, low=low, high=high, log=entry.log, when=when)


def _conditions(
    name: str, entry: _Entry, known: Mapping[str, Dimension], data: Mapping[str, Any], tunable: Mapping[str, type]
) -> Conditions:
    """Return when a dimension is sampled: as its `when` says and, if it depends on another dimension, as `COUNTS_UNDER` knows."""
    when = {other: values if isinstance(values, tuple) else (values,) for other, values in entry.when.items()}
    decides, wanted = COUNTS_UNDER.get(name, ("", ()))
    implied = decides in data and decides not in when
    for other in (*when, decides) if implied else when:
        if other not in tunable:
            raise RecipeError(f"space: {name} depends on the unknown {short_repr(other)}. {nearest(other, tunable)}")
        if other in data and other not in known:
            raise RecipeError(f"space: {name} depends on {other}, which comes after it; put {other} first.")
        if other in known and other in when and not set(when[other]) & set(known[other].choices):
            never = f"counts only when {other} is {when[other][0]!r}, which {other} never is"
            raise RecipeError(f"space: {name} {never}; correct its `when`.")
    if implied:
        effective = tuple(value for value in known[decides].choices if value in wanted)
        when |= {decides: effective} if 0 < len(effective) < len(known[decides].choices) else {}
    return tuple(when.items())


def check_settings(values: dict[str, Any]) -> None:
    """Refuse settings that training would refuse for every model and dataset."""
    settings = {name: value for name, value in values.items() if name not in ("model", "dataset", "tokenizer", "words_from")}
    check(from_mapping(TrainRecipe, {**settings, "model": "", "dataset": "", "out": ""}, "space"))


def check_ends(
    space: Space, wanted: Mapping[str, Any], fixed: Mapping[str, Any], check_point: Callable[[dict[str, Any]], object]
) -> None:
    """Call `check_point` with every end of every dimension, so that no trial fails because of its settings."""
    for dimension in space:
        decides = {other: (choices, values) for other, values in dimension.when if (choices := space.get(other))}
        under = {name: next((v for v in values if v in other.choices), values[0]) for name, (other, values) in decides.items()}
        start = space.point({**wanted, **under}, fixed)
        for value in dimension.ends() if dimension.name in start else ():
            check_point({**start, dimension.name: value})


def refuse_idle(space: Space, fixed: Mapping[str, Any], recipe: TuneRecipe) -> None:
    """Refuse a dimension that would waste trials, because it has no effect wherever it is sampled."""
    if all(len(dimension.choices) == 1 for dimension in space) and not recipe.portfolio_only:
        raise RecipeError("space: every dimension has one value, so nothing can be searched; add a value, or --portfolio-only.")
    if space.get("gradient_checkpointing") and recipe.max_minutes is None:
        raise RecipeError(
            "space: gradient_checkpointing changes nothing but time and memory under a budget in tokens or epochs; "
            "put it in settings, or give --max-minutes."
        )
    for dimension in space:
        other, wanted = COUNTS_UNDER.get(dimension.name, ("", ()))
        decides = space.get(other)
        values = decides.choices if decides else (fixed.get(other),)
        under = set(dict(dimension.when).get(other, values)) & set(values)
        if other and under and not under & set(wanted):
            raise RecipeError(
                f"space: {dimension.name} changes nothing where {other} is {' or '.join(sorted(map(str, under)))}; leave it out, "
                f"or let {other} be {wanted[0]}."
            )
