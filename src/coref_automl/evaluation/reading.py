"""A document as items are found in it. In: a document, its tags, a reference tokenizer. Out: mentions, pronouns, distances in
tokens, and what every task shares: item ids, candidates, a seeded order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.chains import Mention, mentions, pronouns
from coref_automl.korean import Tags
from coref_automl.models.vocabulary import tokenize
from coref_automl.records import ClozeItem, Document, Task
from coref_automl.store import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Span = tuple[int, int]

VERSIONS: dict[Task, int] = {"real": 1, "real-far": 1, "lambada": 1, "gold": 1}
"""The version of each task's rules. It is part of every item's id, so that items of two rules never pass for one another."""

MOST_CANDIDATES = 20

INSIDE_WORD = "begins inside a word"
NO_CHOICE = "no other noun to choose from"


@dataclass(frozen=True, slots=True)
class Found:
    """The items of one document, and for each reason how many nouns (or mentions) gave none."""

    items: list[ClozeItem] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, eq=False)
class ReadDocument:
    """Everything that the tasks ask of a document, computed once. Distances count the reference tokens between two spans.

    `opening` holds for every character the first token of a span that begins there, `closing` for every place the token after one
    that ends there: what `Pieces.cover` says, for a whole document at a stroke.
    """

    document: Document
    tags: Tags
    opening: list[int]
    closing: list[int]
    mentions: tuple[Mention, ...]
    pronouns: NDArray[np.int32]
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

    def tag_of(self, span: Span) -> str:
        """NNP where a name lies in the span, NNG where another noun does, empty where the tagger sees no noun."""
        tags = {mention.tag for mention in self.mentions if mention.start < span[1] and span[0] < mention.end}
        return "NNP" if "NNP" in tags else "NNG" if tags else ""

    def item_id(self, task: Task, span: Span) -> str:
        return fingerprint(f"{task}/{VERSIONS[task]}", self.identity, span)


def read_document(document: Document, tags: Tags, reference: PreTrainedTokenizerFast) -> ReadDocument:
    pieces = tokenize(reference, document.text)
    places = np.arange(len(document.text) + 1)
    blanks = np.bincount(pieces.starts[pieces.starts == pieces.ends], minlength=len(places))
    return ReadDocument(
        document=document,
        tags=tags,
        opening=(np.searchsorted(pieces.ends, places, "right") - blanks).tolist(),
        closing=np.searchsorted(pieces.starts, places, "left").tolist(),
        mentions=tuple(mentions(document.text, tags)),
        pronouns=pronouns(tags),
        identity=fingerprint(document.text),
    )


def lot(*parts: str | int) -> bytes:
    """A draw that depends on its parts alone: sort by it, and the order is random and always the same."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def choose_candidates(
    answer: str, words: Iterable[str], *, draw: tuple[str | int, ...], first: Iterable[str] = ()
) -> tuple[tuple[str], ...]:
    """The answer, then up to 19 other words, none containing or contained in it: those in `first`, and the rest by lot."""
    leading = [word for word in dict.fromkeys(first) if apart(word, answer)]
    others = sorted({word for word in words if apart(word, answer)} - set(leading), key=lambda word: lot(*draw, word))
    return tuple((word,) for word in [answer, *leading, *others][:MOST_CANDIDATES])


def opens_word(text: str, start: int) -> bool:
    """No letter or digit runs into this place."""
    return start == 0 or not text[start - 1].isalnum()


def apart(word: str, answer: str) -> bool:
    """Neither word contains the other."""
    return bool(word) and word not in answer and answer not in word


def spread(items: Iterable[ClozeItem], most: int | None, seed: int) -> list[ClozeItem]:
    """At most this many items by lot, a first item of every document before a second of any: intervals live on clusters."""
    order: list[tuple[int, bytes, ClozeItem]] = []
    taken: Counter[str] = Counter()
    for item in sorted(items, key=lambda item: lot(seed, item.id)):
        order.append((taken[item.document], lot(seed, item.id), item))
        taken[item.document] += 1
    return [item for _, _, item in sorted(order, key=lambda entry: entry[:2])[:most]]
