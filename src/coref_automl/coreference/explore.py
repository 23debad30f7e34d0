"""Annotated data looked at. In: documents and tokenizers. Out: counts, mentions at token edges, particles, problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coref_automl.coreference.data import CorefData, CorefDocument
from coref_automl.coreference.tokens import Edges, edges, lay
from coref_automl.korean import is_hangul
from coref_automl.models.load import load_tokenizer
from coref_automl.records import Record
from coref_automl.say import say

_PARTICLES = frozenset("은는이가을를의에께와과도만로아야")
"""Syllables that are a particle, or begin one."""


@dataclass(frozen=True, slots=True)
class Exploration(Record):
    """Counts of one file. `followed` is the share of mentions right behind which a particle is written: where it is high, the
    data leave particles out; `ending` the share whose own last syllable could be one."""

    name: str
    documents: int
    characters: int
    mentions: int
    entities: int
    singletons: int
    nested: int
    crossing: int
    longest_chain: int
    followed: float
    ending: float
    edges: dict[str, Edges]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def particles(self) -> str:
        """Whether mentions count their particles in, as a word."""
        return "left out" if self.followed > 0.3 else "counted in" if self.ending > 0.3 else "unclear from these mentions"

    def lines(self) -> list[str]:
        behind = f"{100 * self.followed:.1f}%"
        korean = {"left out": "언급에서 제외", "counted in": "언급에 포함"}.get(self.particles, "불분명")
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
            say(
                f"조사: {korean} (언급의 {behind} 뒤에 조사가 옴)",
                f"particles: {self.particles} (one follows {behind} of the mentions)",
            ),
        ]
        for model, found in self.edges.items():
            share, reach = f"{100 * found.share:.1f}%", f"{100 * found.reach:.1f}%"
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


def explore(data: CorefData, models: Sequence[str]) -> Exploration:
    documents = data.documents
    pairs = [_overlaps(document) for document in documents]
    sizes = [len(chain) for document in documents for chain in document.chains]
    followed, ending = _particles(documents)
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
        followed=followed,
        ending=ending,
        edges={model: edges(lay(load_tokenizer(model), documents)) for model in models},
        problems=tuple(problem.in_words() for problem in data.problems),
        notes=data.notes,
    )


def _particles(documents: Sequence[CorefDocument]) -> tuple[float, float]:
    """Shares of the mentions with a particle behind them, and of those that end in a syllable that could be one."""
    count: Counter[str] = Counter()
    for document in documents:
        for mention in document.mentions:
            count["all"] += 1
            behind = document.text[mention.end : mention.end + 1]
            form = document.text[mention.start : mention.end]
            count["followed"] += behind in _PARTICLES
            own = len(form) > 1 and form[-1] in _PARTICLES and is_hangul(form[-2])
            count["ending"] += own and not is_hangul(behind or " ")
    total = max(1, count["all"])
    return count["followed"] / total, count["ending"] / total


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
