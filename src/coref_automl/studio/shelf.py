"""Evaluations side by side, held in memory. In: what lies under the folders. Out: boards, one per set of items.

A board is loaded the first time a page asks for it, in a thread of its own: thousands of items are read in seconds, not in the
time of a click. Meanwhile, and while a board that has changed is loaded again, pages go on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coref_automl.comparison.copies import drop_copies
from coref_automl.comparison.groups import group_of, keyed, rename_bases
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.superseded import drop_replaced_weights, keep_one_dtype
from coref_automl.errors import CorefError, InputError
from coref_automl.evaluation.columns import holds_text, read_columns
from coref_automl.evaluation.evalset import EvalSet, find_set
from coref_automl.evaluation.metrics import bucket
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.records import ClozeItem
from coref_automl.studio.folders import RESULTS, Folders, Found
from coref_automl.studio.pages import COLORS

T = TypeVar("T")
Key = tuple[Any, ...]
_KEPT, _BOARDS = 48, 4
"""Results that are kept, and the sets that are kept in memory."""
_WAIT = 0.05
"""Seconds that a page waits before it says that something is being made."""
TOP = 5
ARCHIVED, OUTSIDE = "archived", "outside"


class Pending(Exception):
    """What a page asked for is being made."""


class Gone(InputError):
    """An address names what is not, or no longer, under the folders. A page says so, in its language."""

    def __init__(self, ko: str, en: str) -> None:
        super().__init__(en)
        self.ko = ko


def not_here(key: str) -> Gone:
    shown = key[:200]
    return Gone(
        f"{shown}: 주어진 폴더에 없습니다. 옮겨졌거나 지워졌을 수 있습니다.",
        f"{shown} is not, or no longer, under the given folders.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """The texts behind the items of a set: each item's spans, and the number of its document (-1 without one).

    `fault` says why there are none: ARCHIVED, OUTSIDE the folders, or an error.
    """

    texts: tuple[str, ...]
    items: Mapping[str, ClozeItem]
    numbers: NDArray[np.int32]
    fault: str = ""

    def holding(self, text: str) -> NDArray[np.bool_]:
        """The items whose document holds a text."""
        found = np.array([text in one for one in self.texts] + [False], np.bool_)
        return np.asarray(found[self.numbers])


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """What one evaluation answered: the numbers of its first five words, -1 where it gave fewer; and the answer's pieces."""

    top: NDArray[np.int32]
    pieces: NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """The evaluations of one set by key, their group, their words, and the passages. `ids` and `answers` are the items'.

    `state` is that of the members it was loaded from, and the key of all that is computed from it.
    `metrics` were run by all of them; `colors` are those of runs and of models outside a run; `buckets` are the items' distances.
    `usual` are the keys of A and B where an address names none: the last and the first.
    """

    mark: str
    state: Hashable
    group: Group
    entries: Mapping[str, Entry]
    words: Mapping[str, Words]
    vocabulary: tuple[str, ...]
    ids: tuple[str, ...]
    answers: tuple[str, ...]
    passages: Passages
    metrics: tuple[str, ...]
    colors: Mapping[str, str]
    buckets: NDArray[np.str_]
    usual: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Members:
    """The evaluations of one set before they are loaded: by key, as compare would choose them."""

    mark: str
    items: str
    scorer: str
    stored: Mapping[str, StoredEvaluation]

    @property
    def state(self) -> Hashable:
        """What a loaded board was made of."""
        return tuple((key, one.evaluation.evaluated_at, one.evaluation.evalset_path) for key, one in self.stored.items())


class Shelf:
    """Keeps boards and what is computed from them, the least used dropped first. `slow` works beside, for what takes long."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._made: OrderedDict[Key, Future[Any]] = OrderedDict()
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._sets: tuple[Found | None, dict[str, Members]] = (None, {})
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "studio-shelf")
        self.slow = ThreadPoolExecutor(1, "studio-slow")

    def sets(self) -> dict[str, Members]:
        """The sets under the folders by mark, the largest first; worked out once a look."""
        found = self._folders.now()
        if self._sets[0] is not found:
            self._sets = (found, self._among(found))
        return self._sets[1]

    def _among(self, found: Found) -> dict[str, Members]:
        of = {id(one): key for key, one in found.evaluations.items()}
        once = drop_copies(list(found.evaluations.values()))[0]
        known = [one for one in once if self._folders.holds(Path(one.evaluation.path))]
        today = {id(one) for one in drop_replaced_weights(known)[0]} | {id(one) for one in once} - {id(one) for one in known}
        out = {}
        for (items, scorer), members in keyed([one for one in once if id(one) in today]).items():
            kept = keep_one_dtype(members, set())[0]
            mark = set_key(items, scorer)
            out[mark] = Members(mark, items, scorer, {of[id(one)]: one for one in kept})
        return dict(sorted(out.items(), key=lambda pair: -len(pair[1].stored)))

    def results(self) -> dict[Path, tuple[int, int]]:
        """Folders with relation or coreference results, and what tells their files apart from those of before."""
        out = {}
        for run in self._folders.now().runs.values():
            for path in (run.folder / name for name, kind in RESULTS.items() if kind == run.kind):
                if path.is_file():
                    out[run.folder] = (path.stat().st_mtime_ns, path.stat().st_size)
        return out

    def members(self, mark: str) -> Members:
        """A set by its mark; the largest one without."""
        sets = self.sets()
        if not sets:
            raise Gone(
                "주어진 폴더에 아직 끝난 평가가 없습니다. 실행하세요: coref-automl evaluate RUN",
                "No finished evaluation under the given folders yet; run: coref-automl evaluate RUN",
            )
        if not mark:
            return next(iter(sets.values()))
        if mark not in sets:
            raise not_here(mark)
        return sets[mark]

    def key(self, asked: str, board: Board, other: int) -> str:
        """The key of A (0) or B (1): the asked one; the usual one where none is asked, or one of another set."""
        if asked in board.entries:
            return asked
        if asked and not any(asked in members.stored for members in self.sets().values()):
            raise not_here(asked)
        return board.usual[other]

    def board(self, members: Members) -> Board:
        """The loaded set; the one from before while a new checkpoint is read."""
        mark = members.mark
        try:
            board = self.made(("board", mark, members.state), lambda: load(members, self._folders.now().sets))
        except Pending:
            if mark not in self._boards:
                raise
            return self._boards[mark]
        with self._lock:
            self._boards[mark] = board
            self._boards.move_to_end(mark)
            left = self._boards.popitem(last=False)[0] if len(self._boards) > _BOARDS else ""
            for key in [key for key in self._made if key[1] == left or (key[1] == mark and key[2] != members.state)]:
                del self._made[key]  # its board has left the cache
        return board

    def made(self, key: Key, make: Callable[[], T], *, worker: Executor | None = None) -> T:
        """What `make` gives, computed once in the background; Pending until then. A key begins: a word, a mark, a state."""
        with self._lock:
            held = self._made.get(key)
            if held is None:
                held = self._made[key] = (worker or self._worker).submit(make)
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
        try:
            result: T = held.result(timeout=_WAIT)
        except TimeoutError:
            raise Pending from None
        except Exception:
            with self._lock:
                self._made.pop(key, None)  # what was broken may be mended
            raise
        return result

    def stop(self) -> None:
        for worker in (self._worker, self.slow):
            worker.shutdown(wait=False, cancel_futures=True)


def set_key(items: str, scorer: str) -> str:
    """What addresses call a set of items scored by one version of the scorer."""
    return f"{items[:12]}.{scorer}"


def load(members: Members, sets: Mapping[str, Path]) -> Board:
    """Read every evaluation of a set, and the set."""
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
        tuple(group.metrics()),
        _colors(group),
        np.array([bucket(int(value)) for value in group.items.facts["distance"]]),
        (list(order)[-1], next(iter(order))),
    )


def _words(entry: Entry, index: Mapping[str, int], numbers: dict[str, int], answers: list[str]) -> Words:
    top = np.full((len(index), TOP), -1, np.int32)
    pieces = np.zeros(len(index), np.int16)
    if not holds_text(entry.folder):
        held = read_columns(entry.folder, ("pieces",))
        pieces[[index[item] for item in held["item"]]] = held["pieces"]
        return Words(top, pieces)
    held = read_columns(entry.folder, ("answer", "top", "pieces"))
    for item, answer, given, count in zip(held["item"], held["answer"], held["top"], held["pieces"], strict=True):
        at = index[item]
        answers[at], pieces[at] = answer, count
        for place, word in enumerate(given[:TOP]):
            top[at, place] = numbers.setdefault(word, len(numbers))
    return Words(top, pieces)


def _passages(group: Group, sets: Mapping[str, Path]) -> Passages:
    """The set of the group: one under the folders, or the bundled one."""
    none = Passages((), {}, np.full(len(group.items), -1, np.int32))
    if not any(holds_text(entry.folder) for entry in group.entries):
        return replace(none, fault=ARCHIVED)
    folder = sets.get(group.fingerprint) or find_set("", group.fingerprint)
    if folder is None:
        return replace(none, fault=OUTSIDE)
    try:
        held = EvalSet.open(folder)
    except CorefError as error:
        return replace(none, fault=str(error))
    items = {item.id: replace(item, candidates=()) for item in held.select()}
    order = {name: number for number, name in enumerate(held.documents)}
    numbers = [order[items[one].document] if one in items else -1 for one in group.items.index]
    return Passages(tuple(held.documents.values()), items, np.array(numbers, np.int32))


def _colors(group: Group) -> dict[str, str]:
    """A colour for every run and every model outside a run, by when it was first evaluated: a new one changes no other."""
    first: dict[str, str] = {}
    for entry in group.entries:
        first[entry.run] = min(first.get(entry.run, "~"), entry.evaluation.evaluated_at)
    order = sorted(first, key=lambda run: (first[run], run))
    return {run: COLORS[number % len(COLORS)] for number, run in enumerate(order)}
