"""Evaluation sets on disk. In: documents and items. Out: a frozen folder, and that folder read back with its fingerprint checked.

    evalsets/<name>/  manifest.json  documents.jsonl  items-<task>.jsonl  nouns-<tokenizer fingerprint>.npy

The fingerprint covers the bytes of documents and items. Noun tables may be added later and are not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.decoder import read_stored, short_repr
from coref_automl.base.errors import EvalSetError, RecipeError
from coref_automl.base.fingerprints import fingerprint, fingerprint_files
from coref_automl.base.folders import MANIFEST, claim_folder, is_done, is_there, kind_of_folder, mark_done, with_article
from coref_automl.base.records import SCHEMA, ClozeItem, Document, Half, Task, halves_of
from coref_automl.base.store import atomic_write, read_jsonl, write_json, write_jsonl
from coref_automl.evaluation import answers
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.task import VERSION
from coref_automl.models.vocabulary import FastTokenizer

KIND = "evalset"
DOCUMENTS = "documents.jsonl"


class TaskCounts(TypedDict):
    """The items of one task, counted."""

    items: int
    clusters: int
    halves: dict[str, int]
    sources: dict[str, int]
    buckets: dict[str, int]
    single: int
    drops: dict[str, int]


class _Named(TypedDict):
    kind: str
    schema: int
    fingerprint: str


class SetManifest(_Named, total=False):
    """A set's manifest.json; `evaluation/recipe` makes all but the fingerprint."""

    version: int
    settings: dict[str, Any]
    reference: dict[str, str]
    documents: dict[str, dict[str, int]]
    tasks: dict[str, TaskCounts]
    half: Half
    made_from: str


@dataclass(frozen=True, slots=True, eq=False)
class EvalSet:
    """A frozen set: the same items for every model and every length."""

    name: str
    folder: Path
    manifest: SetManifest
    fingerprint: str
    documents: dict[str, str]
    items: dict[Task, tuple[ClozeItem, ...]]
    nouns: dict[str, tuple[str, ...]]
    _tables: dict[str, NDArray[np.bool_]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> EvalSet:
        """Read a set; documents or items that were edited after it was frozen are an error."""
        folder = Path(folder)
        manifest = _manifest(folder)
        files = _files(folder)
        current = _fingerprint(folder, files)
        if current != manifest["fingerprint"]:
            raise EvalSetError(
                f"{folder} was edited after it was frozen (fingerprint {current}, frozen as {manifest['fingerprint']}); restore "
                "its files, or build the set again with coref-automl prepare eval."
            )
        rows = list(read_jsonl(folder / DOCUMENTS))
        texts = {row["id"]: row["text"] for row in rows}
        nouns = {row["id"]: tuple(row["nouns"]) for row in rows}
        items = {task: tuple(map(_item, read_jsonl(folder / name))) for task, name in files.items()}
        return cls(folder.resolve().name, folder, manifest, current, texts, items, nouns)

    def select(self, tasks: Sequence[Task] | None = None, half: Half | None = None) -> list[ClozeItem]:
        """The items of these tasks (default: all) and of this half (default: both), in the set's order."""
        chosen = [item for task, items in self.items.items() if tasks is None or task in tasks for item in items]
        halves = self.halves if half else {}
        return [item for item in chosen if half is None or halves[item.cluster] == half]

    @property
    def halves(self) -> dict[str, Half]:
        clusters = [(item.task, item.cluster) for items in self.items.values() for item in items]
        half = self.half
        return halves_of(clusters) if half is None else {cluster: half for _, cluster in clusters}

    @property
    def half(self) -> Half | None:
        """Which half of a larger set this set is; None for a whole set."""
        return self.manifest.get("half")

    def noun_table(self, tokenizer: FastTokenizer) -> NDArray[np.bool_]:
        """Whether each vocabulary entry is a noun that may answer: read from the set, or built now with Kiwi."""
        return answers.table_for(tokenizer, self.folder, self._tables)


def freeze(
    folder: Path,
    documents: Iterable[tuple[Document, Sequence[str]]],
    items: Mapping[Task, Sequence[ClozeItem]],
    facts: dict[str, Any],
) -> None:
    """Write a set of documents, each with its nouns, with `facts` in its manifest, and mark it done."""
    documents = list(documents)
    check([document for document, _ in documents], items)
    rows = ({**document.to_json(), "nouns": list(nouns)} for document, nouns in documents)
    write_jsonl(folder / DOCUMENTS, rows)
    for task in TASKS:
        if task in items:
            write_jsonl(folder / _file_of(task), (item.to_json() for item in items[task]))
        else:
            (folder / _file_of(task)).unlink(missing_ok=True)
    fingerprint = _fingerprint(folder, _files(folder))
    write_json(folder / MANIFEST, {"kind": KIND, "schema": SCHEMA, "version": VERSION, "fingerprint": fingerprint, **facts})
    mark_done(folder)


def half_set(evalset: EvalSet, folder: Path, half: Half, tasks: Sequence[Task] = (), limit: int | None = None) -> EvalSet:
    """One half of a set as a set of its own, of these tasks or of all; an existing one is opened."""
    tasks = tasks or tuple(evalset.items)
    source = fingerprint(evalset.fingerprint, half, list(tasks), limit)
    if not is_done(folder) or read_stored(folder / MANIFEST, SetManifest).get("made_from") != source:
        clusters = {cluster for cluster, its_half in evalset.halves.items() if its_half == half}
        kept = {task: _sampled(evalset.items[task], clusters, limit) for task in tasks}
        if empty := [task for task, items in kept.items() if not items]:
            raise RecipeError(f"No {empty[0]} item of {evalset.folder} falls into its {half} half: the set is too small.")
        ids = {item.document for items in kept.values() for item in items}
        claim_folder(folder, KIND)
        documents = [
            (Document(id=name, source="", text=text), evalset.nouns[name])
            for name, text in evalset.documents.items()
            if name in ids
        ]
        freeze(folder, documents, kept, {"made_from": source, "half": half, "of": evalset.name})
    for table in evalset.folder.glob("nouns-*.npy"):
        copy, content = folder / table.name, table.read_bytes()
        if not copy.is_file() or copy.read_bytes() != content:
            with atomic_write(copy, "wb") as handle:
                handle.write(content)
    return EvalSet.open(folder)


def _sampled(items: Sequence[ClozeItem], clusters: Set[str], limit: int | None) -> list[ClozeItem]:
    """The items of these clusters; if they exceed the limit, of whole clusters in the order of a hash until it is reached."""
    inside = [item for item in items if item.cluster in clusters]
    if limit is None or len(inside) <= limit:
        return inside
    sample: list[ClozeItem] = []
    for cluster in sorted({item.cluster for item in inside}, key=lambda cluster: fingerprint("tuning", cluster)):
        if len(sample) < limit:
            sample += [item for item in inside if item.cluster == cluster]
    return sample


def check(documents: Sequence[Document], items: Mapping[Task, Sequence[ClozeItem]]) -> None:
    """Validate the documents and items of a set, whoever built them."""
    texts = {document.id: document.text for document in documents}
    if len(texts) != len(documents):
        raise EvalSetError("Two documents of the set have one id; give every document of every source an id of its own.")
    seen: set[str] = set()
    for task, of_task in items.items():
        for item in of_task:
            fault = _fault(task, item, texts) or (f"the id {item.id} twice" if item.id in seen else None)
            if fault:
                raise EvalSetError(f"The {task} item {item.id} of document {item.document} has {fault}; the set is not written.")
            seen.add(item.id)


def find_set(recorded: str, fingerprint: str) -> Path | None:
    """The folder of the set with a fingerprint: the recorded one or the bundled one, else None."""
    for folder in (*([Path(recorded)] if recorded else []), bundled_eval_set()):
        try:
            if _manifest(folder)["fingerprint"] == fingerprint:
                return folder
        except EvalSetError:
            continue
    return None


def bundled_eval_set() -> Path:
    """The default set of `evaluate`."""
    return Path(__file__).parent.parent / "assets" / "evalsets" / "bundled"


def _fault(task: Task, item: ClozeItem, texts: Mapping[str, str]) -> str | None:
    text = texts.get(item.document)
    if item.task != task:
        return f"the task {item.task}"
    if text is None:
        return "no document"
    if text[item.start : item.end] != item.answer or not item.answer:
        return f"another text at its span than its answer {item.answer!r}"
    if item.antecedent is not None:
        start, end = item.antecedent
        if not (0 <= start < end <= len(text)) or (start < item.end and item.start < end):
            return "an antecedent outside its document or inside its gap"
    return None if (item.antecedent is None) == (item.distance < 0) else "a distance that does not fit its antecedent"


def _item(row: dict[str, Any]) -> ClozeItem:
    """ClozeItem.from_json without validation, because the fingerprint covers the rows and thousands are read per evaluation."""
    antecedent = None if row["antecedent"] is None else tuple(row["antecedent"])
    return ClozeItem(**{**row, "antecedent": antecedent})


def _file_of(task: Task) -> str:
    return f"items-{task}.jsonl"


def _files(folder: Path) -> dict[Task, str]:
    return {task: _file_of(task) for task in TASKS if (folder / _file_of(task)).is_file()}


def _fingerprint(folder: Path, files: Mapping[Task, str]) -> str:
    names = [DOCUMENTS, *files.values()]
    return fingerprint(names, fingerprint_files(folder / name for name in names))


def _manifest(folder: Path) -> SetManifest:
    if (kind := kind_of_folder(folder)) not in ("", KIND):
        content = with_article(kind)
        raise EvalSetError(f"{folder} is not an evaluation set, it holds {content}; build one with: coref-automl prepare eval")
    if folder.is_file():
        raise EvalSetError(
            f"{folder} is a file, not an evaluation set; run: coref-automl prepare eval --source local:{folder} --model MODEL "
            "--out evalset, and pass that folder."
        )
    build = "coref-automl prepare eval --source SOURCE --model MODEL --out"
    if not is_there(folder):
        raise EvalSetError(f"{folder} does not exist; check the path, or build a set with {build} DIR.")
    if not (folder / MANIFEST).is_file() or not (folder / DOCUMENTS).is_file():
        raise EvalSetError(f"{folder} holds no finished evaluation set; build one with: {build} {folder}")
    remedy = f"build it again with {build} {folder}"
    manifest = read_stored(folder / MANIFEST, SetManifest, error=EvalSetError, remedy=remedy)
    if manifest["schema"] != SCHEMA or manifest.get("version") != VERSION:
        raise EvalSetError(f"{folder} has items of another version; make a new set: {build} NEW")
    for task in manifest.get("tasks", {}):
        if task not in TASKS:
            raise EvalSetError(f"{folder} has items of the task {short_repr(task)}, which is newer; update coref-automl.")
    return manifest
