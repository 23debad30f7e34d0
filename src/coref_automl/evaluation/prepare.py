"""Build evaluation sets. In: sources, annotated files and tasks. Out: a frozen `EvalSet`.

Texts of `--source` are held-out documents, chosen by id with the rule that keeps them out of training data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from coref_automl import config
from coref_automl.corpus.clean import Filters, is_empty, limits, normalise, qualified_id, rank, reason_to_drop
from coref_automl.corpus.sources import inputs_of, read_input
from coref_automl.errors import EvalSetError, FolderError
from coref_automl.evaluation import answers
from coref_automl.evaluation.evalset import KIND, EvalSet, freeze
from coref_automl.evaluation.recipe import EvalRecipe, difference, facts, label, numbered, reasons, settings
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.neighbours import MOST_DOCUMENTS, Neighbours
from coref_automl.evaluation.tasks.task import Choices, ClozeTask, Found, ReadDocument, Rows, read_document, read_rows, spread
from coref_automl.folders import is_done
from coref_automl.korean import Tagger, default_cache
from coref_automl.locks import claimed
from coref_automl.models.vocabulary import FastTokenizer
from coref_automl.progress import Progress, quiet
from coref_automl.records import ClozeItem, Document, Task


def prepare_eval(recipe: EvalRecipe, out: str | Path, *, progress: Progress | None = None) -> EvalSet:
    """Build and freeze a set. A finished one of the same settings and inputs is returned as it is; new models add noun tables.

    Without sources and files, `out` is a finished set and only gets the noun tables of the models.
    """
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    recipe, out = config.expect(recipe, EvalRecipe, "prepare_eval"), config.as_path(out, "out")
    progress = progress or quiet()
    tokenizers = [load_tokenizer(model) for model in recipe.models]
    tagger = Tagger(default_cache())
    if recipe.asks_for_items:
        chosen = settings(recipe, tokenizer_fingerprint(tokenizers[0]))
        with claimed(out, KIND):
            if not is_done(out):
                built = _Builder(recipe, tokenizers[0], tagger, progress)
                built.build()
                freeze(out, built.used(), built.items, facts(recipe, chosen, built.items, built.drops, built.sources))
        if changed := difference(EvalSet.open(out).manifest.get("settings", {}), chosen):
            raise FolderError(
                f"{out} is frozen; it was made with {changed}; choose another --out, or remove it and build it again."
            )
    evalset = EvalSet.open(out)
    for tokenizer in progress.track(tokenizers, "Noun tables", len(tokenizers), "tokenizers"):
        answers.table_for(tokenizer, evalset.folder, {}, tagger)
    return evalset


_COUNTS = {"documents", "held out", "kept", "rows"}
"""What a source's counts hold beside the reasons for its drops."""


@dataclass(slots=True)
class _Builder:
    """Collects the items of a set, the documents behind them, and every drop with its reason."""

    recipe: EvalRecipe
    reference: FastTokenizer
    tagger: Tagger
    progress: Progress
    documents: dict[str, Document] = field(default_factory=dict)
    items: dict[Task, list[ClozeItem]] = field(default_factory=dict)
    drops: dict[str, Counter[str]] = field(default_factory=dict)
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    """Annotated files that were read."""
    known: set[str] = field(default_factory=set)
    """Ids of items."""

    def build(self) -> None:
        tasks = [task for name, task in TASKS.items() if name in self.recipe.tasks]
        if in_texts := [task for task in tasks if task.rows is None]:
            self._read_texts(in_texts)
        for task in tasks:
            if task.rows is not None:
                self._read_files(task, task.rows)
        for task in tasks:
            self._limit(task)
            if not self.items.get(task.name):
                why = reasons(self._unread() | self.drops.get(task.name, Counter()))
                raise EvalSetError(
                    f"No {task.name} item came out of these inputs (dropped: {why}); give more or longer Korean texts."
                )
        self.items = {task.name: self.items[task.name] for task in tasks}

    def used(self) -> list[Document]:
        held = {item.document for items in self.items.values() for item in items}
        return [document for document in self.documents.values() if document.id in held]

    def _unread(self) -> Counter[str]:
        """Rows that never became a document, by reason."""
        drops: Counter[str] = Counter()
        for counts in self.sources.values():
            drops.update({reason: count for reason, count in counts.items() if reason not in _COUNTS})
        return drops

    def _choices(self, *, single_entry: bool = False, others: Mapping[str, Sequence[Document]] | None = None) -> Choices:
        allowed = answers.answers(self.reference, self.tagger) if single_entry else None
        neighbours = {name: Neighbours.count((text.id, text.text) for text in texts) for name, texts in (others or {}).items()}
        return Choices(self.recipe.seed, self.recipe.per_document, self.recipe.min_syllables, allowed, neighbours)

    def _read_texts(self, tasks: Sequence[ClozeTask]) -> None:
        """Documents of `--source`: read and tagged once for all tasks."""
        texts = read_texts(self.recipe, self.progress)
        self.sources |= texts.counts
        choices = self._choices(single_entry=self.recipe.single_entry, others=texts.others)
        for _, read in self._read(((document, None) for document in texts.documents), "Finding items in texts"):
            for task in tasks:
                self._take(task.name, task.find(read, None, choices))

    def _read_files(self, task: ClozeTask, rows: Rows) -> None:
        choices = self._choices()
        for name in self.recipe.inputs(task.name):
            source = numbered(label(name), self.labels)
            self.labels.add(source)
            entries, drops = read_rows(rows.open(name), rows.read, source)
            self._count(task.name, drops)
            counts = Counter(self.sources.get(source, {}))  # of a --source of that name
            counts.update({"rows": len(entries) + drops.total(), "kept": len(entries), **drops})
            self.sources[source] = dict(counts)
            for entry, read in self._read(((one.document, one) for one in entries), f"Finding {task.name} items in {source}"):
                self._take(task.name, task.find(read, entry, choices))

    def _read(self, entries: Iterable[tuple[Document, Any]], what: str) -> Iterator[tuple[Any, ReadDocument]]:
        """Tag and measure documents. Of two with one id the first is used, and the second is counted."""
        fresh = []
        for document, entry in entries:
            if document.id not in self.documents:
                self.documents[document.id] = document
                fresh.append((document, entry))
            else:
                held = self.sources.setdefault(document.source, {})
                held["the id of an earlier document"] = held.get("the id of an earlier document", 0) + 1
        tags = self.tagger.tag(document.text for document, _ in fresh)
        pairs = zip(fresh, tags, strict=True)
        for (document, entry), found in self.progress.track(pairs, what, len(fresh), "documents"):
            yield entry, read_document(document, found, self.reference)

    def _take(self, task: Task, found: Found) -> None:
        """An item's id names its text and span: of two with one id the first is used, and the second is counted."""
        fresh = [item for item in found.items if item.id not in self.known]
        self.documents.update({passage.id: passage for passage in found.passages})
        self.known.update(item.id for item in fresh)
        self.items.setdefault(task, []).extend(fresh)
        self._count(task, found.drops)
        self._count(task, +Counter({"repeats an earlier item": len(found.items) - len(fresh)}))

    def _count(self, task: Task, drops: Counter[str]) -> None:
        self.drops.setdefault(task, Counter()).update(drops)

    def _limit(self, task: ClozeTask) -> None:
        """Keep at most so many items of each part, in the order in which they were found."""
        found = self.items.get(task.name, [])
        if task.limit is None or not found:
            return
        parts: dict[object, list[ClozeItem]] = {}
        for item in found:
            parts.setdefault(task.limit.part(item), []).append(item)
        most = int(getattr(self.recipe, task.limit.setting))
        kept = {item.id for items in parts.values() for item in spread(items, most, self.recipe.seed)}
        self.items[task.name] = [item for item in found if item.id in kept]
        self._count(task.name, +Counter({task.limit.reason: len(found) - len(kept)}))


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """Documents of the sources. `counts` has for every source its rows, those held out and kept, and the reasons of drops.

    Documents that belong to training data are not drops; `others` are some of them, from which neighbours are counted. Where
    every document is used, they are the documents themselves.
    """

    documents: list[Document] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    others: dict[str, list[Document]] = field(default_factory=dict)

    def count(self, source: str, *what: str) -> None:
        held = self.counts[source]
        for name in what:
            held[name] = held.get(name, 0) + 1


def read_texts(recipe: EvalRecipe, progress: Progress) -> SourceTexts:
    """Two passes: every id of a source decides which of them are held out. A document says which source it belongs to."""
    allowed: dict[str, int] | None = None
    if not recipe.all_documents:
        ids = ((document.source, document.id) for document in _documents(recipe, None))
        seen = progress.track(ids, "Choosing held-out documents", unit="documents")
        allowed = limits(seen, share=recipe.holdout, least=recipe.least)
    texts = SourceTexts()
    known_ids: set[tuple[str, str]] = set()
    taken: set[str] = set()
    known_texts: set[str] = set()
    for document in progress.track(_documents(recipe, texts), "Reading held-out documents", unit="documents"):
        if allowed is not None and rank(document.id) > allowed[document.source]:
            _keep_some(texts.others, document)
            continue
        if allowed is not None:
            texts.count(document.source, "held out")
        text = normalise(document.text)
        reason = is_empty(text) if recipe.all_documents else reason_to_drop(text, Filters())
        if reason is None and (document.source, document.id) in known_ids:
            reason = "the id of an earlier document"
        if reason is None and text in known_texts:
            reason = "the text of an earlier document"
        if reason:
            texts.count(document.source, reason)
            continue
        known_ids.add((document.source, document.id))
        known_texts.add(text)
        texts.count(document.source, "kept")
        named = qualified_id(document) if document.id in taken else document.id
        taken.add(named)
        texts.documents.append(Document(named, document.source, text, document.title))
        if allowed is None:
            _keep_some(texts.others, texts.documents[-1])
    return texts


def _keep_some(others: dict[str, list[Document]], document: Document) -> None:
    kept = others.setdefault(document.source, [])
    if len(kept) < MOST_DOCUMENTS:
        kept.append(document)


def _documents(recipe: EvalRecipe, texts: SourceTexts | None) -> Iterator[Document]:
    begun = {"documents": 0, **({} if recipe.all_documents else {"held out": 0}), "kept": 0}
    for part in (part for name in recipe.sources for part in inputs_of(name)):
        for entry in islice(read_input(part, field=recipe.field), recipe.limit):
            if texts is not None:
                texts.counts.setdefault(entry.source, dict(begun))
                texts.count(entry.source, "documents", *([] if isinstance(entry, Document) else [entry.reason]))
            if isinstance(entry, Document):
                yield entry
