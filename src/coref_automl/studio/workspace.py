"""What every page works with. In: folders. Out: what is loaded of them, notes, models; the study of a board, and the claims about
any pair.

The answer to the study's own metric comes first: what it claims of a pair on any outcome is shown on every page. A metric that it
says nothing of is asked of the study of that metric.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from coref_automl.comparison.arms import base_of
from coref_automl.comparison.claims import Claim
from coref_automl.comparison.reader import find_runs
from coref_automl.comparison.scores import Group
from coref_automl.comparison.study import Side, Study, between, looks_at, study_of
from coref_automl.comparison.study_data import MARGIN
from coref_automl.errors import ComparisonError
from coref_automl.studio.board import Board
from coref_automl.studio.folders import Folders
from coref_automl.studio.kept import Kept
from coref_automl.studio.pages import COLORS, Pages
from coref_automl.studio.shelf import Pending, Shelf, not_here
from coref_automl.training.watch import RunWatch

METHOD = "method:"
"""Prefix of a method in addresses; without it, a key names an evaluation."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown(Side):
    """A or B on a page: what addresses call it, its colour, and what was asked for that this set does not have."""

    key: str = ""
    color: str = ""
    missing: str = ""


class Workspace:
    def __init__(self, paths: Sequence[Path]) -> None:
        self.folders = Folders(paths)
        self.shelf, self.kept = Shelf(self.folders), Kept(self.folders)
        self.pages = Pages()
        self.watches: dict[Path, RunWatch] = {}
        self.lock = threading.Lock()

    def stop(self) -> None:
        self.folders.stop()
        self.shelf.stop()

    def study(self, board: Board, metric: str = "") -> Study | None:
        """None where nothing was run by all of them; Pending until it is made, which takes seconds with many checkpoints."""
        chosen = metric if metric in board.metrics else None
        results = self.shelf.results(board.mark)
        make = partial(self._made, board.group, chosen, [str(folder) for folder in results])
        try:
            key = ("study", board.mark, board.state, chosen, tuple(results.items()))
            return self.shelf.made(key, make, worker=self.shelf.slow)
        except ComparisonError:
            return None

    def ready(self, board: Board, metric: str = "") -> tuple[Study | None, bool]:
        """The study if it is there, and whether it is still being made."""
        try:
            return self.study(board, metric), False
        except Pending:
            return None, True

    def _made(self, group: Group, metric: str | None, results: Sequence[str]) -> Study:
        """With the relation and coreference runs under the folders, and how often it was looked at: what `compare` reads."""
        above = {parent for entry in group.entries for parent in entry.folder.parents if self.folders.holds(parent)}
        looks = looks_at([str(path) for path in (*above, *self.folders.roots.values())])
        return study_of(group, metric=metric, margin=MARGIN, seed=0, checks=find_runs(results).checks, looks=looks)

    def pair(self, asked: Sequence[str], board: Board, *, wait: bool) -> tuple[Study | None, tuple[Shown, Shown]]:
        """A and B as addresses name them, and the study; without either, what the answer is about, which `wait` waits for."""
        study, waiting = self.ready(board)
        if waiting and (any(one.startswith(METHOD) for one in asked) or (wait and not any(asked))):
            raise Pending
        if study is not None and not any(asked):  # the method of the answer, or the checkpoint that came out highest; its base
            arm = next((one for one in study.arms if one.name == study.answer.method), None)
            base = base_of(study.group.entries, arm) if arm else study.own_base(study.chosen)
            asked = [METHOD + arm.name if arm else board.key(study.chosen), board.key(base)] if base is not None else asked
        a, b = (self._side(one, board, study, number) for number, one in enumerate(asked))
        other = COLORS[(COLORS.index(a.color) + 1) % len(COLORS)]
        return study, (a, replace(b, color=other) if a.color == b.color and a.key != b.key else b)

    def _side(self, asked: str, board: Board, study: Study | None, number: int) -> Shown:
        """What an address names as A (0) or B (1): on another set the same method or weights, else the last or the first."""
        arm = next((one for one in study.arms if METHOD + one.name == asked), None) if study is not None else None
        if arm is not None:
            ends = tuple(arm.ends)
            return Shown(arm.name, ends, arm, asked, self.shelf.color(ends[0].run))
        keys = list(board.entries)
        key, missing = (asked, "") if asked in board.entries else (keys[number - 1], asked.removeprefix(METHOD))
        if missing and not asked.startswith(METHOD):
            stored = next((one.stored[asked] for one in self.shelf.sets().values() if asked in one.stored), None)
            if stored is None:
                raise not_here(asked)
            made = stored.evaluation
            same = [key for key, one in board.entries.items() if one.is_of(made.checkpoint, made.fingerprints.get("weights", ""))]
            key, missing = (same[0], "") if same else (key, made.checkpoint)
        entry = board.entries[key]
        return Shown(entry.name, (entry,), None, key, self.shelf.color(entry.run), missing)

    def claims(self, board: Board, study: Study, a: Side, b: Side, metrics: Sequence[str] = ()) -> list[Claim]:
        """What is claimed of two sides: by the answer, then by the studies of the given metrics that it says nothing of."""
        found = between(study, a, b)
        for metric in metrics:
            if metric in board.metrics and all(one.outcome != metric for one in found):
                other = self.study(board, metric)
                found += [one for one in (between(other, a, b) if other else ()) if one.outcome == metric]
        return found
