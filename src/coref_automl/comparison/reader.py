"""One reader of results. In: paths. Out: what lies behind them, found, told apart and opened once per command.

Evaluations and runs of outside checks may lie under one path. Evaluations of the base models that checkpoints started from are
found beside them. What counts of them, and why the rest does not, is decided once (`superseded.what_counts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from coref_automl.comparison.bases import bases_beside, with_bases
from coref_automl.comparison.claims import QuestionId
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.superseded import changed_since, copies_of, named_folders, one_dtype_each, told_copies, what_counts
from coref_automl.errors import ComparisonError, CorefError, InputError
from coref_automl.evaluation.results import Opened, StoredEvaluation, files_under, is_of_one_model, look_through
from coref_automl.folders import short_names
from coref_automl.models.model_files import full_name, is_local
from coref_automl.say import say


@dataclass(frozen=True)
class TaskRuns:
    """Runs of each outside check, a sentence for each that cannot be read, and the paths that hold some.

    `damaged`: the first such sentence of a path.
    """

    checks: dict[QuestionId, list[TaskRun]]
    unread: tuple[str, ...]
    under: frozenset[str]
    damaged: dict[str, str]

    @property
    def all(self) -> list[TaskRun]:
        return [run for runs in self.checks.values() for run in runs]


def find_runs(paths: Sequence[str]) -> TaskRuns:
    """The runs with results under the paths; one that was found twice counts once."""
    files = {check.files.results: check.files for check in CHECKS.values()}
    found: dict[str, dict[Path, Any]] = {name: {} for name in files}
    damaged: dict[Path, str] = {}
    unread: list[InputError] = []
    under: set[str] = set()
    told: dict[str, str] = {}
    for path in paths:
        for file in files_under(Path(path), files, unread):
            held, place = found[file.name], file.parent.resolve()
            try:
                if place not in held and place not in damaged:
                    held[place] = replace(files[file.name].read(place), folder=place)
            except CorefError as error:
                damaged[place] = str(error)
            if place in held:
                under.add(path)
            else:
                told.setdefault(path, damaged[place])
    return TaskRuns(
        checks={question: _named(found[check.files.results]) for question, check in CHECKS.items()},
        unread=(*damaged.values(), *map(str, unread)),
        under=frozenset(under),
        damaged=told,
    )


def _named(found: dict[Path, Any]) -> list[Any]:
    """Each run once, under a name of its own."""
    copies = copies_of(found)
    names = short_names(copies)
    return [replace(found[folder], name=names[folder], copies=copies[folder]) for folder in copies]


@dataclass(frozen=True)
class Results:
    """What lies behind paths. Everything that a command needs of it is asked here, and nothing is opened again."""

    paths: tuple[str, ...]
    runs: TaskRuns
    found: dict[str, tuple[list[StoredEvaluation], list[InputError]]]
    opened: Opened = field(repr=False)

    @cached_property
    def everything(self) -> list[StoredEvaluation]:
        """Every finished evaluation that can be read."""
        return list({one.folder.resolve(): one for here, _ in self.found.values() for one in here}.values())

    @cached_property
    def damaged(self) -> list[InputError]:
        return list({str(error): error for _, errors in self.found.values() for error in errors}.values())

    def checked_under(self, path: str) -> list[StoredEvaluation]:
        """The readable evaluations under one of the paths; `left_out` names the damaged ones.

        A damaged one is raised if it was named by its model or folder, or if its path holds nothing else.
        """
        here, damaged = self.found[path]
        if damaged and (not here or is_of_one_model(path)):
            raise damaged[0]
        return here

    @cached_property
    def _counted(self) -> tuple[list[StoredEvaluation], list[str]]:
        return what_counts(self.everything, bases=lambda stored: with_bases(stored, self.opened))

    def counted(self) -> list[StoredEvaluation]:
        """The evaluations that count, with those of their base models; raises if there are none."""
        if self._counted[0]:
            return self._counted[0]
        missing = self.check_evaluated()
        if missing or not self.paths:
            raise self.refusal(missing)
        raise ComparisonError(
            f"Under {', '.join(self.paths)} there are runs of outside checks alone; name at least one evaluated checkpoint "
            "beside them (coref-automl evaluate makes one)."
        )

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """Why results under the paths do not count: unreadable, found twice, or a second evaluation of a model."""
        once, reasons = self._counted
        others = [reasons for _, reasons in one_dtype_each(once, named_folders(self.paths)).values()]
        copies = told_copies((copy, run.name) for run in self.runs.all for copy in run.copies)
        found = [*map(str, self.damaged), *reasons, *chain(*others), *self.runs.unread, *copies]
        return tuple(dict.fromkeys(found))

    @cached_property
    def notes(self) -> list[str]:
        """What a reader should know of results that do not count, or no longer fit their models."""
        return [*(say(f"제외: {one}", f"Left out: {one}") for one in self.left_out), *changed_since(self.everything)]

    def check_evaluated(self) -> list[str]:
        """The paths without a finished evaluation or run of a check; raises if one of them does not exist. A base's
        evaluation may lie with the runs of the others."""
        missing = [path for path in self.paths if not self.checked_under(path) and path not in self.runs.under]
        if not missing:
            return []
        bases = {full_name(one.evaluation.path) for one in bases_beside(self.everything, self.opened)}
        missing = [path for path in missing if full_name(path) not in bases]
        gone = ", ".join(path for path in missing if not Path(path).exists() and not is_local(path))
        if gone:
            raise InputError(say(f"없는 경로입니다: {gone}", f"{gone} does not exist; check the path."))
        return missing

    def refusal(self, missing: Sequence[str]) -> ComparisonError:
        """Why nothing is compared: the first damaged run of these paths, or that they hold nothing."""
        damaged = [self.runs.damaged[path] for path in missing if path in self.runs.damaged]
        return ComparisonError(damaged[0] if damaged else nothing_under(missing))


def open_results(paths: Sequence[str]) -> Results:
    """Find and open all results behind the paths."""
    opened: Opened = {}
    return Results(tuple(paths), find_runs(paths), {path: look_through([path], opened) for path in paths}, opened)


def nothing_under(paths: Sequence[str]) -> str:
    return f"No finished evaluation under {', '.join(paths)}; run: coref-automl evaluate {' '.join(paths)}"
