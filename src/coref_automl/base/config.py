"""Recipes. In: YAML or options. Out: frozen dataclasses; an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from coref_automl.base.decoder import DecodeError, decode, hints_of
from coref_automl.base.decoder import nearest as nearest
from coref_automl.base.decoder import short_repr as short_repr
from coref_automl.base.errors import RecipeError
from coref_automl.base.folders import with_article
from coref_automl.base.guard import refuse_special
from coref_automl.base.records import plain

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
P = ParamSpec("P")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """The metadata of a recipe's field, inside `Annotated`: its help, its range, other names of its option.

    `free`: it does not influence results, so that it may change between two calls on one folder. A field without a Setting, or
    without help, can be set in a recipe, but has no option.
    """

    help: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    free: bool = False
    flags: tuple[str, ...] = ()

    def fault(self, value: float) -> str | None:
        """Why a value is out of range, if it is."""
        low, high, above = self.low, self.high, self.above
        if (above is None or value > above) and (low is None or value >= low) and (high is None or value <= high):
            return None
        if low is not None and high is not None:
            bound = f"from {_number(low)} to {_number(high)}"
        else:
            ends = ((above, "above {}"), (low, "{} or more"), (high, "at most {}"))
            bound = " and ".join(words.format(_number(end)) for end, words in ends if end is not None)
        return f"should be {bound}, not {_number(value)}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


@functools.cache
def described(recipe: Any) -> dict[str, Setting]:
    """The fields of a recipe that have a Setting, in order."""
    hints = typing.get_type_hints(recipe, include_extras=True)
    metadata = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: entry for name, entries in metadata.items() for entry in entries if isinstance(entry, Setting)}


def free_fields(recipe: Any) -> tuple[str, ...]:
    return tuple(name for name, setting in described(recipe).items() if setting.free)


_LARGEST, _DIGITS = 1 << 18, 1_000
"""Bytes of a recipe, and of a number in it."""


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """A YAML loader without aliases, which expand to gigabytes, duplicate keys, and endless numbers (1:1:1:... in base 60)."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias (*name), write the value where it belongs")
            node = super().compose_node(parent, index)
            if isinstance(node, yaml.ScalarNode) and len(node.value) > _DIGITS and node.tag.endswith((":int", ":float")):
                raise yaml.YAMLError(f"it has a number of more than {_DIGITS:,} characters")
            return node

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = Counter(str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if twice := next((key for key, count in keys.items() if count > 1), None):
                raise yaml.YAMLError(f"it names {short_repr(twice)} twice, keep one of them")
            return super().construct_mapping(node, deep=deep)

    return Loader


def choose(name: str, registry: Mapping[str, T], what: str) -> T:
    """Look up a name in a registry; an unknown one is an error that suggests the nearest."""
    try:
        return registry[name]
    except KeyError:
        raise RecipeError(f"Unknown {what} {short_repr(name)}. {nearest(name, registry)}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        refuse_special(path)
        if path.stat().st_size > _LARGEST:
            raise RecipeError(f"{path} is too large for a recipe ({path.stat().st_size:,} bytes); pass the path of a recipe.")
        if re.search(r"\\u[dD][89a-fA-F]", text := path.read_text("utf-8")):
            raise RecipeError(f"{path} holds half of a surrogate pair (\\ud800 to \\udfff); write the character itself.")
        data = yaml.load(text, _loader())
    except OSError as error:
        raise RecipeError(f"Cannot read the recipe {path} ({error.strerror}).") from error
    except RecursionError as error:
        raise RecipeError(f"{path} is nested too deeply to be a recipe.") from error
    except (yaml.YAMLError, ValueError) as error:  # impossible dates and numbers are ValueErrors
        raise RecipeError(f"{path} is not YAML: {' '.join(str(error).split(';')[0].split())}.") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path} should hold `key: value` lines at the top level.")
    return data


def overlaid(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Override the values of a file by options, key by key, also inside stages. A stage that is not a mapping is left for
    `from_mapping` to refuse, which names the file."""
    merged = dict(values)
    for name, value in options.items():
        stage = merged.get(name) or {}
        if not isinstance(value, Mapping):
            merged[name] = value
        elif isinstance(stage, Mapping):
            merged[name] = overlaid(stage, value)
    return merged


def from_mapping(recipe: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build a (possibly nested) recipe; unknown keys and values of wrong types are errors."""
    gathered = getattr(recipe, "gathered", None)  # for a recipe with sections that are not fields
    return typing.cast(T, checked(recipe, gathered(data, where) if gathered else data, where))


def typed(recipe: Any) -> None:
    """Check types and ranges in a recipe's `__post_init__`. Text and paths convert into each other, one entry into a list."""
    kind: Any = type(recipe)
    for name, shape in hints_of(kind).items():
        value = checked(shape, _coerced(shape, getattr(recipe, name)), f"{kind.__name__}: {name}")
        object.__setattr__(recipe, name, value)
    for name, setting in described(kind).items():
        value = getattr(recipe, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and (fault := setting.fault(value)):
            is_option = not setting.flags or f"--{name.replace('_', '-')}" in setting.flags
            raise RecipeError(f"{name if is_option else f'{name} ({setting.flags[0]})'} {fault}.")


def parse_weights(text: str, option: str) -> dict[str, float]:
    """Parse NAME=NUMBER,NAME=NUMBER."""
    weights: dict[str, float] = {}
    for entry in filter(None, text.split(",")):
        name, _, number = (part.strip() for part in entry.partition("="))
        if name in weights:
            raise RecipeError(f"{option} {text} names {name} twice; name it once.")
        with suppress(ValueError):
            weights[name] = float(number)
        if not 0 <= weights.get(name, -1) < math.inf:
            raise RecipeError(f"{option}: {entry.strip()!r} should read NAME=NUMBER, with a number of 0 or more.")
    return weights


def expect(recipe: Any, kind: type[T], function: str) -> T:
    """Return the recipe, or raise an error if it is of another kind."""
    if not isinstance(recipe, kind):
        raise RecipeError(f"{function} needs {with_article(kind.__name__)}, not {short_repr(recipe)}.")
    return recipe


def as_path(value: Any, what: str) -> Path:
    with suppress(UnicodeEncodeError):
        if isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str) and b"\0" not in os.fsencode(value):
            return Path(value)
    raise RecipeError(f"{what} should be a path, not {short_repr(value)}.")


def as_paths(value: Any, what: str) -> list[str]:
    """One path, or paths in lists of any depth, as one list of strings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, os.PathLike):
        return [str(as_path(value, what))]
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise RecipeError(f"{what} should be a path or a list of paths, not {short_repr(value)}.")
    return [path for entry in value for path in as_paths(entry, what)]


def recipe_with(kind: type[T], recipe: T | None, options: Mapping[str, Any], function: str) -> T:
    """Return the recipe, or build one from options; an option of None counts as absent."""
    values = {name: plain(value) for name, value in options.items() if value is not None}
    if recipe is None:
        return from_mapping(kind, values, function)
    if values:
        raise RecipeError(f"{function}: pass a recipe or options, not both; {next(iter(values))} belongs in the recipe.")
    return recipe


def typed_options(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function to check its keyword options as the fields of a recipe."""

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        shapes = hints_of(function)
        for name, value in options.items():
            if name not in shapes or name == "return":
                raise RecipeError(f"{function.__name__}: unknown option {name!r}. {nearest(name, shapes)}")
            options[name] = checked(shapes[name], _coerced(shapes[name], value), f"{function.__name__}: {name}")
        return function(*arguments, **options)

    return call


def to_mapping(recipe: Any) -> dict[str, Any]:
    """The recipe as plain values, as in `recipe.yaml`."""
    return typing.cast(dict[str, Any], plain(recipe))


def to_yaml(recipe: Any) -> str:
    import yaml

    return yaml.safe_dump(to_mapping(recipe), allow_unicode=True, sort_keys=False)


def _coerced(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        entries = (value,) if isinstance(value, str | Path) else value
        return tuple(_coerced(arguments[0], entry) for entry in entries) if isinstance(entries, list | tuple) else entries
    wants_text = kind is str or (str in arguments and Path not in arguments)
    return str(value) if wants_text and isinstance(value, Path) else value


def checked(kind: Any, value: Any, where: str) -> Any:
    """Return the value as this type, or raise an error that names the field."""
    try:
        return decode(kind, value, lenient=True)
    except DecodeError as error:
        raise RecipeError(f"{error.at(where)}. {error.advice}".rstrip()) from error
