"""CorefUD's CoNLL-U. In: `Entity=(e1-person-1-...` in the MISC column. Out: chunks; and the same file from documents.

The text follows SpaceAfter=No. A mention in several parts (`e1[1/2]`) is read as its longest part; one of an empty node (a zero,
such as a dropped subject) covers no character and is left out. Kinds come from the tag of the mention's head: PROPN name, NOUN
noun, PRON pronoun.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coref_automl.coreference.conll import sentences
from coref_automl.coreference.data import BadChunk, Chunk, CorefDocument, DataProblem, Mention
from coref_automl.store import write_text

_KINDS = {"PROPN": "name", "NOUN": "noun", "PRON": "pronoun"}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}
_BRACKET = re.compile(r"\((?P<start>[^()]+)(?P<whole>\))?|(?P<end>[^()]+)\)")
_PART = re.compile(r"^(?P<entity>.*?)\[(?P<part>\d+)/(?P<of>\d+)\]$")
_COLUMNS = 10


@dataclass(slots=True)
class _Open:
    start: int | None
    head: int
    tags: list[str] = field(default_factory=list)
    end: int | None = None


@dataclass(slots=True)
class _State:
    """One document while it is read."""

    name: str
    row: int
    text: str = ""
    gap: str = ""
    open: dict[str, list[_Open]] = field(default_factory=dict)
    found: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    parts: dict[tuple[str, int], list[tuple[int, int, str]]] = field(default_factory=dict)
    covered: int = -1


def corefud_chunks(text: str) -> Iterator[Chunk | DataProblem]:
    state, bad = _State("document", 1), False
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("# newdoc"):
            if state.text and not bad:
                yield _finished(state)
            state, bad = _State(line.partition("=")[2].strip() or f"document {number}", number), False
        elif bad or line.startswith("#"):
            continue
        elif not line:
            state.gap = "\n" if state.text else ""
            state.covered = -1
        else:
            try:
                _token(state, line.split("\t"), number)
            except BadChunk as error:
                yield DataProblem(number, state.name, str(error))
                bad = True
    if state.text and not bad:
        yield _finished(state)


def _token(state: _State, columns: list[str], number: int) -> None:
    if len(columns) != _COLUMNS:
        raise BadChunk(f"{len(columns)} columns instead of {_COLUMNS}")
    index, form, _, tag, misc = columns[0], columns[1], columns[2], columns[3], columns[9]
    entries = dict(entry.partition("=")[::2] for entry in misc.split("|"))
    joined = "SpaceAfter" in entries
    start: int | None
    if "-" in index:  # a contracted word: its characters stand once, for all its syntactic words
        state.covered = int(index.split("-")[1])
        start = _append(state, form, joined)
        return
    if "." in index:
        start = end = None
    elif int(index) <= state.covered:
        end = len(state.text)
        start = max(state.text.rfind(" "), state.text.rfind("\n")) + 1
    else:
        start = _append(state, form, joined)
        end = len(state.text)
    for opened in (one for stack in state.open.values() for one in stack):
        opened.tags.append(tag)
        opened.end = end if end is not None else opened.end
    for match in _BRACKET.finditer(entries.get("Entity", "")):
        if match["start"] is not None:
            name, *rest = match["start"].split("-")
            head = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 1
            opened = _Open(start, head, [tag], end)
            if match["whole"]:
                _close(state, name, opened)
            else:
                state.open.setdefault(name, []).append(opened)
        else:
            name = match["end"]
            if not state.open.get(name):
                raise BadChunk(f"line {number} closes {name}, which is not open")
            _close(state, name, state.open[name].pop())


def _append(state: _State, form: str, joined: bool) -> int:
    state.text += state.gap + form
    state.gap = "" if joined else " "
    return len(state.text) - len(form)


def _close(state: _State, name: str, mention: _Open) -> None:
    if mention.start is None or mention.end is None:
        return
    tag = mention.tags[min(mention.head, len(mention.tags)) - 1]
    span = (mention.start, mention.end, _KINDS.get(tag, ""))
    part = _PART.match(name)
    if not part:
        state.found.setdefault(name, []).append(span)
        return
    key = part["entity"], int(part["of"])
    held = state.parts.setdefault(key, [])
    held.append(span)
    if int(part["part"]) == key[1]:
        state.found.setdefault(key[0], []).append(max(held, key=lambda one: (one[1] - one[0], -one[0])))
        state.parts[key] = []


def _finished(state: _State) -> Chunk | DataProblem:
    if left := [name for name, stack in state.open.items() if stack]:
        return DataProblem(state.row, state.name, f"the bracket of {left[0]} does not close")
    taken: set[tuple[int, int]] = set()
    clusters = []
    for entity, spans in state.found.items():
        kept = []
        for start, end, kind in spans:
            if (start, end) not in taken:
                taken.add((start, end))
                kept.append(Mention(start, end, entity, kind))
        if kept:
            clusters.append(tuple(kept))
    return Chunk(state.row, state.name, state.name, state.text, tuple(clusters))


def write_corefud(path: Path, documents: Iterable[CorefDocument]) -> None:
    """Tokens end at blanks and at edges of mentions; SpaceAfter=No keeps the text. Trees are not ours to write: `_`."""
    lines = ["# global.Entity = eid-etype-head"]
    for document in documents:
        numbers = {e: f"e{n}" for n, e in enumerate(dict.fromkeys(m.entity for m in document.mentions), 1)}
        lines.append(f"# newdoc id = {document.id}")
        kinds = {(m.start, m.end): m.kind for m in document.mentions}
        for sentence in sentences(document):
            lines.append(f"# text = {document.text[sentence[0][0] : sentence[-1][1]]}")
            for place, (start, end) in enumerate(sentence, 1):
                follows = document.text[end : end + 1]
                misc = [f"Entity={marks}" for marks in [_marks(document, start, end, numbers)] if marks]
                misc += ["SpaceAfter=No"] if follows not in ("", " ", "\n") else []
                head = [kind for (s, e), kind in kinds.items() if s <= start < e and kind]
                tag = _TAGS.get(head[-1], "X") if head else "X"
                columns = [str(place), document.text[start:end], "_", tag, "_", "_", "0", "_", "_", "|".join(misc) or "_"]
                lines.append("\t".join(columns))
            lines.append("")
    write_text(path, "\n".join(lines) + "\n")


def _marks(document: CorefDocument, start: int, end: int, numbers: dict[str, str]) -> str:
    closing = sorted((m for m in document.mentions if m.end == end and m.start < start), key=lambda m: -m.start)
    opening = "".join(f"({numbers[m.entity]}--1{')' if m.end == end else ''}" for m in document.mentions if m.start == start)
    return "".join(f"{numbers[m.entity]})" for m in closing) + opening
