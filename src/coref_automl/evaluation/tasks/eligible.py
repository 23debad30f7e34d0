"""Which mentions may be hidden. In: a parsed document. Out: its whole-word mentions, and for each the reason against it, if any.

A gap should ask for a thing that the document has named: a noun with a meaning of its own, written as a whole word, an argument
of a prose sentence, where no other noun of the document fits as well. The rules need no model. They stand in four lists, with an
example each: `_word_rules` (the word), `_sentence_rules` (its sentence), `_choice_rules` (the other nouns of the document) and
`_support_rules` (what tells the answer). The first that holds is the reason, counted in the set's manifest. Names pass most of
them; common nouns are hidden only if they are rare, recur in the document and are told by other words of the sentence.

Rules and thresholds were set by reading items for fairness (docs/eval-sets.md, "What may be hidden" and "Versions") and by
counts over a reference corpus of 1,107 documents (assets/nouns/frequent.tsv).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain

from coref_automl.corpus.chains import NounMention
from coref_automl.evaluation.tasks import nouns, task
from coref_automl.korean import CLAUSE, COPULA
from coref_automl.records import ClozeItem, Task

Rules = Iterator[tuple[str, bool]]
"""Reasons against a mention, in order, each with whether it holds; rules after the first that holds are not evaluated."""

FREQUENT, VERY_FREQUENT = 10, 30
"""Per 1,000 documents of the reference corpus: common nouns in so many are not hidden, and far names in more than the second."""
VERBAL_SHARE = 25
"""Percent of its occurrences in the reference corpus with a verbal suffix from which a noun is verbal (지정한다)."""
TOPICAL = 3
"""Occurrences in the document from which a common noun counts as a topic of it."""
NAME_SHARE = 0.005
"""The largest share of other documents of the source that may hold a name; for a common noun it is 0."""
LEAST_WORDS = 4
"""Words of the shortest sentence with a gap: shorter ones are headings and fragments."""
SHARED = ((512, 3), (128, 1))
"""From so many tokens on, the nouns that the sentence of the gap must share with another sentence that names the answer."""
QUOTES = frozenset("\"'“‘")
LINKS = frozenset({"및", "또는", "혹은", "내지", "그리고", "대", "겸", "이나", "나", "와", "과"})
ROLE = re.compile(r"(으)?로(?![가-힣])")
"""A particle of role or means (수도로, 위원장으로)."""
HOLDER = re.compile(r"(..[자인사가민수생]|.[합무의요단임위업성직]원|.[청서회원]장|..관료|..가족)$")
"""Endings of common nouns for the holder of a role (매수인, 기술자, 통역사, 조합원, 위원장, 고위관료)."""
OFFICE = re.compile(r"...(인|(?<!전)자)$|..(대신|총독|[청서회시]장|연구관)$")
"""The same for words of four syllables or more that the tagger takes for names (피보험자, 외무대신, 조선총독)."""
TERM = re.compile(r"..([죄법력증율률]|판결|명령|소송|항소|처분|계약|등록|청구|심판|주의|정범|과세|출원|검사|기간|사유|부하)$")
"""Endings of terms that the tagger takes for names (배임죄, 상표법, 제권판결, 누진과세)."""
PROSE = re.compile(r"[.?!。][\"'”’)\]」』]*\s*$")
"""The end of a sentence, which a heading lacks (닫았다., 닫았다.”)."""
_TITLE = re.compile(r"[시군구도주성현국섬강산왕제공씨]|대왕|장군|대군|공주|왕자|왕후|황제|황후|교수|대통령")
"""Suffixes that make a variant of a name (포항시, 세종대왕)."""


@cache
def rivals() -> dict[str, frozenset[str]]:
    """The words that easily stand for each word of the list of pairs."""
    rivals: dict[str, set[str]] = {}
    for line in nouns.word_lines("pairs.txt"):
        for word in line:
            rivals.setdefault(word, set()).update(other for other in line if other != word)
    return {word: frozenset(others) for word, others in rivals.items()}


@cache
def frequent_nouns() -> dict[str, tuple[int, int]]:
    """Per noun of the reference corpus: how many of 1,000 documents hold it, and how many of 100 occurrences are verbal."""
    return {word: (int(documents), int(verbal)) for word, documents, verbal in nouns.word_lines("frequent.tsv")}


def is_variant(name: str, other: str) -> bool:
    """Whether two names differ in one letter (spellings, but also siblings), or one is the other with a title."""
    if len(name) == len(other):
        return len(name) > 2 and sum(a != b for a, b in zip(name, other, strict=True)) == 1
    short, long = sorted((name, other), key=len)
    return long.startswith(short) and _TITLE.fullmatch(long, len(short)) is not None


class Eligible(nouns.DocumentNouns):
    """The reasons against hiding each mention of a document, None for no reason, and the items of those that are hidden."""

    def antecedent(self, mentions: Sequence[NounMention]) -> NounMention:
        """The nearest mention that can be an antecedent, of those ordered by distance; the nearest if none can."""
        return next((mention for mention in mentions if self.reason_against_antecedent(mention) is None), mentions[0])

    def reason_against_antecedent(self, mention: NounMention) -> str | None:
        """Why a mention is no antecedent: it names something else, or several things."""
        return _first(self._antecedent_rules(mention))

    def reason_against_word(self, mention: NounMention, *, far: bool = False) -> str | None:
        """Why the word is not hidden anywhere in the document."""
        return _first(self._word_rules(mention, far))

    def reason_against(self, mention: NounMention, distance: int = 0, *, far: bool = False) -> str | None:
        """Why this mention is not hidden. `far` says that its antecedent may be far away, and is `distance` tokens away."""
        about_word, about_sentence = self._word_rules(mention, far), self._sentence_rules(mention)
        return _first(chain(about_word, about_sentence, self._choice_rules(mention), self._support_rules(mention, distance, far)))

    def _antecedent_rules(self, mention: NounMention) -> Rules:
        name = self.is_name(mention)
        yield "antecedent in an enumeration or a bracket", self.in_list(mention.span)  # 서울, 부산이
        yield "antecedent beside another noun", self.is_joined(mention)  # 서울과 부산이
        yield "antecedent in a term of several words", not name and self.noun_before(mention)  # 노동 미사일
        yield "antecedent in a longer name", name and self.name_after(mention)  # 토론토 블루제이스

    def _word_rules(self, mention: NounMention, far: bool) -> Rules:
        form, name = mention.form, self.is_name(mention)
        documents, verbal = frequent_nouns().get(form, (0, 0))
        yield task.INSIDE_WORD, not task.opens_word(self.doc.text, mention.start)  # 처분 of 가처분
        yield f"fewer than {self.least_syllables} syllables", len(form) < self.least_syllables
        yield "a light noun", form in nouns.listed(nouns.LIGHT)  # 경우
        yield "a verbal noun", form in self.verbal or (verbal >= VERBAL_SHARE and not name)  # 지정, as in 지정한다
        yield "part of a longer word", not self.is_word(mention)  # 국제 of 국제적
        yield "a noun of very many documents", (documents > VERY_FREQUENT and far) if name else documents >= FREQUENT  # 정부
        yield "a common noun of two syllables", far and not name and len(form) < 3  # 수염
        yield f"fewer than {TOPICAL} times in its document", not name and self.counts[form] < TOPICAL
        yield "a term, not a name", name and TERM.search(form) is not None  # 배임죄
        yield "whoever holds a role", (OFFICE if name else HOLDER).search(form) is not None  # 외무대신, 조합원
        yield "a noun of many documents of its source", self.share(form) > (NAME_SHARE if name else 0)

    def _sentence_rules(self, mention: NounMention) -> Rules:
        text, frame, name = self.doc.text, self.frame(mention), self.is_name(mention)
        low, high = self.doc.sentence_of(mention.start)
        sentence = text[low : mention.start].rpartition("\n")[2] + text[mention.start : high].partition("\n")[0]
        yield "not in a prose sentence", not PROSE.search(sentence) or len(sentence.split()) < LEAST_WORDS  # 문을 닫음
        linked = frame.ending in LINKS or bool({frame.before, frame.after} & LINKS)
        yield "coordinated with another noun", self.is_joined(mention) or linked  # 서울과 부산이, 서울 및 부산이
        tail = text[mention.end : mention.end + 1]
        quoted = text[mention.start - 1 : mention.start] in QUOTES
        yield "stands in an enumeration, a bracket or a title", self.in_list(mention.span) or tail == "(" or quoted  # 서울(수도)
        yield "no particle behind it", not tail or tail.isspace() or tail in ".?!"  # 서울 시민이
        bound = nouns.BOUND.search(frame.before) is not None
        yield "part of a term of several words", self.noun_before(mention) or bound or self.follows(mention)  # 제28조 소득이
        role = ROLE.match(frame.ending) is not None
        yield "a predicate or a role", role or bool(mention.around & COPULA and not name)  # 수도로, 도자기이며
        described = bool(mention.around & CLAUSE) or frame.before.endswith("의")
        yield "described by a clause or an owner of its own", described and not name  # 고운 도자기가, 그의 도자기가
        forms = (other.form for other in self.doc.mentions if low <= other.start < high)
        owner = frame.ending == "의" and len(self.names.intersection(forms) - {mention.form}) > 1
        yield "an owner among other names", owner  # 포항에서 온 김유신이 서울의 문을
        yield "another one of its kind", frame.before.lstrip("\"'“‘(") in nouns.listed("others.txt")  # 다른 회사가

    def _choice_rules(self, mention: NounMention) -> Rules:
        frame, form = self.frame(mention), mention.form
        yield task.NO_CHOICE, not any(task.is_apart(other, form) for other in self.forms)
        yield "its counterpart is in the document", bool(rivals().get(form, frozenset()) & self.forms)  # 원고 and 피고
        if self.is_name(mention):
            variant = any(is_variant(form, other) for other in self.forms)
            yield "a variant of it is in the document", variant  # 포항 and 포항시
        else:
            longer = any(other != form and (other.endswith(form) or form.endswith(other)) for other in self.forms)
            yield "a longer or shorter term of its kind is in the document", longer  # 소득금액 and 종합소득금액
        fitting = (other for side in frame.sides for other in self.forms_by_context.get(side, ()))
        fits = any(task.is_apart(other, form) for other in fitting)
        yield "another noun stands in the same place", fits  # 큰 서울을, 큰 부산을
        predicted = self.usage and self.usage.predicts(form, frame.ending, frame.before, frame.after, self.doc.document.id)
        yield "guessable from its neighbours", bool(predicted)  # 주식회사의 한빛전자, in other documents too

    def _support_rules(self, mention: NounMention, distance: int, far: bool) -> Rules:
        least = next((least for low, least in SHARED if far and distance >= low), 0)
        yield f"shares fewer than {least} nouns with a sentence that names it", least > 0 and self.shared(mention) < least

    def item(self, name: Task, version: int, hidden: NounMention, antecedent: task.Span, *, seed: int, before: bool) -> ClozeItem:
        candidates = task.choose_candidates(hidden.form, self.forms, draw=(seed, self.doc.identity, hidden.form))
        facts = {"candidates": candidates, "before": before, "copyable": self.copyable(hidden)}
        return self.doc.item(name, version, hidden.span, antecedent, **facts)


def _first(rules: Rules) -> str | None:
    return next((reason for reason, holds in rules if holds), None)


@lru_cache(maxsize=1)
def eligible_of(doc: task.ParsedDocument, choices: task.Choices) -> Eligible:
    """The eligible mentions of a document, cached for the tasks that read it in turn."""
    return Eligible(doc, choices)
