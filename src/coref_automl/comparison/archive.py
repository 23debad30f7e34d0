"""The numbers of a study, to publish or to keep. In: paths. Out: a folder without any text that `compare` and `report` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from coref_automl.comparison.groups import not_evaluated, nothing_under, of_weights_today, with_bases
from coref_automl.comparison.relation_runs import RelationRun, archive_relation, find_relation, look_for_relation
from coref_automl.config import as_paths
from coref_automl.errors import InputError
from coref_automl.evaluation.archive import archive_evaluations
from coref_automl.evaluation.stored import StoredEvaluation, find_evaluations
from coref_automl.locks import claimed
from coref_automl.records import Record
from coref_automl.store import contents, natural_order, remove

KIND = "archive"
_NAMED = 5
"""How many an error names."""


@dataclass(frozen=True, slots=True)
class Archive(Record):
    """What was kept, and how large it is."""

    folder: str
    evaluations: int
    relation_runs: int
    megabytes: float
    not_evaluated: tuple[str, ...] = ()

    def __str__(self) -> str:
        runs = f" and {self.relation_runs:,} relation runs" if self.relation_runs else ""
        told = f"{self.evaluations:,} evaluations{runs} in {self.folder}, {self.megabytes:.2f} MB, without any text"
        return f"{told}\n{nothing_under(self.not_evaluated)}" if self.not_evaluated else told


def archive(*paths: Any, out: str | Path) -> Archive:
    """Keep the finished evaluations and relation runs under the paths without their text; an archive of the same is made anew.

    The models that the checkpoints began from are kept with them where they were evaluated. A folder that holds others too is
    refused: nothing that is not written again is lost.
    """
    names, folder = as_paths(paths, "paths"), Path(out)
    stored = of_weights_today(with_bases(names, find_evaluations(names)))[0]
    if any(one.folder.resolve().is_relative_to(folder.resolve()) for one in stored):
        raise InputError(f"{folder} holds evaluations that would be archived into it; choose another --out.")
    relation, unread = look_for_relation(names)
    if unread:
        raise InputError(unread[0])  # what is kept is kept whole
    with claimed(folder, KIND):
        _refuse_loss(folder, stored, relation)
        for inside in contents(folder):
            remove(inside) if inside.is_dir() else inside.unlink()
        archive_evaluations(stored, folder)
        archive_relation(relation, folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Archive(str(folder), len(stored), len(relation), size / 1e6, tuple(not_evaluated(names)))


def _refuse_loss(folder: Path, stored: Sequence[StoredEvaluation], relation: Sequence[RelationRun]) -> None:
    """An archive is emptied before it is written: what it holds of other runs, models and relation runs is named instead."""
    again = {_run_or_model(one) for one in stored}
    others = {_run_or_model(one) for one in find_evaluations([folder], skip_damaged=True)} - again
    others |= {run.name for run in find_relation([str(folder)])} - {run.name for run in relation}
    if others:
        named = sorted(others, key=natural_order)
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        raise InputError(f"{folder} also holds {', '.join(named[:_NAMED])}{more}; pass them too, or choose another --out.")


def _run_or_model(one: StoredEvaluation) -> str:
    name = one.evaluation.checkpoint
    return PurePath(name.rpartition("/")[0]).name or name
