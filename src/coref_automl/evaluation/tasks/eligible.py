"""Which mentions may be hidden. In: a read document. Out: its whole-word mentions, and for each what speaks against it.

A gap should ask for a thing the document has named: a noun of its own meaning, written as a whole word, as an argument of a prose
sentence, where no other noun of the document fits as well. The rules are model-free and stand in four lists, one line each:
`_form` (the word), `_place` (its sentence), `_choice` (the other nouns of the document), `_support` (what tells the answer). The
first that holds is the reason, and reasons are counted in the set's manifest. Names pass most of them; common nouns are asked
only where they are rare, recur in the document and are told by other words of the sentence.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks.task import (
    INSIDE_WORD,
    NO_CHOICE,
    Choices,
    ReadDocument,
    Span,
    choose_candidates,
    is_apart,
    opens_word,
)
from coref_automl.korean import CLAUSE, COPULA, GLUED, JOINED, KINDS, VERBAL
from coref_automl.records import ClozeItem, Task

Rules = Iterator[tuple[str, bool]]
"""Reasons against a mention, in order, each with whether it holds; what comes after the first that does is not worked out."""

FREQUENT, EVERYWHERE = 10, 30
"""Of 1,000 documents of a reference corpus: a common noun in so many is never hidden; a name in more than the second neither."""
TOPICAL = 3
"""Occurrences in the document that make a common noun a thing the document is about."""
VERBAL_SHARE = 25
"""A noun with a verbal suffix in this percentage of its occurrences is a verbal noun."""
COUNTED, NAME_SHARE = 100, 0.005
"""Where so many other documents of the source were counted, the share of them that may hold a name; none, a common noun."""
LEAST_WORDS = 4
"""Words of the shortest sentence that may hold a gap."""
SHARED = ((512, 3), (128, 1))
"""Beyond so many tokens, nouns that the sentence of the gap shares with another sentence that names the answer."""

_LISTS = Path(__file__).parents[2] / "assets" / "nouns"
_NAME = KINDS.index("NNP")
_SIGNS = ",·ㆍ‧・、/(〈《「『<[:~-"
_QUOTES = frozenset("\"'“‘")
_LINKS = frozenset({"및", "또는", "혹은", "내지", "그리고", "대", "겸", "이나", "나", "와", "과"})
_BOUND = re.compile(r"[A-Za-z0-9][.]?$|\d[.]?[가-힣]{0,2}(?<![에의은는이가을를로터지경쯤도])$|^자$")
"""A word that belongs to the noun behind it: Latin letters, or a number with its unit and no particle (JR, 제28조, 3. 12.자)."""
_PARTICLE = re.compile(
    r"[들님씨]?[은는이가을를의에게서께도만까지부터보다처럼와과나라고인였었다며란데야말으로써]{0,6}(?![가-힣A-Za-z0-9])"
)
"""Letters of particles and the copula behind a noun: a closed class."""
_CLAUSE = re.compile(r"[고며면서나자데만니여지후때년월일],")
"""The comma behind a clause or a date, which is not one of an enumeration."""
_ENDED = re.compile(r"([은는이가을를의에서도며면한된던될할]|..[고나자지인]|[^가-힣])$")
"""The last letter of a word that ends with a particle, a verb ending or a sign."""
_ROLE = re.compile(r"(으)?로(?![가-힣])")
_PERSON = re.compile(r"(..[자인사가민수생]|.[합무의요단임위업성직]원|.[청서회원]장|..관료|..가족)$")
_OFFICE = re.compile(r"...(인|(?<!전)자)$|..(대신|총독|[청서회시]장|연구관)$")
"""What a noun for whoever holds a role ends with (매수인, 조합원, 통역사), and a name of four syllables (피보험자, 외무대신)."""
_TERM = re.compile(r"..([죄법력증율률]|판결|명령|소송|항소|처분|계약|등록|청구|심판|주의|정범|과세|출원|검사|기간|사유|부하)$")
"""What a term that the tagger takes for a name ends with (배임죄, 제권판결)."""
_TITLE = re.compile(r"[시군구도주성현국섬강산왕제공씨]|대왕|장군|대군|공주|왕자|왕후|황제|황후|교수|대통령")
"""What turns a name into a variant of itself (포항시, 세종대왕)."""
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
    """Nouns of a reference corpus: of 1,000 documents, how many hold the word; of 100 occurrences, how many are verbal."""
    return {word: (int(documents), int(verbal)) for word, documents, verbal in _words("frequent.tsv")}


def is_variant(one: str, other: str) -> bool:
    """Whether two names are spellings of one, or one is the other with a title; names of siblings look the same."""
    if len(one) == len(other):
        return len(one) > 2 and sum(a != b for a, b in zip(one, other, strict=True)) == 1
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and _TITLE.fullmatch(long, len(short)) is not None


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

    def __init__(self, read: ReadDocument, choices: Choices) -> None:
        self.read = read
        self._syllables = choices.min_syllables
        self._usual = choices.usual(read.document)
        self.forms = {mention.form for mention in read.mentions}
        self.counts = Counter(mention.form for mention in read.mentions)
        self.words = [mention for mention in read.mentions if self.is_word(mention)]
        self._verbal = {mention.form for mention in read.mentions if mention.around & VERBAL}
        self._places = {mention.start: at for at, mention in enumerate(read.mentions)}
        spans = read.tags.spans.tolist()
        self._ends = {end for _, end in spans}
        self._names = {start for (start, _), kind in zip(spans, read.tags.kinds, strict=True) if kind == _NAME}
        self._heads = {end: (end - start, kind == _NAME) for (start, end), kind in zip(spans, read.tags.kinds, strict=True)}
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
        syllables, name = self._heads[mention.end]
        return mention.tag == "NNP" and (name or syllables < 2)

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

    def antecedent(self, nearest: Sequence[NounMention]) -> NounMention:
        """The first mention, of those ordered by distance, that names something to come back to; the nearest where none does."""
        return next((mention for mention in nearest if self.unfit_antecedent(mention) is None), nearest[0])

    def unfit_antecedent(self, mention: NounMention) -> str | None:
        """Why a mention names nothing to come back to."""
        return _first(self._antecedent(mention))

    def unfit_word(self, mention: NounMention, *, far: bool = False) -> str | None:
        """Why the word itself is not asked for, wherever it stands."""
        return _first(self._form(mention, far))

    def unfit(self, mention: NounMention, distance: int = 0, *, far: bool = False) -> str | None:
        """Why this mention is not hidden; None if it may be. `far`: its antecedent may be far, `distance` tokens away."""
        rules = self._form(mention, far), self._place(mention), self._choice(mention), self._support(mention, distance, far)
        return _first(chain(*rules))

    def _antecedent(self, mention: NounMention) -> Rules:
        text, name = self.read.text, self.is_name(mention)
        yield "antecedent in an enumeration or a bracket", self._in_list(mention.span)
        yield "antecedent beside another noun", self._is_joined(mention)
        yield "antecedent in a term of several words", not name and self._noun_before(mention)
        name_behind = text[mention.end : mention.end + 1] == " " and mention.end + 1 in self._names
        yield "antecedent in a longer name", name and name_behind

    def _form(self, mention: NounMention, far: bool) -> Rules:
        form, name = mention.form, self.is_name(mention)
        documents, verbal = frequent_nouns().get(form, (0, 0))
        yield INSIDE_WORD, not opens_word(self.read.text, mention.start)
        yield f"fewer than {self._syllables} syllables", len(form) < self._syllables
        yield "a light noun", form in light_nouns()
        yield "a verbal noun", form in self._verbal or (verbal >= VERBAL_SHARE and not name)
        yield "part of a longer word", not self.is_word(mention)
        yield "a noun of very many documents", (documents > EVERYWHERE and far) if name else documents >= FREQUENT
        yield "a common noun of two syllables", far and not name and len(form) < 3
        yield f"fewer than {TOPICAL} times in its document", not name and self.counts[form] < TOPICAL
        yield "a term, not a name", name and _TERM.search(form) is not None
        yield "whoever holds a role", (_OFFICE if name else _PERSON).search(form) is not None
        yield "a noun of many documents of its source", self._share(form) > (NAME_SHARE if name else 0)

    def _place(self, mention: NounMention) -> Rules:
        text, frame, name = self.read.text, self.frame(mention), self.is_name(mention)
        low, high = self.read.sentence_of(mention.start)
        sentence = text[low : mention.start].rpartition("\n")[2] + text[mention.start : high].partition("\n")[0]
        yield "not in a prose sentence", not _PROSE.search(sentence) or len(sentence.split()) < LEAST_WORDS
        linked = frame.ending in _LINKS or bool({frame.before, frame.behind} & _LINKS)
        yield "coordinated with another noun", self._is_joined(mention) or linked
        tail = text[mention.end : mention.end + 1]
        quoted = text[mention.start - 1 : mention.start] in _QUOTES
        yield "stands in an enumeration, a bracket or a title", self._in_list(mention.span) or tail == "(" or quoted
        yield "no particle behind it", not tail or tail.isspace() or tail in ".?!"
        bound = _BOUND.search(frame.before) is not None
        yield "part of a term of several words", self._noun_before(mention) or bound or self._follows(mention)
        yield "a predicate or a role", bool(mention.around & COPULA and not name) or _ROLE.match(frame.ending) is not None
        described = bool(mention.around & CLAUSE) or frame.before.endswith("의")
        yield "described by a clause or an owner of its own", described and not name
        forms = (other.form for other in self.read.mentions if low <= other.start < high)
        yield "an owner among other names", frame.ending == "의" and len(self.names.intersection(forms) - {mention.form}) > 1
        yield "another one of its kind", frame.before.lstrip("\"'“‘(") in _listed("others.txt")

    def _choice(self, mention: NounMention) -> Rules:
        frame, form, usual = self.frame(mention), mention.form, self._usual
        others = [other for other in self.forms if is_apart(other, form)]
        yield NO_CHOICE, not others
        yield "its counterpart is in the document", bool(rivals().get(form, frozenset()) & self.forms)
        if self.is_name(mention):
            yield "a variant of it is in the document", any(is_variant(form, other) for other in self.forms)
        else:
            longer = any(other != form and (other.endswith(form) or form.endswith(other)) for other in self.forms)
            yield "a longer or shorter term of its kind is in the document", longer
        same = (other for side in frame.sides for other in self._beside.get(side, ()))
        yield "another noun stands in the same place", any(is_apart(other, form) for other in same)
        called = usual and usual.call_for(form, frame.ending, frame.before, frame.behind, self.read.document.id)
        yield "guessable from its neighbours", bool(called)

    def _support(self, mention: NounMention, distance: int, far: bool) -> Rules:
        least = next((least for low, least in SHARED if far and distance >= low), 0)
        yield f"shares fewer than {least} nouns with a sentence that names it", least > 0 and self.shared(mention) < least

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

    def _share(self, form: str) -> float:
        """The share of other documents of the source that hold a word; 0 where too few were counted."""
        usual = self._usual
        if usual is None or len(usual.numbers) < COUNTED:
            return 0.0
        if form not in self._known:
            self._known[form] = usual.documents_with(form, self.read.document.id) / len(usual.numbers)
        return self._known[form]

    def _in_list(self, span: Span) -> bool:
        """Whether a sign of an enumeration or a bracket stands directly beside a span."""
        text, start = self.read.text, span[0] - (self.read.text[span[0] - 1 : span[0]] == " ")
        lead, tail = text[max(0, start - 1) : start], text[span[1] : span[1] + 1]
        listed = bool(lead) and lead in _SIGNS and not _CLAUSE.match(text, max(0, start - 2))
        return listed or bool(tail and tail in _SIGNS.replace("(", ""))

    def _is_joined(self, mention: NounMention) -> bool:
        """Whether a particle for `and` joins a mention with the noun behind or before it."""
        at = self._places[mention.start]
        before = self.read.mentions[at - 1] if at else None
        joined = before is not None and before.around & JOINED and len(self.read.text[before.end : mention.start]) <= 3
        return bool(mention.around & JOINED or joined)

    def _noun_before(self, mention: NounMention) -> bool:
        """Whether a noun without a particle stands before a mention; before a name, one that means something of its own."""
        joined = self.read.text[mention.start - 1 : mention.start] == " " and mention.start - 1 in self._ends
        return joined and not (self.is_name(mention) and self.frame(mention).before in light_nouns())

    def _follows(self, mention: NounMention) -> bool:
        """Whether the answer follows the same word, one without a particle, elsewhere in the document."""
        before = self.frame(mention).before
        return bool(before) and not _ENDED.search(before) and self.read.text.count(f"{before} {mention.form}") > 1

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


def _first(rules: Rules) -> str | None:
    return next((reason for reason, holds in rules if holds), None)


@lru_cache(maxsize=1)
def eligible_of(read: ReadDocument, choices: Choices) -> Eligible:
    """The eligible mentions of a document, found once for all tasks that ask."""
    return Eligible(read, choices)
