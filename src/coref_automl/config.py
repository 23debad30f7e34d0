"""Recipes. In: YAML or options. Out: frozen dataclasses; an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import yaml

from coref_automl.errors import RecipeError
from coref_automl.store import refuse_special

T = TypeVar("T")
P = ParamSpec("P")

_LARGEST = 1 << 20
"""Characters of a recipe. Aliases can multiply a few hundred bytes to billions, so that they count written out."""


def nearest(name: Any, known: Iterable[str]) -> str:
    """A closing sentence for an unknown name, which in YAML may be a date or a number: the nearest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name if isinstance(name, str) else shown(name), known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."


def shown(value: Any) -> str:
    """A value in an error, however large it is."""
    try:
        return reprlib.repr(value) if not isinstance(value, str) else repr(value if len(value) <= 120 else value[:117] + "...")
    except ValueError:  # Python prints no number of more than 4,300 digits
        return "a number of thousands of digits"


def choose(name: str, registry: Mapping[str, T], what: str) -> T:
    """Look a name up in a registry; an unknown one is an error that names the nearest."""
    try:
        return registry[name]
    except KeyError:
        raise RecipeError(f"Unknown {what} {shown(name)}. {nearest(name, registry)}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; nothing is built from one that is too large."""
    try:
        refuse_special(path)
        if path.stat().st_size > 4 * _LARGEST:
            raise RecipeError(f"{path} is too large for a recipe ({path.stat().st_size:,} bytes); pass the path of a recipe.")
        loader = yaml.SafeLoader(path.read_text("utf-8"))
        node = loader.get_single_node()
        if node is not None and _written_out(node, {}) > _LARGEST:
            raise RecipeError(
                f"{path} is too large for a recipe with its aliases (*name) written out, or one of them holds itself; "
                "write the values where they belong, without aliases."
            )
        data = loader.construct_document(node) if node is not None else None
    except OSError as error:
        raise RecipeError(f"Cannot read the recipe {path} ({error.strerror}).") from error
    except RecursionError as error:
        raise RecipeError(f"{path} is nested too deeply to be a recipe.") from error
    except (yaml.YAMLError, ValueError) as error:  # a date or a number that cannot be is a ValueError
        raise RecipeError(f"{path} is not YAML: {' '.join(str(error).split(';')[0].split())}.") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{path} should hold `key: value` lines at the top level.")
    return data


def _written_out(node: yaml.Node, sizes: dict[yaml.Node, float]) -> float:
    """Characters of a node with its aliases written out; one that holds itself has infinitely many."""
    if isinstance(node, yaml.ScalarNode):
        return 1 + len(node.value)
    if node not in sizes:
        sizes[node] = math.inf
        inside = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
        sizes[node] = 1 + sum(_written_out(part, sizes) for part in inside)
    return sizes[node]


def read_recipe(path: Path, recipe: type[T]) -> T:
    """A recipe of the given kind from a YAML file."""
    return from_mapping(recipe, read_yaml(path), str(path))


def from_mapping(recipe: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build a (possibly nested) frozen dataclass; every key is known and every value has the field's type."""
    shape = typing.get_type_hints(recipe)
    for key in data:
        if key not in shape:
            raise RecipeError(f"{where}: unknown key {shown(key)}. {nearest(key, shape)}")
    values = {key: _checked(shape[key], value, f"{where}: {key}") for key, value in data.items()}
    try:
        return recipe(**values)
    except TypeError as error:
        missing = [f.name for f in dataclasses.fields(recipe) if _required(f) and f.name not in values]  # type: ignore[arg-type]
        lacks = f"the key {missing[0]!r} is missing; give it in the recipe or as an option" if missing else str(error)
        raise RecipeError(f"{where}: {lacks}.") from error


def typed(recipe: Any) -> None:
    """Check a recipe that Python made, in its `__post_init__`: a path will do for text, text for a path, and one for a list."""
    kind: Any = type(recipe)
    for name, shape in _hints(kind).items():
        value = _checked(shape, _as_meant(shape, getattr(recipe, name)), f"{kind.__name__}: {name}")
        object.__setattr__(recipe, name, value)


def expect(recipe: Any, kind: type[T], function: str) -> T:
    """The recipe, if it is one of this kind."""
    if not isinstance(recipe, kind):
        raise RecipeError(f"{function} needs {_indefinite(kind.__name__)}, not {shown(recipe)}.")
    return recipe


def as_path(value: Any, what: str) -> Path:
    if isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
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


def typed_options(function: Callable[P, T]) -> Callable[P, T]:
    """A public function whose keyword options are checked as a recipe's fields are."""

    @wraps(function)
    def call(*given: P.args, **options: P.kwargs) -> T:
        shapes = _hints(function)
        for name, value in options.items():
            if name not in shapes or name == "return":
                raise RecipeError(f"{function.__name__}: unknown option {name!r}. {nearest(name, shapes)}")
            options[name] = _checked(shapes[name], _as_meant(shapes[name], value), f"{function.__name__}: {name}")
        return function(*given, **options)

    return call


def to_mapping(recipe: Any) -> dict[str, Any]:
    """The recipe as plain values, as `recipe.yaml` holds it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(recipe).items()}


def to_yaml(recipe: Any) -> str:
    return yaml.safe_dump(to_mapping(recipe), allow_unicode=True, sort_keys=False)


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _as_meant(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        entries = (value,) if isinstance(value, str | Path) else value
        return tuple(_as_meant(arguments[0], entry) for entry in entries) if isinstance(entries, list | tuple) else entries
    wants_text = kind is str or (str in arguments and Path not in arguments)
    return str(value) if wants_text and isinstance(value, Path) else value


def _indefinite(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _required(entry: dataclasses.Field[Any]) -> bool:
    return entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING


def _checked(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in arguments:
            return None
        return _first_that_fits([a for a in arguments if a is not types.NoneType], value, where)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise RecipeError(f"{where} cannot be {shown(value)}. {nearest(value, map(str, arguments))}")
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise RecipeError(f"{where} should be a list, not {shown(value)}.")
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        if len(kinds) != len(value):
            raise RecipeError(f"{where} should have {len(kinds)} entries, not {len(value)}.")
        return tuple(_checked(k, entry, where) for k, entry in zip(kinds, value, strict=True))
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise RecipeError(f"{where} should hold `key: value` lines, not {shown(value)}.")
        return {key: _checked(arguments[1], entry, f"{where}.{key}") for key, entry in value.items()}
    if dataclasses.is_dataclass(kind):
        if isinstance(value, kind):  # type: ignore[arg-type]
            return value
        if not isinstance(value, dict):
            raise RecipeError(f"{where} should hold `key: value` lines, not {shown(value)}.")
        return from_mapping(kind, value, where)  # type: ignore[arg-type]
    return _plain(kind, value, where)


def _first_that_fits(kinds: list[Any], value: Any, where: str) -> Any:
    for kind in kinds[:-1]:
        try:
            return _checked(kind, value, where)
        except RecipeError:
            continue
    return _checked(kinds[-1], value, where)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)  # YAML reads 5e-5 as text
        except (ValueError, OverflowError):
            pass
        else:
            if math.isfinite(number):
                return number
    elif kind is Path and isinstance(value, str | Path):
        return Path(value)
    elif kind is int and not isinstance(value, bool) and hasattr(value, "__index__"):
        whole = operator.index(value)  # numpy's whole numbers too
        if abs(whole) < 2**63:
            return whole
    elif kind is not int and isinstance(value, kind):
        return value
    raise RecipeError(f"{where} should be {_NAMES.get(kind, kind.__name__)}, not {shown(value)}.")


_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
