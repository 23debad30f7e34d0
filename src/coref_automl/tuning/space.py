"""The space of a study. In: YAML that a person can edit. Out: dimensions that Optuna draws from, each checked against the recipe.

    learning_rate: {low: 5e-6, high: 2e-4, log: true}
    objective: [mlm, entity, combined]
    ratio: {low: 0.2, high: 0.8, when: {objective: [combined]}}

A dimension is drawn only where it does something, as its `when` says or as `COUNTS_UNDER` knows: no trial differs from another in
a value that has no effect.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coref_automl.config import from_mapping, nearest, short_repr
from coref_automl.decoder import hints_of
from coref_automl.errors import RecipeError
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.training.masking import OBJECTIVES, MentionLoss
from coref_automl.training.recipe import TrainRecipe
from coref_automl.tuning.recipe import TuneRecipe, TuneTask

Conditions = tuple[tuple[str, tuple[Any, ...]], ...]


def _kinds(recipe: type, names: str) -> dict[str, type]:
    """The plain type of each of these fields of a recipe: text for a Literal, and without None."""
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
        "model scheme head learning_rate weight_decay warmup layer_decay dropout batch_size max_length label_smoothing r_drop "
        "label_mask mask_support hard_negatives",
    ),
}
"""What a study may vary: fields of the recipe that change what is learned. Where and how it runs is not among them."""

_WITH_MENTIONS = tuple(name for name, objective in OBJECTIVES.items() if objective.entity_rows != 0)


def _having(loss: MentionLoss) -> tuple[str, ...]:
    return tuple(name for name, objective in OBJECTIVES.items() if loss in objective.losses)


COUNTS_UNDER: dict[str, tuple[str, tuple[str, ...]]] = {
    "ratio": ("objective", ("combined",)),
    **dict.fromkeys(("entity_rate", "background", "far_weight"), ("objective", _WITH_MENTIONS)),
    "copy_weight": ("objective", _having("copy")),
    **dict.fromkeys(("link_weight", "temperature"), ("objective", _having("link"))),
    **dict.fromkeys(("min_prob", "max_prob", "rates"), ("objective", ("mlm", "combined"))),
    "mask_support": ("label_mask", ("hard", "soft")),
}
"""Settings that change nothing unless another has one of these values."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A range (low, high) or a set of choices; `when` names earlier dimensions and the values under which this one counts."""

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
        """The value of this dimension that is closest to a recommended one."""
        if not self.choices:
            return self.kind(min(self.high, max(self.low, value)))
        if value in self.choices or self.kind not in (int, float):
            return value if value in self.choices else self.choices[0]
        return min(self.choices, key=lambda choice: abs(choice - value))

    def offers(self, value: Any) -> bool:
        return value in self.choices if self.choices else isinstance(value, int | float) and self.low <= value <= self.high

    def ends(self) -> tuple[Any, ...]:
        """Values that represent the whole dimension when it is checked."""
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
        """The values of one trial. `fixed` are settings that a `when` may look at."""
        return self._filled(fixed, lambda dimension: dimension.suggest(trial))

    def point(self, wanted: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        """The point of the space that is nearest to some recommended values."""

        def value(dimension: Dimension) -> Any:
            found = wanted.get(dimension.name)
            return dimension.ends()[0] if found is None else dimension.nearest(found)

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
    """The dimensions of a YAML mapping; an unknown name, an empty range or a condition that cannot hold is an error."""
    known: dict[str, Dimension] = {}
    for name, entry in data.items():
        if name not in TUNABLE[task]:
            raise RecipeError(f"space: unknown name {short_repr(name)}. {nearest(name, TUNABLE[task])}")
        if not isinstance(entry, list | tuple | Mapping):
            raise RecipeError(f"space: {name} should be a list of choices or {{low: ..., high: ...}}, not {short_repr(entry)}.")
        given = from_mapping(_Entry, entry if isinstance(entry, Mapping) else {"choices": entry}, f"space: {name}")
        known[name] = _dimension(name, TUNABLE[task][name], given, _conditions(name, given, known, data, TUNABLE[task]))
    if not known:
        raise RecipeError(f"space is empty; name at least one of {', '.join(TUNABLE[task])}.")
    if {"min_prob", "max_prob"} <= set(known) and max(known["min_prob"].ends()) > min(known["max_prob"].ends()):
        raise RecipeError("space: the ranges of min_prob and max_prob overlap; end min_prob where max_prob begins.")
    return Space(tuple(known.values()))


def _dimension(name: str, kind: type, given: _Entry, when: Conditions) -> Dimension:
    if given.choices is not None:
        choices: tuple[Any, ...] = tuple(from_mapping(kind, value, f"space: {name}") for value in given.choices)
        if not choices or len(set(choices)) != len(choices):
            raise RecipeError(f"space: {name} {'has no choices' if not choices else 'names a choice twice'}; correct its list.")
        return Dimension(name, kind, choices=choices, when=when)
    if kind not in (float, int) or given.low is None or given.high is None:
        raise RecipeError(f"space: {name} should {'have low and high' if kind in (float, int) else 'be a list of choices'}.")
    low, high = (from_mapping(kind, end, f"space: {name}.{key}") for key, end in (("low", given.low), ("high", given.high)))
    if not low < high:
        raise RecipeError(f"space: the range of {name} from {low:g} to {high:g} is empty; low must be under high.")
    if given.log and low <= 0:
        raise RecipeError(f"space: {name} is logarithmic and cannot start at {low:g}; raise low, or leave out log.")
    return Dimension(name, kind, low=low, high=high, log=given.log, when=when)


def _conditions(
    name: str, given: _Entry, known: Mapping[str, Dimension], data: Mapping[str, Any], tunable: Mapping[str, type]
) -> Conditions:
    """When a dimension counts: as its `when` says, and where another dimension decides it, as `COUNTS_UNDER` knows."""
    when = {other: values if isinstance(values, tuple) else (values,) for other, values in given.when.items()}
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
        counts = tuple(value for value in known[decides].choices if value in wanted)
        when |= {decides: counts} if 0 < len(counts) < len(known[decides].choices) else {}
    return tuple(when.items())


def check_ends(
    space: Space, wanted: Mapping[str, Any], fixed: Mapping[str, Any], check: Callable[[dict[str, Any]], object]
) -> None:
    """Every end of every dimension, where it is drawn, passes `check`: no trial fails by its settings alone."""
    for dimension in space:
        drawn = {other: (found, values) for other, values in dimension.when if (found := space.get(other))}
        under = {other: next((v for v in values if v in found.choices), values[0]) for other, (found, values) in drawn.items()}
        start = space.point({**wanted, **under}, fixed)
        for value in dimension.ends() if dimension.name in start else ():
            check({**start, dimension.name: value})


def refuse_idle(space: Space, fixed: Mapping[str, Any], recipe: TuneRecipe) -> None:
    """A dimension that changes nothing wherever it is drawn wastes trials."""
    if all(len(dimension.choices) == 1 for dimension in space) and not recipe.portfolio_only:
        raise RecipeError(
            "space: every dimension has one value, so there is nothing to search; add a value, or --portfolio-only."
        )
    if space.get("gradient_checkpointing") and recipe.max_minutes is None:
        raise RecipeError(
            "space: gradient_checkpointing changes nothing but time and memory under a budget in tokens or epochs; "
            "put it in settings, or give --max-minutes."
        )
    for dimension in space:
        other, wanted = COUNTS_UNDER.get(dimension.name, ("", ()))
        found = space.get(other)
        values = found.choices if found else (fixed.get(other),)
        drawn = set(dict(dimension.when).get(other, values)) & set(values)
        if other and drawn and not drawn & set(wanted):
            raise RecipeError(
                f"space: {dimension.name} changes nothing where {other} is {' or '.join(sorted(map(str, drawn)))}; leave it out, "
                f"or let {other} be {wanted[0]}."
            )
