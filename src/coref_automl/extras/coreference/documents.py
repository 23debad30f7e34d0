"""Annotated texts. In: a text and its mentions. Out: a CorefDocument, and rows of a file of documents.

A mention is a span of characters and the entity it names. Singletons are kept. Mentions may nest or cross; two mentions never
share both edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from coref_automl.base.errors import CoreferenceDataError
from coref_automl.base.records import Record, grouped
from coref_automl.base.store import write_jsonl

Span = tuple[int, int]
SpanChains = tuple[tuple[Span, ...], ...]
GENERAL = "general"
"""The annotation scheme that covers every kind of entity; the default."""


@dataclass(frozen=True, slots=True, order=True)
class Mention(Record):
    """`text[start:end]` names `entity`. `kind` is name, noun or pronoun if the data say so."""

    start: int
    end: int
    entity: str
    kind: str = ""

    @property
    def span(self) -> Span:
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class CorefDocument(Record):
    """A text and its mentions in the order of the text, outer before inner.

    `genre` and `origin` (the text it was taken from) come from the data; `scheme` names the annotation scheme.
    """

    id: str
    text: str
    mentions: tuple[Mention, ...]
    genre: str = ""
    origin: str = ""
    scheme: str = ""

    @property
    def chains(self) -> SpanChains:
        """The mentions of each entity as spans, in the order in which entities first appear."""
        return tuple(tuple(mention.span for mention in chain) for chain in grouped(self.mentions, attrgetter("entity")).values())


@dataclass(frozen=True, slots=True)
class Chunk:
    """One row of a file, before it is checked and joined."""

    row: int
    id: str
    document: str
    text: str
    clusters: tuple[tuple[Mention, ...], ...]
    genre: str = ""
    origin: str = ""


class BadChunk(Exception):
    """A row that cannot be used; the message is the reason."""


def in_order(mentions: Iterable[Mention]) -> tuple[Mention, ...]:
    return tuple(sorted(mentions, key=lambda mention: (mention.start, -mention.end)))


def write_documents(path: Path, documents: Iterable[CorefDocument]) -> None:
    if path.suffix != ".jsonl":
        raise CoreferenceDataError(f"{path} should end in .jsonl.")
    rows = []
    for document in documents:
        optional = {name: value for name in ("genre", "origin") if (value := getattr(document, name))}
        rows.append({"doc_id": document.id, **optional, "text": document.text, "clusters": clusters_of(document)})
    write_jsonl(path, rows)


def clusters_of(document: CorefDocument) -> list[list[dict[str, Any]]]:
    def entry(mention: Mention) -> dict[str, Any]:
        kind = {"kind": mention.kind} if mention.kind else {}
        text = document.text[mention.start : mention.end]
        return {"start": mention.start, "end": mention.end, "text": text, "entity": mention.entity, **kind}

    return [list(map(entry, chain)) for chain in grouped(document.mentions, attrgetter("entity")).values()]
