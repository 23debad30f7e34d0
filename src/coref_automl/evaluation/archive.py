"""Evaluations without their text. In: finished evaluations. Out: a folder of ranks that can be published.

    ARCHIVE/items-<fingerprint>.npz                                   the items of a set as columns, once
    ARCHIVE/<run>/evaluations/<set>-<length>/<checkpoint>/{result.json, ranks.npz}
    ARCHIVE/evaluations/<model>/<set>-<length>/{result.json, ranks.npz}
    ARCHIVE/.../<set>-<length>-<mark>/...                             another set of that name, dtype or scorer version

No passage, answer, predicted word, title or path of a machine is kept. Every number, interval and verdict stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import InputError
from coref_automl.evaluation.columns import FACTS, OWN, RANKS, RULES, items_name, read_columns, whole_numbers
from coref_automl.evaluation.stored import RESULT, StoredEvaluation
from coref_automl.evaluation.targets import CHECKPOINT, EVALUATIONS, folder_name, model_slug
from coref_automl.records import Evaluation, half_of
from coref_automl.store import fingerprint, write_json, written_whole

_SHARED = (*FACTS, "pronoun_between", *OWN)


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of a set: where each stands, and its columns."""

    index: dict[str, int]
    columns: dict[str, NDArray[Any]]


def archive_evaluations(stored: Sequence[StoredEvaluation], out: Path) -> None:
    """Write the evaluations to `out`, each once, in the layout of runs."""
    places: dict[Path, StoredEvaluation] = {}
    by_set: dict[str, list[tuple[StoredEvaluation, Path]]] = {}
    for one in stored:
        place = _place(one.evaluation)
        if place in places and places[place].evaluation.condition != one.evaluation.condition:
            place = _place(one.evaluation, fingerprint(*one.evaluation.condition)[:8])
        if other := places.get(place):
            raise InputError(f"{other.folder} and {one.folder} have the same name; rename one of the runs to keep both.")
        places[place] = one
        by_set.setdefault(one.evaluation.fingerprints.get("items", ""), []).append((one, out / place))
    for name, members in by_set.items():
        columns = [read_columns(one.folder, (*_SHARED, *RULES, "out_of_reach")) for one, _ in members]
        items = _items(columns)
        _write(out / items_name(name), {"item": np.array(list(items.index)), **items.columns})
        for (one, folder), found in zip(members, columns, strict=True):
            _write(folder / RANKS, {"set": np.array(name), **_own(found, items)})
            write_json(folder / RESULT, without_paths(one.evaluation).to_json())


def document_names(clusters: Sequence[str]) -> dict[str, str]:
    """A number for every document. Numbers keep the order of the names and the half of each document.

    Resampling takes documents in the order of their names, and `half_of` reads the name: with both kept, an archive gives the
    same draws and the same halves as the evaluations it came from.
    """
    known = np.unique(np.asarray(clusters)).tolist()
    out = {}
    for number, name in enumerate(known):
        salt = 0
        while half_of(new := f"{number:06d}.{salt}") != half_of(name):
            salt += 1
        out[name] = new
    return out


def without_paths(evaluation: Evaluation) -> Evaluation:
    """The same evaluation with names where paths of this machine stood, and no way back to the texts."""
    made = evaluation.provenance
    told = made and replace(made, run=PurePath(made.run).name, base=place_of(made.base), dataset=place_of(made.dataset))
    path = evaluation.path if not PurePath(evaluation.path).is_absolute() else f"runs/{evaluation.checkpoint}"
    return replace(evaluation, path=path, evalset_path="", provenance=told)


def place_of(path: str) -> str:
    """A hub id or a relative path as it is; of an absolute path its last part, with the run before a checkpoint."""
    found = PurePath(path)
    if not found.is_absolute():
        return path
    return f"runs/{found.parent.name}/{found.name}" if CHECKPOINT.fullmatch(found.name) else found.name


def _place(evaluation: Evaluation, mark: str = "") -> Path:
    run, _, label = evaluation.checkpoint.rpartition("/")
    inside = folder_name(evaluation.evalset, evaluation.seq_len, mark)
    if run and CHECKPOINT.fullmatch(label):
        return Path(PurePath(run).name) / EVALUATIONS / inside / label
    return Path(EVALUATIONS) / model_slug(evaluation.checkpoint) / inside


def _items(columns: Sequence[dict[str, list[Any]]]) -> _Items:
    """Every item that any of the evaluations has, as it was first seen."""
    index: dict[str, int] = {}
    found: dict[str, list[Any]] = {name: [] for name in _SHARED}
    for one in columns:
        for at, item in enumerate(one["item"]):
            if item not in index:
                index[item] = len(index)
                for name in _SHARED:
                    found[name].append(one[name][at])
    renamed = document_names(found["cluster"])
    found["cluster"] = [renamed[name] for name in found["cluster"]]
    return _Items(index, {name: _compact(np.array(values)) for name, values in found.items()})


def _own(columns: dict[str, list[Any]], items: _Items) -> dict[str, NDArray[Any]]:
    """What one evaluation adds: ranks, reach, its rows where they are not all, its tokenizer's columns where they differ."""
    rows = np.array([items.index[item] for item in columns["item"]])
    out = {name: _compact(whole_numbers(columns[name])) for name in RULES}
    out["out_of_reach"] = np.array(columns["out_of_reach"], np.bool_)
    if not np.array_equal(rows, np.arange(len(items.index))):
        out["rows"] = _compact(rows)
    for name in OWN:
        values = np.array(columns[name])
        if not np.array_equal(values, items.columns[name][rows]):
            out[name] = _compact(values)
    return out


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them all."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    return values.astype(np.promote_types(np.min_scalar_type(values.min()), np.min_scalar_type(values.max())))


def _write(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    with written_whole(path, "wb") as handle:
        np.savez_compressed(handle, **columns)  # type: ignore[arg-type]
