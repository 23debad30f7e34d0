"""The interface of a task, and what all tasks share. In: a document, its tags, a reference tokenizer. Out: ClozeItems.

A task finds items in one document at a time. This module provides the document with its mentions, pronouns and distances, item
ids, candidates, a seeded order, and the rows of annotated files.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.chains import NounMention, mentions
from coref_automl.corpus.files import files_of, rows_in
from coref_automl.corpus.formats import BROKEN
from coref_automl.errors import SourceError
from coref_automl.fingerprints import fingerprint
from coref_automl.korean import PRONOUN, Tags
from coref_automl.models.vocabulary import FastTokenizer, tokenize
from coref_automl.records import ClozeItem, Document, Task
from coref_automl.store import is_text

Span = tuple[int, int]
Row = dict[str, Any]
T = TypeVar("T")

MOST_CANDIDATES = 20

INSIDE_WORD = "begins inside a word"
NO_CHOICE = "no other noun to choose from"


@dataclass(frozen=True, slots=True)
class Found:
    """The items of one document, how many nouns (or mentions) each reason dropped, and parts that items refer to as documents."""

    items: list[ClozeItem] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)
    passages: list[Document] = field(default_factory=list)


class Usage(Protocol):
    """How words are used in other documents of a source; `nouns.Collocations` counts it."""

    def share(self, noun: str, document: str) -> float: ...

    def predicts(self, answer: str, ending: str, before: str, after: str, document: str) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The settings of `prepare eval` for every task. Only words in `answers` are hidden, if given; `usage` is by source."""

    seed: int = 0
    per_document: int = 3
    min_syllables: int = 2
    answers: Collection[str] | None = None
    usage: Mapping[str, Usage] = field(default_factory=dict)


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

    `find` returns the items of one document. Without `rows` the task reads the texts of `--source`. `version` is part of every
    item's id: raise it when the rules change, so that items of different rules never share an id. `any_word` lets every entry
    answer, not only nouns. `label` names the task in tables. A task `on_request` is built only if `--task` names it.
    """

    name: str
    label: str
    version: int
    find: Callable[[ParsedDocument, Any, Choices], Found]
    rows: Rows | None = None
    limit: Limit | None = None
    any_word: bool = False
    on_request: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ParsedDocument:
    """A document with everything that tasks need, computed once. Distances are reference tokens between two spans.

    By character offset, `opening` has the first token of a span that starts there, and `closing` the token after a span that ends
    there: `Pieces.cover` for all offsets at once.
    """

    document: Document
    tags: Tags
    opening: list[int]
    closing: list[int]
    mentions: tuple[NounMention, ...]
    pronouns: NDArray[np.int32]
    sentence_ends: list[int]
    identity: str

    @property
    def text(self) -> str:
        return self.document.text

    def distance(self, span: Span, other: Span) -> int:
        before, after = sorted((span, other))
        return max(0, self.opening[after[0]] - self.closing[before[1]])

    def pronoun_between(self, span: Span, other: Span) -> bool:
        before, after = sorted((span, other))
        starts = self.pronouns[:, 0]
        return bool(((starts >= before[1]) & (starts < after[0])).any())

    def sentence_at(self, offset: int) -> int:
        return bisect_right(self.sentence_ends, offset)

    def sentence_of(self, offset: int) -> Span:
        number, ends = self.sentence_at(offset), self.sentence_ends
        return ends[number - 1] if number else 0, ends[number] if number < len(ends) else len(self.text)

    def tag_of(self, span: Span) -> str:
        """NNP if the span touches a name, NNG if it touches another noun, else empty."""
        tags = {mention.tag for mention in self.mentions if mention.start < span[1] and span[0] < mention.end}
        return "NNP" if "NNP" in tags else "NNG" if tags else ""

    def item(self, task: Task, version: int, span: Span, antecedent: Span | None, **facts: Any) -> ClozeItem:
        """The item that hides a span; `facts` are the fields that its task decides, candidates and perhaps the cluster."""
        return ClozeItem(
            id=fingerprint(f"{task}/{version}", self.identity, span),
            task=task,
            document=self.document.id,
            source=self.document.source,
            start=span[0],
            end=span[1],
            answer=self.text[span[0] : span[1]],
            tag=self.tag_of(span),
            antecedent=antecedent,
            distance=self.distance(antecedent, span) if antecedent else -1,
            pronoun_between=antecedent is not None and self.pronoun_between(antecedent, span),
            **{"cluster": self.document.id, **facts},
        )


def parse_document(document: Document, tags: Tags, reference: FastTokenizer) -> ParsedDocument:
    pieces = tokenize(reference, document.text)
    offsets = np.arange(len(document.text) + 1)
    empty = np.bincount(pieces.starts[pieces.starts == pieces.ends], minlength=len(offsets))
    return ParsedDocument(
        document=document,
        tags=tags,
        opening=(np.searchsorted(pieces.ends, offsets, "right") - empty).tolist(),
        closing=np.searchsorted(pieces.starts, offsets, "left").tolist(),
        mentions=tuple(mentions(document.text, tags)),
        pronouns=tags.spans[tags.kinds == PRONOUN],
        sentence_ends=tags.sentence_ends.tolist(),
        identity=fingerprint(document.text),
    )


def draw_lot(*parts: str | int) -> bytes:
    """A hash of the parts as a sort key: a random order that is always the same."""
    return hashlib.blake2b(_joined(parts), digest_size=8).digest()


def choose_candidates(
    answer: str, words: Iterable[str], *, draw: tuple[str | int, ...], first: Iterable[str] = ()
) -> tuple[tuple[str], ...]:
    """The answer, then up to 19 words that neither contain it nor are contained in it: those in `first`, then a random sample."""
    leading = [word for word in dict.fromkeys(first) if is_apart(word, answer)]
    prefix = hashlib.blake2b(_joined((*draw, "")), digest_size=8)

    def lot(word: str) -> bytes:
        """`draw_lot(*draw, word)`, hashing the shared prefix once."""
        lot = prefix.copy()
        lot.update(word.encode("utf-8", "surrogatepass"))
        return lot.digest()

    others = sorted({word for word in words if is_apart(word, answer)}.difference(leading), key=lot)
    return tuple((word,) for word in [answer, *leading, *others][:MOST_CANDIDATES])


def _joined(parts: Iterable[str | int]) -> bytes:
    return "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")


def opens_word(text: str, start: int) -> bool:
    """Whether no letter or digit precedes this offset."""
    return start == 0 or not text[start - 1].isalnum()


def is_apart(word: str, answer: str) -> bool:
    return bool(word) and word not in answer and answer not in word


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
