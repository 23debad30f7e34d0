"""Annotated data looked at. In: documents. Out: counts, the convention of the mentions, problems."""

from __future__ import annotations

from dataclasses import dataclass

from coref_automl.coreference.conventions import Asked, Convention, convention_of
from coref_automl.coreference.data import CorefData, CorefDocument
from coref_automl.records import Record
from coref_automl.say import say


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
        return [*shown, *self.notes, *(say(f"문제: {problem}", f"problem: {problem}") for problem in self.problems)]


def explore(data: CorefData, convention: Asked = "auto") -> Exploration:
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
    """(nested, crossing) pairs of mentions."""
    nested = crossing = 0
    for place, outer in enumerate(document.mentions):
        for inner in document.mentions[place + 1 :]:
            if inner.start >= outer.end:
                break
            nested += inner.end <= outer.end
            crossing += inner.end > outer.end
    return nested, crossing
