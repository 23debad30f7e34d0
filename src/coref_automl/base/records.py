"""The records that rooms exchange: frozen dataclasses that convert to and from plain JSON."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, cast, get_args

from coref_automl.base.decoder import SCHEMA as SCHEMA
from coref_automl.base.decoder import decode_stored
from coref_automl.base.errors import InputError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Half = Literal["select", "confirm"]
Correction = Literal["none", "holm", "bh", "max-t"]
Finding = Literal["better", "worse", "same", "not shown"]
FEW_CLUSTERS = 100
"""With fewer clusters than this, halves are equally large."""
Objective = Literal["mlm", "nouns", "combined", "entity", "copy", "link", "copy+link"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
"""Training objectives in the order of tables; `training/masking` says what each hides."""
Task = str
"""The name of a cloze task, a key of the table in `evaluation/tasks`."""


class Record:
    """A dataclass that converts to plain JSON and back."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return cast(dict[str, Any], plain(self))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return decode_stored(cls, data, cls.__name__)


class Tabular(ABC):
    """A result with rows: `to_rows()` as dictionaries, `to_frame()` as a pandas table."""

    __slots__ = ()

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]: ...

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; pandas is not installed with this package."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame() needs pandas, which is not installed; pip install pandas, or use to_rows().") from None
        return pandas.DataFrame(self.to_rows())

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the table of pandas, or without pandas the repr."""
        try:
            table: str = self.to_frame()._repr_html_()
        except InputError:
            return None
        return table


@dataclass(frozen=True, slots=True)
class Document(Record):
    """A text and its origin. `id` is unique within its source."""

    id: str
    source: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class ClozeItem(Record):
    """One hidden noun of one document, the same for every model and every length.

    `start:end` is the hidden span of the document's text and `text[start:end] == answer`. The
    antecedent is the nearest earlier mention (real), or the nearest other occurrence (real-far,
    lambada). `distance` counts reference tokens from antecedent to gap, -1 without an antecedent.
    `cluster` is a hash of the document's text, by which halves are drawn.
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
    antecedent: tuple[int, int] | None = None
    distance: int = -1


@dataclass(frozen=True, slots=True)
class ItemScore(Record):
    """The score of one model on one item.

    `rank` counts from 1. It is 0 if the answer is not one entry at the gap with token edges at
    both ends in the model's own tokenization: the item is not counted for this model. `bonus_hits`
    says for each of `metrics.COPY_BONUSES` whether the answer is first when the bonus is added to
    the logits of nouns visible in the window. `ahead` has the nouns that beat the answer, best
    first. Other fields are copied from the item, so that a file of scores can be read by itself.
    """

    item: str
    task: Task
    cluster: str
    source: str
    answer: str
    tag: str
    distance: int
    rank: int
    top: tuple[str, ...]
    pieces: int
    own_distance: int = -1
    out_of_reach: bool = False
    bonus_hits: tuple[bool, ...] = ()
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate(Record):
    """A number with its 95% interval and the number of items behind it."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:.2f}% [{100 * self.low:.2f}, {100 * self.high:.2f}]"

    def within(self, minimum: float, maximum: float) -> Estimate:
        """Clip the interval to possible values: 0 to 1 for a share, -1 to 1 for a difference of shares."""
        return Estimate(self.value, max(minimum, self.low), min(maximum, self.high), self.n)


@dataclass(frozen=True, slots=True)
class Provenance(Record):
    """How a checkpoint was trained; stored beside its weights as `training.json`.

    `planned_end`: it is the last step of a run of fixed length without an evaluation set, so that nothing selected it; None in
    records of earlier versions. `method` is the run's method in its study; empty without a study.
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
    planned_end: bool | None = None
    base_bytes: str = ""
    method: str = ""

    @property
    def data(self) -> str:
        """The dataset: its fingerprint if known, since folders move."""
        return self.dataset_bytes or self.dataset


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """The result of one checkpoint on one evaluation set at one window length.

    `estimates` maps the name of a metric (see evaluation/metrics) to its estimate; metrics that were not run are absent.
    `fingerprints` are hashes of weights, items and tokenizer. `baselines` maps the name of a baseline to its estimates.
    `counted` is the share of each task's items that this model counts, `counted_names` that of names among Real items.
    `evalset_path` is the path of the set at the last evaluation; empty in an archive. `half`: the set is this half of another.
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
    counted: dict[str, float]
    counted_names: float
    out_of_reach: int
    provenance: Provenance | None = None
    evalset_path: str = ""
    schema: int = SCHEMA
    half: Half | None = None

    @property
    def condition(self) -> tuple[object, ...]:
        """How it was scored, independent of the model: fingerprint of the items, scorer version, dtype, length."""
        return self.fingerprints.get("items", ""), self.scorer, self.dtype, self.seq_len

    @property
    def identity(self) -> tuple[object, ...]:
        """What it is, independent of its name and folder: all fingerprints, scorer version, dtype, length."""
        return tuple(sorted(self.fingerprints.items())), *self.condition


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """A paired comparison: does `name` differ from `reference` on `metric`? Differences are fractions, not percent.

    `family` is the number of comparisons that `p_adjusted` corrects for, `correction` the procedure. The interval is
    simultaneous: it excludes 0 exactly if the verdict is better or worse. "same" means equal on every item.
    """

    name: str
    reference: str
    metric: str
    difference: Estimate
    p: float
    p_adjusted: float
    detectable: float | None
    verdict: Finding
    family: int = 1
    correction: Correction = "none"


def halves_of(items: Iterable[tuple[str, str]]) -> dict[str, Half]:
    """Assign every cluster to a half: checkpoints are selected on `select` and judged on `confirm`. `items` are (task, cluster).

    The hash of the cluster's name decides, always the same way. With fewer than a hundred clusters halves could be too unequal,
    so clusters are split evenly in the order of their hashes. Tasks that share clusters are split together.
    """
    by_task: dict[str, set[str]] = {}
    for task, cluster in items:
        by_task.setdefault(task, set()).add(cluster)
    connected: list[set[str]] = []
    for clusters in by_task.values():
        overlapping = [other for other in connected if other & clusters]
        connected = [other for other in connected if not other & clusters] + [clusters.union(*overlapping)]
    halves: dict[str, Half] = {}
    for clusters in connected:
        if len(clusters) >= FEW_CLUSTERS:
            halves |= {cluster: half_of(cluster) for cluster in clusters}
            continue
        ordered = sorted(clusters, key=_hash)
        halves |= {cluster: "select" if 2 * rank < len(ordered) else "confirm" for rank, cluster in enumerate(ordered)}
    return halves


def half_of(cluster: str) -> Half:
    """The half of a cluster in a set of a hundred or more."""
    return "select" if _hash(cluster)[0] < 128 else "confirm"


def _hash(cluster: str) -> bytes:
    return hashlib.sha256(cluster.encode()).digest()


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a key, in the order in which keys first occur."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """Convert a value for JSON and YAML: records to mappings, sequences to lists, paths to text."""
    if type(value) in _SCALARS:
        return value
    if fields := getattr(value, "__dataclass_fields__", None):
        return {name: entry if type(entry := getattr(value, name)) in _SCALARS else plain(entry) for name in fields}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
