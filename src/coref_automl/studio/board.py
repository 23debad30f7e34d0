"""Evaluations of one set of items, side by side. In: what their summaries say. Out: a board: ranks, answers, passages.

Reading a board takes seconds, not the time of a click: the shelf does it in the background.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.arms import Arm, arms_of
from coref_automl.comparison.bases import rename_bases
from coref_automl.comparison.groups import group_of
from coref_automl.comparison.scores import Entry, Group
from coref_automl.errors import CorefError
from coref_automl.evaluation.columns import ITEMS, holds_text, read_columns
from coref_automl.evaluation.evalset import EvalSet, find_set
from coref_automl.evaluation.metrics import bucket
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.fingerprints import fingerprint
from coref_automl.records import ClozeItem

TOP = 5


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """The texts behind the items of a set: each item's spans, and the number of its document (-1 without one).

    `folder` is the set's; `fault` says in both languages why there are none.
    """

    texts: tuple[str, ...]
    items: Mapping[str, ClozeItem]
    numbers: NDArray[np.int32]
    folder: Path | None = None
    fault: tuple[str, str] = ("", "")

    def holding(self, text: str) -> NDArray[np.bool_]:
        """The items whose document holds a text."""
        found = np.array([text in one for one in self.texts] + [False], np.bool_)
        return np.asarray(found[self.numbers])


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """The evaluations of one set by key, their group, and the passages. `ids` and `answers` are the items'.

    `top` are the numbers of the first five words that each answered, -1 where it gave fewer.
    `state` is that of the members it was loaded from, and the key of all that is computed from it.
    `metrics` were run by all of them; `buckets` are the items' distances.
    """

    mark: str
    state: Hashable
    group: Group
    entries: Mapping[str, Entry]
    top: Mapping[str, NDArray[np.int32]]
    vocabulary: tuple[str, ...]
    ids: tuple[str, ...]
    answers: tuple[str, ...]
    passages: Passages
    keys: Mapping[Path, str]
    metrics: tuple[str, ...]
    buckets: NDArray[np.str_]

    def key(self, entry: Entry) -> str:
        return self.keys[entry.folder]


@dataclass(frozen=True)
class Members:
    """The evaluations of one set before they are loaded: by key, as compare would choose them. `study` is the key of the archive
    or experiment that they lie in, None for those of all."""

    mark: str
    items: str
    scorer: str
    stored: Mapping[str, StoredEvaluation]
    study: str | None = None

    @property
    def own(self) -> str:
        """What its items' tags are kept by, whichever study they are looked at in."""
        return self.mark.partition("~")[0]

    @property
    def name(self) -> str:
        return next(iter(self.stored.values())).evaluation.evalset

    @cached_property
    def state(self) -> Hashable:
        """What a loaded board was made of."""
        return fingerprint([[key, one.evaluation.evaluated_at, one.evaluation.evalset_path] for key, one in self.stored.items()])

    @cached_property
    def size(self) -> int:
        files = (one.folder / ITEMS for one in self.stored.values())
        return sum(path.stat().st_size for path in files if path.is_file())

    @cached_property
    def entries(self) -> list[Entry]:
        """What the evaluations' summaries say, before any item is read."""
        stored = rename_bases(list(self.stored.values()))
        return [Entry(one.evaluation.checkpoint, one.evaluation, one.folder, {}) for one in stored]

    @cached_property
    def arms(self) -> list[Arm]:
        return arms_of(self.entries, None)


def load(members: Members, sets: Mapping[str, Path]) -> Board:
    stored = rename_bases(list(members.stored.values()))
    group = group_of(stored, members.items, members.scorer)
    by_folder = {entry.folder: entry for entry in group.entries}
    entries = {key: by_folder[one.folder] for key, one in members.stored.items()}
    index = group.items.index
    answers = [""] * len(index)
    numbers: dict[str, int] = {}
    words = {key: _words(entry, index, numbers, answers) for key, entry in entries.items()}
    order = {key: entries[key] for key in sorted(entries, key=lambda key: group.entries.index(entries[key]))}
    return Board(
        members.mark,
        members.state,
        group,
        order,
        words,
        tuple(numbers),
        tuple(index),
        tuple(answers),
        _passages(group, sets),
        {entry.folder: key for key, entry in order.items()},
        tuple(group.metrics()),
        np.array([bucket(int(value)) for value in group.items.facts["distance"]]),
    )


def _words(entry: Entry, index: Mapping[str, int], numbers: dict[str, int], answers: list[str]) -> NDArray[np.int32]:
    top = np.full((len(index), TOP), -1, np.int32)
    if not holds_text(entry.folder):
        return top
    held = read_columns(entry.folder, ("answer", "top"))
    for item, answer, given in zip(held["item"], held["answer"], held["top"], strict=True):
        at = index[item]
        answers[at] = answer
        for place, word in enumerate(given[:TOP]):
            top[at, place] = numbers.setdefault(word, len(numbers))
    return top


def _passages(group: Group, sets: Mapping[str, Path]) -> Passages:
    """The set of the group: one under the folders, or the bundled one."""
    none = Passages((), {}, np.full(len(group.items), -1, np.int32))
    if not any(holds_text(entry.folder) for entry in group.entries):
        told = "보관본에는 글이 없어 순위만 보입니다.", "An archive holds no text: ranks are shown, and no passages."
        return replace(none, fault=told)
    folder = sets.get(group.fingerprint) or find_set("", group.fingerprint)
    if folder is None:
        name = group.evalset
        told = (
            f"평가 세트 {name}이(가) 주어진 폴더 안에 없어 본문을 보여 줄 수 없습니다. 그 폴더도 함께 주고 다시 시작하세요.",
            f"The evaluation set {name} is not under the given folders, so passages are missing; start with its folder too.",
        )
        return replace(none, fault=told)
    try:
        held = EvalSet.open(folder)
    except CorefError as error:
        return replace(none, fault=(str(error), str(error)))
    items = {item.id: replace(item, candidates=()) for item in held.select()}
    order = {name: number for number, name in enumerate(held.documents)}
    numbers = [order[items[one].document] if one in items else -1 for one in group.items.index]
    return Passages(tuple(held.documents.values()), items, np.array(numbers, np.int32), folder)
