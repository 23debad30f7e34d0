"""What every page works with. In: folders. Out: boards of what lies under them, in memory; notes; the study of a board, and the
claims about any pair.

A board is loaded when a page first needs it, in a thread of its own; pages do not wait for it, nor for a changed one. The answer
to the study's own metric comes first: what it claims of a pair on any outcome is shown on every page. A metric that it says
nothing of is taken from the study of that metric.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coref_automl.base.errors import ComparisonError, InputError
from coref_automl.base.folders import Version, version_of
from coref_automl.base.machine import block_sigint
from coref_automl.base.pool import kill_worker, single_worker
from coref_automl.comparison.claims import Claim
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.reader import find_runs
from coref_automl.comparison.scores import Group
from coref_automl.comparison.study import Side, Study, between, looks_at, study_of
from coref_automl.comparison.study_data import MARGIN
from coref_automl.extras.studio.board import Board, Members, colors_of, find_members, load
from coref_automl.extras.studio.folders import FolderContents, Folders
from coref_automl.extras.studio.pages import COLORS, Pages
from coref_automl.extras.studio.user_files import UserFiles
from coref_automl.extras.studio.watch import RunWatch

T = TypeVar("T")
Key = tuple[Any, ...]
METHOD = "method:"
"""Prefix of a method in addresses; without it, a key names an evaluation."""
_RESULTS, _BOARDS = 48, 4
"""How many results and boards stay in memory."""
_LARGE = 20_000_000
"""Bytes of items above which they are read in a process of their own."""
_WAIT = 0.05
"""Seconds that a page waits for a result before it says that it is being computed."""


class Pending(Exception):
    """What a page needs is being computed."""


class Gone(InputError):
    """An address names what is not, or no longer, under the folders. A page says so, in its language."""

    def __init__(self, ko: str, en: str) -> None:
        super().__init__(en)
        self.ko = ko


def not_here(key: str) -> Gone:
    short = key[:200]
    return Gone(
        f"{short}: 주어진 폴더에 없습니다. 옮겨졌거나 지워졌을 수 있습니다.",
        f"{short} is not, or no longer, under the given folders.",
    )


class Boards:
    """A cache of boards and of results computed from them; the least recently used are dropped. `slow` is for long work."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._results: OrderedDict[Key, Future[Any]] = OrderedDict()
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._sets: tuple[FolderContents | None, dict[str, Members], dict[str, str]] = (None, {}, {})
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "studio-boards")
        self.slow = ThreadPoolExecutor(1, "studio-slow")
        self._for_processes = ThreadPoolExecutor(1, "studio-processes")
        self._pools: dict[bool, ProcessPoolExecutor] = {}

    def sets(self) -> dict[str, Members]:
        """Return the sets under the folders by mark, the largest first; computed once per scan of the folders."""
        contents = self._folders.contents()
        if self._sets[0] is not contents:
            sets = find_members(contents, self._folders.contains)
            self._sets = (contents, sets, colors_of(sets.values()))
        return self._sets[1]

    def color(self, run: str) -> str:
        """Return the color of a run's method, or of a model outside a run: the same on every set."""
        self.sets()
        return self._sets[2].get(run, COLORS[0])

    def check_results(self, mark: str = "") -> dict[Path, Version]:
        """Return the folders with results of outside checks, those of a set's study, with versions of the files."""
        results, contents = {}, self._folders.contents()
        study = self.sets()[mark].study if mark in self.sets() else None
        for run in contents.runs.values():
            if run.kind not in CHECKS or (study is not None and contents.study(f"{run.key}/") != study):
                continue
            if (path := run.folder / CHECKS[run.kind].files.results).is_file():
                results[run.folder] = version_of(path)
        return results

    def members(self, mark: str) -> Members:
        """Return a set by its mark; the largest one without."""
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
        """Return the loaded set; while a new checkpoint is read, the previous board. A large set is read in a process."""
        mark = members.mark
        try:
            compute = self.in_process if members.size > _LARGE else self.cached
            board = compute(("board", mark, members.state), partial(load, members))
        except Pending:
            if mark not in self._boards:
                raise
            return self._boards[mark]
        with self._lock:
            self._boards[mark] = board
            self._boards.move_to_end(mark)
            dropped = self._boards.popitem(last=False)[0] if len(self._boards) > _BOARDS else ""
            for key in [key for key in self._results if key[1] == dropped or (key[1] == mark and key[2] != members.state)]:
                del self._results[key]  # its board has left the cache
        return board

    def in_process(self, key: Key, compute: Callable[[], T], *, stays: bool = False) -> T:
        """As `cached`, in a process: one that ends with its work and frees its memory, or one that `stays` with its models."""
        try:
            if not stays:
                return self.cached(key, partial(self._in_new_process, compute), worker=self._for_processes)
            with block_sigint():
                pool = self._pools.get(stays) or self._pools.setdefault(stays, single_worker())
                return self.cached(key, compute, worker=pool)
        except BrokenExecutor:
            self._pools.pop(stays, None)
            raise Gone(
                "이 일을 하던 프로세스가 끝났습니다 (메모리 부족, 또는 5분간 응답 없음). 다시 시도하세요.",
                "The process that did this ended (out of memory, or no answer in 5 minutes); try again.",
            ) from None

    def _in_new_process(self, compute: Callable[[], T]) -> T:
        with block_sigint(), single_worker() as self._pools[False]:
            return self._pools[False].submit(compute).result()

    def cached(self, key: Key, compute: Callable[[], T], *, worker: Executor | None = None) -> T:
        """Compute a result once, in the background; raises Pending until then. A key begins with a word, a mark and a state."""
        with self._lock:
            future = self._results.get(key)
            if future is None:
                future = self._results[key] = (worker or self._worker).submit(compute)
                while len(self._results) > _RESULTS:
                    self._results.popitem(last=False)
            self._results.move_to_end(key)
        try:
            result: T = future.result(timeout=_WAIT)
        except TimeoutError:
            raise Pending from None
        except Exception:
            with self._lock:
                self._results.pop(key, None)  # the next request tries again
            raise
        return result

    def stop(self) -> None:
        for worker in (self._worker, self.slow, self._for_processes):
            worker.shutdown(wait=False, cancel_futures=True)
        for pool in self._pools.values():
            kill_worker(pool)  # the interpreter would wait for its work


@dataclass(frozen=True, slots=True, eq=False)
class Shown(Side):
    """A or B on a page: its key in addresses, its color, and what was requested if this set does not have it."""

    key: str = ""
    color: str = ""
    missing: str = ""


class Workspace:
    def __init__(self, paths: Sequence[Path]) -> None:
        self.folders = Folders(paths)
        self.boards, self.user_files = Boards(self.folders), UserFiles(self.folders)
        self.pages = Pages()
        self.watches: dict[Path, RunWatch] = {}
        self.lock = threading.Lock()

    def stop(self) -> None:
        self.folders.stop()
        self.boards.stop()

    def study(self, board: Board, metric: str = "") -> Study | None:
        """Return the study of a board, None if its evaluations share no metric; raises Pending until it is computed."""
        chosen = metric if metric in board.metrics else None
        results = self.boards.check_results(board.mark)
        compute = partial(self._study_of, board.group, chosen, [str(folder) for folder in results])
        try:
            key = ("study", board.mark, board.state, chosen, tuple(results.items()))
            return self.boards.cached(key, compute, worker=self.boards.slow)
        except ComparisonError:
            return None

    def ready(self, board: Board, metric: str = "") -> tuple[Study | None, bool]:
        """Return the study if it is computed, and whether it still is being computed."""
        try:
            return self.study(board, metric), False
        except Pending:
            return None, True

    def _study_of(self, group: Group, metric: str | None, results: Sequence[str]) -> Study:
        """Judge a group with the outside checks under the folders and the number of its looks, as `compare` does."""
        parents = {parent for entry in group.entries for parent in entry.folder.parents if self.folders.contains(parent)}
        looks = looks_at([str(path) for path in (*parents, *self.folders.roots.values())])
        return study_of(group, metric=metric, margin=MARGIN, seed=0, checks=find_runs(results).checks, looks=looks)

    def pair(self, names: Sequence[str], board: Board, *, wait: bool) -> tuple[Study | None, tuple[Shown, Shown]]:
        """Return the study, and A and B as addresses name them, else the pair that the answer is about (after it, if `wait`)."""
        study, waiting = self.ready(board)
        if waiting and (any(name.startswith(METHOD) for name in names) or (wait and not any(names))):
            raise Pending
        if study is not None and not any(names):  # the answer's method, or the highest checkpoint; and its base
            arm = next((arm for arm in study.arms if arm.name == study.answer.method), None)
            base = study.own_base(arm.ends[0] if arm else study.chosen)
            names = [METHOD + arm.name if arm else board.key(study.chosen), board.key(base)] if base is not None else names
        a, b = (self._side(name, board, study, number) for number, name in enumerate(names))
        other = COLORS[(COLORS.index(a.color) + 1) % len(COLORS)]
        return study, (a, replace(b, color=other) if a.color == b.color and a.key != b.key else b)

    def _side(self, name: str, board: Board, study: Study | None, number: int) -> Shown:
        """Find what an address names as A (0) or B (1): a method, or an evaluation; if it is of another set, the same weights on
        this one, else the last or the first."""
        arm = next((arm for arm in study.arms if METHOD + arm.name == name), None) if study is not None else None
        if arm is not None:
            ends = tuple(arm.ends)
            return Shown(arm.name, ends, arm, name, self.boards.color(ends[0].run))
        keys = list(board.entries)
        key, missing = (name, "") if name in board.entries else (keys[number - 1], name.removeprefix(METHOD))
        if missing and not name.startswith(METHOD):
            stored = next((members.stored[name] for members in self.boards.sets().values() if name in members.stored), None)
            if stored is None:
                raise not_here(name)
            evaluation = stored.evaluation
            model = evaluation.checkpoint, evaluation.fingerprints.get("weights", "")
            same = [key for key, entry in board.entries.items() if entry.is_of(*model)]
            key, missing = (same[0], "") if same else (key, evaluation.checkpoint)
        entry = board.entries[key]
        return Shown(entry.name, (entry,), None, key, self.boards.color(entry.run), missing)

    def claims(self, board: Board, study: Study, a: Side, b: Side, metrics: Sequence[str] = ()) -> list[Claim]:
        """Return the claims about two sides: of the answer, then of the studies of these metrics that it says nothing of."""
        claims = between(study, a, b)
        for metric in metrics:
            if metric in board.metrics and all(claim.outcome != metric for claim in claims):
                other = self.study(board, metric)
                claims += [claim for claim in (between(other, a, b) if other else ()) if claim.outcome == metric]
        return claims
