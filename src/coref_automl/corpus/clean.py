"""Cleaning, filters and the held-out split. In: raw texts and ids. Out: clean texts or reasons to drop; held-out ids.

A document is held out by its id alone, so the split is the same on every machine and never changes.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from coref_automl.base.records import Document
from coref_automl.base.say import say

_INVISIBLE = re.compile("[\u00ad\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufff9-\uffff\ud800-\udfff]")
_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x9f]")
_BLANKS = re.compile(r"[^\S\n]+")

BOILERPLATE = tuple(
    re.compile(pattern)
    for pattern in (
        r"무단\s*(전재|복제|배포)",
        r"재배포\s*금지",
        r"저작권자\s*[ⓒ©(]",
        r"^(copyright|all rights reserved)\b.{0,80}$",
        r"^(같이 보기|각주|외부 링크|참고 문헌|주석)$",
        r"^[\w.+-]+@[\w-]+\.[\w.]+$",
        r"^(기사\s*제보|제보하기|구독하기|댓글\s*쓰기|이전\s*글|다음\s*글)$",
    )
)
"""Lines to remove: they say nothing about the document, which stays."""


def normalise(text: str) -> str:
    """Normalise to NFC with single blanks, without control or invisible characters and empty or boilerplate lines.

    Every Unicode line break becomes a newline, so that a form feed between two pages keeps their words apart.
    """
    text = _LINE_BREAKS.sub("\n", text)
    text = unicodedata.normalize("NFC", _CONTROL.sub("", _INVISIBLE.sub("", text)))
    text = _BLANKS.sub(" ", text)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line and not is_boilerplate(line))


def is_boilerplate(line: str) -> bool:
    """Whether a line is boilerplate; a full sentence may mention such things and is kept."""
    lowered = line.lower() if len(line) <= 200 and not line.endswith("다.") else ""
    return bool(lowered) and any(pattern.search(lowered) for pattern in BOILERPLATE)


@dataclass(frozen=True, slots=True)
class Filters:
    """Minimum requirements on a document."""

    min_characters: int = 200
    min_hangul: float = 0.5
    min_distinct_lines: float = 0.5


def reason_to_drop(text: str, filters: Filters) -> str | None:
    """The first filter's reason to drop a normalised text; None to keep it."""
    lines = text.split("\n")
    if not text:
        return "empty after cleaning"
    if len(text) < filters.min_characters:
        return f"under {filters.min_characters} characters"
    if hangul_share(text) < filters.min_hangul:
        return f"under {filters.min_hangul:.0%} Hangul"
    if len(lines) >= 10 and len(set(lines)) < filters.min_distinct_lines * len(lines):  # lists of links and menus, not prose
        return "most lines repeat"
    return None


_HANGUL = ((0xAC00, 0xD7FF), (0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97F))
_LETTERS = ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x1FFF), (0x2C00, 0xFEFE), (0x20000, 0x3FFFF))
_SYMBOLS = ((0x3000, 0x303F), (0xFE00, 0xFE6F))
"""Code points within the ranges of letters that are not letters."""


def hangul_share(text: str) -> float:
    """The share of Hangul among the letters of a text; digits, punctuation, blanks and emoji are not letters."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    hangul, letters, symbols = (
        sum(np.count_nonzero((codes >= low) & (codes <= high)) for low, high in ranges)
        for ranges in (_HANGUL, _LETTERS, _SYMBOLS)
    )
    return float(hangul) / (letters - symbols) if letters > symbols else 0.0


def foreign_note(text: str) -> str | None:
    """A note about a text that is hardly Korean, which is answered all the same; None for Korean."""
    if hangul_share(text.replace("[MASK]", "")) >= 0.2:
        return None
    ko = "한글이 거의 없는 텍스트입니다. 한국어 모델이므로 한국어 텍스트를 넣으세요."
    return say(ko, "Hardly any of this text is Hangul, and the models read Korean: pass a Korean text.")


SHARE = 0.02
LEAST = 310
"""Documents that tell two checkpoints apart by 2 points of Noun@1 (docs/eval-sets.md)."""


def rank(identity: str) -> int:
    """A 63-bit hash of an id; documents are held out in the order of these ranks."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def qualified_id(document: Document) -> str:
    """A document's id with its source, for when another source has the same id (two files that both count from 1)."""
    return f"{document.source}/{document.id}"


def own_id(document: Document) -> str:
    """A document's id in its source, without the prefix of `qualified_id` and without the place of a passage in it."""
    return re.sub(r":\d+-\d+$", "", document.id.removeprefix(f"{document.source}/"))


def highest_held_out(ranks: array[int], *, share: float = SHARE, least: int = LEAST) -> int:
    """The highest rank of a source that is held out, from the ranks of all its ids, filtered or not; -1 if none is."""
    most = max(len(ranks) // 3, min(1, len(ranks) // 2))  # one of two documents
    count = min(max(round(share * len(ranks)), least), most) if share > 0 else 0
    return int(np.partition(np.frombuffer(ranks, np.int64), count - 1)[count - 1]) if count else -1


def limits(ids_by_source: Iterable[tuple[str, str]], *, share: float = SHARE, least: int = LEAST) -> dict[str, int]:
    """The highest rank held out of every source, from (source, id) pairs of a stream of several; eight bytes per id are kept."""
    ranks: dict[str, array[int]] = defaultdict(partial(array, "q"))
    for source, identity in ids_by_source:
        ranks[source].append(rank(identity))
    return {source: highest_held_out(of_source, share=share, least=least) for source, of_source in ranks.items()}


def with_marks(text: str, marks: Iterable[tuple[int, int, str, str]], escape: Callable[[str], str] = str) -> str:
    """Insert marks around spans (start, end, opening, closing); the text between marks passes through `escape`.

    At one position, closing marks come before opening ones, and nested spans nest their marks.
    """
    edges = []
    for start, end, opening, closing in marks:
        edges += [(start, 1, -end, opening), (end, 0, -start, closing)]
    parts, done = [], 0
    for position, _, _, mark in sorted(edges):
        parts += [escape(text[done:position]), mark]
        done = position
    return "".join([*parts, escape(text[done:])])
