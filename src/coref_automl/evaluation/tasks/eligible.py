"""Which mentions may be hidden. In: a read document. Out: its whole-word mentions, and for each what speaks against it.

A gap should ask for a thing the document has named: a noun of its own meaning, written as a whole word, as an argument of a prose
sentence, where no other noun of the document fits as well. The reasons are model-free and are counted in the set's manifest.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.ngrams import Neighbours
from coref_automl.evaluation.tasks.task import INSIDE_WORD, NO_CHOICE, ReadDocument, Span, is_apart, opens_word
from coref_automl.korean import CLAUSE, COPULA, GLUED, JOINED, VERBAL

FREQUENT, SPECIFIC = 30, 20
"""Of 1,000 documents: a common noun in more than the first is never hidden; a noun in more than the second is not hidden far from
its antecedent (names, whatever they are, may be in `FREQUENT` there)."""
TOPICAL = 3
"""Occurrences in the document that make a short common noun a thing the document is about."""
VERBAL_SHARE = 25
"""A noun with a verbal suffix in this percentage of its occurrences is a verbal noun."""
LEAST_WORDS = 4
"""Words of the shortest sentence that may hold a gap."""

_LISTS = Path(__file__).parents[2] / "assets" / "nouns"
_SIGNS = ",·ㆍ‧・、/(〈《「『<[:~-"
_LINKS = frozenset({"및", "또는", "혹은", "내지", "그리고", "대", "겸", "이나", "나", "와", "과"})
_BOUND = re.compile(r"[A-Za-z0-9]$|\d[가-힣]{0,2}(?<![에의은는이가을를로터지경쯤도])$")
"""A word that belongs to the noun behind it: Latin letters, or a number with its unit and no particle (JR, 제28조, 4점대)."""
_PROSE = re.compile(r"[.?!。][\"'”’)\]」』]*\s*$")


@cache
def _words(name: str) -> tuple[tuple[str, ...], ...]:
    lines = (_LISTS / name).read_text(encoding="utf-8").splitlines()
    return tuple(tuple(line.split()) for line in lines if not line.startswith("#"))


@cache
def _listed(name: str) -> frozenset[str]:
    return frozenset(word for line in _words(name) for word in line)


def light_nouns() -> frozenset[str]:
    return _listed("light.txt")


@cache
def rivals() -> dict[str, frozenset[str]]:
    """For each word of the list of pairs, the words that easily stand for it."""
    found: dict[str, set[str]] = {}
    for line in _words("pairs.txt"):
        for word in line:
            found.setdefault(word, set()).update(other for other in line if other != word)
    return {word: frozenset(others) for word, others in found.items()}


@cache
def frequent_nouns() -> dict[str, tuple[int, int]]:
    """Common nouns of a reference corpus: of 1,000 documents, how many hold the word; of 100 occurrences, how many are verbal."""
    return {word: (int(documents), int(verbal)) for word, documents, verbal in _words("frequent.tsv")}


@dataclass(frozen=True, slots=True)
class Frame:
    """The words around a mention in its sentence: the one before, what follows inside its own word, and the one behind."""

    before: str
    ending: str
    behind: str

    @property
    def sides(self) -> list[tuple[str, str, str]]:
        """What another noun must have in common with the mention to stand in the same place; either side is enough."""
        found = (("before", self.before, self.ending), ("behind", self.behind, self.ending))
        return [side for side in found if side[1]]


class Eligible:
    """The mentions of one document that are whole words, and why one of them should not be hidden."""

    def __init__(self, read: ReadDocument, usual: Neighbours | None = None) -> None:
        self.read = read
        self._usual = usual
        self.forms = {mention.form for mention in read.mentions}
        self.counts = Counter(mention.form for mention in read.mentions)
        self.words = [mention for mention in read.mentions if self.is_word(mention)]
        self._verbal = {mention.form for mention in read.mentions if mention.around & VERBAL}
        self._places = {mention.start: at for at, mention in enumerate(read.mentions)}
        self._beside: dict[tuple[str, str, str], set[str]] = {}
        self._frames = {mention.start: self._frame(mention) for mention in read.mentions}
        for mention in read.mentions:
            for side in self.frame(mention).sides:
                self._beside.setdefault(side, set()).add(mention.form)

    def is_word(self, mention: NounMention) -> bool:
        """A whole word: nothing glued before it, and behind it only a particle, a copula, a plural or a sign."""
        return opens_word(self.read.text, mention.start) and not mention.around & (VERBAL | GLUED)

    def frame(self, mention: NounMention) -> Frame:
        return self._frames[mention.start]

    def _frame(self, mention: NounMention) -> Frame:
        text = self.read.text
        before = text[max(0, mention.start - 30) : mention.start].rpartition("\n")[2].split()
        line = text[mention.end : mention.end + 40].partition("\n")[0]
        glued = bool(line) and not line[0].isspace()
        behind = line.split()
        return Frame(
            before[-1] if before and before[-1][-1] not in ".?!" else "",
            behind[0] if glued and behind else "",
            (behind[glued] if len(behind) > glued else ""),
        )

    def unfit_antecedent(self, mention: NounMention) -> str | None:
        """Why an earlier mention names nothing to come back to. A name does so even in an enumeration."""
        listed = mention.tag != "NNP" and self.is_listed(mention.span)
        return "antecedent in an enumeration or a bracket" if listed else None

    def is_listed(self, span: Span) -> bool:
        """Whether a sign of an enumeration or a bracket stands directly beside a span."""
        lead, tail = self.read.text[max(0, span[0] - 2) : span[0]].strip()[-1:], self.read.text[span[1] : span[1] + 1]
        return bool((lead and lead in _SIGNS) or (tail and tail in _SIGNS.replace("(", "")))

    def copyable(self, mention: NounMention) -> bool:
        """Whether the answer stands beside the same word elsewhere in the document."""
        frame, text = self.frame(mention), self.read.text
        left, right = f"{frame.before} {mention.form}", f"{mention.form}{frame.ending} {frame.behind}"
        return bool(frame.before and text.count(left) > 1) or bool(frame.behind and text.count(right) > 1)

    def unfit(self, mention: NounMention, *, far: bool = False) -> str | None:
        """Why this mention is not hidden; None if it may be. `far`: its antecedent is far, so the word must be specific."""
        if not opens_word(self.read.text, mention.start):
            return INSIDE_WORD
        if mention.around & GLUED:
            return "part of a longer word"
        return self._meaning(mention, far) or self._place(mention) or self._choice(mention)

    def _meaning(self, mention: NounMention, far: bool) -> str | None:
        form = mention.form
        documents, verbal = frequent_nouns().get(form, (0, 0))
        name = mention.tag == "NNP"
        if form in light_nouns():
            return "a light noun"
        if form in self._verbal or (verbal >= VERBAL_SHARE and not name):
            return "a verbal noun"
        if documents > (SPECIFIC if far and not name else FREQUENT) and (far or not name):
            return "a noun of very many documents"
        if self.counts[form] < TOPICAL and not name and len(form) < (4 if far else 3):
            return f"fewer than {TOPICAL} times in its document"
        return None

    def _place(self, mention: NounMention) -> str | None:
        text, frame = self.read.text, self.frame(mention)
        low, high = self.read.sentence_of(mention.start)
        sentence = text[low : mention.start].rpartition("\n")[2] + text[mention.start : high].partition("\n")[0]
        if not _PROSE.search(sentence) or len(sentence.split()) < LEAST_WORDS:
            return "not in a prose sentence"
        tail = text[mention.end : mention.end + 1]
        before = self._before(mention)
        joined = before is not None and before.around & JOINED and len(text[before.end : mention.start]) <= 3
        if mention.around & JOINED or joined or frame.ending in _LINKS or {frame.before, frame.behind} & _LINKS:
            return "coordinated with another noun"
        if self.is_listed(mention.span) or tail == "(":
            return "stands in an enumeration or a bracket"
        if not tail or tail.isspace() or tail in ".?!":
            return "no particle behind it"
        if (before is not None and text[before.end : mention.start].isspace()) or _BOUND.search(frame.before):
            return "part of a term of several words"
        if mention.tag != "NNP" and mention.around & COPULA:
            return "a predicate"
        if mention.tag != "NNP" and mention.around & CLAUSE:
            return "described by a clause of its own"
        return "another one of its kind" if frame.before.lstrip("\"'“‘(") in _listed("others.txt") else None

    def _choice(self, mention: NounMention) -> str | None:
        frame = self.frame(mention)
        if not any(is_apart(form, mention.form) for form in self.forms):
            return NO_CHOICE
        if rivals().get(mention.form, frozenset()) & self.forms:
            return "its counterpart is in the document"
        if any(is_apart(form, mention.form) for side in frame.sides for form in self._beside.get(side, ())):
            return "another noun stands in the same place"
        usual = self._usual
        if usual and usual.call_for(mention.form, frame.ending, frame.before, frame.behind, self.read.document.id):
            return "guessable from its neighbours"
        return None

    def _before(self, mention: NounMention) -> NounMention | None:
        at = self._places[mention.start]
        return self.read.mentions[at - 1] if at else None


@lru_cache(maxsize=1)
def eligible_of(read: ReadDocument, usual: Neighbours | None = None) -> Eligible:
    """The eligible mentions of a document, found once for all tasks that ask."""
    return Eligible(read, usual)
