"""The language that results are told in. In: an option, the environment, the locale. Out: ko or en, decided in one function."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
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


def skipped(rows: int, name: str) -> str:
    return say(f"{name}의 잘못된 행 {rows:,}개를 제외했습니다.", f"{rows:,} bad rows of {name} were skipped.")


def of_row(row: int, name: str, reason: str) -> str:
    """A row that is left out, and why."""
    where = f" ({name})" if name else ""
    return say(f"{row}행{where}: {in_korean(reason)}", f"row {row}{where}: {reason}")


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
    held: Any = json.loads(files("coref_automl").joinpath("assets", "messages.ko.json").read_text("utf-8"))
    return dict(held)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    named = [(english, korean) for english, korean in catalogue().items() if "{}" in english]
    return [(re.compile("(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL), korean) for english, korean in named]


def align(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Rows with their columns aligned, all but the first to the right if asked; a Hangul syllable is two cells wide."""
    if not rows:
        return []
    widths = [max(cells_of(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        blanks = [" " * (width - cells_of(cell)) for cell, width in zip(row, widths, strict=True)]
        shown = [blank + cell if right and at else cell + blank for at, (cell, blank) in enumerate(zip(row, blanks, strict=True))]
        lines.append("  ".join(shown).rstrip())
    return lines


def cells_of(text: str) -> int:
    """The columns of a terminal that a text takes. A name from macOS has its syllables taken apart, and shows them whole."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in unicodedata.normalize("NFC", text))
