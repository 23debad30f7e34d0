"""Evaluation sets, built and read. In: sources and tasks. Out: a frozen `EvalSet`. The door to this room's item modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from coref_automl import config, store
from coref_automl.corpus.holdout import LEAST, SHARE
from coref_automl.errors import EvalSetError, FolderError, RecipeError
from coref_automl.evaluation import manifest, nouns
from coref_automl.evaluation.evalset import KIND, TASKS, EvalSet, bundled_eval_set, freeze
from coref_automl.evaluation.far import far_items
from coref_automl.evaluation.gold import Annotated, annotated, gold_items
from coref_automl.evaluation.lambada import Passage, lambada_items, open_rows, passages
from coref_automl.evaluation.metrics import bucket_of
from coref_automl.evaluation.reading import Found, ReadDocument, read_document, spread
from coref_automl.evaluation.real import PER_DOCUMENT, real_items
from coref_automl.evaluation.rows import local_rows
from coref_automl.evaluation.texts import read_texts
from coref_automl.locks import claimed
from coref_automl.progress import Progress, quiet
from coref_automl.records import ClozeItem, Document, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from coref_automl.korean import Tagger

__all__ = ["EvalRecipe", "EvalSet", "bundled_eval_set", "prepare_eval"]


@dataclass(frozen=True, slots=True)
class EvalRecipe:
    """What `prepare eval` is asked for.

    `models` name tokenizers: noun tables are built for each, and the first is the reference in whose tokens distances are
    counted. `sources` give the texts of `real` and `real-far`; `gold` and `lambada` are files of those tasks (`local:PATH` or a
    plain path; for lambada also `ko-lambada` on the hub and `bundled:cloze`). Only held-out documents of a source are used, the
    same that `prepare mlm|entity|combined` leaves out; `all_documents` uses every one, for sets of texts that nothing trains on.
    `limit` is rows a file or hub source. At most `per_source` real items a source and `per_document` a document, `per_bucket` far
    items a source and bucket. `single_entry` keeps real items whose answer is one vocabulary entry of the reference tokenizer:
    no model of that vocabulary can hit the others under strict.
    """

    models: tuple[str, ...]
    tasks: tuple[Task, ...] = ("real", "real-far")
    sources: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    lambada: tuple[str, ...] = ()
    field: str | None = None
    limit: int | None = None
    holdout: float = SHARE
    least: int = LEAST
    all_documents: bool = False
    per_source: int = 1_600
    per_bucket: int = 400
    per_document: int = PER_DOCUMENT
    single_entry: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        config.typed(self)
        if not self.models:
            raise RecipeError("Name the model whose tokenizer is the reference, with --model.")
        for task in self.tasks:
            config.choose(task, dict.fromkeys(TASKS), "task")
            given, option = {"gold": (self.gold, "--gold"), "lambada": (self.lambada, "--lambada")}.get(
                task, (self.sources, "--source")
            )
            if self.asks_for_items and not given:
                raise RecipeError(f"The task {task} needs {option}; name one, or leave the task out.")
        if not 0 <= self.holdout <= 0.5:
            raise RecipeError(f"--holdout is a share between 0 and 0.5, not {self.holdout}.")
        if min(self.per_source, self.per_bucket, self.per_document, self.limit or 1) < 1:
            raise RecipeError("The limits of rows, and of items per source, per bucket and per document, are 1 or more.")
        if self.seed < 0:
            raise RecipeError(f"--seed should be 0 or more, not {self.seed}.")

    @property
    def asks_for_items(self) -> bool:
        return bool(self.sources or self.gold or self.lambada)


def prepare_eval(recipe: EvalRecipe, out: str | Path, *, progress: Progress | None = None) -> EvalSet:
    """Build and freeze a set. A finished one of the same settings and inputs is returned as it is; new models add noun tables.

    Without sources, gold and lambada, `out` is a finished set and only gets the noun tables of the models.
    """
    from coref_automl.korean import Tagger, default_cache
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    recipe, out = config.expect(recipe, EvalRecipe, "prepare_eval"), config.as_path(out, "out")
    progress = progress or quiet()
    tokenizers = [load_tokenizer(model) for model in recipe.models]
    tagger = Tagger(default_cache())
    if recipe.asks_for_items:
        settings = manifest.settings(recipe, tokenizer_fingerprint(tokenizers[0]))
        with claimed(out, KIND):
            if not store.is_done(out):
                work = _Work(recipe, tokenizers[0], tagger, progress)
                work.build()
                freeze(out, work.used(), work.items, manifest.facts(recipe, settings, work.items, work.drops, work.sources))
        if changed := manifest.difference({**manifest.ADDED, **EvalSet.open(out).manifest["settings"]}, settings):
            raise FolderError(f"{out} is frozen, but {changed}; choose another --out, or remove {out} to make it again.")
    built = EvalSet.open(out)
    for tokenizer in progress.track(tokenizers, "Noun tables", len(tokenizers), "tokenizers"):
        nouns.table_for(tokenizer, built.folder, {}, tagger)
    return built


_COUNTS = {"documents", "held out", "kept", "rows"}
"""What stands of a source beside the reasons for its drops."""


@dataclass(frozen=True, slots=True)
class _Plain:
    document: Document


Holds = TypeVar("Holds", _Plain, Passage, Annotated)


@dataclass(slots=True)
class _Work:
    """A set in the making."""

    recipe: EvalRecipe
    reference: PreTrainedTokenizerFast
    tagger: Tagger
    progress: Progress
    documents: dict[str, Document] = field(default_factory=dict)
    items: dict[Task, list[ClozeItem]] = field(default_factory=dict)
    drops: dict[str, Counter[str]] = field(default_factory=dict)
    sources: dict[str, dict[str, int]] = field(default_factory=dict)

    def build(self) -> None:
        tasks = self.recipe.tasks
        if "real" in tasks or "real-far" in tasks:
            self._from_texts()
        if "lambada" in tasks:
            self._from_passages()
        if "gold" in tasks:
            self._from_annotations()
        for task in tasks:
            if not self.items.get(task):
                why = manifest.reasons(self._unread() + self.drops.get(task, Counter()))
                raise EvalSetError(
                    f"No {task} item came out of these inputs (dropped: {why}); give longer texts, or more of them."
                )
        self.items = {task: self.items[task] for task in TASKS if task in tasks}

    def _unread(self) -> Counter[str]:
        """Rows that never became a document, by reason."""
        drops: Counter[str] = Counter()
        for counts in self.sources.values():
            drops.update({reason: count for reason, count in counts.items() if reason not in _COUNTS})
        return drops

    def used(self) -> list[Document]:
        held = {item.document for items in self.items.values() for item in items}
        return [document for document in self.documents.values() if document.id in held]

    def _from_texts(self) -> None:
        recipe = self.recipe
        texts = read_texts(
            recipe.sources,
            text_field=recipe.field,
            limit=recipe.limit,
            share=recipe.holdout,
            least=recipe.least,
            all_documents=recipe.all_documents,
            progress=self.progress,
        )
        for source in texts.seen:
            chosen = {} if recipe.all_documents else {"held out": texts.held_out[source]}
            self.sources[source] = {
                "documents": texts.seen[source],
                **chosen,
                "kept": texts.kept[source],
                **texts.drops.get(source, {}),
            }
        answers = nouns.answers(self.reference, self.tagger) if recipe.single_entry else None
        for _, read in self._read(map(_Plain, texts.documents), "Finding items in texts"):
            if "real" in recipe.tasks:
                self._take("real", real_items(read, seed=recipe.seed, per_document=recipe.per_document, answers=answers))
            if "real-far" in recipe.tasks:
                self._take("real-far", far_items(read, seed=recipe.seed))
        self._limit("real", recipe.per_source, lambda item: item.source, "the limit of its source")
        self._limit(
            "real-far", recipe.per_bucket, lambda item: (item.source, bucket_of(item.distance)), "the limit of its bucket"
        )

    def _from_passages(self) -> None:
        for name in self.recipe.lambada:
            found, drops = passages(open_rows(name), manifest.label(name))
            self._count("lambada", drops)
            self._rows(name, len(found), drops)
            for passage, read in self._read(found, f"Reading the passages of {manifest.label(name)}"):
                self._take("lambada", lambada_items(read, passage, seed=self.recipe.seed))

    def _from_annotations(self) -> None:
        for name in self.recipe.gold:
            found, drops = annotated(local_rows(name, needs=("text", "clusters")), manifest.label(name))
            self._count("gold", drops)
            self._rows(name, len(found), drops)
            for entry, read in self._read(found, f"Reading the annotations of {manifest.label(name)}"):
                self._take("gold", gold_items(read, entry, seed=self.recipe.seed))

    def _rows(self, name: str, kept: int, drops: Counter[str]) -> None:
        self.sources[manifest.label(name)] = {"rows": kept + drops.total(), "kept": kept, **drops}

    def _read(self, things: Iterable[Holds], what: str) -> Iterator[tuple[Holds, ReadDocument]]:
        """Tag and measure what holds a document. Of two with one id the first counts; the second is counted."""
        fresh: list[Holds] = []
        for thing in things:
            document = thing.document
            if document.id not in self.documents:
                self.documents[document.id] = document
                fresh.append(thing)
            else:
                held = self.sources.setdefault(document.source, {})
                held["the id of an earlier document"] = held.get("the id of an earlier document", 0) + 1
        tags = self.tagger.tag(thing.document.text for thing in fresh)
        pairs = zip(fresh, tags, strict=True)
        for thing, found in self.progress.track(pairs, what, len(fresh), "documents"):
            yield thing, read_document(thing.document, found, self.reference)

    def _take(self, task: Task, found: Found) -> None:
        self.items.setdefault(task, []).extend(found.items)
        self._count(task, found.drops)

    def _count(self, task: Task, drops: Counter[str]) -> None:
        self.drops.setdefault(task, Counter()).update(drops)

    def _limit(self, task: Task, most: int, part: Callable[[ClozeItem], object], reason: str) -> None:
        """Keep at most so many items of each part, in the order in which they were found."""
        found = self.items.get(task, [])
        parts: dict[object, list[ClozeItem]] = {}
        for item in found:
            parts.setdefault(part(item), []).append(item)
        kept = {item.id for items in parts.values() for item in spread(items, most, self.recipe.seed)}
        if task in self.items:
            self.items[task] = [item for item in found if item.id in kept]
            self._count(task, +Counter({reason: len(found) - len(kept)}))
