"""One reader of results. In: paths. Out: what lies behind them, found, told apart and opened once per command.

Evaluations and runs of outside checks may lie under one path. Evaluations of the base models that checkpoints started from are
found beside them. Which of them count, and why the others do not, is decided in one place (`superseded.drop_superseded`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from coref_automl.base.errors import ComparisonError, CorefError, InputError
from coref_automl.base.folders import EXPERIMENT, is_folder, is_there, kind_of_folder, short_names
from coref_automl.base.say import say
from coref_automl.comparison.bases import bases_beside, with_bases
from coref_automl.comparison.claims import QuestionId
from coref_automl.comparison.names import runs_in_several_folders
from coref_automl.comparison.outside_checks import CHECKS
from coref_automl.comparison.runs import TaskFiles, TaskRun
from coref_automl.comparison.scores import Group
from coref_automl.comparison.superseded import changed_since, copies_note, copies_of, drop_superseded
from coref_automl.evaluation.results import RESULT, Opened, StoredEvaluation, files_under, is_of_one_model, open_evaluations
from coref_automl.models.model_files import full_name, is_local


@dataclass(frozen=True)
class TaskRuns:
    """Runs of each outside check, a sentence for each that cannot be read, and the `paths` that hold a readable one.

    `damaged` is the first such sentence of a path.
    """

    checks: dict[QuestionId, list[TaskRun]]
    unread: tuple[str, ...]
    paths: frozenset[str]
    damaged: dict[str, str]

    @property
    def all(self) -> list[TaskRun]:
        return [run for runs in self.checks.values() for run in runs]


def find_runs(paths: Sequence[str]) -> TaskRuns:
    """Find the runs with results under the paths; each folder is read once, and a run that was found twice counts once."""
    checks = {check.files.results: (question, check.files) for question, check in CHECKS.items()}
    opened: dict[tuple[QuestionId, Path], TaskRun | CorefError] = {}
    with_runs: set[str] = set()
    damaged: dict[str, str] = {}
    unsearched: list[InputError] = []
    for path in paths:
        for file in files_under(Path(path), checks, unsearched):
            (question, files), folder = checks[file.name], file.parent.resolve()
            if (question, folder) not in opened:
                opened[question, folder] = _read_run(files, folder)
            if isinstance(result := opened[question, folder], CorefError):
                damaged.setdefault(path, str(result))
            else:
                with_runs.add(path)
    by_check: dict[QuestionId, dict[Path, TaskRun]] = {question: {} for question in CHECKS}
    for (question, folder), result in opened.items():
        if not isinstance(result, CorefError):
            by_check[question][folder] = result
    errors = [str(result) for result in (*opened.values(), *unsearched) if isinstance(result, CorefError)]
    return TaskRuns({name: _named(runs) for name, runs in by_check.items()}, tuple(errors), frozenset(with_runs), damaged)


def _read_run(files: TaskFiles, folder: Path) -> TaskRun | CorefError:
    """The run in a folder, or why it cannot be read."""
    try:
        return replace(files.read(folder), folder=folder)
    except CorefError as error:
        return error


def _named(runs: dict[Path, TaskRun]) -> list[TaskRun]:
    """Each run once, under a name of its own."""
    copies = copies_of(runs)
    names = short_names(copies)
    return [replace(runs[folder], name=names[folder], copies=copies[folder]) for folder in copies]


class PathResults(NamedTuple):
    """The evaluations under one path, and the errors of those that cannot be read."""

    evaluations: list[StoredEvaluation]
    errors: list[InputError]


@dataclass(frozen=True)
class Results:
    """What lies behind paths. Everything that a command needs of it is asked here, and nothing is opened again."""

    paths: tuple[str, ...]
    runs: TaskRuns
    by_path: dict[str, PathResults]
    opened: Opened = field(repr=False)

    @cached_property
    def named(self) -> set[Path]:
        """Evaluation folders named in the paths: these are always compared."""
        return {Path(path).resolve() for path in self.paths if (Path(path) / RESULT).is_file()}

    @cached_property
    def everything(self) -> list[StoredEvaluation]:
        """Every finished evaluation that can be read."""
        return list({stored.folder.resolve(): stored for under in self.by_path.values() for stored in under.evaluations}.values())

    @cached_property
    def damaged(self) -> list[InputError]:
        return list({str(error): error for under in self.by_path.values() for error in under.errors}.values())

    def checked_under(self, path: str) -> list[StoredEvaluation]:
        """The readable evaluations under one of the paths; `left_out` names the damaged ones. A damaged one is raised if it was
        named by its model or folder, or if its path holds nothing else."""
        under = self.by_path[path]
        if under.errors and (not under.evaluations or is_of_one_model(path)):
            raise under.errors[0]
        return under.evaluations

    @cached_property
    def _counted(self) -> tuple[list[StoredEvaluation], list[str]]:
        return drop_superseded(self.everything, add_bases=lambda kept: with_bases(kept, self.opened))

    def counted(self) -> list[StoredEvaluation]:
        """The evaluations that count, with those of their base models; an error if there are none, or one may not be left out."""
        for path in self.paths:
            self.checked_under(path)
        if self._counted[0]:
            return self._counted[0]
        if not self.paths:
            raise ComparisonError("Name at least one evaluated checkpoint, run or folder of runs.")
        if missing := self.check_evaluated():
            raise self.refusal(missing)
        raise ComparisonError(
            f"Under {', '.join(self.paths)} there are runs of outside checks alone; name at least one evaluated checkpoint "
            "beside them (coref-automl evaluate makes one)."
        )

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """Why results under the paths do not count in any group: unreadable, of replaced weights, or found twice."""
        copies = copies_note((copy, run.name) for run in self.runs.all for copy in run.copies)
        return tuple(dict.fromkeys([*map(str, self.damaged), *self._counted[1], *self.runs.unread, *copies]))

    def notes_on(self, group: Group) -> list[str]:
        """What a reader of a group should know about results that do not count, or no longer fit their models."""
        left_out = [say(f"제외: {reason}", f"Left out: {reason}") for reason in (*self.left_out, *group.left_out)]
        return [*left_out, *runs_in_several_folders(group.entries), *changed_since(self.everything)]

    def check_evaluated(self) -> list[str]:
        """Return the paths without a finished evaluation or run of a check; raise if one of them does not exist. A path of a base
        model is not among them if its evaluation lies with the runs that started from it."""
        empty = [path for path in self.paths if not self.checked_under(path) and path not in self.runs.paths]
        if not empty:
            return []
        bases = {full_name(stored.evaluation.path) for stored in bases_beside(self.everything, self.opened)}
        missing = [path for path in empty if full_name(path) not in bases]
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
    by_path = {path: PathResults(*open_evaluations([path], opened)) for path in paths}
    return Results(tuple(paths), find_runs(paths), by_path, opened)


def nothing_under(paths: Sequence[str]) -> str:
    """Why paths hold nothing to compare, and what to do: pass the study that they are in, or evaluate them."""
    if files := [path for path in paths if is_there(path) and not is_folder(path)]:
        return f"{files[0]} is a file, not results; pass an evaluated checkpoint, a run or a folder of runs."
    studies = [folder for path in paths for folder in Path(path).parents if kind_of_folder(folder) == EXPERIMENT]
    do = f"pass {studies[0]}, where this study keeps them" if studies else f"run: coref-automl evaluate {shlex.join(paths)}"
    return f"No finished evaluation under {', '.join(paths)}; {do}"
