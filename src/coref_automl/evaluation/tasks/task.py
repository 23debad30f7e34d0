"""The interface of a task, and what all tasks share. In: a document, its tags, a reference tokenizer. Out: ClozeItems.

A task finds items in one document at a time. This module provides the document with its mentions,
pronouns and distances, item ids, a seeded order, and the rows of annotated files.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import SourceError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.korean import PRONOUN, Tags
from coref_automl.base.records import ClozeItem, Document, Task
from coref_automl.base.store import is_text
from coref_automl.corpus.chains import NounMention, mentions
from coref_automl.corpus.files import files_of, rows_in
from coref_automl.corpus.formats import BROKEN
from coref_automl.models.vocabulary import FastTokenizer, tokenize

Span = tuple[int, int]
Row = dict[str, Any]
T = TypeVar("T")

VERSION = 4
"""Part of every item's id and of a set's manifest: items of different rules are never compared."""
HASH = 16
"""Hexadecimal digits of a document's hash."""
PER_DOCUMENT = 12


@dataclass(frozen=True, slots=True)
class Found:
    """The items of one document, and how many nouns (or mentions) each reason dropped."""

    items: list[ClozeItem] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Choices:
    """The settings of `prepare eval` for every task. `single_entry`: only answers that are one reference token."""

    seed: int = 0
    per_document: int = PER_DOCUMENT
    single_entry: bool = False

    def against(self, doc: ParsedDocument, span: Span) -> str:
        """Why these settings leave out an answer; empty if they do not."""
        return "not one vocabulary entry" if self.single_entry and span not in doc.whole else ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Annotated files of a task: `open` yields the rows of a source, `read` returns a row's entry or the reason to drop it.

    An entry has a `document`, and whatever else the task's `find` needs.
    """

    open: Callable[[str], Iterator[Row | str]]
    read: Callable[[Row, int, str], Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `recipe.<setting>` items of each part of a set; the others are counted under `reason`."""

    setting: str
    part: Callable[[ClozeItem], object]
    reason: str


@dataclass(frozen=True, slots=True)
class ClozeTask:
    """One task: how its items are found, and what may answer them.

    `find` returns the items of one document. Without `rows` the task reads the texts of `--source`.
    `label` names the task in tables. `any_word` lets every entry answer, not only nouns; `is_choice`
    ranks answers of several pieces among nouns of the document; `is_far` lets windows be as long as
    the model can read. A task `on_request` is built only if `--task` names it.
    """

    name: str
    label: str
    find: Callable[[ParsedDocument, Any, Choices], Found]
    rows: Rows | None = None
    limit: Limit | None = None
    any_word: bool = False
    is_choice: bool = False
    is_far: bool = False
    on_request: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ParsedDocument:
    """A document with everything that tasks need, computed once. Distances are reference tokens between two spans.

    By character offset, `opening` has the first token of a span that starts there, and `closing` the
    token after a span that ends there: `Pieces.cover` for all offsets at once. `whole` has the spans
    that are one reference token.
    """

    document: Document
    opening: list[int]
    closing: list[int]
    whole: frozenset[Span]
    mentions: tuple[NounMention, ...]
    pronouns: NDArray[np.int32]
    identity: str

    @property
    def text(self) -> str:
        return self.document.text

    @property
    def nouns(self) -> tuple[str, ...]:
        """The forms of its mentions, in the order in which they first occur."""
        return tuple(dict.fromkeys(mention.form for mention in self.mentions))

    def distance(self, span: Span, other: Span) -> int:
        before, after = sorted((span, other))
        return max(0, self.opening[after[0]] - self.closing[before[1]])

    def pronoun_between(self, span: Span, other: Span) -> bool:
        before, after = sorted((span, other))
        starts = self.pronouns[:, 0]
        return bool(((starts >= before[1]) & (starts < after[0])).any())

    def begins_word(self, start: int) -> bool:
        """Whether no letter or digit precedes this offset."""
        return begins_word(self.text, start)

    def tag_of(self, span: Span) -> str:
        """NNP if the span touches a name, NNG if it touches another noun, else empty."""
        tags = {mention.tag for mention in self.mentions if mention.start < span[1] and span[0] < mention.end}
        return "NNP" if "NNP" in tags else "NNG" if tags else ""

    def item(self, task: Task, span: Span, antecedent: Span | None = None, cluster: str = "") -> ClozeItem:
        """The item that hides a span."""
        return ClozeItem(
            id=fingerprint(f"{task}/{VERSION}", self.identity, span),
            task=task,
            document=self.document.id,
            cluster=cluster or self.identity,
            source=self.document.source,
            start=span[0],
            end=span[1],
            answer=self.text[span[0] : span[1]],
            tag=self.tag_of(span),
            antecedent=antecedent,
            distance=self.distance(antecedent, span) if antecedent else -1,
        )


def parse_document(document: Document, tags: Tags, reference: FastTokenizer) -> ParsedDocument:
    pieces = tokenize(reference, document.text)
    offsets = np.arange(len(document.text) + 1)
    empty = np.bincount(pieces.starts[pieces.starts == pieces.ends], minlength=len(offsets))
    opening = np.searchsorted(pieces.ends, offsets, "right") - empty
    closing = np.searchsorted(pieces.starts, offsets, "left")
    alone = closing[pieces.ends] - opening[pieces.starts] == 1
    if reference.unk_token_id is not None:
        alone &= pieces.ids != reference.unk_token_id
    return ParsedDocument(
        document=document,
        opening=opening.tolist(),
        closing=closing.tolist(),
        whole=frozenset(zip(pieces.starts[alone].tolist(), pieces.ends[alone].tolist(), strict=True)),
        mentions=tuple(mentions(document.text, tags)),
        pronouns=tags.spans[tags.kinds == PRONOUN],
        identity=fingerprint(document.text)[:HASH],
    )


def by_lot(doc: ParsedDocument, found: Found, choices: Choices) -> Found:
    """At most `per_document` of the items, in text order; the others are counted."""
    most = choices.per_document
    items = sorted(found.items, key=lambda item: draw_lot(choices.seed, doc.identity, item.answer))
    found.drops[f"over {most} gaps of its document"] += max(0, len(items) - most)
    return Found(sorted(items[:most], key=lambda item: item.start), +found.drops)


def draw_lot(*parts: str | int) -> bytes:
    """A hash of the parts as a sort key: a random order that is always the same."""
    joined = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=8).digest()


def begins_word(text: str, start: int) -> bool:
    """Whether no letter or digit precedes this offset."""
    return start == 0 or not text[start - 1].isalnum()


def spread(
    items: Iterable[ClozeItem], most: int, seed: int, of: Callable[[ClozeItem], Hashable] = lambda item: item.document
) -> list[ClozeItem]:
    """At most this many items in random order, one of every document (or other group) before a second of any."""
    rounds: list[tuple[int, ClozeItem]] = []
    taken: Counter[Hashable] = Counter()
    for item in sorted(items, key=lambda item: draw_lot(seed, item.id)):
        rounds.append((taken[of(item)], item))
        taken[of(item)] += 1
    return [item for _, item in sorted(rounds, key=lambda entry: entry[0])[:most]]


def occurrences(text: str, word: str) -> list[int]:
    """The offsets of all occurrences of a word's characters, overlaps included."""
    offsets, offset = [], text.find(word)
    while offset >= 0:
        offsets.append(offset)
        offset = text.find(word, offset + 1)
    return offsets


def local_rows(source: str, *, needs: Sequence[str]) -> Iterator[Row | str]:
    """Yield the rows of the files that a path, folder or glob names, or why one is none. A first row without the needed columns
    is an error: it is the wrong file."""
    for path in files_of(source.removeprefix("local:")):
        number = 0
        try:
            for number, row in rows_in(path, str(path)):
                if isinstance(row, dict) and number == 1 and (missing := [name for name in needs if name not in row]):
                    raise SourceError(f"{path} has no column {missing[0]!r}; its rows hold {', '.join(row) or 'nothing'}.")
                yield row
        except (*BROKEN, ValueError) as error:
            raise SourceError(f"{path} breaks off after line {number} ({error}); fetch it again.") from error


def read_rows(rows: Iterable[Row | str], read: Callable[[Row, int, str], T | str], name: str) -> tuple[list[T], Counter[str]]:
    """The entries that `read` returns for the rows of the source `name`, and the other rows counted by reason."""
    entries: list[T] = []
    drops: Counter[str] = Counter()
    for number, row in enumerate(rows):
        whole = row if is_text(json.dumps(row, ensure_ascii=False, default=str)) else "half of a surrogate pair"
        entry = whole if isinstance(whole, str) else read(whole, number, name)
        if isinstance(entry, str):
            drops[entry] += 1
        else:
            entries.append(entry)
    return entries, drops
