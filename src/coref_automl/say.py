"""The language that results are told in. In: an option, the environment, the locale. Out: ko or en, decided in one function."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

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


def skipped(rows: int, name: str) -> str:
    return say(f"{name}의 잘못된 행 {rows:,}개를 제외했습니다.", f"{rows:,} bad rows of {name} were skipped.")
