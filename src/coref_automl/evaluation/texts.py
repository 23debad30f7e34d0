"""The texts of `real` and `real-far`. In: sources. Out: their held-out documents, cleaned, and counts of the others by reason.

Held-out documents are chosen by id before anything else, by the rule under which preparation leaves them out of training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from coref_automl.corpus.clean import Filters, is_empty, normalise, reason_to_drop
from coref_automl.corpus.holdout import limits, rank
from coref_automl.corpus.sources import inputs_of, read_input
from coref_automl.progress import Progress
from coref_automl.records import Document


@dataclass(frozen=True, slots=True)
class Texts:
    """`seen`, `held_out` and `kept` count rows by source, `drops` by source and reason; documents that train are no drop."""

    documents: list[Document] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    held_out: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    drops: dict[str, Counter[str]] = field(default_factory=dict)


def read_texts(
    sources: Sequence[str],
    *,
    text_field: str | None,
    limit: int | None,
    share: float,
    least: int,
    all_documents: bool,
    progress: Progress,
) -> Texts:
    """Two passes: every id of a source decides which of them are held out. A source is what its documents say it is."""
    allowed: dict[str, int] | None = None
    if not all_documents:
        ids = ((document.source, document.id) for document in _documents(sources, text_field, limit, None))
        allowed = limits(progress.track(ids, "Choosing held-out documents", unit="documents"), share=share, least=least)
    texts = Texts()
    known_ids: set[str] = set()
    known_texts: set[str] = set()
    for document in progress.track(_documents(sources, text_field, limit, texts), "Reading held-out documents", unit="documents"):
        texts.seen[document.source] += 1
        if allowed is not None and rank(document.id) > allowed[document.source]:
            continue
        texts.held_out[document.source] += allowed is not None
        text = normalise(document.text)
        reason = is_empty(text) if all_documents else reason_to_drop(text, Filters())
        if reason is None and document.id in known_ids:
            reason = "the id of an earlier document"
        if reason is None and text in known_texts:
            reason = "the text of an earlier document"
        if reason:
            texts.drops.setdefault(document.source, Counter())[reason] += 1
            continue
        known_ids.add(document.id)
        known_texts.add(text)
        texts.kept[document.source] += 1
        texts.documents.append(Document(document.id, document.source, text, document.title))
    return texts


def _documents(sources: Sequence[str], text_field: str | None, limit: int | None, texts: Texts | None) -> Iterator[Document]:
    for part in (part for name in sources for part in inputs_of(name)):
        for entry in islice(read_input(part, field=text_field), limit):
            if isinstance(entry, Document):
                yield entry
            elif texts is not None:
                texts.seen[entry.source] += 1
                texts.drops.setdefault(entry.source, Counter())[entry.reason] += 1
