"""The shapes that cross the borders between rooms. Each is frozen, and reads from and writes to plain JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import reprlib
import types
import typing
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Self, TypeVar, cast

from coref_automl.errors import InputError

SCHEMA = 1
"""Version of the shapes below. A file of another version is refused with the command that makes it anew."""

Half = Literal["select", "confirm"]
Task = str
"""Name of a task: a key of the table in `evaluation/tasks`."""


class Record:
    """What every record can do: become JSON, and come back from it."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return cast(dict[str, Any], _plain(self))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return _build(cls, data, cls.__name__)


@dataclass(frozen=True, slots=True)
class Document(Record):
    """A text and where it comes from. `id` is unique within its source."""

    id: str
    source: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class ClozeItem(Record):
    """One hidden span of one document. The same for every model and every length.

    `start:end` is the hidden span of the document's text and `text[start:end] == answer`. The antecedent is the first mention
    (real), the nearest other occurrence (real-far) or the nearest other mention of the entity (gold). `candidates` are groups of
    surfaces, the right group first; outside gold every group holds one word. `distance` counts reference tokens from antecedent
    to gap, -1 where there is no antecedent.
    """

    id: str
    task: Task
    document: str
    cluster: str
    source: str
    start: int
    end: int
    answer: str
    tag: str
    candidates: tuple[tuple[str, ...], ...]
    antecedent: tuple[int, int] | None = None
    distance: int = -1
    pronoun_between: bool = False

    @property
    def half(self) -> Half:
        return half_of(self.cluster)


@dataclass(frozen=True, slots=True)
class ItemScore(Record):
    """What one model makes of one item. Ranks count from 1; 0 means that no entry of the vocabulary can match.

    `word_rank` is the rank of the right group among the item's candidates, ties against it; None where `word` was not run.
    Cluster, source, tag, distance and answer are the item's, repeated so that a file of scores can be read alone.
    """

    item: str
    task: Task
    cluster: str
    source: str
    answer: str
    tag: str
    distance: int
    strict_rank: int
    lenient_rank: int
    top: tuple[str, ...]
    pieces: int
    own_distance: int = -1
    out_of_reach: bool = False
    word_rank: int | None = None
    pronoun_between: bool = False

    @property
    def half(self) -> Half:
        return half_of(self.cluster)


@dataclass(frozen=True, slots=True)
class Estimate(Record):
    """A number with its 95% interval and the count of items behind it."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:.2f}% [{100 * self.low:.2f}, {100 * self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Provenance(Record):
    """How a checkpoint came to be; written beside its weights as `training.json`.

    `planned_end`: the last step of a run of fixed length that looked at no evaluation set, so that nothing chose this checkpoint.
    """

    run: str
    step: int
    epoch: float
    tokens: int
    objective: str
    base: str
    seq_len: int
    seed: int
    dataset: str = ""
    dataset_bytes: str = ""
    planned_end: bool = False
    base_bytes: str = ""

    @property
    def data(self) -> str:
        """What it was trained on: the bytes' name where it is known, for folders move."""
        return self.dataset_bytes or self.dataset


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """One checkpoint on one evaluation set at one window length.

    `estimates` maps a metric's name (see evaluation/metrics) to its estimate; a metric that was not run is absent.
    `fingerprints` name bytes: weights, items, tokenizer. `baselines` maps a baseline's name to its own estimates. `evalset_path`
    is where the set stood when it was last evaluated on; empty in an archive.
    """

    checkpoint: str
    path: str
    evalset: str
    seq_len: int
    dtype: str
    scorer: str
    evaluated_at: str
    seconds: float
    fingerprints: dict[str, str]
    estimates: dict[str, Estimate]
    baselines: dict[str, dict[str, Estimate]]
    single_entry_share: float
    out_of_reach: int
    provenance: Provenance | None = None
    evalset_path: str = ""
    schema: int = SCHEMA

    @property
    def condition(self) -> tuple[object, ...]:
        """How it was scored, whatever the model: the items' bytes, scorer version, dtype, length."""
        return self.fingerprints.get("items", ""), self.scorer, self.dtype, self.seq_len

    @property
    def identity(self) -> tuple[object, ...]:
        """What it is, whatever it is called and wherever it stands: all bytes, scorer version, dtype, length."""
        return tuple(sorted(self.fingerprints.items())), *self.condition


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """A paired answer: is `name` different from `reference` on `metric`? Points are fractions, not percent.

    `family` is the count of comparisons that `p_adjusted` allows for.
    """

    name: str
    reference: str
    metric: str
    difference: Estimate
    p: float
    p_adjusted: float
    mcnemar_p: float | None
    detectable: float | None
    verdict: str
    notes: tuple[str, ...] = field(default=())
    family: int = 1


def half_of(cluster: str) -> Half:
    """Each cluster belongs to one half for ever: `select` chooses, `confirm` judges."""
    return "select" if hashlib.sha256(cluster.encode()).digest()[0] < 128 else "confirm"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value


T = TypeVar("T")


@cache
def _shape(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(cls: type[T], data: Any, where: str) -> T:
    """Rebuild a record; a missing or surplus key is an error that names it."""
    if not isinstance(data, dict):
        raise InputError(f"{where} should be an object, not {type(data).__name__}; the file was written by something else.")
    shape = _shape(cast(Any, cls))
    if surplus := set(data) - set(shape):
        raise InputError(f"{where} has the unknown key {sorted(surplus)[0]!r}; the file was written by another version.")
    try:
        return cls(**{key: _value(shape[key], entry, f"{where}.{key}") for key, entry in data.items()})
    except TypeError as error:
        raise InputError(f"{where} is incomplete ({error}); the file was written by another version.") from error


def _value(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _build(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in arguments if a is not types.NoneType]
        return None if value is None and len(inner) < len(arguments) else _value(inner[0], value, where)
    if (origin is tuple and not isinstance(value, list | tuple)) or (origin is dict and not isinstance(value, dict)):
        raise _unlike(where, value)
    if origin is tuple:
        if arguments[1:] != (...,) and len(arguments) != len(value):
            raise InputError(f"{where} should have {len(arguments)} entries, not {len(value)}; the file was edited.")
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return tuple(_value(k, entry, where) for k, entry in zip(kinds, value, strict=True))
    if origin is dict:
        return {key: _value(arguments[1], entry, f"{where}.{key}") for key, entry in value.items()}
    accepted = _ACCEPTED.get(kind)
    if accepted is not None and (not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool)):
        raise _unlike(where, value)
    return value


_ACCEPTED: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (float, int), bool: (bool,)}


def _unlike(where: str, value: Any) -> InputError:
    return InputError(f"{where} cannot be {reprlib.repr(value)}; the file was edited, or written by something else.")
