"""Evaluations of one set of items, side by side. In: stored evaluations. Out: a board: ranks, answers, passages.

Loading a board takes seconds, not the time of a click: `Boards` (workspace.py) does it in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import CorefError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.records import ClozeItem, grouped
from coref_automl.comparison.arms import Arm, arms_of
from coref_automl.comparison.bases import rename_bases
from coref_automl.comparison.groups import group_of
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.superseded import drop_superseded, one_dtype_each
from coref_automl.evaluation.columns import ITEMS, holds_text, read_columns
from coref_automl.evaluation.evalset import EvalSet, find_set
from coref_automl.evaluation.metrics import bucket
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.extras.studio.folders import FolderContents
from coref_automl.extras.studio.pages import COLORS

TOP = 5


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """The texts behind the items of a set: each item's spans, and the number of its document (-1 without one).

    `folder` is the set's; `fault` says in both languages why there are no texts.
    """

    texts: tuple[str, ...]
    items: Mapping[str, ClozeItem]
    numbers: NDArray[np.int32]
    folder: Path | None = None
    fault: tuple[str, str] = ("", "")

    def containing(self, text: str) -> NDArray[np.bool_]:
        """Mark the items whose document contains a text."""
        contains = np.array([text in passage for passage in self.texts] + [False], np.bool_)
        return np.asarray(contains[self.numbers])


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """The evaluations of one set by key, their group, and the passages. `ids` and `answers` are those of the items.

    `top` has the numbers of the first five words that each model answered, -1 where it gave fewer. `state` is that of the members
    that were loaded, and a key of everything computed from the board. `metrics` were run by all of them; `buckets` are the items'
    distances.
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
    """The evaluations of one set before they are loaded: by key, as `compare` would choose them. `study` is the key of the
    archive or experiment that they lie in; None if they may lie anywhere. `folder` holds the items' texts."""

    mark: str
    items: str
    scorer: str
    stored: Mapping[str, StoredEvaluation]
    study: str | None = None
    folder: Path | None = None

    @property
    def tag_key(self) -> str:
        """The key of the items' tags, which are the same in every study and under every tokenizer."""
        return f"{self.items[:12]}.{self.scorer}"

    @property
    def name(self) -> str:
        return next(iter(self.stored.values())).evaluation.evalset

    @cached_property
    def state(self) -> Hashable:
        """A fingerprint of what a board is loaded from."""
        evaluations = ((key, stored.evaluation) for key, stored in self.stored.items())
        return fingerprint(str(self.folder), [[key, of.evaluated_at, of.evalset_path] for key, of in evaluations])

    @cached_property
    def size(self) -> int:
        files = (stored.folder / ITEMS for stored in self.stored.values())
        return sum(path.stat().st_size for path in files if path.is_file())

    @cached_property
    def entries(self) -> list[Entry]:
        """The evaluations with their summaries alone, before any item is read."""
        renamed = rename_bases(list(self.stored.values()))
        none = np.zeros(0, np.int32)
        return [Entry(stored.evaluation.checkpoint, stored.evaluation, stored.folder, none) for stored in renamed]

    @cached_property
    def arms(self) -> list[Arm]:
        return arms_of(self.entries, None)


def find_members(contents: FolderContents, is_shown: Callable[[Path], bool]) -> dict[str, Members]:
    """Return the sets by mark, the largest first; if there are several archives and experiments, each by itself before all."""
    whole, keys = _members_of(contents, contents.evaluations, is_shown), grouped(contents.evaluations, contents.study)
    studies = {contents.study(key) for members in whole.values() for key in members.stored}  # not those that repeat others
    if len(studies) < 2:
        return whole
    parts = [_members_of(contents, keys[study], is_shown, study) for study in keys if study in studies]
    by_study = sorted((members for part in parts for members in part.values()), key=lambda members: -len(members.stored))
    shared = [members for members in whole.values() if len({contents.study(key) for key in members.stored}) > 1]
    return {members.mark: members for members in (*by_study, *shared)}


def _members_of(
    contents: FolderContents, keys: Collection[str], is_shown: Callable[[Path], bool], study: str | None = None
) -> dict[str, Members]:
    key_of = {id(contents.evaluations[key]): key for key in keys}
    evaluations = [contents.evaluations[key] for key in keys]
    counted, _ = drop_superseded(evaluations, may_be_replaced=lambda stored: is_shown(Path(stored.evaluation.path)))
    sets = {}
    for (items, scorer, tokenizer), (chosen, _) in one_dtype_each(counted, set()).items():
        mark = f"{items[:12]}.{scorer}.{tokenizer[:6]}" + (f"~{study}" if study is not None else "")
        by_key = {key_of[id(stored)]: stored for stored in chosen}
        sets[mark] = Members(mark, items, scorer, by_key, study, contents.sets.get(items))
    return dict(sorted(sets.items(), key=lambda pair: -len(pair[1].stored)))


def colors_of(sets: Collection[Members]) -> dict[str, str]:
    """Return a color per run or other model: methods take them in the order of evaluation, so that a new one changes none."""
    owners: dict[str, str] = {}
    first: dict[str, str] = {}
    for members in sets:
        owners = {entry.run: arm.name for arm in members.arms for run in arm.runs.values() for entry in run} | owners
    for entry in (entry for members in sets for entry in members.entries):
        owner = owners.setdefault(entry.run, entry.run)
        first[owner] = min(first.get(owner, "~"), entry.evaluation.evaluated_at)
    order = sorted(first, key=lambda owner: (first[owner], owner))
    colors = {owner: COLORS[number % len(COLORS)] for number, owner in enumerate(order)}
    return {run: colors[owner] for run, owner in owners.items()}


def load(members: Members) -> Board:
    stored = rename_bases(list(members.stored.values()))
    group = group_of(stored, members.items, members.scorer)
    by_folder = {entry.folder: entry for entry in group.entries}
    entries = {key: by_folder[evaluation.folder] for key, evaluation in members.stored.items()}
    index = group.items.index
    answers = [""] * len(index)
    numbers: dict[str, int] = {}
    top = {key: _top_words(entry, index, numbers, answers) for key, entry in entries.items()}
    ordered = {key: entries[key] for key in sorted(entries, key=lambda key: group.entries.index(entries[key]))}
    return Board(
        members.mark, members.state, group, ordered, top, tuple(numbers), tuple(index), tuple(answers),
        _passages(group, members.folder), {entry.folder: key for key, entry in ordered.items()}, tuple(group.metrics()),
        np.array([bucket(int(value)) for value in group.items.facts["distance"]]),
    )  # fmt: skip


def _top_words(entry: Entry, index: Mapping[str, int], numbers: dict[str, int], answers: list[str]) -> NDArray[np.int32]:
    """Read the first words of one evaluation as numbers, adding new words to `numbers`; fills in the items' `answers`."""
    top = np.full((len(index), TOP), -1, np.int32)
    if not holds_text(entry.folder):
        return top
    columns = read_columns(entry.folder, ("answer", "top"))
    for item, answer, words in zip(columns["item"], columns["answer"], columns["top"], strict=True):
        row = index[item]
        answers[row] = answer
        for column, word in enumerate(words[:TOP]):
            top[row, column] = numbers.setdefault(word, len(numbers))
    return top


def _passages(group: Group, folder: Path | None) -> Passages:
    """Open the set of the group: one under the folders, or the bundled one."""
    none = Passages((), {}, np.full(len(group.items), -1, np.int32))
    if not any(holds_text(entry.folder) for entry in group.entries):
        fault = "보관본에는 글이 없어 순위만 보입니다.", "An archive holds no text: ranks are shown, and no passages."
        return replace(none, fault=fault)
    folder = folder or find_set("", group.fingerprint)
    if folder is None:
        name = group.evalset
        fault = (
            f"평가 세트 {name}이(가) 주어진 폴더 안에 없어 본문을 보여 줄 수 없습니다. 그 폴더도 함께 주고 다시 시작하세요.",
            f"The evaluation set {name} is not under the given folders, so passages are missing; start with its folder too.",
        )
        return replace(none, fault=fault)
    try:
        evalset = EvalSet.open(folder)
    except CorefError as error:
        return replace(none, fault=(str(error), str(error)))
    items = {item.id: item for item in evalset.select()}
    order = {name: number for number, name in enumerate(evalset.documents)}
    numbers = [order[items[item].document] if item in items else -1 for item in group.items.index]
    return Passages(tuple(evalset.documents.values()), items, np.array(numbers, np.int32), folder)
