"""How results are told: in Korean or English, and as tables of aligned columns.

Code writes a text in both languages (`say`); one function decides which is shown. Texts that files keep in English are translated
by the catalogue, assets/messages.ko.json (`in_words`).
"""

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

from coref_automl.base.errors import RecipeError

Lang = Literal["ko", "en"]
LANGUAGES: dict[str, Lang] = {"ko": "ko", "en": "en"}
VARIABLE = "COREF_AUTOML_LANG"
LANGUAGE = f"Language of results: ko or en. Default: ${VARIABLE}, or the locale."
"""The help of --lang."""
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""In POSIX order; the first one that is set decides."""
_CURRENT: ContextVar[Lang | None] = ContextVar("language", default=None)


def language(given: str | None = None) -> Lang:
    """The given language, else that of `speaking`, else COREF_AUTOML_LANG, else Korean in a Korean locale, else English."""
    chosen = given or _CURRENT.get() or os.environ.get(VARIABLE)
    if not chosen:
        locale = next((value for name in _LOCALE if (value := os.environ.get(name))), "")
        return "ko" if re.match(r"ko(rean)?(?![a-z])", locale.lower()) else "en"
    if chosen not in LANGUAGES:
        raise RecipeError(f"Results are told in ko and en, not {chosen!r}; correct {'--lang' if given else VARIABLE}.")
    return LANGUAGES[chosen]


@dataclass(frozen=True, slots=True)
class Say:
    """Returns a text, written in both languages, in one of them."""

    lang: Lang

    def __call__(self, ko: str, en: str) -> str:
        return ko if self.lang == "ko" else en


def say(ko: str, en: str) -> str:
    """Return the text in the current language."""
    return Say(language())(ko, en)


@contextmanager
def speaking(lang: str | None) -> Iterator[Say]:
    """Tell all results and notes in this language until the block ends."""
    chosen = Say(language(lang))
    token = _CURRENT.set(chosen.lang)
    try:
        yield chosen
    finally:
        _CURRENT.reset(token)


def in_words(text: str) -> str:
    """Translate what files and events keep in English (reasons, stages, units) into the current language."""
    return in_korean(text) if language() == "ko" else text


def in_korean(text: str) -> str:
    """Translate a text by the catalogue, whose {} stand for varying parts; a text that is not there stays as it is."""
    if text in catalogue():
        return catalogue()[text]
    for pattern, korean in _patterns():
        if match := pattern.fullmatch(text):
            return korean.format(*map(in_korean, match.groups()))
    return text


@cache
def catalogue() -> dict[str, str]:
    """English to Korean: why documents, items and rows are dropped; stages, units and facts of progress; licences."""
    entries: Any = json.loads(files("coref_automl").joinpath("assets", "messages.ko.json").read_text("utf-8"))
    return dict(entries)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    entries = [(english, korean) for english, korean in catalogue().items() if "{}" in english]
    return [(re.compile("(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL), korean) for english, korean in entries]


def align(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Lines of a table whose columns are aligned, with `right` all but the first to the right."""
    if not rows:
        return []
    widths = [max(map(cells_of, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - cells_of(cell))
            cells.append(padding + cell if right and column else cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines


def cells_of(text: str) -> int:
    """The terminal columns that a text takes: two per Hangul syllable, even one that macOS has decomposed in a file name."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in unicodedata.normalize("NFC", text))
