"""Cleaning. In: a raw text. Out: the text as every later stage sees it, or the reason why a document is dropped."""

from __future__ import annotations

import re
import unicodedata

_INVISIBLE = re.compile("[\u00ad\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufff9-\uffff\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
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
"""A line that one of these matches says nothing about the document; it is removed, the document stays."""


def normalise(text: str) -> str:
    """NFC, no control or invisible characters, single blanks, no empty or boilerplate lines."""
    for line_break in ("\r\n", "\r", "\u2028", "\u2029"):
        text = text.replace(line_break, "\n")
    text = unicodedata.normalize("NFC", _CONTROL.sub("", _INVISIBLE.sub("", text)))
    text = _BLANKS.sub(" ", text)
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line and not is_boilerplate(line))


def is_boilerplate(line: str) -> bool:
    lowered = line.lower() if len(line) <= 200 else ""
    return bool(lowered) and any(pattern.search(lowered) for pattern in BOILERPLATE)
