"""What a task is, and what all tasks share. In: a document, its tags, a reference tokenizer. Out: hidden spans as ClozeItems.

A task finds items in one document at a time. This module gives it the document with mentions, pronouns and distances already
computed, item ids, candidates, a seeded order, and the rows of annotated files.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.chains import NounMention, mentions
from coref_automl.corpus.files import files_of, rows_in
from coref_automl.corpus.formats import BROKEN
from coref_automl.errors import SourceError
from coref_automl.evaluation.tasks.neighbours import Neighbours
from coref_automl.fingerprints import fingerprint
from coref_automl.korean import PRONOUN, Tags
from coref_automl.models.vocabulary import FastTokenizer, tokenize
from coref_automl.records import ClozeItem, Document, Task

Span = tuple[int, int]
Row = dict[str, Any]
T = TypeVar("T")

MOST_CANDIDATES = 20

INSIDE_WORD = "begins inside a word"
NO_CHOICE = "no other noun to choose from"


@dataclass(frozen=True, slots=True)
class Found:
    """The items of one document, and for each reason how many nouns (or mentions) gave none. `passages`: parts of the document
    that items refer to in its place."""

    items: list[ClozeItem] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)
    passages: list[Document] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What `prepare eval` asks of every task. `answers`: the only words that may be hidden; None allows any. `neighbours`: for
    each source, which words stand beside which in documents that hold no item."""

    seed: int = 0
    per_document: int = 3
    min_syllables: int = 2
    answers: Collection[str] | None = None
    neighbours: Mapping[str, Neighbours] = field(default_factory=dict)

    def usual(self, document: Document) -> Neighbours | None:
        return self.neighbours.get(document.source)


@dataclass(frozen=True, slots=True)
class Rows:
    """Annotated files of a task's own: `open` reads the rows of a name, `read` makes an entry of a row or says why not.

    An entry has a `document`, and whatever else the task's `find` takes.
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

    `find` makes the items of one read document. Without `rows` the task reads the texts of `--source`. `version` is part of every
    item's id: raise it when the rules change, so that items of two rules are never taken for one another. `any_word` lets every
    vocabulary entry answer, not nouns alone. `label` names the task in tables. A task `on_request` is built only where `--task`
    names it.
    """

    name: str
    label: str
    version: int
    find: Callable[[ReadDocument, Any, Choices], Found]
    rows: Rows | None = None
    limit: Limit | None = None
    any_word: bool = False
    on_request: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ReadDocument:
    """Everything that tasks ask of a document, computed once. Distances count the reference tokens between two spans.

    `opening` holds for every character the first token of a span that begins there, `closing` for every place the token after one
    that ends there: `Pieces.cover` for all places at once.
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

    def distance(self, one: Span, other: Span) -> int:
        before, after = sorted((one, other))
        return max(0, self.opening[after[0]] - self.closing[before[1]])

    def pronoun_between(self, one: Span, other: Span) -> bool:
        before, after = sorted((one, other))
        starts = self.pronouns[:, 0]
        return bool(((starts >= before[1]) & (starts < after[0])).any())

    def sentence_at(self, place: int) -> int:
        return bisect_right(self.sentence_ends, place)

    def sentence_of(self, place: int) -> Span:
        at, ends = self.sentence_at(place), self.sentence_ends
        return ends[at - 1] if at else 0, ends[at] if at < len(ends) else len(self.text)

    def tag_of(self, span: Span) -> str:
        """NNP if the span touches a name, NNG if it touches another noun, else empty."""
        tags = {mention.tag for mention in self.mentions if mention.start < span[1] and span[0] < mention.end}
        return "NNP" if "NNP" in tags else "NNG" if tags else ""

    def item(self, task: Task, version: int, span: Span, antecedent: Span | None, **facts: Any) -> ClozeItem:
        """The item that hides a span; `facts` are what its task decides: candidates, and the cluster if not the document."""
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


def read_document(document: Document, tags: Tags, reference: FastTokenizer) -> ReadDocument:
    pieces = tokenize(reference, document.text)
    places = np.arange(len(document.text) + 1)
    blanks = np.bincount(pieces.starts[pieces.starts == pieces.ends], minlength=len(places))
    return ReadDocument(
        document=document,
        tags=tags,
        opening=(np.searchsorted(pieces.ends, places, "right") - blanks).tolist(),
        closing=np.searchsorted(pieces.starts, places, "left").tolist(),
        mentions=tuple(mentions(document.text, tags)),
        pronouns=tags.spans[tags.kinds == PRONOUN],
        sentence_ends=tags.sentence_ends.tolist(),
        identity=fingerprint(document.text),
    )


def draw_lot(*parts: str | int) -> bytes:
    """A hash of the parts to sort by: a random order that is always the same."""
    return hashlib.blake2b(_joined(parts), digest_size=8).digest()


def choose_candidates(
    answer: str, words: Iterable[str], *, draw: tuple[str | int, ...], first: Iterable[str] = ()
) -> tuple[tuple[str], ...]:
    """The answer, then up to 19 other words, none containing or contained in it: those in `first`, then a random sample."""
    leading = [word for word in dict.fromkeys(first) if is_apart(word, answer)]
    begun = hashlib.blake2b(_joined((*draw, "")), digest_size=8)

    def lot(word: str) -> bytes:
        """`draw_lot(*draw, word)`, with what all words share hashed once."""
        hashed = begun.copy()
        hashed.update(word.encode("utf-8", "surrogatepass"))
        return hashed.digest()

    others = sorted({word for word in words if is_apart(word, answer)}.difference(leading), key=lot)
    return tuple((word,) for word in [answer, *leading, *others][:MOST_CANDIDATES])


def _joined(parts: Iterable[str | int]) -> bytes:
    return "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")


def opens_word(text: str, start: int) -> bool:
    """Whether no letter or digit precedes this place."""
    return start == 0 or not text[start - 1].isalnum()


def is_apart(word: str, answer: str) -> bool:
    return bool(word) and word not in answer and answer not in word


def spread(
    items: Iterable[ClozeItem], most: int, seed: int, of: Callable[[ClozeItem], Hashable] = lambda item: item.document
) -> list[ClozeItem]:
    """At most this many items in random order, a first one of every document (or other group) before a second of any."""
    order: list[tuple[int, ClozeItem]] = []
    taken: Counter[Hashable] = Counter()
    for item in sorted(items, key=lambda item: draw_lot(seed, item.id)):
        order.append((taken[of(item)], item))
        taken[of(item)] += 1
    return [item for _, item in sorted(order, key=lambda entry: entry[0])[:most]]


def occurrences(text: str, word: str) -> list[int]:
    """Every place where the characters of a word occur, overlaps included."""
    places, at = [], text.find(word)
    while at >= 0:
        places.append(at)
        at = text.find(word, at + 1)
    return places


def local_rows(place: str, *, needs: Sequence[str]) -> Iterator[Row | str]:
    """Every row of the files a path, folder or glob names, or why it is not one. A first row without the needed columns is an
    error: it is the wrong file."""
    for path in files_of(place.removeprefix("local:")):
        number = 0
        try:
            for number, row in rows_in(path, str(path)):
                if isinstance(row, dict) and number == 1 and (missing := [name for name in needs if name not in row]):
                    raise SourceError(f"{path} has no column {missing[0]!r}; its rows hold {', '.join(row) or 'nothing'}.")
                yield row
        except (*BROKEN, ValueError) as error:
            raise SourceError(f"{path} breaks off after line {number} ({error}); fetch it again.") from error


def read_rows(rows: Iterable[Row | str], read: Callable[[Row, int, str], T | str], name: str) -> tuple[list[T], Counter[str]]:
    """What `read` makes of each row of the source `name`, in order; rows without an entry are counted by reason."""
    found: list[T] = []
    drops: Counter[str] = Counter()
    for number, row in enumerate(rows):
        entry = row if isinstance(row, str) else read(row, number, name)
        if isinstance(entry, str):
            drops[entry] += 1
        else:
            found.append(entry)
    return found, drops
