"""The language that results are told in. In: an option, the environment, the locale. Out: ko or en, decided in one function.

Code writes a text in both languages (`say`). What files keep in English is told in Korean by the catalogue,
assets/messages.ko.json (`in_words`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from coref_automl.errors import RecipeError

Lang = Literal["ko", "en"]
LANGUAGES: dict[str, Lang] = {"ko": "ko", "en": "en"}
VARIABLE = "COREF_AUTOML_LANG"
LANGUAGE = f"Language of results: ko or en. Default: ${VARIABLE}, or the locale."
"""The help of --lang."""
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""As POSIX orders them; the first that is set decides."""
_SPOKEN: ContextVar[Lang | None] = ContextVar("spoken", default=None)


def language(given: str | None = None) -> Lang:
    """What was asked for here or by a caller, else COREF_AUTOML_LANG, else Korean in a Korean locale, else English."""
    asked = given or _SPOKEN.get() or os.environ.get(VARIABLE)
    if not asked:
        locale = next((value for name in _LOCALE if (value := os.environ.get(name))), "")
        return "ko" if locale.lower().startswith("ko") else "en"
    if asked not in LANGUAGES:
        raise RecipeError(f"Results are told in ko and en, not {asked!r}; correct {'--lang' if given else VARIABLE}.")
    return LANGUAGES[asked]


@dataclass(frozen=True, slots=True)
class Say:
    """Picks the language where a text is written in both."""

    lang: Lang

    def __call__(self, ko: str, en: str) -> str:
        return ko if self.lang == "ko" else en


def say(ko: str, en: str) -> str:
    """The text in the language of this moment, for rooms that are not told which."""
    return Say(language())(ko, en)


@contextmanager
def speaking(lang: str | None) -> Iterator[Say]:
    """Results and notes are told in this language until the block ends, whichever room writes them."""
    spoken = Say(language(lang))
    before = _SPOKEN.set(spoken.lang)
    try:
        yield spoken
    finally:
        _SPOKEN.reset(before)


def in_words(text: str) -> str:
    """What files and events keep in English (reasons, stages, units), in the language of results."""
    return in_korean(text) if language() == "ko" else text


def in_korean(text: str) -> str:
    """The whole text by the catalogue, where {} stands for what differs; one that is not there stays as it is."""
    if text in catalogue():
        return catalogue()[text]
    found = next(((match, korean) for pattern, korean in _patterns() if (match := pattern.fullmatch(text))), None)
    return found[1].format(*map(in_korean, found[0].groups())) if found else text


@cache
def catalogue() -> dict[str, str]:
    """Korean by English: why documents, items and rows are dropped; stages, units and facts of progress; licences."""
    entries: Any = json.loads(files("coref_automl").joinpath("assets", "messages.ko.json").read_text("utf-8"))
    return dict(entries)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    named = [(english, korean) for english, korean in catalogue().items() if "{}" in english]
    return [(re.compile("(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL), korean) for english, korean in named]
