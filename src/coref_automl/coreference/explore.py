"""Annotated data looked at. In: documents and tokenizers. Out: counts, mentions at token edges, particles, problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coref_automl.coreference.conventions import Asked, Convention, convention_of
from coref_automl.coreference.data import CorefData, CorefDocument
from coref_automl.coreference.tokens import TRAILING, WIDTH, TokenizedDocument, tokenized
from coref_automl.models.load import load_tokenizer
from coref_automl.records import Record
from coref_automl.say import say


@dataclass(frozen=True, slots=True)
class Edges(Record):
    """Mentions on the token boundaries of a tokenizer, and those reachable with an end inside the last token."""

    mentions: int
    tokens: int
    on_edges: int
    reachable: int
    lost: dict[str, int]


@dataclass(frozen=True, slots=True)
class Exploration(Record):
    """Counts of one file, and the convention of its mentions."""

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
    edges: dict[str, Edges]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        behind = f"{100 * self.convention.followed:.1f}%"
        shown = [
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
            self.convention.line() + say(f" (언급의 {behind} 뒤에 조사가 옴)", f" (a particle follows {behind} of the mentions)"),
        ]
        for model, found in self.edges.items():
            share, reach = (f"{100 * n / max(1, found.mentions):.1f}%" for n in (found.on_edges, found.reachable))
            shown.append(
                say(
                    f"{model}: 토큰 {found.tokens:,}개. 토큰 경계와 일치하는 언급 {share}, 끝을 토큰 안에서 자르면 {reach}",
                    f"{model}: {found.tokens:,} tokens; {share} of the mentions start and end on token boundaries, "
                    f"{reach} if the end may fall inside the last token",
                )
            )
            shown += [
                say(f"  찾을 수 없음: {count:,} {reason}", f"  out of reach: {count:,} {reason}")
                for reason, count in found.lost.items()
            ]
        return [*shown, *self.notes, *(say(f"문제: {problem}", f"problem: {problem}") for problem in self.problems)]


def explore(data: CorefData, models: Sequence[str], convention: Asked = "auto") -> Exploration:
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
        edges={model: edges(tokenized(load_tokenizer(model), documents)) for model in models},
        problems=tuple(problem.in_words() for problem in data.problems),
        notes=data.notes,
    )


def _overlaps(document: CorefDocument) -> tuple[int, int]:
    """(nested, crossing) pairs of mentions."""
    nested = crossing = 0
    for place, outer in enumerate(document.mentions):
        for inner in document.mentions[place + 1 :]:
            if inner.start >= outer.end:
                break
            nested += inner.end <= outer.end
            crossing += inner.end > outer.end
    return nested, crossing


def edges(documents: Sequence[TokenizedDocument]) -> Edges:
    """How a tokenizer's tokens meet the mentions; `lost` counts by reason those that cannot be found exactly."""
    mentions = on_edges = reachable = 0
    lost: Counter[str] = Counter()
    for one in documents:
        found = one.reachable
        mentions, reachable = mentions + len(found), reachable + int(found.sum())
        on_edges += int((found & (one.trailing == 0)).sum())
        lost.update(_reason(one, int(index)) for index in np.flatnonzero(~found))
    return Edges(mentions, sum(map(len, documents)), on_edges, reachable, dict(lost.most_common()))


def _reason(one: TokenizedDocument, index: int) -> str:
    if one.pieces.starts[one.first[index]] != one.document.mentions[index].start:
        return "begins inside a token"
    if one.trailing[index] >= TRAILING:
        return f"ends {TRAILING} or more characters before its token does"
    if one.sentences[one.first[index]] != one.sentences[one.last[index]]:
        return "runs over the end of a sentence"
    return f"wider than {WIDTH} tokens"
