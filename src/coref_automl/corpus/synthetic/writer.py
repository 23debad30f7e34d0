"""Synthetic documents. In: a count and a seed. Out: documents with their entity chains and the relations they state.

The same seed gives the same bytes, and document n does not depend on how many are requested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from coref_automl.config import nearest
from coref_automl.corpus.synthetic.phrasebook import REGISTERS, Scene, register, relations
from coref_automl.corpus.synthetic.templates import Placed, render
from coref_automl.corpus.synthetic.world import Entity, World, number
from coref_automl.errors import RecipeError
from coref_automl.records import Document

CHAINED = frozenset(("PER", "ORG", "LOC", "THING"))
SLACK = 600
"""The longest scene plus the longest ending: how far a document may grow past its target length."""

LABELS = {relation.fact: label for label, relation in relations().items()} | {"mother": "per:parents"}
"""Which relation a fact is."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Told:
    """A relation stated in one sentence of the document; `label` is KLUE-RE's."""

    label: str
    subject: Span
    object: Span


@dataclass(frozen=True, slots=True)
class SyntheticDocument:
    """A document and its chains: each chain holds the spans of one entity, two or more, in the order of the text."""

    document: Document
    chains: tuple[tuple[Span, ...], ...]
    relations: tuple[Told, ...] = ()


def documents(
    count: int, seed: int, *, least: int = 1500, most: int = 6000, registers: Sequence[str] = tuple(REGISTERS)
) -> Iterator[SyntheticDocument]:
    """`count` documents of `least` to `most` characters, the registers taking turns."""
    if most - least < SLACK:
        raise RecipeError(
            f"Documents of {least} to {most} characters cannot be promised; leave at least {SLACK} between the two."
        )
    for name in registers:
        if name not in REGISTERS:
            raise RecipeError(f"Unknown register {name!r}. {nearest(name, REGISTERS)}")
    for index in range(count):
        name = registers[index % len(registers)]
        yield _Writer(Random(f"{seed}/document/{index}"), name).write(f"synthetic-{seed}-{index:06d}", least, most)


class _Writer:
    """Writes one document: a cast is drawn, then chapters are told, each with another of the cast in the middle."""

    def __init__(self, rng: Random, name: str) -> None:
        old = name == "tale"
        self._rng = rng
        self._name = name
        self._register = register(name)
        self._trouble = "natural_trouble" if name in ("tale", "biography", "encyclopaedia") else "facility_trouble"
        self._world = World(rng, old=old)
        self._groups = {
            "xyz": [self._world.person() for _ in range(rng.randrange(4, 7))],
            "oq": [self._world.company() for _ in range(3)],
            "lm": [self._world.place() for _ in range(3)],
            "tu": [self._world.pick("THING", "old_things" if old else "things") for _ in range(4)],
        }
        self._text = ""
        self._mentions: defaultdict[int, list[Span]] = defaultdict(list)
        self._relations: list[Told] = []

    def write(self, name: str, least: int, most: int) -> SyntheticDocument:
        target = self._rng.randrange(least, most - SLACK + 1)
        title = f"{self._groups['lm'][0].name} {self._groups['tu'][0].name}"
        chapter = 0
        while len(self._text) < target:
            self._chapter(self._cast(chapter), target)
            chapter += 1
        chains = sorted(tuple(spans) for spans in self._mentions.values() if len(spans) > 1)
        document = Document(name, f"synthetic-{self._name}", self._text, title)
        return SyntheticDocument(document, tuple(chains), tuple(self._relations))

    def _cast(self, chapter: int) -> dict[str, Entity]:
        """Who plays what. People, companies and places move on by one, so that a minor figure becomes the main one."""
        pools = {"p": self._trouble, "d": "papers", "g": "gatherings", "k": "materials", "b": "animals", "r": "treasures"}
        drawn = {letter: self._world.pick("THING", pool) for letter, pool in pools.items()}
        moved = {
            letter: group[(chapter + at) % len(group)]
            for letters, group in self._groups.items()
            for at, letter in enumerate(letters)
        }
        return drawn | moved

    def _chapter(self, roles: dict[str, Entity], target: int) -> None:
        self._tell(self._rng.choice(self._register.openings), roles, whole=True)
        scenes = list(self._register.scenes)
        self._rng.shuffle(scenes)
        for scene in scenes[: self._rng.randrange(5, len(scenes) + 1)]:
            if len(self._text) >= target:
                break
            self._tell(scene, roles)
        self._tell(self._rng.choice(self._register.endings), roles, whole=True)

    def _tell(self, scene: Scene, roles: dict[str, Entity], *, whole: bool = False) -> None:
        """Append a scene as a paragraph; now and then its last sentence is left unsaid."""
        told = scene if whole or self._rng.random() < 0.75 else scene[:-1]
        for at, sentence in enumerate(told):
            self._text += " " if at else "\n" if self._text else ""
            self._say(sentence, roles)

    def _say(self, sentence: str, roles: dict[str, Entity]) -> None:
        found: dict[str, Entity] = {}

        def look_up(path: str) -> str:
            if path.startswith("#"):
                return number(path[1:], self._rng, self._world.era)
            role, *facts = path.split(".")
            entity = roles[role]
            for fact in facts:
                entity = self._world.fact(entity, fact)
            found[path] = entity
            return entity.name

        rendered = render(sentence, look_up, self._rng)
        self._note(rendered.placed, found)
        self._text += rendered.text

    def _note(self, placed: Sequence[Placed], found: dict[str, Entity]) -> None:
        at = len(self._text)
        spans = {mention.path: (at + mention.start, at + mention.end) for mention in reversed(placed)}
        for mention in placed:
            entity = found.get(mention.path)
            if entity and entity.kind in CHAINED:
                self._mentions[entity.key].append((at + mention.start, at + mention.end))
        for path, span in spans.items():
            role, _, fact = path.partition(".")
            if fact in LABELS and role in spans:
                self._relations.append(Told(LABELS[fact], spans[role], span))
