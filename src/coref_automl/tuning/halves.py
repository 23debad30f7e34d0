"""The halves of an evaluation set, and hits on them. In: a frozen set. Out: `select` and `confirm`, and hits as text.

A trial is handed `select` alone: what it never sees it cannot be chosen by; `confirm` is for the end. Only the tasks that the
metric asks for are kept.

What a trial got right is a letter per item, items in the order of their ids: ten times the item's share of the metric. It
travels through a storage, so that two trials on two machines can be compared by the paired test though neither sees the other's
disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.decoder import read_stored
from coref_automl.errors import RecipeError
from coref_automl.evaluation.evalset import EvalSet, freeze
from coref_automl.evaluation.metrics import METRICS, hits
from coref_automl.evaluation.tasks import TASKS
from coref_automl.records import ClozeItem, Document, Half, ItemScore, Task
from coref_automl.store import claim_folder, fingerprint, is_done, written_whole

HALVES: tuple[Half, ...] = ("select", "confirm")


def tasks_of(metric: str) -> tuple[Task, ...]:
    """The tasks a metric needs, in a fixed order."""
    parts = [METRICS[name].task for name, _ in METRICS[metric].parts] or [METRICS[metric].task]
    return tuple(task for task in TASKS if task in parts)


def split_set(evalset: EvalSet, out: Path, metric: str, *, limit: int | None) -> dict[Half, EvalSet]:
    """Write both halves under `out`, or open existing ones. `limit` bounds the items of each task in each half."""
    missing = [task for task in tasks_of(metric) if not evalset.items.get(task)]
    if missing:
        raise RecipeError(
            f"{evalset.folder} has no {missing[0]} items, which {metric} needs; choose another --metric or --eval-set."
        )
    return {half: half_set(evalset, out / half, half, metric, limit) for half in HALVES}


class _HalfManifest(TypedDict, total=False):
    made_from: str


def _made_from(folder: Path) -> str:
    return read_stored(folder / "manifest.json", _HalfManifest).get("made_from", "")


def half_set(evalset: EvalSet, folder: Path, half: Half, metric: str | None = None, limit: int | None = None) -> EvalSet:
    """One half of a set as a set of its own, for the tasks of a metric or for all; an existing one is opened."""
    tasks = tasks_of(metric) if metric else tuple(evalset.items)
    source = fingerprint(evalset.fingerprint, half, metric, limit)
    if not is_done(folder) or _made_from(folder) != source:
        mine = {cluster for cluster, of in evalset.halves.items() if of == half}
        kept = {task: _some(evalset.items[task], mine, limit) for task in tasks}
        if empty := [task for task, items in kept.items() if not items]:
            raise RecipeError(
                f"No {empty[0]} item of {evalset.folder} falls into its {half} half: the set is too small for that."
            )
        used = {item.document for items in kept.values() for item in items}
        claim_folder(folder, "evalset")
        documents = [Document(id=name, source="", text=text) for name, text in evalset.documents.items() if name in used]
        freeze(folder, documents, kept, {"made_from": source, "half": half, "of": evalset.name})
    for table in evalset.folder.glob("nouns-*.npy"):
        _copy_whole(table, folder / table.name)
    return EvalSet.open(folder)


def _copy_whole(table: Path, copy: Path) -> None:
    """Copy a noun table unless it is there; earlier versions could leave a truncated one, which is copied again."""
    if copy.is_file() and copy.stat().st_size == table.stat().st_size:
        return
    with table.open("rb") as source, written_whole(copy, "wb") as handle:
        shutil.copyfileobj(source, handle)


def _some(items: Sequence[ClozeItem], clusters: Set[str], limit: int | None) -> list[ClozeItem]:
    """Whole documents among these, in an order that has nothing to do with their content, until there are enough items."""
    wanted = [item for item in items if item.cluster in clusters]
    if limit is None or len(wanted) <= limit:
        return wanted
    order = sorted({item.cluster for item in wanted}, key=lambda cluster: fingerprint("tuning", cluster))
    kept: list[ClozeItem] = []
    for cluster in order:
        if len(kept) >= limit:
            break
        kept += [item for item in wanted if item.cluster == cluster]
    return kept


def clusters_of(evalset: EvalSet, metric: str) -> tuple[NDArray[np.str_], ...]:
    """The cluster of every item, a task an array, items in the order of their ids: the order of every trial's hits."""
    return tuple(
        np.array([item.cluster for item in sorted(evalset.items[task], key=lambda entry: entry.id)], np.str_)
        for task in tasks_of(metric)
    )


_LETTERS = "0123456789a"


def encode_hits(scores: Iterable[ItemScore], metric: str) -> tuple[str, ...]:
    ordered = sorted(scores, key=lambda score: score.item)
    out = []
    for task in tasks_of(metric):
        values = np.zeros(sum(score.task == task for score in ordered))
        for name, weight in METRICS[metric].parts or ((metric, 1.0),):
            if METRICS[name].task == task:
                values += weight * hits(ordered, name)[1]
        out.append("".join(_LETTERS[round(10 * value)] for value in values))
    return tuple(out)


def decode_hits(texts: Sequence[str]) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.array([_LETTERS.index(letter) for letter in text], np.float64) / 10 for text in texts)
