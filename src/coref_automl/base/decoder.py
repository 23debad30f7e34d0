"""One typed decoder for records, recipes and stored results. In: plain values and a type. Out: that type, or a `DecodeError`.

A `DecodeError` says which field is wrong, what is expected and what is there. `config` turns it into an error about a recipe,
`Record.from_json` and `read_stored` into one about a file. Types: str, int, float, bool, Path, None, Any, Literal, unions,
tuples, lists, dicts with text as keys, dataclasses (no unknown keys) and TypedDicts (unknown keys are kept), no other. Whole
numbers are below 2**63 in size, others finite, except in fields marked `NOT_FINITE`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.base.errors import InputError
from coref_automl.base.store import read_json, read_jsonl

T = TypeVar("T")

SCHEMA = 1
"""Version of the stored shapes. A file of a newer version is refused."""

NOT_FINITE = {"finite": False}
"""Metadata of a dataclass field of floats that may be infinite or NaN, such as a loss."""

EDITED = "the file was edited, or written by another version"
_LARGEST = 2**63
_NAMES: dict[Any, str] = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path", types.NoneType: "null",
}  # fmt: skip

Decode = Callable[[Any], Any]


class DecodeError(Exception):
    """A value that does not fit its type.

    `problem` continues a sentence about the value ("should be text, not 5"), or follows a colon if `link` is one ("unknown key").
    `path` leads to the value and grows from the inside out. `advice` is for whoever wrote the value.
    """

    def __init__(self, problem: str, advice: str = "", *, link: str = " ") -> None:
        super().__init__(problem)
        self.problem, self.advice, self.link = problem, advice, link
        self.path = ""

    def inside(self, part: str) -> DecodeError:
        self.path = part + self.path
        return self

    def at(self, where: str) -> str:
        """The clause that names the field and the problem; `where` names the file or the recipe."""
        subject = f"{where}: {self.path.removeprefix('.')}" if self.path else where
        return f"{subject}{self.link}{self.problem}"


def decode(kind: type[T], value: Any, *, lenient: bool = False) -> T:
    """Return the value as this type. `lenient` converts what people write: text to floats and paths, lists to tuples."""
    return typing.cast(T, _decoder(kind, lenient)(value))


def decoder_of(kind: Any) -> Decode:
    """Return a function that decodes stored values of this type; it raises `DecodeError`."""
    return _decoder(kind, False)


def decode_stored(kind: type[T], value: Any, where: str, *, error: type[InputError] = InputError, remedy: str = EDITED) -> T:
    """Return the value as this type, or raise an error of one sentence that ends with `remedy`."""
    if isinstance(value, dict) and type(schema := value.get("schema")) is int and schema > SCHEMA:
        raise error(f"{where} was written by a newer version (schema {schema}, this one reads {SCHEMA}); update coref-automl.")
    try:
        return decode(kind, value)
    except DecodeError as wrong:
        raise error(f"{wrong.at(where)}; {remedy}.") from wrong


def read_stored(path: Path, kind: type[T], *, error: type[InputError] = InputError, remedy: str = EDITED) -> T:
    """Read a JSON file that this package wrote, as this type."""
    with _as_error(error):
        value = read_json(path)
    return decode_stored(kind, value, str(path), error=error, remedy=remedy)


def read_stored_rows(path: Path, kind: type[T], *, error: type[InputError] = InputError, remedy: str = EDITED) -> Iterator[T]:
    """Read the rows of a JSONL file that this package wrote, as this type."""
    decode_row = decoder_of(kind)
    with _as_error(error):
        for number, row in enumerate(read_jsonl(path), 1):
            try:
                yield decode_row(row)
            except DecodeError as wrong:
                raise error(f"{wrong.at(f'{path}, line {number}')}; {remedy}.") from wrong


@contextmanager
def _as_error(error: type[InputError]) -> Iterator[None]:
    """Raise unreadable input as this kind of error; a subclass of it (`TooLarge`) stays what it is."""
    try:
        yield
    except InputError as unreadable:
        if isinstance(unreadable, error):
            raise
        raise error(str(unreadable)) from unreadable


def nearest(name: Any, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, or lists all; an unknown name of YAML may be a date or a number."""
    known = sorted(known)
    close = difflib.get_close_matches(name if isinstance(name, str) else short_repr(name), known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."


def short_repr(value: Any) -> str:
    """A value as an error shows it, cut if it is long."""
    try:
        return reprlib.repr(value) if not isinstance(value, str) else repr(value if len(value) <= 120 else value[:117] + "...")
    except ValueError:  # Python does not print numbers of more than 4,300 digits
        return "a number of thousands of digits"


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields or of a function's arguments."""
    return typing.get_type_hints(kind)


def _decoder(kind: Any, lenient: bool) -> Decode:
    """Build the decoder of a type. Only those of classes are cached: `a | b` and `b | a` are equal as keys, not in order."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _union(arguments, lenient)
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is tuple:
        return _sequence(arguments, lenient, tuple)
    if origin is list:
        return _sequence((*arguments, ...), lenient, list)
    if origin in (dict, Mapping):
        return _mapping(arguments, lenient)
    if typing.is_typeddict(kind):
        return _open_object(kind, lenient)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _record(kind, lenient)
    if kind is Any:
        return lambda value: value
    if kind not in _NAMES:
        raise TypeError(f"there is no decoder for {kind}")
    return (_plain_written if lenient else _plain_stored)(kind)


def _wrong_type(kind: Any, value: Any) -> DecodeError:
    return DecodeError(f"should be {_NAMES[kind]}, not {short_repr(value)}")


def _plain_stored(kind: Any) -> Decode:
    """The decoder of a plain value in JSON, which is not converted, except a huge int in a field of floats."""
    accepted = (float, int) if kind is float else (kind,)

    def decode_plain(value: Any) -> Any:
        if type(value) not in accepted:
            raise _wrong_type(kind, value)
        small = type(value) is int and abs(value) < _LARGEST  # stays an int, also in a field of floats
        return value if small or kind not in (int, float) else _number(kind, value)

    return decode_plain if kind is not Path else lambda value: Path(_plain_stored(str)(value))


def _plain_written(kind: Any) -> Decode:
    """The decoder of a plain value that a person or a caller wrote, which is converted."""

    def decode_plain(value: Any) -> Any:
        if kind is float and not isinstance(value, bool) and isinstance(value, Real | str):
            with suppress(ValueError):
                return _number(float, value)  # YAML reads 5e-5 as text
        elif kind is Path and isinstance(value, str | Path):
            return Path(value)
        elif kind is int and not isinstance(value, bool) and hasattr(value, "__index__"):
            return _number(int, operator.index(value))  # also of numpy's integers
        elif kind is not int and isinstance(value, kind):
            return value
        raise _wrong_type(kind, value)

    return decode_plain


def _number(kind: Any, value: Any) -> Any:
    """Return the value as an int or a float that is in range; text that is not a number raises a ValueError."""
    with suppress(OverflowError):  # an int beyond all floats
        number = kind(value)
        if abs(number) < _LARGEST if kind is int else math.isfinite(number):
            return number
    expected = "between -2**63 and 2**63" if kind is int else "a finite number below 1.8e308"
    raise DecodeError(f"should be {expected}, not {short_repr(value)}")


def _union(arguments: tuple[Any, ...], lenient: bool) -> Decode:
    """The decoder of the first type that fits; if none does, the error is that of the last."""
    optional = types.NoneType in arguments
    inner = [_decoder(kind, lenient) for kind in arguments if kind is not types.NoneType]

    def decode_any(value: Any) -> Any:
        if value is None and optional:
            return None
        for decode_kind in inner[:-1]:
            try:
                return decode_kind(value)
            except DecodeError:
                continue
        return inner[-1](value)

    return decode_any


def _literal(known: tuple[Any, ...]) -> Decode:
    def decode_literal(value: Any) -> Any:
        for literal in known:
            if type(literal) is type(value) and literal == value:
                return literal
        raise DecodeError(f"cannot be {short_repr(value)}", nearest(value, map(str, known)))

    return decode_literal


def _sequence(arguments: tuple[Any, ...], lenient: bool, build: type) -> Decode:
    variadic = arguments[1:] == (...,)
    inner = [_decoder(kind, lenient) for kind in (arguments[:1] if variadic else arguments)]

    def decode_sequence(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise DecodeError(f"should be a list, not {short_repr(value)}")
        if not variadic and len(value) != len(inner):
            raise DecodeError(f"should have {len(inner)} entries, not {len(value)}")
        kinds = inner * len(value) if variadic else inner
        index, entries = 0, []
        try:  # a single one for the whole list: lists are long
            for index, decode_entry in enumerate(kinds):
                entries.append(decode_entry(value[index]))
        except DecodeError as error:
            raise error.inside(f"[{index}]") from None
        return build(entries)

    return decode_sequence


def _mapping(arguments: tuple[Any, ...], lenient: bool) -> Decode:
    if arguments[0] in (bool, float, int):
        raise TypeError(f"JSON has text as keys, and a record asks for {arguments[0].__name__}")
    inner = _decoder(arguments[1], lenient)

    def decode_mapping(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _not_an_object(value, lenient)
        if others := [key for key in value if not isinstance(key, str)]:  # YAML reads 2024: as a number and on: as true
            raise DecodeError(f"should have text as keys, not {short_repr(others[0])}", "Put it in quotation marks.")
        return {key: _inside(inner, entry, key) for key, entry in value.items()}

    return decode_mapping


def _any_float(value: Any) -> Any:
    return value if type(value) is float else _plain_stored(float)(value)


def _inside(inner: Decode, value: Any, key: Any) -> Any:
    try:
        return inner(value)
    except DecodeError as error:
        raise error.inside(f".{key}") from None


def _not_an_object(value: Any, lenient: bool) -> DecodeError:
    return DecodeError(f"should {'hold `key: value` lines' if lenient else 'be an object'}, not {short_repr(value)}")


@cache
def _open_object(kind: Any, lenient: bool) -> Decode:
    inner = {key: _decoder(hint, lenient) for key, hint in hints_of(kind).items()}
    required = sorted(kind.__required_keys__)

    def decode_open(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _not_an_object(value, lenient)
        if absent := [key for key in required if key not in value]:
            raise _missing(absent)
        return {key: _inside(inner[key], entry, key) if key in inner else entry for key, entry in value.items()}

    return decode_open


@cache
def _record(kind: Any, lenient: bool) -> Decode:
    fields, hints = dataclasses.fields(kind), hints_of(kind)
    inner = {f.name: _any_float if f.metadata == NOT_FINITE else _decoder(hints[f.name], lenient) for f in fields}
    required = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]

    def decode_record(value: Any) -> Any:
        if lenient and isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise _not_an_object(value, lenient)
        decoded = {}
        for key, entry in value.items():
            if (decode_field := inner.get(key)) is None:
                raise DecodeError(f"unknown key {short_repr(key)}", nearest(key, inner), link=": ")
            decoded[key] = _inside(decode_field, entry, key)
        if absent := [key for key in required if key not in decoded]:
            raise _missing(absent)
        return kind(**decoded)

    return decode_record


def _missing(keys: Sequence[str]) -> DecodeError:
    if len(keys) == 1:
        return DecodeError(f"the key {keys[0]!r} is missing", "Give it in the recipe or as an option.", link=": ")
    names = ", ".join(map(repr, keys))
    return DecodeError(f"the keys {names} are missing", "Give them in the recipe or as options.", link=": ")
