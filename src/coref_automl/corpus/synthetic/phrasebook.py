"""Sentence templates and word lists, read from the bundled files. In: a name. Out: registers, relations, words.

A file is a list of sections: a line `== head`, then its lines up to the next section; empty lines are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

Scene = tuple[str, ...]

REGISTERS = ("news", "encyclopaedia", "biography", "court", "interview", "tale")


@dataclass(frozen=True, slots=True)
class Register:
    """A way of writing. A document is chapters; a chapter is an opening, scenes in random order, and an ending.

    x, y, z are people, o and q companies, l and m places, t and u common nouns (저수지, 도서관), p a trouble, d a paper,
    g a gathering, k a material, b an animal, r a treasure. A dot asks for a fact (x.home), # for a number that is told once.
    """

    openings: tuple[Scene, ...]
    scenes: tuple[Scene, ...]
    endings: tuple[Scene, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """How a relation may be said. `subject` makes the first entity, `fact` of it is the object, `kinds` are their types.

    A pattern's `s` is the subject and `o` the object; where `turned`, the patterns are another label's and it is the other way
    round. Every pattern ends in 다 after ㅆ or 이, so that two of them can be joined.
    """

    label: str
    subject: str
    fact: str
    kinds: tuple[str, str]
    patterns: tuple[str, ...]
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Unrelated:
    """Sentences with two unrelated entities."""

    subject: str
    object: str
    patterns: tuple[str, ...]


def sections(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The sections of one bundled file, in order."""
    text = files("coref_automl").joinpath("assets", "texts", "synthetic", f"{name}.txt").read_text("utf-8")
    for block in ("\n" + text).split("\n== ")[1:]:
        head, *lines = block.split("\n")
        yield head, tuple(line for line in lines if line)


@cache
def register(name: str) -> Register:
    found: dict[str, list[Scene]] = {"opening": [], "scene": [], "ending": []}
    for head, lines in sections(name):
        found[head].append(lines)
    return Register(tuple(found["opening"]), tuple(found["scene"]), tuple(found["ending"]))


@cache
def relations() -> dict[str, Relation]:
    """All labels but no_relation."""
    patterns = {head.split()[0]: lines for head, lines in sections("relations")}
    found = {}
    for head, _ in sections("relations"):
        label, subject, fact, first, second, *mirrors = head.split()
        source = mirrors[1] if mirrors else label
        found[label] = Relation(label, subject, fact, (first, second), patterns[source], turned=bool(mirrors))
    return found


@cache
def unrelated() -> tuple[Unrelated, ...]:
    pairs = ((head.split(), lines) for head, lines in sections("unrelated"))
    return tuple(Unrelated(first, second, lines) for (first, second), lines in pairs)


@cache
def words(name: str) -> tuple[str, ...]:
    """A word list, separated by blanks; - is the empty word."""
    lines = dict(sections("words"))[name]
    return tuple("" if word == "-" else word for line in lines for word in line.split())


@cache
def leads() -> tuple[str, ...]:
    """Sentence openings that say nothing about who is related to whom."""
    return dict(sections("words"))["leads"]


@cache
def sectors() -> dict[str, tuple[str, ...]]:
    """What a company's name may end in: its trade, then what it makes."""
    return {head.split()[1]: lines for head, lines in sections("words") if head.startswith("sector ")}
