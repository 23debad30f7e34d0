"""The halves of an evaluation set. In: a frozen set. Out: `select` and `confirm`.

A trial is handed `select` alone: what it never sees it cannot be chosen by; `confirm` is for the end. Only the tasks that the
score asks for are kept.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import TypedDict

from coref_automl.decoder import read_stored
from coref_automl.errors import RecipeError
from coref_automl.evaluation.evalset import EvalSet, freeze
from coref_automl.records import ClozeItem, Document, Half, Task
from coref_automl.store import claim_folder, fingerprint, is_done, written_whole

HALVES: tuple[Half, ...] = ("select", "confirm")


def split_set(evalset: EvalSet, out: Path, tasks: Sequence[Task], *, limit: int | None) -> dict[Half, EvalSet]:
    """Write both halves under `out`, or open existing ones. `limit` bounds the items of each task in each half."""
    missing = [task for task in tasks if not evalset.items.get(task)]
    if missing:
        raise RecipeError(
            f"{evalset.folder} has no {missing[0]} items, which this study is scored on; choose another --metric or --eval-set."
        )
    return {half: half_set(evalset, out / half, half, tasks, limit) for half in HALVES}


class _HalfManifest(TypedDict, total=False):
    made_from: str


def half_set(evalset: EvalSet, folder: Path, half: Half, tasks: Sequence[Task] = (), limit: int | None = None) -> EvalSet:
    """One half of a set as a set of its own, for these tasks or for all; an existing one is opened."""
    tasks = tasks or tuple(evalset.items)
    source = fingerprint(evalset.fingerprint, half, list(tasks), limit)
    if not is_done(folder) or read_stored(folder / "manifest.json", _HalfManifest).get("made_from") != source:
        clusters = {cluster for cluster, of in evalset.halves.items() if of == half}
        kept = {task: _some(evalset.items[task], clusters, limit) for task in tasks}
        if empty := [task for task, items in kept.items() if not items]:
            raise RecipeError(
                f"No {empty[0]} item of {evalset.folder} falls into its {half} half: the set is too small for that."
            )
        used = {item.document for items in kept.values() for item in items}
        claim_folder(folder, "evalset")
        documents = [Document(id=name, source="", text=text) for name, text in evalset.documents.items() if name in used]
        freeze(folder, documents, kept, {"made_from": source, "half": half, "of": evalset.name})
    for table in evalset.folder.glob("nouns-*.npy"):
        if not (folder / table.name).is_file():
            with written_whole(folder / table.name, "wb") as handle:
                handle.write(table.read_bytes())
    return EvalSet.open(folder)


def _some(items: Sequence[ClozeItem], clusters: Set[str], limit: int | None) -> list[ClozeItem]:
    """Whole documents among these, in an order that has nothing to do with their content, until there are enough items."""
    wanted = [item for item in items if item.cluster in clusters]
    if limit is None or len(wanted) <= limit:
        return wanted
    kept: list[ClozeItem] = []
    for cluster in sorted({item.cluster for item in wanted}, key=lambda cluster: fingerprint("tuning", cluster)):
        if len(kept) < limit:
            kept += [item for item in wanted if item.cluster == cluster]
    return kept
