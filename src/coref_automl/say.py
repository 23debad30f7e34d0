"""The language that results are told in. In: an option, the environment, the locale. Out: ko or en, decided in one function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from coref_automl.errors import RecipeError

Lang = Literal["ko", "en"]
LANGUAGES: dict[str, Lang] = {"ko": "ko", "en": "en"}
VARIABLE = "COREF_AUTOML_LANG"
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""As POSIX orders them; the first that is set decides."""


def language(given: str | None = None) -> Lang:
    """What was asked for, else COREF_AUTOML_LANG, else Korean in a Korean locale, else English."""
    asked = given or os.environ.get(VARIABLE)
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
