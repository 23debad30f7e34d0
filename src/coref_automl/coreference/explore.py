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
        shown = [
            f"{self.name}: {self.documents:,} documents, {self.characters:,} characters, {self.mentions:,} mentions of "
            f"{self.entities:,} entities ({self.singletons:,} mentioned once, longest chain {self.longest_chain:,})",
            f"nested mentions {self.nested:,}, crossing {self.crossing:,}",
            f"particles are {self.particles}: one is written behind {100 * self.followed:.1f}% of the mentions",
        ]
        for model, found in self.edges.items():
            shown.append(
                f"{model}: {100 * found.share:.1f}% of the mentions begin and end where tokens do; "
                f"{100 * found.reach:.1f}% can be found with the end cut inside the last token ({found.tokens:,} tokens)"
            )
            shown += [f"  not reached: {count:,} {reason}" for reason, count in found.lost.items()]
        return [*shown, *self.notes, *(f"problem: {problem}" for problem in self.problems)]


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
        problems=tuple(map(str, data.problems)),
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
