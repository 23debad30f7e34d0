"""Recipes. In: YAML or options. Out: frozen dataclasses; an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import os
import re
import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from coref_automl.decoder import DecodeError, decode, hints_of
from coref_automl.decoder import nearest as nearest
from coref_automl.decoder import shown as shown
from coref_automl.errors import RecipeError
from coref_automl.folders import with_article
from coref_automl.guard import refuse_special
from coref_automl.records import plain

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
P = ParamSpec("P")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a recipe says of a field, inside `Annotated`: its help, its range, other names of its option.

    `free`: it may change between two calls on one folder, because it does not decide what is computed. A field without a Setting,
    or without help, can be given in a recipe, not as an option.
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
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: note for name, held in notes.items() for note in held if isinstance(note, Setting)}


def free_fields(recipe: Any) -> tuple[str, ...]:
    return tuple(name for name, setting in described(recipe).items() if setting.free)


_LARGEST, _DIGITS = 1 << 18, 1_000
"""Bytes of a recipe, and of a number in it."""


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """YAML without aliases, which turn a few hundred bytes into billions, without keys that stand twice in a mapping, and without
    endless numbers: those in base 60 (1:1:1:...) take minutes."""
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
                raise yaml.YAMLError(f"it names {shown(twice)} twice, keep one of them")
            return super().construct_mapping(node, deep=deep)

    return Loader


def choose(name: str, registry: Mapping[str, T], what: str) -> T:
    """Look a name up in a registry; an unknown one is an error that names the nearest."""
    try:
        return registry[name]
    except KeyError:
        raise RecipeError(f"Unknown {what} {shown(name)}. {nearest(name, registry)}") from None


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
    except (yaml.YAMLError, ValueError) as error:  # a date or a number that cannot be is a ValueError
        raise RecipeError(f"{path} is not YAML: {' '.join(str(error).split(';')[0].split())}.") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path} should hold `key: value` lines at the top level.")
    return data


def overlaid(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over the values of a file, key by key in their stages, too; what should be a stage and is none is left to
    `from_mapping`, which names the file."""
    found = dict(values)
    for name, value in given.items():
        held = found.get(name) or {}
        if not isinstance(value, Mapping):
            found[name] = value
        elif isinstance(held, Mapping):
            found[name] = overlaid(held, value)
    return found


def from_mapping(recipe: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build a (possibly nested) frozen dataclass; every key is known and every value has the field's type."""
    gathered = getattr(recipe, "gathered", None)  # a recipe whose sections are not all fields of it
    return typing.cast(T, checked(recipe, gathered(data, where) if gathered else data, where))


def typed(recipe: Any) -> None:
    """Check types and ranges in a recipe's `__post_init__`: a path is accepted for text and back, one entry for a list."""
    kind: Any = type(recipe)
    for name, shape in hints_of(kind).items():
        value = checked(shape, _as_meant(shape, getattr(recipe, name)), f"{kind.__name__}: {name}")
        object.__setattr__(recipe, name, value)
    for name, setting in described(kind).items():
        value = getattr(recipe, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and (fault := setting.fault(value)):
            known = not setting.flags or f"--{name.replace('_', '-')}" in setting.flags
            raise RecipeError(f"{name if known else f'{name} ({setting.flags[0]})'} {fault}.")


def weights_of(text: str, option: str) -> dict[str, float]:
    """The numbers of NAME=NUMBER,NAME=NUMBER."""
    found: dict[str, float] = {}
    for entry in filter(None, text.split(",")):
        name, _, number = (part.strip() for part in entry.partition("="))
        if name in found:
            raise RecipeError(f"{option} {text} names {name} twice; name it once.")
        with suppress(ValueError):
            found[name] = float(number)
        if not 0 <= found.get(name, -1) < math.inf:
            raise RecipeError(f"{option}: {entry.strip()!r} should read NAME=NUMBER, with a number of 0 or more.")
    return found


def expect(recipe: Any, kind: type[T], function: str) -> T:
    """The recipe, if it is of this kind; else an error."""
    if not isinstance(recipe, kind):
        raise RecipeError(f"{function} needs {with_article(kind.__name__)}, not {shown(recipe)}.")
    return recipe


def as_path(value: Any, what: str) -> Path:
    with suppress(UnicodeEncodeError):
        if isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str) and b"\0" not in os.fsencode(value):
            return Path(value)
    raise RecipeError(f"{what} should be a path, not {shown(value)}.")


def as_paths(value: Any, what: str) -> list[str]:
    """One path, or paths in lists of any depth, as one list of strings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, os.PathLike):
        return [str(as_path(value, what))]
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise RecipeError(f"{what} should be a path or a list of paths, not {shown(value)}.")
    return [path for entry in value for path in as_paths(entry, what)]


def recipe_with(kind: type[T], recipe: T | None, options: Mapping[str, Any], function: str) -> T:
    """A recipe as it was given, or one made from options; None is an option that was not given."""
    given = {name: plain(value) for name, value in options.items() if value is not None}
    if recipe is None:
        return from_mapping(kind, given, function)
    if given:
        raise RecipeError(f"{function}: pass a recipe or options, not both; {next(iter(given))} belongs in the recipe.")
    return recipe


def typed_options(function: Callable[P, T]) -> Callable[P, T]:
    """A public function whose keyword options are checked as a recipe's fields are."""

    @wraps(function)
    def call(*given: P.args, **options: P.kwargs) -> T:
        shapes = hints_of(function)
        for name, value in options.items():
            if name not in shapes or name == "return":
                raise RecipeError(f"{function.__name__}: unknown option {name!r}. {nearest(name, shapes)}")
            options[name] = checked(shapes[name], _as_meant(shapes[name], value), f"{function.__name__}: {name}")
        return function(*given, **options)

    return call


def to_mapping(recipe: Any) -> dict[str, Any]:
    """The recipe as plain values, as `recipe.yaml` holds it."""
    return typing.cast(dict[str, Any], plain(recipe))


def to_yaml(recipe: Any) -> str:
    import yaml

    return yaml.safe_dump(to_mapping(recipe), allow_unicode=True, sort_keys=False)


def _as_meant(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        entries = (value,) if isinstance(value, str | Path) else value
        return tuple(_as_meant(arguments[0], entry) for entry in entries) if isinstance(entries, list | tuple) else entries
    wants_text = kind is str or (str in arguments and Path not in arguments)
    return str(value) if wants_text and isinstance(value, Path) else value


def checked(kind: Any, value: Any, where: str) -> Any:
    """The value, if it is of this type; else an error that names where it stands."""
    try:
        return decode(kind, value, lenient=True)
    except DecodeError as error:
        raise RecipeError(f"{error.at(where)}. {error.advice}".rstrip()) from error


def callable_package(package: str, function: str) -> None:
    """Make calls of a package calls of the function `MODULE.NAME`, which is imported when it is first called."""
    module, _, name = function.rpartition(".")

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), name)(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage
