"""Which mentions may be hidden. In: a read document. Out: its whole-word mentions, and for each what speaks against it.

A gap should ask for a thing the document has named: a noun of its own meaning, written as a whole word, as an argument of a prose
sentence, where no other noun of the document fits as well. The reasons are model-free and are counted in the set's manifest.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.ngrams import Neighbours
from coref_automl.evaluation.tasks.task import (
    INSIDE_WORD,
    NO_CHOICE,
    ReadDocument,
    Span,
    choose_candidates,
    is_apart,
    opens_word,
)
from coref_automl.korean import CLAUSE, COPULA, GLUED, JOINED, VERBAL
from coref_automl.records import ClozeItem, Task

FREQUENT, EVERYWHERE = 10, 30
"""Of 1,000 documents: a common noun in so many is never hidden; a name in more than the second not far from its antecedent."""
TOPICAL = 3
"""Occurrences in the document that make a short common noun a thing the document is about."""
VERBAL_SHARE = 25
"""A noun with a verbal suffix in this percentage of its occurrences is a verbal noun."""
LEAST_WORDS = 4
"""Words of the shortest sentence that may hold a gap."""
SHARED = ((512, 3), (128, 1))
"""Beyond so many tokens, nouns that the sentence of the gap shares with another sentence that names the answer."""

_LISTS = Path(__file__).parents[2] / "assets" / "nouns"
_SIGNS = ",·ㆍ‧・、/(〈《「『<[:~-"
_QUOTES = frozenset("\"'“‘")
_LINKS = frozenset({"및", "또는", "혹은", "내지", "그리고", "대", "겸", "이나", "나", "와", "과"})
_BOUND = re.compile(r"[A-Za-z0-9][.]?$|\d[.]?[가-힣]{0,2}(?<![에의은는이가을를로터지경쯤도])$|^자$")
"""A word that belongs to the noun behind it: Latin letters, or a number with its unit and no particle (JR, 제28조, 3. 12.자)."""
_PARTICLE = re.compile(
    r"[들님씨]?[은는이가을를의에게서께도만까지부터보다처럼와과나라고인였었다며란데야말으로써]{0,6}(?![가-힣A-Za-z0-9])"
)
"""Letters of particles and the copula behind a noun: a closed class."""
_ROLE = re.compile(r"(으)?로(?![가-힣])")
_PROSE = re.compile(r"[.?!。][\"'”’)\]」』]*\s*$")
_WORD = re.compile(r"\S+|\n")


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


class Frame(NamedTuple):
    """The words around a mention in its line: the one before, what follows inside its own word, and the one behind."""

    before: str
    ending: str
    behind: str

    @property
    def sides(self) -> list[tuple[str, str, str]]:
        """What another noun must have in common with the mention to stand in the same place; either side is enough."""
        return [(side, word, self.ending) for side, word in (("before", self.before), ("behind", self.behind)) if word]


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
        self._ends = set(read.tags.spans[:, 1].tolist())

    def is_word(self, mention: NounMention) -> bool:
        """A whole word: nothing glued before it, and behind it only a particle, a copula, a plural or a sign."""
        return (
            opens_word(self.read.text, mention.start)
            and not mention.around & (VERBAL | GLUED)
            and _PARTICLE.match(self.read.text, mention.end) is not None
        )

    @cached_property
    def _frames(self) -> dict[int, Frame]:
        words = [(found.start(), found.end(), found.group()) for found in _WORD.finditer(self.read.text)]
        words.append((len(self.read.text), len(self.read.text) + 1, "\n"))
        frames, at = {}, 0
        for mention in self.read.mentions:
            while words[at][1] <= mention.start:
                at += 1
            start, _, word = words[at]
            before = word[: mention.start - start] or (words[at - 1][2] if at else "")
            behind = words[at + 1][2]
            frames[mention.start] = Frame(
                "" if before[-1:] in "\n.?!" and not _BOUND.search(before) else before,
                word[mention.end - start :],
                "" if behind == "\n" else behind,
            )
        return frames

    @cached_property
    def _beside(self) -> dict[tuple[str, str, str], set[str]]:
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

    def frame(self, mention: NounMention) -> Frame:
        return self._frames[mention.start]

    def shared(self, mention: NounMention) -> int:
        """The most nouns that the sentence of a mention shares with another sentence that names the same."""
        own = self._sentences[self.read.sentence_at(mention.start)]
        others = (held for held in self._sentences if mention.form in held and held is not own)
        return max((len(held & own) - 1 for held in others), default=0)

    def unfit_antecedent(self, mention: NounMention) -> str | None:
        """Why a mention names nothing to come back to. A name does so even in an enumeration or a longer term."""
        if mention.tag == "NNP":
            return None
        if self.is_listed(mention.span):
            return "antecedent in an enumeration or a bracket"
        return "antecedent in a term of several words" if self._noun_before(mention) else None

    def is_listed(self, span: Span) -> bool:
        """Whether a sign of an enumeration or a bracket stands directly beside a span."""
        lead, tail = self.read.text[max(0, span[0] - 2) : span[0]].strip()[-1:], self.read.text[span[1] : span[1] + 1]
        return bool((lead and lead in _SIGNS) or (tail and tail in _SIGNS.replace("(", "")))

    def copyable(self, mention: NounMention) -> bool:
        """Whether the answer stands beside the same word elsewhere in the document."""
        frame, text = self.frame(mention), self.read.text
        left, right = f"{frame.before} {mention.form}", f"{mention.form}{frame.ending} {frame.behind}"
        return bool(frame.before and text.count(left) > 1) or bool(frame.behind and text.count(right) > 1)

    def unfit(self, mention: NounMention, distance: int = 0, *, far: bool = False) -> str | None:
        """Why this mention is not hidden; None if it may be. `far`: its antecedent may be far, `distance` tokens away."""
        if not opens_word(self.read.text, mention.start):
            return INSIDE_WORD
        if not self.is_word(mention) and not mention.around & VERBAL:
            return "part of a longer word"
        if reason := self.meaning(mention, far) or self._place(mention) or self._choice(mention):
            return reason
        least = next((least for low, least in SHARED if far and distance >= low), 0)
        return (
            f"shares fewer than {least} nouns with a sentence that names it" if least and self.shared(mention) < least else None
        )

    def meaning(self, mention: NounMention, far: bool = False) -> str | None:
        """Why the word itself is not asked for."""
        form, name = mention.form, mention.tag == "NNP"
        documents, verbal = frequent_nouns().get(form, (0, 0))
        if form in light_nouns():
            return "a light noun"
        if form in self._verbal or (verbal >= VERBAL_SHARE and not name):
            return "a verbal noun"
        if (documents > EVERYWHERE and far) if name else documents >= FREQUENT:
            return "a noun of very many documents"
        if name or len(form) > 3:
            return None
        if far and len(form) < 3:
            return "a common noun of two syllables"
        return f"fewer than {TOPICAL} times in its document" if len(form) < 3 and self.counts[form] < TOPICAL else None

    def _place(self, mention: NounMention) -> str | None:
        text, frame, name = self.read.text, self.frame(mention), mention.tag == "NNP"
        low, high = self.read.sentence_of(mention.start)
        sentence = text[low : mention.start].rpartition("\n")[2] + text[mention.start : high].partition("\n")[0]
        if not _PROSE.search(sentence) or len(sentence.split()) < LEAST_WORDS:
            return "not in a prose sentence"
        tail = text[mention.end : mention.end + 1]
        at = self._places[mention.start]
        before = self.read.mentions[at - 1] if at else None
        joined = before is not None and before.around & JOINED and len(text[before.end : mention.start]) <= 3
        if mention.around & JOINED or joined or frame.ending in _LINKS or {frame.before, frame.behind} & _LINKS:
            return "coordinated with another noun"
        if self.is_listed(mention.span) or tail == "(" or text[mention.start - 1 : mention.start] in _QUOTES:
            return "stands in an enumeration, a bracket or a title"
        if not tail or tail.isspace() or tail in ".?!":
            return "no particle behind it"
        if self._noun_before(mention) or _BOUND.search(frame.before):
            return "part of a term of several words"
        if (mention.around & COPULA and not name) or _ROLE.match(frame.ending):
            return "a predicate or a role"
        if (mention.around & CLAUSE or frame.before.endswith("의")) and not name:
            return "described by a clause or an owner of its own"
        return "another one of its kind" if frame.before.lstrip("\"'“‘(") in _listed("others.txt") else None

    def _choice(self, mention: NounMention) -> str | None:
        frame, form = self.frame(mention), mention.form
        if not any(is_apart(other, form) for other in self.forms):
            return NO_CHOICE
        if rivals().get(form, frozenset()) & self.forms:
            return "its counterpart is in the document"
        if mention.tag != "NNP" and any(other != form and (other.endswith(form) or form.endswith(other)) for other in self.forms):
            return "a longer or shorter term of its kind is in the document"
        if any(is_apart(other, form) for side in frame.sides for other in self._beside.get(side, ())):
            return "another noun stands in the same place"
        usual = self._usual
        if usual and usual.call_for(form, frame.ending, frame.before, frame.behind, self.read.document.id):
            return "guessable from its neighbours"
        return None

    def _noun_before(self, mention: NounMention) -> bool:
        """Whether a noun without a particle stands before a mention."""
        return self.read.text[mention.start - 1 : mention.start] == " " and mention.start - 1 in self._ends

    def item(self, task: Task, version: int, hidden: NounMention, antecedent: Span, *, seed: int, before: bool) -> ClozeItem:
        read, form = self.read, hidden.form
        return ClozeItem(
            id=read.item_id(task, version, hidden.span),
            task=task,
            document=read.document.id,
            cluster=read.document.id,
            source=read.document.source,
            start=hidden.start,
            end=hidden.end,
            answer=form,
            tag=hidden.tag,
            candidates=choose_candidates(form, self.forms, draw=(seed, read.identity, form)),
            antecedent=antecedent,
            distance=read.distance(antecedent, hidden.span),
            pronoun_between=read.pronoun_between(antecedent, hidden.span),
            before=before,
            copyable=self.copyable(hidden),
        )


@lru_cache(maxsize=1)
def eligible_of(read: ReadDocument, usual: Neighbours | None = None) -> Eligible:
    """The eligible mentions of a document, found once for all tasks that ask."""
    return Eligible(read, usual)
