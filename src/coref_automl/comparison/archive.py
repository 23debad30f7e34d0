"""The numbers of a study, to publish or to keep. In: paths. Out: a folder without any text that `compare` and `report` read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.comparison.groups import flat_paths, with_bases
from coref_automl.comparison.relation_runs import archive_relation, find_relation
from coref_automl.errors import InputError
from coref_automl.evaluation.archive import archive_evaluations
from coref_automl.records import Record
from coref_automl.store import claim_folder, remove

KIND = "archive"
_MARK = ".coref-automl"


@dataclass(frozen=True, slots=True)
class Archive(Record):
    """What was kept, and how large it is."""

    folder: str
    evaluations: int
    relation_runs: int
    megabytes: float

    def __str__(self) -> str:
        runs = f" and {self.relation_runs:,} relation runs" if self.relation_runs else ""
        return f"{self.evaluations:,} evaluations{runs} in {self.folder}, {self.megabytes:.2f} MB, without any text"


def archive(*paths: Any, out: str | Path) -> Archive:
    """Keep the finished evaluations and relation runs under the paths without their text; an older archive is made anew.

    The models that the checkpoints began from are kept with them where they were evaluated.
    """
    names, folder = flat_paths(paths), Path(out)
    stored = with_bases(names)
    if any(one.folder.resolve().is_relative_to(folder.resolve()) for one in stored):
        raise InputError(f"{folder} holds evaluations that would be archived into it; choose another --out.")
    relation = find_relation(names)
    claim_folder(folder, KIND)
    for inside in folder.iterdir():
        if inside.name != _MARK:
            remove(inside) if inside.is_dir() else inside.unlink()
    archive_evaluations(stored, folder)
    archive_relation(relation, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Archive(str(folder), len(stored), len(relation), size / 1e6)
