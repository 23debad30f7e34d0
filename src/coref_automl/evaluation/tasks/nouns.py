"""The nouns of a document. In: a read document. Out: whole words and names, and what stands around each.

`eligible` makes rules of them. Patterns of Korean have an example each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks.task import Choices, ReadDocument, Span, opens_word
from coref_automl.korean import GLUED, JOINED, KINDS, VERBAL

BOUND = re.compile(r"[A-Za-z0-9][.]?$|\d[.]?[가-힣]{0,2}(?<![에의은는이가을를로터지경쯤도])$|^자$")
"""A word that belongs to the noun behind it: Latin letters, or a number with its unit and no particle (JR, 제28조, 3. 12.자)."""
_PARTICLE = re.compile(
    r"[들님씨]?[은는이가을를의에게서께도만까지부터보다처럼와과나라고인였었다며란데야말으로써]{0,6}(?![가-힣A-Za-z0-9])"
)
"""Letters of particles and the copula behind a noun, a closed class (들에게, 였다)."""
_CLAUSE = re.compile(r"[고며면서나자데만니여지후때년월일],")
"""The comma behind a clause or a date, which is not one of an enumeration (갔고, 3월,)."""
_ENDED = re.compile(r"([은는이가을를의에서도며면한된던될할]|..[고나자지인]|[^가-힣])$")
"""The last letter of a word that ends with a particle, a verb ending or a sign (집에서, 작은)."""
_SIGNS = ",·ㆍ‧・、/(〈《「『<[:~-"
_WORD = re.compile(r"\S+|\n")

_NAME = KINDS.index("NNP")
_LISTS = Path(__file__).parents[2] / "assets" / "nouns"


@cache
def word_lines(name: str) -> tuple[tuple[str, ...], ...]:
    lines = (_LISTS / name).read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines if not line.startswith("#"))


@cache
def listed(name: str) -> frozenset[str]:
    return frozenset(word for line in word_lines(name) for word in line)


def light_nouns() -> frozenset[str]:
    return listed("light.txt")


class Frame(NamedTuple):
    """The words around a mention in its line: the one before, what follows inside its own word, and the one behind."""

    before: str
    ending: str
    behind: str

    @property
    def sides(self) -> list[tuple[str, str, str]]:
        """What another noun must have in common with the mention to stand in the same place; either side is enough."""
        return [(side, word, self.ending) for side, word in (("before", self.before), ("behind", self.behind)) if word]


class Head(NamedTuple):
    """The last noun of a mention: 등록 of 실용신안등록, which makes a common noun of a name."""

    syllables: int
    is_name: bool


class DocumentNouns:
    """The mentions of one document that are whole words, those that are names, and the surroundings of each.

    A mention is nouns that are written together, so it ends where the last of them does: `_heads` has every mention's end.
    """

    def __init__(self, read: ReadDocument, choices: Choices) -> None:
        self.read = read
        self.least_syllables = choices.min_syllables
        self.usual = choices.usual(read.document)
        self.counts = Counter(mention.form for mention in read.mentions)
        self.forms = set(self.counts)
        self.words = [mention for mention in read.mentions if self.is_word(mention)]
        self.verbal = {mention.form for mention in read.mentions if mention.around & VERBAL}
        self._places = {mention.start: at for at, mention in enumerate(read.mentions)}
        tagged = list(zip(read.tags.spans.tolist(), read.tags.kinds == _NAME, strict=True))
        self._name_starts = {start for (start, _), is_name in tagged if is_name}
        self._heads = {end: Head(end - start, bool(is_name)) for (start, end), is_name in tagged}
        self.names = {mention.form for mention in read.mentions if self.is_name(mention)}
        self._known: dict[str, float] = {}

    def is_word(self, mention: NounMention) -> bool:
        """A whole word: nothing glued before it, and behind it only a particle, a copula, a plural or a sign."""
        return (
            opens_word(self.read.text, mention.start)
            and not mention.around & (VERBAL | GLUED)
            and _PARTICLE.match(self.read.text, mention.end) is not None
        )

    def is_name(self, mention: NounMention) -> bool:
        """Whether the rules for names apply: not to a name with a common noun for its head (실용신안등록)."""
        head = self._heads[mention.end]
        return mention.tag == "NNP" and (head.is_name or head.syllables < 2)

    def frame(self, mention: NounMention) -> Frame:
        return self._frames[mention.start]

    def shared(self, mention: NounMention) -> int:
        """The most nouns that the sentence of a mention shares with another sentence that names the same."""
        own = self._sentences[self.read.sentence_at(mention.start)]
        others = (held for held in self._sentences if mention.form in held and held is not own)
        return max((len(held & own) - 1 for held in others), default=0)

    def copyable(self, mention: NounMention) -> bool:
        """Whether the answer stands beside the same word elsewhere in the document."""
        frame, text = self.frame(mention), self.read.text
        left, right = f"{frame.before} {mention.form}", f"{mention.form}{frame.ending} {frame.behind}"
        return bool(frame.before and text.count(left) > 1) or bool(frame.behind and text.count(right) > 1)

    @cached_property
    def _frames(self) -> dict[int, Frame]:
        """By where mentions start; words and mentions are walked together, both in order of the text."""
        words = list(_WORD.finditer(f"{self.read.text}\n"))
        frames, at = {}, 0
        for mention in self.read.mentions:
            while words[at].end() <= mention.start:
                at += 1
            own, begun, behind = words[at].group(), words[at].start(), words[at + 1].group()
            before = own[: mention.start - begun] or (words[at - 1].group() if at else "")
            if before[-1:] in "\n.?!" and not BOUND.search(before):
                before = ""  # of another sentence
            frames[mention.start] = Frame(before, own[mention.end - begun :], "" if behind == "\n" else behind)
        return frames

    @cached_property
    def beside(self) -> dict[tuple[str, str, str], set[str]]:
        """The nouns that stand in the same place, by side of their frames."""
        found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for mention in self.read.mentions:
            for side in self.frame(mention).sides:
                found[side].add(mention.form)
        return found

    @cached_property
    def _sentences(self) -> list[set[str]]:
        """The nouns of every sentence that mean something of their own."""
        found: list[set[str]] = [set() for _ in range(len(self.read.tags.sentence_ends) + 1)]
        for mention in self.read.mentions:
            if mention.form not in light_nouns():
                found[self.read.sentence_at(mention.start)].add(mention.form)
        return found

    def share(self, form: str) -> float:
        """The share of other documents of the source that hold a word; 0 where they were not counted."""
        if form not in self._known:
            self._known[form] = self.usual.share(form, self.read.document.id) if self.usual is not None else 0.0
        return self._known[form]

    def in_list(self, span: Span) -> bool:
        """Whether a sign of an enumeration or a bracket stands directly beside a span."""
        text, (start, end) = self.read.text, span
        if text[start - 1 : start] == " ":
            start -= 1
        lead, tail = text[max(0, start - 1) : start], text[end : end + 1]
        behind_clause = _CLAUSE.match(text, max(0, start - 2)) is not None
        return bool(lead and lead in _SIGNS and not behind_clause) or bool(tail and tail in _SIGNS.replace("(", ""))

    def is_joined(self, mention: NounMention) -> bool:
        """Whether a particle for `and` joins a mention with the noun behind or before it."""
        at = self._places[mention.start]
        before = self.read.mentions[at - 1] if at else None
        joined = before is not None and before.around & JOINED and len(self.read.text[before.end : mention.start]) <= 3
        return bool(mention.around & JOINED or joined)

    def noun_before(self, mention: NounMention) -> bool:
        """Whether a noun without a particle stands before a mention; before a name, one that means something of its own."""
        joined = self.read.text[mention.start - 1 : mention.start] == " " and mention.start - 1 in self._heads
        return joined and not (self.is_name(mention) and self.frame(mention).before in light_nouns())

    def name_behind(self, mention: NounMention) -> bool:
        return self.read.text[mention.end : mention.end + 1] == " " and mention.end + 1 in self._name_starts

    def follows(self, mention: NounMention) -> bool:
        """Whether the answer follows the same word, one without a particle, elsewhere in the document."""
        before = self.frame(mention).before
        return bool(before) and not _ENDED.search(before) and self.read.text.count(f"{before} {mention.form}") > 1
