"""The Markdown pages of the repository, and what they hold. Nothing here needs MkDocs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)


def pages() -> list[Path]:
    """Every page of the repository that a reader may open."""
    folders = (ROOT, ROOT / "benchmarks", ROOT / "recipes")
    deep = [path for room in (DOCS, ROOT / "src") for path in room.rglob("*.md")]
    return sorted([*(path for folder in folders for path in folder.glob("*.md")), *deep])


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", text)


def links(text: str) -> list[str]:
    """Targets of a page's links and images, those to other hosts left out."""
    found = _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(text)))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """Names of a page's headings as GitHub and the site make them; a repeated one is numbered."""
    made: set[str] = set()
    for heading in _HEADING.findall(prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain.lower()).strip())
        numbered = (f"{slug}{mark}" for mark in ("", *(f"-{n}" for n in range(1, 99))))
        made.add(next(name for name in numbered if name not in made))
    return made


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and text of a page's blocks of code."""
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
