"""Coreference runs, to compare. In: folders of `coref train`, or an archive. Out: results, and the sums of every document.

RUN/coref_results.json manifest.json split.json seed-*/[fold-*/]answers/<split>.jsonl    as `coref train` writes them
ARCHIVE/coreference/<run>/{coref_results.json, documents.npz}    the same without names of documents, chains, paths
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.arrays import read_arrays
from coref_automl.comparison.copies import copies_of
from coref_automl.comparison.relation_runs import place_of
from coref_automl.decoder import decode_stored, read_stored, read_stored_rows
from coref_automl.engine.binding import Binding
from coref_automl.errors import CorefError, InputError
from coref_automl.records import Estimate, Provenance
from coref_automl.statistics.ratios import by_document
from coref_automl.statistics.resampling import Floats
from coref_automl.store import MANIFEST, check_name, files_under, fingerprint, read_json, short_names, write_json, written_whole

RESULTS, DOCUMENTS, SPLIT = "coref_results.json", "documents.npz", "split.json"
FOLDER = "coreference"
CONLL = ("muc", "b_cubed", "ceaf_e")
"""Their F1s' mean is the CoNLL score."""
WAYS = ("gold", "found")
"""Mentions are given, or the model finds them; a verdict is about the first, the second stands beside it."""
_NUMBERS = ("hit", "gold", "right", "given")
_FREE = ("first_seed", "note")
"""Settings that two runs need not share: they do not decide what a seed is."""
_AGAIN = "run coref train again"


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Scored documents in one order: a mark of each name, its gold mentions, and `sums[way]` [seed, document, metric, 4]."""

    marks: tuple[str, ...]
    mentions: NDArray[np.int64]
    sums: dict[str, Floats]

    @property
    def sizes(self) -> Floats:
        """What a document weighs. One without mentions still counts: its false ones do."""
        return np.maximum(1, self.mentions).astype(np.float64)

    def values(self, way: str, seed: int) -> Floats:
        """CoNLL of one seed (a column), as a value per document."""
        return by_document(self.sums[way][seed], self.sizes)


class _Seed(TypedDict):
    seed: int


class _Stored(TypedDict, total=False):
    """What is read of coref_results.json; an archive's has the last two."""

    model: str
    split: str
    documents: int
    mentions: int
    seeds: list[_Seed]
    estimates: dict[str, dict[str, Estimate]]
    fingerprints: dict[str, str]
    notes: list[str]
    conditions: dict[str, Any]
    pretraining: Provenance | None


class _Bound(TypedDict):
    scored_documents: str
    binding: Binding


class _Manifest(_Bound, total=False):
    """What is read of a run's manifest.json; runs of earlier versions do not say how their encoder was trained."""

    pretraining: Provenance | None


class _Sides(TypedDict):
    dev: list[str]
    test: list[str]


class _Sums(TypedDict):
    document: str
    mentions: int
    sums: dict[str, dict[str, dict[str, float]]]
    version: str


@dataclass(frozen=True, slots=True, eq=False)
class CoreferenceRun:
    """A run's summary and its documents. `conditions` must be shared to compare; `pretraining` is its encoder's, where known.

    `copies` are the folders that repeat it.
    """

    name: str
    result: dict[str, Any]
    documents: Documents
    conditions: dict[str, Any]
    pretraining: Provenance | None
    copies: tuple[Path, ...] = ()

    @property
    def model(self) -> str:
        return str(self.result.get("model", ""))

    @property
    def weights(self) -> str:
        """The fingerprint of the encoder it started from."""
        return str((self.result.get("fingerprints") or {}).get("weights", ""))

    @property
    def seeds(self) -> list[int]:
        """The seed of each column of its sums."""
        return [int(one["seed"]) for one in self.result.get("seeds", ())]


def look_for_coreference(paths: Sequence[str]) -> tuple[list[CoreferenceRun], list[str]]:
    """Finished runs under the paths, and a sentence for each that cannot be read."""
    found: dict[Path, CoreferenceRun] = {}
    damaged: dict[Path, str] = {}
    unread: list[InputError] = []
    for path in paths:
        for held in files_under(Path(path), RESULTS, unread):
            place = held.parent.resolve()
            if place in found:
                continue
            try:
                check_name(place)
                found[place] = _read(held)
            except CorefError as error:
                damaged.setdefault(place, str(error))
    copies = copies_of(found)
    names = short_names(copies)
    told = [replace(found[folder], name=names[folder], copies=copies[folder]) for folder in copies]
    return told, [
        *damaged.values(),
        *map(str, unread),
    ]


def find_coreference(paths: Sequence[str]) -> list[CoreferenceRun]:
    """Readable runs; `look_for_coreference` names the others."""
    return look_for_coreference(paths)[0]


def unlike(a: CoreferenceRun, b: CoreferenceRun) -> list[str]:
    """What keeps two runs from being compared, one phrase each: `folds 5 and 0`."""
    both = sorted(set(a.conditions) & set(b.conditions))
    found = [f"{name} {_told(a, name)} and {_told(b, name)}" for name in both if a.conditions[name] != b.conditions[name]]
    return found or ([] if a.documents.marks == b.documents.marks else ["documents of other names"])


def alike(runs: Sequence[CoreferenceRun]) -> list[list[CoreferenceRun]]:
    """Runs that can be compared with each other, the most first."""
    found: list[list[CoreferenceRun]] = []
    for run in runs:
        group = next((group for group in found if not unlike(group[0], run)), None)
        if group is None:
            found.append(group := [])
        group.append(run)
    return sorted(found, key=len, reverse=True)


def archive_coreference(runs: Sequence[CoreferenceRun], out: Path) -> None:
    """Keep results and the sums of documents; no text, chain, name of a document or local path."""
    for run in runs:
        folder, made = out / FOLDER / run.name, run.pretraining
        moved = made and replace(made, run=Path(made.run).name, base=place_of(made.base), dataset=place_of(made.dataset))
        told = {**run.result, "run": run.name, "model": place_of(run.model), "conditions": run.conditions}
        with written_whole(folder / DOCUMENTS, "wb") as handle:
            held = run.documents
            np.savez_compressed(handle, marks=np.array(held.marks), mentions=held.mentions, **held.sums)  # type: ignore[arg-type]
        write_json(folder / RESULTS, told | {"pretraining": moved.to_json() if moved else None})


def _read(path: Path) -> CoreferenceRun:
    folder, result = path.parent, read_json(path)
    stored = decode_stored(_Stored, result, str(path), remedy=_AGAIN)
    if (folder / DOCUMENTS).is_file():
        return CoreferenceRun(folder.name, result, _archived(folder), stored["conditions"], stored.get("pretraining"))
    manifest = read_stored(folder / MANIFEST, _Manifest, remedy=_AGAIN)
    documents, version = _documents(folder, stored)
    binding = manifest["binding"]
    conditions = {name: value for name, value in binding["settings"].items() if name not in _FREE}
    conditions |= {"documents": manifest["scored_documents"], "resolver": version}
    conditions |= {name: value for name, value in binding["fingerprints"].items() if name == "split"}
    return CoreferenceRun(folder.name, result, documents, conditions, manifest.get("pretraining"))


def _documents(folder: Path, stored: _Stored) -> tuple[Documents, str]:
    seeds, versions = [], set()
    for seed in stored.get("seeds", ()):
        own = folder / f"seed-{seed['seed']}"
        files = [part / "answers" / f"{stored.get('split', '')}.jsonl" for part in sorted(own.glob("fold-*")) or [own]]
        rows = [row for path in files for row in read_stored_rows(path, _Sums, remedy=_AGAIN)]
        versions |= {row["version"] for row in rows}
        seeds.append({_mark(row["document"]): row for row in rows})
    marks = tuple(sorted(seeds[0])) if seeds else ()
    whole = all(tuple(sorted(rows)) == marks for rows in seeds) and len(marks) == stored.get("documents")
    if not marks or not whole or len(versions) > 1 or marks != _tested(folder):
        raise InputError(f"{folder}: its seeds have answers to different documents, too few, or of several versions; {_AGAIN}.")
    sums = {way: np.array([[_numbers(rows[mark]["sums"], way, folder) for mark in marks] for rows in seeds]) for way in WAYS}
    return Documents(marks, np.array([seeds[0][mark]["mentions"] for mark in marks], np.int64), sums), versions.pop()


def _tested(folder: Path) -> tuple[str, ...]:
    """Marks of the documents that a run scores itself on; a cross-fitted one has a split for each fold."""
    held = read_json(folder / SPLIT)
    splits = decode_stored(list[_Sides], held if isinstance(held, list) else [held], str(folder / SPLIT), remedy=_AGAIN)
    return tuple(sorted({_mark(name) for split in splits for name in (split["test"] or split["dev"])}))


def _numbers(sums: Mapping[str, Mapping[str, Mapping[str, float]]], way: str, folder: Path) -> list[list[float]]:
    try:
        return [[sums[way][metric][number] for number in _NUMBERS] for metric in CONLL]
    except KeyError as error:
        raise InputError(f"{folder}: an answer lacks the sums of {error}; {_AGAIN}.") from error


def _archived(folder: Path) -> Documents:
    try:
        held = read_arrays(folder / DOCUMENTS)
        return Documents(tuple(held["marks"].tolist()), held["mentions"], {way: held[way] for way in WAYS})
    except (InputError, KeyError) as error:
        raise InputError(f"{folder / DOCUMENTS} is damaged ({error}); archive the runs again.") from error


def _mark(name: str) -> str:
    return fingerprint("document", name)[:12]


def _told(run: CoreferenceRun, name: str) -> str:
    """A setting as it is; of documents their number, of what has only a fingerprint its beginning."""
    value = run.conditions[name]
    if name == "documents":
        return f"{len(run.documents.marks)} ({value[:6]})"
    return str(value)[:6] if name == "split" else str(value)
