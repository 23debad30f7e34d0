"""The nouns of a document. In: a parsed document. Out: its whole words and names, the context of each, and how other documents of
the source use them.

`eligible` makes rules of this. Patterns of Korean have an example each.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks.task import Choices, ParsedDocument, Span, opens_word
from coref_automl.korean import GLUED, JOINED, KINDS, VERBAL, composed

BOUND = re.compile(r"[A-Za-z0-9][.]?$|\d[.]?[가-힣]{0,2}(?<![에의은는이가을를로터지경쯤도])$|^자$")
"""A word that belongs to the noun after it: Latin letters, or a number with its unit and no particle (JR, 제28조, 3. 12.자)."""
_PARTICLE = re.compile(
    r"[들님씨]?[은는이가을를의에게서께도만까지부터보다처럼와과나라고인였었다며란데야말으로써]{0,6}(?![가-힣A-Za-z0-9])"
)
"""Particles and the copula after a noun: a closed class of letters, and no other letter after them (들에게, 였다)."""
_CLAUSE_COMMA = re.compile(r"[고며면서나자데만니여지후때년월일],")
"""The comma after a clause or a date, which does not separate items of an enumeration (갔고, 3월,)."""
_INFLECTED = re.compile(r"([은는이가을를의에서도며면한된던될할]|..[고나자지인]|[^가-힣])$")
"""The end of a word with a particle, a verb ending or punctuation (집에서, 작은)."""
_LIST_MARKS = ",·ㆍ‧・、/(〈《「『<[:~-"
_WORD = re.compile(r"\S+|\n")

_NAME = KINDS.index("NNP")
_LISTS = Path(__file__).parents[2] / "assets" / "nouns"
LIGHT = "light.txt"


@cache
def word_lines(name: str) -> tuple[tuple[str, ...], ...]:
    lines = (_LISTS / name).read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines if not line.startswith("#"))


COUNTED = 100
"""The fewest other documents of a source from which the share that holds a word is counted."""
MOST_DOCUMENTS = 1_000
"""The most documents of a source that are counted."""
LEAST, SHARE = 2, 0.1
"""An answer is predicted if it occurs beside the neighbour in this many other documents, and in this share of those with it."""
_Beside = dict[str, list[tuple[str, int]]]


@dataclass(slots=True, eq=False)
class Collocations:
    """For every word of the counted documents, the words after it and before it, each with the number of its document."""

    after: _Beside = field(default_factory=lambda: defaultdict(list))
    before: _Beside = field(default_factory=lambda: defaultdict(list))
    numbers: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    """Every word that follows another, sorted."""

    @classmethod
    def count(cls, documents: Iterable[tuple[str, str]]) -> Collocations:
        """Count the words of documents, given as (id, text), in composed Hangul as in the texts with gaps."""
        counts = cls()
        for number, (identity, text) in enumerate(documents):
            counts.numbers[identity] = number
            for left, right in set(pairwise(composed(text)[0].split())):
                counts.after[left].append((right, number))
                counts.before[right].append((left, number))
        counts.words = sorted(counts.before)
        return counts

    def share(self, noun: str, document: str) -> float:
        """The share of other documents that hold a word which begins with a noun; 0 if too few were counted."""
        if len(self.numbers) < COUNTED:
            return 0.0
        words = self.words[bisect_left(self.words, noun) : bisect_left(self.words, noun + "\uffff")]
        holders = {number for word in words for _, number in self.before[word]}
        return len(holders - {self.numbers.get(document, -1)}) / len(self.numbers)

    def predicts(self, answer: str, ending: str, before: str, after: str, document: str) -> bool:
        """Whether the words around a gap predict its answer in other documents; `ending` follows the answer inside its word."""
        own = self.numbers.get(document, -1)
        right, left = self.after.get(before, ()), self.before.get(after, ())
        return _often({number for word, number in right if word.startswith(answer)}, right, own) or _often(
            {number for word, number in left if word == answer + ending}, left, own, ending
        )


def _often(hits: set[int], neighbours: Sequence[tuple[str, int]], own: int, ending: str = "") -> bool:
    """Whether enough other documents have the answer, of those in which a word with that ending is beside the neighbour."""
    hits.discard(own)
    if len(hits) < LEAST:
        return False
    return len(hits) >= SHARE * len({number for word, number in neighbours if number != own and word.endswith(ending)})


@cache
def listed(name: str) -> frozenset[str]:
    return frozenset(word for line in word_lines(name) for word in line)


class Frame(NamedTuple):
    """The context of a mention in its line: the word before, the rest of its own word, and the word after."""

    before: str
    ending: str
    after: str

    @property
    def sides(self) -> list[tuple[str, str, str]]:
        """The contexts, before and after; a noun that shares either with the mention could fill its gap."""
        return [(side, word, self.ending) for side, word in (("before", self.before), ("after", self.after)) if word]


class DocumentNouns:
    """The mentions of one document that are whole words, those that are names, and the context of each.

    A mention is a compound of nouns and ends where its last noun, its head, does, so `_head_allows_name` has the end of every
    mention: false for a common noun as in 실용신안등록, unless it has one syllable.
    """

    def __init__(self, doc: ParsedDocument, choices: Choices) -> None:
        self.doc = doc
        self.least_syllables = choices.min_syllables
        self.usage = choices.usage.get(doc.document.source)
        self.counts = Counter(mention.form for mention in doc.mentions)
        self.forms = set(self.counts)
        self.words = [mention for mention in doc.mentions if self.is_word(mention)]
        self.verbal = {mention.form for mention in doc.mentions if mention.around & VERBAL}
        self._number_of = {mention.start: number for number, mention in enumerate(doc.mentions)}
        tagged = list(zip(doc.tags.spans.tolist(), doc.tags.kinds == _NAME, strict=True))
        self._name_starts = {start for (start, _), is_name in tagged if is_name}
        self._head_allows_name = {end: bool(is_name) or end - start < 2 for (start, end), is_name in tagged}
        self.names = {mention.form for mention in doc.mentions if self.is_name(mention)}
        self._shares: dict[str, float] = {}

    def is_word(self, mention: NounMention) -> bool:
        """Whether a mention is a whole word: only a particle, the copula, a plural suffix or punctuation is attached to it."""
        return (
            opens_word(self.doc.text, mention.start)
            and not mention.around & (VERBAL | GLUED)
            and _PARTICLE.match(self.doc.text, mention.end) is not None
        )

    def is_name(self, mention: NounMention) -> bool:
        """Whether the rules for names apply; they do not to a name whose head is a common noun (실용신안등록)."""
        return mention.tag == "NNP" and self._head_allows_name[mention.end]

    def frame(self, mention: NounMention) -> Frame:
        return self._frames[mention.start]

    def shared(self, mention: NounMention) -> int:
        """The most other nouns that the sentence of a mention shares with another sentence with the same noun."""
        own = self._sentences[self.doc.sentence_at(mention.start)]
        others = (nouns for nouns in self._sentences if mention.form in nouns and nouns is not own)
        return max((len(nouns & own) - 1 for nouns in others), default=0)

    def copyable(self, mention: NounMention) -> bool:
        """Whether the answer occurs beside the same word elsewhere in the document."""
        frame, text = self.frame(mention), self.doc.text
        left, right = f"{frame.before} {mention.form}", f"{mention.form}{frame.ending} {frame.after}"
        return bool(frame.before and text.count(left) > 1) or bool(frame.after and text.count(right) > 1)

    @cached_property
    def _frames(self) -> dict[int, Frame]:
        """The frame of every mention, by its start; words and mentions are walked together in the order of the text."""
        words = list(_WORD.finditer(f"{self.doc.text}\n"))
        frames, number = {}, 0
        for mention in self.doc.mentions:
            while words[number].end() <= mention.start:
                number += 1
            word, start, after = words[number].group(), words[number].start(), words[number + 1].group()
            before = word[: mention.start - start] or (words[number - 1].group() if number else "")
            if before[-1:] in "\n.?!" and not BOUND.search(before):
                before = ""  # of another sentence
            frames[mention.start] = Frame(before, word[mention.end - start :], "" if after == "\n" else after)
        return frames

    @cached_property
    def forms_by_context(self) -> dict[tuple[str, str, str], set[str]]:
        """The nouns of the document in each context."""
        forms: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for mention in self.doc.mentions:
            for side in self.frame(mention).sides:
                forms[side].add(mention.form)
        return forms

    @cached_property
    def _sentences(self) -> list[set[str]]:
        """The nouns of every sentence, without light nouns."""
        sentences: list[set[str]] = [set() for _ in range(len(self.doc.tags.sentence_ends) + 1)]
        for mention in self.doc.mentions:
            if mention.form not in listed(LIGHT):
                sentences[self.doc.sentence_at(mention.start)].add(mention.form)
        return sentences

    def share(self, form: str) -> float:
        """The share of other documents of the source that hold a word; 0 if they were not counted."""
        if form not in self._shares:
            self._shares[form] = self.usage.share(form, self.doc.document.id) if self.usage is not None else 0.0
        return self._shares[form]

    def in_list(self, span: Span) -> bool:
        """Whether a mark of an enumeration or a bracket is directly beside a span."""
        text, (start, end) = self.doc.text, span
        if text[start - 1 : start] == " ":
            start -= 1
        lead, tail = text[max(0, start - 1) : start], text[end : end + 1]
        after_clause = _CLAUSE_COMMA.match(text, max(0, start - 2)) is not None
        return bool(lead and lead in _LIST_MARKS and not after_clause) or bool(tail and tail in _LIST_MARKS.replace("(", ""))

    def is_joined(self, mention: NounMention) -> bool:
        """Whether a particle for `and` joins a mention with the noun before or after it."""
        number = self._number_of[mention.start]
        before = self.doc.mentions[number - 1] if number else None
        joined = before is not None and before.around & JOINED and len(self.doc.text[before.end : mention.start]) <= 3
        return bool(mention.around & JOINED or joined)

    def noun_before(self, mention: NounMention) -> bool:
        """Whether a noun without a particle precedes a mention; before a name, light nouns do not count."""
        bare = self.doc.text[mention.start - 1 : mention.start] == " " and mention.start - 1 in self._head_allows_name
        return bare and not (self.is_name(mention) and self.frame(mention).before in listed(LIGHT))

    def name_after(self, mention: NounMention) -> bool:
        return self.doc.text[mention.end : mention.end + 1] == " " and mention.end + 1 in self._name_starts

    def follows(self, mention: NounMention) -> bool:
        """Whether the answer follows the same uninflected word elsewhere in the document."""
        before = self.frame(mention).before
        return bool(before) and not _INFLECTED.search(before) and self.doc.text.count(f"{before} {mention.form}") > 1
