"""Evaluations side by side, held in memory. In: what lies under the folders. Out: boards, one per set of items.

A board is loaded the first time a page asks for it, in a thread of its own: thousands of items are read in seconds, not in the
time of a click. Meanwhile, and while a board that has changed is loaded again, pages go on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.superseded import drop_superseded, one_dtype_each
from coref_automl.engine.pool import kill_worker, single_worker
from coref_automl.errors import InputError
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.machine import block_sigint
from coref_automl.records import grouped
from coref_automl.studio.board import Board, Members, load
from coref_automl.studio.folders import FolderContents, Folders
from coref_automl.studio.pages import COLORS

T = TypeVar("T")
Key = tuple[Any, ...]
_KEPT, _BOARDS = 48, 4
"""Results that are kept, and the sets that are kept in memory."""
_LARGE = 20_000_000
"""Bytes of items above which they are read in a process of their own."""
_WAIT = 0.05
"""Seconds that a page waits before it says that something is being made."""


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


class Shelf:
    """Keeps boards and what is computed from them, the least used dropped first. `slow` works beside, for what takes long."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._made: OrderedDict[Key, Future[Any]] = OrderedDict()
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._sets: tuple[FolderContents | None, dict[str, Members], dict[str, str]] = (None, {}, {})
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "studio-shelf")
        self.slow = ThreadPoolExecutor(1, "studio-slow")
        self._beside = ThreadPoolExecutor(1, "studio-apart")
        self._pools: dict[bool, ProcessPoolExecutor] = {}

    def sets(self) -> dict[str, Members]:
        """The sets under the folders by mark, the largest first; worked out once a look."""
        found = self._folders.now()
        if self._sets[0] is not found:
            sets = self._among(found)
            self._sets = (found, sets, _colors(list(sets.values())))
        return self._sets[1]

    def color(self, run: str) -> str:
        """That of a run's method, or of a model outside a run: the same on every set."""
        self.sets()
        return self._sets[2].get(run, COLORS[0])

    def _among(self, found: FolderContents) -> dict[str, Members]:
        """By items and scorer, the largest first; of several archives and experiments each by itself, then all."""
        whole, keys = self._of(found.evaluations, None), grouped(found.evaluations, found.study)
        studies = {found.study(key) for one in whole.values() for key in one.stored}  # not those that repeat others
        if len(studies) < 2:
            return whole
        parts = [self._of({key: found.evaluations[key] for key in keys[study]}, study) for study in keys if study in studies]
        each = sorted((one for part in parts for one in part.values()), key=lambda one: -len(one.stored))
        shared = [one for one in whole.values() if len({found.study(key) for key in one.stored}) > 1]
        return {one.mark: one for one in (*each, *shared)}

    def _of(self, evaluations: Mapping[str, StoredEvaluation], study: str | None) -> dict[str, Members]:
        of = {id(one): key for key, one in evaluations.items()}
        once, _ = drop_superseded(
            list(evaluations.values()), may_be_replaced=lambda one: self._folders.holds(Path(one.evaluation.path))
        )
        out = {}
        for (items, scorer), (kept, _) in one_dtype_each(once, set()).items():
            mark = f"{items[:12]}.{scorer}" + (f"~{study}" if study is not None else "")
            out[mark] = Members(mark, items, scorer, {of[id(one)]: one for one in kept}, study)
        return dict(sorted(out.items(), key=lambda pair: -len(pair[1].stored)))

    def results(self, mark: str = "") -> dict[Path, tuple[int, int]]:
        """Folders with results of outside checks, those of a set's study, and what tells their files apart from earlier ones."""
        out, found = {}, self._folders.now()
        study = self.sets()[mark].study if mark in self.sets() else None
        for run in found.runs.values():
            if run.kind not in CHECKS or (study is not None and found.study(f"{run.key}/") != study):
                continue
            if (path := run.folder / CHECKS[run.kind].files.results).is_file():
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

    def board(self, members: Members) -> Board:
        """The loaded set; the one from before while a new checkpoint is read. A large set is read apart."""
        mark = members.mark
        try:
            make = self.apart if members.size > _LARGE else self.made
            board = make(("board", mark, members.state), partial(load, members, self._folders.now().sets))
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

    def apart(self, key: Key, make: Callable[[], T], *, stays: bool = False) -> T:
        """As `made`, in a process: one that ends with its work, so that memory goes back; or one that `stays`, models loaded."""
        try:
            if not stays:
                return self.made(key, partial(self._alone, make), worker=self._beside)
            with block_sigint():
                pool = self._pools.get(stays) or self._pools.setdefault(stays, single_worker())
                return self.made(key, make, worker=pool)
        except BrokenExecutor:
            self._pools.pop(stays, None)
            raise Gone(
                "이 일을 하던 프로세스가 끝났습니다 (메모리 부족, 또는 5분간 응답 없음). 다시 시도하세요.",
                "The process that did this ended (out of memory, or no answer in 5 minutes); try again.",
            ) from None

    def _alone(self, make: Callable[[], T]) -> T:
        with block_sigint(), single_worker() as self._pools[False]:
            return self._pools[False].submit(make).result()

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
        for worker in (self._worker, self.slow, self._beside):
            worker.shutdown(wait=False, cancel_futures=True)
        for pool in self._pools.values():
            kill_worker(pool)  # the interpreter would wait for what it does


def _colors(sets: Sequence[Members]) -> dict[str, str]:
    """A colour for every method and every model outside one, by when it was first evaluated: a new one changes no other."""
    method: dict[str, str] = {}
    first: dict[str, str] = {}
    for members in sets:
        method = {one.run: arm.name for arm in members.arms for run in arm.runs.values() for one in run} | method
    for entry in (entry for members in sets for entry in members.entries):
        owner = method.setdefault(entry.run, entry.run)
        first[owner] = min(first.get(owner, "~"), entry.evaluation.evaluated_at)
    order = sorted(first, key=lambda owner: (first[owner], owner))
    color = {owner: COLORS[number % len(COLORS)] for number, owner in enumerate(order)}
    return {run: color[owner] for run, owner in method.items()}
