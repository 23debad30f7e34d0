"""Sentence templates. In: a template and a way to look names up. Out: text, and where every name stands in it.

{x:은}        the thing that `x` names, with the particle that fits it
{:을}         a particle that fits whatever stands before it
[a|b|c]       one of several wordings; wordings may hold names and further choices
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from coref_automl.corpus.synthetic.particles import agree

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Placed:
    """A name in a text: `text[start:end]` is its surface. `path` is how the template called it."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    text: str
    placed: tuple[Placed, ...]


def choose(template: str, rng: Random) -> str:
    """Settle every choice, the innermost first."""
    while _CHOICE.search(template):
        template = _CHOICE.sub(lambda found: rng.choice(found[1].split("|")), template)
    return template


def render(template: str, look_up: Callable[[str], str], rng: Random) -> Rendered:
    """Fill a template; names are looked up from left to right."""
    settled = choose(template, rng)
    text, placed, at = "", [], 0
    for slot in _SLOT.finditer(settled):
        text += settled[at : slot.start()]
        path, particle = slot[1], slot[2]
        if path:
            surface = look_up(path)
            placed.append(Placed(path, len(text), len(text) + len(surface)))
            text += surface
        if particle:
            text += agree(text, particle)
        at = slot.end()
    return Rendered(text + settled[at:], tuple(placed))
