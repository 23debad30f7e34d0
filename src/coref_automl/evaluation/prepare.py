"""Build evaluation sets. In: sources, annotated files and tasks. Out: a frozen `EvalSet`.

Texts of `--source` are its held-out documents, by the same rule of ids that keeps them out of training data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from coref_automl.base import config
from coref_automl.base.errors import EvalSetError, FolderError
from coref_automl.base.folders import is_done
from coref_automl.base.korean import Tagger, default_cache
from coref_automl.base.locks import claimed
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import ClozeItem, Document, Task, grouped
from coref_automl.corpus.clean import Filters, limits, normalise, qualified_id, rank, reason_to_drop
from coref_automl.corpus.sources import inputs_of, read_input
from coref_automl.evaluation import answers
from coref_automl.evaluation.evalset import KIND, EvalSet, freeze
from coref_automl.evaluation.recipe import EvalRecipe, difference, facts, label, numbered, reasons, settings
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.tasks.task import (
    Choices,
    ClozeTask,
    Found,
    ParsedDocument,
    Rows,
    parse_document,
    read_rows,
    spread,
)
from coref_automl.models.vocabulary import FastTokenizer


def prepare_eval(recipe: EvalRecipe, out: str | Path, *, progress: Progress | None = None) -> EvalSet:
    """Build and freeze a set, or open a finished one of the same settings and inputs; new models add noun tables.

    Without sources and files, `out` is a finished set that only gets the noun tables of the models.
    """
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    recipe, out = config.expect(recipe, EvalRecipe, "prepare_eval"), config.as_path(out, "out")
    progress = progress or quiet()
    tokenizers = [load_tokenizer(model) for model in recipe.models]
    tagger = Tagger(default_cache())
    chosen = settings(recipe, tokenizer_fingerprint(tokenizers[0])) if recipe.has_inputs else None
    if chosen is not None:
        with claimed(out, KIND):
            if not is_done(out):
                builder = _Builder(recipe, tokenizers[0], tagger, progress)
                builder.build()
                freeze(out, builder.used(), builder.items, facts(recipe, chosen, builder))
    evalset = EvalSet.open(out)
    if chosen is not None and (changed := difference(evalset.manifest.get("settings", {}), chosen)):
        raise FolderError(f"{out} is frozen; it was made with {changed}; choose another --out, or remove it and build it again.")
    for tokenizer in progress.track(tokenizers, "Noun tables", len(tokenizers), "tokenizers"):
        answers.table_for(tokenizer, evalset.folder, {}, tagger)
    return evalset


_COUNTS = {"documents", "held out", "kept", "rows"}
"""The keys of a source's counts that are not reasons for drops."""


@dataclass(slots=True)
class _Builder:
    """Collects the items of a set, their documents, and every drop with its reason."""

    recipe: EvalRecipe
    reference: FastTokenizer
    tagger: Tagger
    progress: Progress
    documents: dict[str, Document] = field(default_factory=dict)
    nouns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    single: set[str] = field(default_factory=set)
    """Ids of items whose answer is one token of the reference."""
    items: dict[Task, list[ClozeItem]] = field(default_factory=dict)
    drops: dict[str, Counter[str]] = field(default_factory=dict)
    sources: dict[str, Counter[str]] = field(default_factory=dict)
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
                dropped = reasons(self._unread() | self.drops.get(task.name, Counter()))
                raise EvalSetError(f"No {task.name} item in these inputs (dropped: {dropped}); give more or longer Korean texts.")
        self.items = {task.name: self.items[task.name] for task in tasks}
        answers = [item for items in self.items.values() for item in items]
        if "real-choice" not in self.items and not any(item.id in self.single for item in answers):
            raise EvalSetError(
                f"None of the {len(answers):,} answers (0%) is one token of {self.recipe.models[0]}, so it could count no item; "
                "name a model with words in its vocabulary as the first --model, or add --task real-choice."
            )

    def used(self) -> list[tuple[Document, tuple[str, ...]]]:
        """The documents that have items, each with its nouns."""
        ids = {item.document for items in self.items.values() for item in items}
        return [(document, self.nouns[name]) for name, document in self.documents.items() if name in ids]

    def _unread(self) -> Counter[str]:
        """Rows that did not become documents, by reason."""
        drops: Counter[str] = Counter()
        for counts in self.sources.values():
            drops.update({reason: count for reason, count in counts.items() if reason not in _COUNTS})
        return drops

    @property
    def choices(self) -> Choices:
        return Choices(self.recipe.seed, self.recipe.per_document, self.recipe.single_entry)

    def _read_texts(self, tasks: Sequence[ClozeTask]) -> None:
        """Find the items of `--source`, whose documents are read and tagged once for all tasks."""
        texts = read_texts(self.recipe, self.progress)
        self.sources |= texts.counts
        for _, doc in self._read(((document, None) for document in texts.documents), "Finding items in texts"):
            for task in tasks:
                self._add(task.name, doc, task.find(doc, None, self.choices))

    def _read_files(self, task: ClozeTask, rows: Rows) -> None:
        for name in self.recipe.inputs(task.name):
            source = numbered(label(name), self.labels)
            self.labels.add(source)
            entries, drops = read_rows(rows.open(name), rows.read, source)
            self._count(task.name, drops)
            counts = self.sources.setdefault(source, Counter())  # of a --source of that name, if there is one
            counts.update({"rows": len(entries) + drops.total(), "kept": len(entries), **drops})
            annotated = ((entry.document, entry) for entry in entries)
            for entry, doc in self._read(annotated, f"Finding {task.name} items in {source}"):
                self._add(task.name, doc, task.find(doc, entry, self.choices))

    def _read(self, entries: Iterable[tuple[Document, Any]], stage: str) -> Iterator[tuple[Any, ParsedDocument]]:
        """Tag and measure documents. The first of several with one id is used, the others are counted."""
        new = []
        for document, entry in entries:
            if document.id not in self.documents:
                self.documents[document.id] = document
                new.append((document, entry))
            else:
                self.sources.setdefault(document.source, Counter())["the id of an earlier document"] += 1
        pairs = zip(new, self.tagger.tag(document.text for document, _ in new), strict=True)
        for (document, entry), tags in self.progress.track(pairs, stage, len(new), "documents"):
            yield entry, parse_document(document, tags, self.reference)

    def _add(self, task: Task, doc: ParsedDocument, found: Found) -> None:
        """Add a document's items. An id names text and span: the first item with an id is used, others are counted."""
        new = [item for item in found.items if item.id not in self.known]
        self.nouns[doc.document.id] = doc.nouns
        self.single.update(item.id for item in new if (item.start, item.end) in doc.whole)
        self.known.update(item.id for item in new)
        self.items.setdefault(task, []).extend(new)
        self._count(task, found.drops)
        self._count(task, +Counter({"repeats an earlier item": len(found.items) - len(new)}))

    def _count(self, task: Task, drops: Counter[str]) -> None:
        self.drops.setdefault(task, Counter()).update(drops)

    def _limit(self, task: ClozeTask) -> None:
        """Sample the items of each part down to the task's limit; their order stays."""
        items = self.items.get(task.name, [])
        if task.limit is None or not items:
            return
        parts = grouped(items, task.limit.part)
        most = int(getattr(self.recipe, task.limit.setting))
        kept = {item.id for part in parts.values() for item in spread(part, most, self.recipe.seed)}
        self.items[task.name] = [item for item in items if item.id in kept]
        self._count(task.name, +Counter({task.limit.reason: len(items) - len(kept)}))


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """Documents of the sources. `counts` has each source's rows, those held out and kept, and its drops by reason."""

    documents: list[Document] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)


def read_texts(recipe: EvalRecipe, progress: Progress) -> SourceTexts:
    """Read the held-out documents of the sources, in two passes: first all ids of a source, which decide what is held out."""
    allowed: dict[str, int] | None = None
    if not recipe.all_documents:
        ids = ((document.source, document.id) for document in _documents(recipe, None))
        tracked = progress.track(ids, "Choosing held-out documents", unit="documents")
        allowed = limits(tracked, share=recipe.holdout, least=recipe.least)
    filters = Filters(0, 0.0, 0.0) if recipe.all_documents else Filters()
    texts = SourceTexts()
    known_ids: set[tuple[str, str]] = set()
    used_names: set[str] = set()
    known_texts: set[str] = set()
    for document in progress.track(_documents(recipe, texts), "Reading held-out documents", unit="documents"):
        if allowed is not None and rank(document.id) > allowed[document.source]:
            continue
        if allowed is not None:
            texts.counts[document.source]["held out"] += 1
        text = normalise(document.text)
        reason = reason_to_drop(text, filters)
        if reason is None and (document.source, document.id) in known_ids:
            reason = "the id of an earlier document"
        if reason is None and text in known_texts:
            reason = "the text of an earlier document"
        if reason:
            texts.counts[document.source][reason] += 1
            continue
        known_ids.add((document.source, document.id))
        known_texts.add(text)
        texts.counts[document.source]["kept"] += 1
        name = qualified_id(document) if document.id in used_names else document.id
        used_names.add(name)
        texts.documents.append(Document(name, document.source, text, document.title))
    return texts


def _documents(recipe: EvalRecipe, texts: SourceTexts | None) -> Iterator[Document]:
    zeros = {"documents": 0, **({} if recipe.all_documents else {"held out": 0}), "kept": 0}
    for part in (part for name in recipe.sources for part in inputs_of(name)):
        for entry in islice(read_input(part, field=recipe.field), recipe.limit):
            if texts is not None:
                counts = texts.counts.setdefault(entry.source, Counter(zeros))
                counts.update(["documents"] if isinstance(entry, Document) else ["documents", entry.reason])
            if isinstance(entry, Document):
                yield entry
