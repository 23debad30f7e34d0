"""What annotated data hold, and their convention: how far a mention reaches. In: documents. Out: counts, the convention they
follow, and spans converted to another one.

    bare     without the particle                     [삼성전자]는 [이 회사]의
    words    whole words, particles in (CoNLL-2012)   [삼성전자는] [이 회사의]
    heads    the last word alone, without particle    이 [회사]의

A Korean phrase ends in its head, and the particle is attached to it: converting moves only the edges, by the tagger's morphemes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from coref_automl.base.config import choose
from coref_automl.base.korean import is_hangul, suffix_starts
from coref_automl.base.records import Record
from coref_automl.base.say import say
from coref_automl.extras.coreference.data import CorefData
from coref_automl.extras.coreference.documents import CorefDocument, Mention, Span, SpanChains, in_order

Edges = Literal["bare", "words", "heads"]
EdgesOrAuto = Literal["auto", "bare", "words", "heads"]
_PARTICLES = frozenset("은는이가을를의에께와과도만로아야")
"""Syllables that are a particle, or start one."""
_BRACKETS = "「」『』<>〈〉《》()[]{}"
_SIGNS = _BRACKETS + "\"'“”‘’.,!?…·:;~-–—"
_MIXED = 0.2
_ENOUGH = 50
_EDGES_IN_WORDS = {
    "bare": ("조사 제외", "without particles"),
    "words": ("조사를 포함한 어절 단위", "whole words with particles"),
    "heads": ("마지막 단어(핵어)만, 조사 제외", "the last word, without particle"),
}


@dataclass(frozen=True, slots=True)
class Convention(Record):
    """`followed` is the fraction of mentions followed by a particle, `ending` of those that end in one. `signs`: whole words keep
    their punctuation. `singletons`: entities that are mentioned once are marked."""

    edges: Edges = "bare"
    signs: bool = False
    singletons: bool = True
    followed: float = 0.0
    ending: float = 0.0

    @property
    def mixed(self) -> bool:
        return min(self.followed, self.ending) > _MIXED * (self.followed + self.ending) and self.edges != "heads"

    def line(self) -> str:
        korean, english = _EDGES_IN_WORDS[self.edges]
        convention = say(
            f"주석 규약: {self.edges} ({korean}), 단독 언급 {'있음' if self.singletons else '없음'}",
            f"Convention: {self.edges} ({english}), singletons {'marked' if self.singletons else 'not marked'}",
        )
        if not self.mixed:
            return convention
        behind, inside = f"{100 * self.followed:.0f}%", f"{100 * self.ending:.0f}%"
        return convention + say(
            f". 규약이 섞여 있습니다: 언급의 {behind}는 뒤에 조사가 오고 {inside}는 조사로 끝납니다.",
            f". The file mixes conventions: a particle follows {behind} of the mentions, and {inside} end in one.",
        )


def convention_of(documents: Sequence[CorefDocument], edges: EdgesOrAuto = "auto") -> Convention:
    """Detect the convention of documents from their mentions; `edges` overrides the edges."""
    count: Counter[str] = Counter()
    for document in documents:
        text = document.text
        for mention in document.mentions:
            behind, form = text[mention.end : mention.end + 1], text[mention.start : mention.end]
            count["all"] += 1
            count["followed"] += behind in _PARTICLES and bool(behind)
            count["ending"] += len(form) > 1 and form[-1] in _PARTICLES and is_hangul(form[-2]) and not is_hangul(behind or " ")
            count["blank"] += any(map(str.isspace, form))
            count["sign in"] += form[-1] in _SIGNS
            count["sign behind"] += behind in _SIGNS and bool(behind)
    followed, ending = (count[name] / max(1, count["all"]) for name in ("followed", "ending"))
    detected: Edges = "words" if ending > followed else "bare"
    if detected == "bare" and not count["blank"] and count["all"] >= _ENOUGH:
        detected = "heads"
    singletons = any(len(chain) == 1 for document in documents for chain in document.chains)
    signs = count["sign in"] > count["sign behind"]
    return Convention(detected if edges == "auto" else edges, signs, singletons, followed, ending)


def convert_spans(text: str, spans: Sequence[Span], source: Convention, target: Convention) -> list[Span]:
    """Convert each span. `heads` drops the words before a head, and converting back does not restore them."""
    if source.edges == target.edges:
        return list(spans)
    tails = suffix_starts(text) if source.edges == "words" else {}
    bare = [_bare(text, span, tails) if source.edges == "words" else span for span in spans]
    if target.edges == "words":
        return [_words(text, span, target.signs) for span in bare]
    return [_head(text, span) for span in bare] if target.edges == "heads" else bare


def convert_chains(text: str, chains: Sequence[Sequence[Span]], source: Convention, target: Convention) -> SpanChains:
    """Convert chains; mentions that coincide are kept once, and singletons only if the target marks them."""
    seen: set[Span] = set()
    converted = []
    for chain in chains:
        spans = [span for span in dict.fromkeys(convert_spans(text, chain, source, target)) if span not in seen]
        seen.update(spans)
        if len(spans) > (0 if target.singletons else 1):
            converted.append(tuple(sorted(spans)))
    return tuple(converted)


def convert_document(document: CorefDocument, source: Convention, target: Convention) -> CorefDocument:
    """Convert the mentions of a document; of those that coincide the first is kept."""
    mentions: dict[Span, Mention] = {}
    for mention in convert_mentions(document, source, target).mentions:
        mentions.setdefault(mention.span, mention)
    return replace(document, mentions=in_order(mentions.values()))


def convert_mentions(document: CorefDocument, source: Convention, target: Convention) -> CorefDocument:
    """Convert every mention of a document, in the same order; two may coincide."""
    spans = convert_spans(document.text, [mention.span for mention in document.mentions], source, target)
    mentions = (replace(mention, start=a, end=b) for mention, (a, b) in zip(document.mentions, spans, strict=True))
    return replace(document, mentions=tuple(mentions))


def parse_edges(name: str) -> EdgesOrAuto:
    return choose(name, {edges: edges for edges in get_args(EdgesOrAuto)}, "convention")


def convert_documents(
    documents: Sequence[CorefDocument], edges: EdgesOrAuto, to: EdgesOrAuto
) -> tuple[list[CorefDocument], list[str]]:
    """Convert documents, and say what that loses; `auto` leaves them as they are."""
    source = convention_of(documents, edges)
    target = replace(source, edges=source.edges if to == "auto" else to)
    if source.edges == target.edges:
        return list(documents), []
    total, merged, back = conversion_losses(documents, source, target)
    note = say(
        f"{source.edges} → {target.edges}: 언급 {total:,}개 중 {merged:,}개가 다른 언급과 겹쳐 빠지고, 되돌리면 {back:,}개"
        f"({100 * back / max(1, total):.1f}%)가 그대로 돌아옵니다.",
        f"{source.edges} to {target.edges}: of {total:,} mentions {merged:,} coincide with another and are dropped; converted "
        f"back, {back:,} ({100 * back / max(1, total):.1f}%) are as they were.",
    )
    return [convert_document(document, source, target) for document in documents], [note]


def conversion_losses(documents: Sequence[CorefDocument], source: Convention, target: Convention) -> tuple[int, int, int]:
    """Count (mentions, mentions that coincide with another in the target, mentions restored exactly by converting back)."""
    total = merged = back = 0
    for document in documents:
        spans = [mention.span for mention in document.mentions]
        converted = convert_spans(document.text, spans, source, target)
        total, merged = total + len(spans), merged + len(spans) - len(set(converted))
        back += sum(a == b for a, b in zip(spans, convert_spans(document.text, converted, target, source), strict=True))
    return total, merged, back


def _bare(text: str, span: Span, tails: dict[int, int]) -> Span:
    start, end = _without_signs(text, span)
    while (begin := tails.get(end, start)) > start:
        end = begin
    return _without_signs(text, (start, end))


def _words(text: str, span: Span, signs: bool) -> Span:
    """Extend a span to whole words; brackets delimit words too, unless signs stay on words."""
    start, end = span
    delimiters = "" if signs else _BRACKETS
    while start and not (text[start - 1].isspace() or text[start - 1] in delimiters):
        start -= 1
    while end < len(text) and not (text[end].isspace() or text[end] in delimiters):
        end += 1
    if signs:
        return start, end
    a, b = _without_signs(text, (start, end))
    return min(a, span[0]), max(b, span[1])


def _head(text: str, span: Span) -> Span:
    blank = max((index for index in range(*span) if text[index].isspace()), default=span[0] - 1)
    return (blank + 1, span[1]) if blank + 1 < span[1] else span


def _without_signs(text: str, span: Span) -> Span:
    start, end = span
    while start < end - 1 and text[start] in _SIGNS:
        start += 1
    while end > start + 1 and text[end - 1] in _SIGNS:
        end -= 1
    return start, end


@dataclass(frozen=True, slots=True)
class Exploration(Record):
    name: str
    documents: int
    characters: int
    mentions: int
    entities: int
    singletons: int
    nested: int
    crossing: int
    longest_chain: int
    convention: Convention
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        lines = [
            say(
                f"{self.name}: 문서 {self.documents:,}개, 글자 {self.characters:,}개, 개체 {self.entities:,}개의 언급 "
                f"{self.mentions:,}개 (한 번만 언급된 개체 {self.singletons:,}개, 가장 긴 사슬 {self.longest_chain:,}개)",
                f"{self.name}: {self.documents:,} documents, {self.characters:,} characters, {self.mentions:,} mentions of "
                f"{self.entities:,} entities ({self.singletons:,} mentioned once, longest chain {self.longest_chain:,})",
            ),
            say(
                f"중첩된 언급 {self.nested:,}쌍, 교차하는 언급 {self.crossing:,}쌍",
                f"nested mentions {self.nested:,}, crossing {self.crossing:,}",
            ),
        ]
        if self.mentions:
            behind = f"{100 * self.convention.followed:.1f}%"
            followed = say(f" (언급의 {behind} 뒤에 조사가 옴)", f" (a particle follows {behind} of the mentions)")
            lines.append(self.convention.line() + followed)
        return [*lines, *self.notes, *(say(f"문제: {problem}", f"problem: {problem}") for problem in self.problems)]


def explore(data: CorefData, convention: EdgesOrAuto = "auto") -> Exploration:
    documents = data.documents
    pairs = [_overlaps(document) for document in documents]
    sizes = [len(chain) for document in documents for chain in document.chains]
    return Exploration(
        name=data.name,
        documents=len(documents),
        characters=sum(len(document.text) for document in documents),
        mentions=sum(sizes),
        entities=len(sizes),
        singletons=sizes.count(1),
        nested=sum(nested for nested, _ in pairs),
        crossing=sum(crossing for _, crossing in pairs),
        longest_chain=max(sizes, default=0),
        convention=convention_of(documents, convention),
        problems=tuple(problem.in_words() for problem in data.problems),
        notes=data.notes,
    )


def _overlaps(document: CorefDocument) -> tuple[int, int]:
    """Count (nested, crossing) pairs of mentions."""
    nested = crossing = 0
    for index, outer in enumerate(document.mentions):
        for inner in document.mentions[index + 1 :]:
            if inner.start >= outer.end:
                break
            nested += inner.end <= outer.end
            crossing += inner.end > outer.end
    return nested, crossing
