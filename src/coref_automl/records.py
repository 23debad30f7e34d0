"""The records that one room hands to another. Each is frozen, and converts to and from plain JSON."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, cast, get_args

from coref_automl.decoder import SCHEMA as SCHEMA
from coref_automl.decoder import decode_stored
from coref_automl.errors import InputError

Half = Literal["select", "confirm"]
Correction = Literal["none", "holm", "bh", "max-t"]
Finding = Literal["better", "worse", "same", "not shown"]
FEW_CLUSTERS = 100
"""Fewer clusters than this are split evenly into halves."""
Objective = Literal["mlm", "combined", "entity", "copy", "link", "copy+link"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
"""Of training, in the order of tables; what each hides: `training/masking`."""
Task = str
"""Name of a task: a key of the table in `evaluation/tasks`."""


class Record:
    """A dataclass that converts to plain JSON and back."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return cast(dict[str, Any], plain(self))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return decode_stored(cls, data, cls.__name__)


class Tabular(ABC):
    """A result that can be listed: `to_rows()` as dictionaries, `to_frame()` as a pandas table."""

    __slots__ = ()

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]: ...

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; install pandas for it, the package does not."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame() needs pandas, which is not installed; pip install pandas, or use to_rows().") from None
        return pandas.DataFrame(self.to_rows())

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the table as pandas draws it. Without pandas it is the short repr."""
        try:
            drawn: str = self.to_frame()._repr_html_()
        except InputError:
            return None
        return drawn


@dataclass(frozen=True, slots=True)
class Document(Record):
    """A text and its origin. `id` is unique within its source."""

    id: str
    source: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class ClozeItem(Record):
    """One hidden span of one document, the same for every model and every length.

    `start:end` is the hidden span of the document's text and `text[start:end] == answer`. The antecedent is the first mention
    (real), the nearest other occurrence (real-far) or the nearest other mention of the entity (gold). `candidates` are groups of
    surfaces, the right group first; outside gold every group holds one word. `distance` counts reference tokens from antecedent
    to gap, -1 without an antecedent. `before`: an earlier mention is in reach, not only later ones; `copyable`: the answer stands
    beside the same word elsewhere in the document; both None where the task's rules do not say.
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
    before: bool | None = None
    copyable: bool | None = None


@dataclass(frozen=True, slots=True)
class ItemScore(Record):
    """The score of one model on one item. Ranks count from 1; 0 means that no vocabulary entry can match.

    `word_rank` is the rank of the right group among the item's candidates, ties against it; None if `word` was not run.
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
    before: bool | None = None
    copyable: bool | None = None


@dataclass(frozen=True, slots=True)
class Estimate(Record):
    """A number with its 95% interval and the number of items behind it."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:.2f}% [{100 * self.low:.2f}, {100 * self.high:.2f}]"

    def within(self, least: float, most: float) -> Estimate:
        """The interval without what cannot be: a share lies between 0 and 1, a difference of shares between -1 and 1."""
        return Estimate(self.value, max(least, self.low), min(most, self.high), self.n)


@dataclass(frozen=True, slots=True)
class Provenance(Record):
    """How a checkpoint came to be; written beside its weights as `training.json`.

    `planned_end`: the last step of a run of fixed length without an evaluation set: nothing selected this checkpoint. None in
    records of before it was kept. `method` is what the study calls it that the run belongs to; empty for a run by itself.
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
        """What it was trained on: the fingerprint of the dataset where it is known, because folders move."""
        return self.dataset_bytes or self.dataset


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """One checkpoint on one evaluation set at one window length.

    `estimates` maps a metric's name (see evaluation/metrics) to its estimate; a metric that was not run is absent.
    `fingerprints` name bytes: weights, items, tokenizer. `baselines` maps a baseline's name to its own estimates. `evalset_path`
    is where the set was when it was last evaluated on; empty in an archive. `half` is that of a larger set, if the set is one.
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
    half: Half | None = None

    @property
    def condition(self) -> tuple[object, ...]:
        """How it was scored, whatever the model: fingerprint of the items, scorer version, dtype, length."""
        return self.fingerprints.get("items", ""), self.scorer, self.dtype, self.seq_len

    @property
    def identity(self) -> tuple[object, ...]:
        """What it is, whatever its name and folder: all fingerprints, scorer version, dtype, length."""
        return tuple(sorted(self.fingerprints.items())), *self.condition


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """A paired comparison: does `name` differ from `reference` on `metric`? Differences are fractions, not percent.

    `family` is the number of comparisons that `p_adjusted` corrects for, `correction` how. The interval is simultaneous: it
    excludes 0 exactly where the verdict is better or worse. Same: the same on every item.
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


def halves_of(places: Iterable[tuple[str, str]]) -> dict[str, Half]:
    """The half of every cluster, from the tasks and clusters of a set's items: `select` chooses, `confirm` judges.

    The hash of its name decides, for ever. Of fewer than a hundred clusters the hash would put too many on one side: they are
    split evenly in the order of their hashes. Tasks that share a cluster are split together, so that it has one half in all.
    """
    by_task: dict[str, set[str]] = {}
    for task, cluster in places:
        by_task.setdefault(task, set()).add(cluster)
    together: list[set[str]] = []
    for clusters in by_task.values():
        sharing = [other for other in together if other & clusters]
        together = [other for other in together if not other & clusters] + [clusters.union(*sharing)]
    out: dict[str, Half] = {}
    for clusters in together:
        if len(clusters) >= FEW_CLUSTERS:
            out |= {cluster: half_of(cluster) for cluster in clusters}
            continue
        ordered = sorted(clusters, key=_hash)
        out |= {cluster: "select" if 2 * at < len(ordered) else "confirm" for at, cluster in enumerate(ordered)}
    return out


def half_of(cluster: str) -> Half:
    """The half of a cluster in a set of many."""
    return "select" if _hash(cluster)[0] < 128 else "confirm"


def _hash(cluster: str) -> bytes:
    return hashlib.sha256(cluster.encode()).digest()


_SCALARS = frozenset({str, int, float, bool, type(None)})


def plain(value: Any) -> Any:
    """As JSON and YAML hold it: records as mappings, sequences as lists, paths as text."""
    if type(value) in _SCALARS:
        return value
    if fields := getattr(value, "__dataclass_fields__", None):
        return {name: held if type(held := getattr(value, name)) in _SCALARS else plain(held) for name in fields}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
