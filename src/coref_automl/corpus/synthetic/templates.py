"""Sentence templates. In: a template and a way to look names up. Out: text, and where every name stands in it.

{x:은}        the thing that `x` names, with the particle that fits it
{:을}         a particle that fits whatever stands before it
[a|b|c]       one of several wordings; wordings may hold names and further choices

A particle is written as it stands after a consonant, and takes the form that fits the last sound before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

_SILENT = re.compile(r"(\([^()]*\)|[’”'\"》〉」』])+$")
"""What may stand between a word and its particle without being heard: closing quotes, and a remark in brackets."""

_DIGITS = {"0": 21, "1": 8, "2": 0, "3": 16, "4": 0, "5": 0, "6": 1, "7": 8, "8": 8, "9": 0}
_LETTERS = {"L": 8, "R": 8, "M": 16, "N": 4}
"""Final consonant, counted as in the syllable block, of a digit or Latin letter read aloud in Korean; 8 is ㄹ."""

_RIEUL = 8

_PARTICLES = {"은": "는", "이": "가", "을": "를", "과": "와", "아": "야", "이나": "나", "이랑": "랑", "이여": "여", "이든": "든"}
"""Particles that are replaced whole."""

_STEMS = {
    "이에요": "예요",
    "이어요": "여요",
    "이었": "였",
    "이어서": "여서",
    "이라": "라",
    "이란": "란",
    "이며": "며",
    "이고": "고",
    "이자": "자",
    "이지": "지",
    "이던": "던",
    "이니": "니",
    "이므로": "므로",
    "이죠": "죠",
}
"""Forms of the copula, by how they begin: what follows stays as it is (이라고 -> 라고)."""


def last_sound(word: str) -> int:
    """The final consonant of the last thing heard, as in the syllable block: 0 for a vowel, 8 for ㄹ."""
    heard = _SILENT.sub("", word)
    if not heard:
        return 0
    last = heard[-1]
    if "가" <= last <= "힣":
        return (ord(last) - 0xAC00) % 28
    return _DIGITS.get(last, _LETTERS.get(last.upper(), 0))


def agree(word: str, particle: str) -> str:
    """The particle as it sounds after the word. One that never changes (의, 에서, 도) comes back as it is."""
    sound = last_sound(word)
    if particle.startswith("으로"):
        return particle if sound not in (0, _RIEUL) else particle[1:]
    if sound:
        return particle
    if particle in _PARTICLES:
        return _PARTICLES[particle]
    for stem in sorted(_STEMS, key=len, reverse=True):
        if particle.startswith(stem):
            return _STEMS[stem] + particle[len(stem) :]
    return particle


def attach(word: str, particle: str) -> str:
    """The word with its particle: attach("나루", "으로") == "나루로"."""
    return word + agree(word, particle)


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
