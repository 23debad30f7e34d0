"""The column formats of coreference: CoNLL-2012 and CorefUD's CoNLL-U. In: a file's text. Out: chunks; and files from documents.

CoNLL-2012: the word is the fourth column and the annotation the last one. The text is the words with blanks between them and a
line break after each sentence; parts of one document are chunks of it, with entities of their own, as the format defines them.

CorefUD: `Entity=(e1-person-1-...` in the MISC column; the text follows SpaceAfter=No. A mention in several parts (`e1[1/2]`) is
read as its longest part; one of an empty node (a zero, such as a dropped subject) covers no character and is left out. Kinds come
from the tag of the mention's head: PROPN name, NOUN noun, PRON pronoun.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from coref_automl.coreference.data import BadChunk, Chunk, CorefDocument, DataProblem, Mention
from coref_automl.errors import CoreferenceDataError
from coref_automl.store import write_text

_BEGIN = re.compile(r"#begin document \(?(.*?)\)?;?(?:\s*part\s+(\d+))?\s*$")
_PART_ID = re.compile(r"(?P<name>.*\S) part (?P<part>[0-9]+)")
_BRACKET = re.compile(r"\((?P<open>[^()|]+)\)|\((?P<start>[^()|]+)|(?P<end>[^()|]+)\)")
_EMPTY = ("-", "_", "*")
_WORD = 3


def conll_chunks(text: str) -> Iterator[Chunk | DataProblem]:
    """A chunk for each part; a part whose brackets do not close is a problem."""
    name, part, first, lines = "", "", 0, list[str]()
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if match := _BEGIN.match(line):
            name, part, first, lines, inside = match.group(1).strip(), match.group(2) or "", number, [], True
        elif line.startswith("#end document"):
            yield _part(name, part, first, lines)
            inside = False
        elif inside:
            lines.append(line.rstrip("\r"))
    if inside:
        yield DataProblem(first, name, "no '#end document' follows; the file was cut off")


def _part(name: str, part: str, first: int, lines: list[str]) -> Chunk | DataProblem:
    own = f"{name} part {part}" if part else name
    words: list[str] = []
    at = 0
    edges: list[tuple[int, int, str, int]] = []
    for number, line in enumerate(lines, first + 1):
        columns = line.split()
        if not columns:
            if words and words[-1] != "\n":
                words.append("\n")
                at += 1
            continue
        if line.startswith("#") and columns[0] != _first_column(name):  # a comment, not a token of a document called #1
            continue
        if len(columns) <= _WORD:
            return DataProblem(number, own, f"{len(columns)} columns; the word should be the fourth and the brackets the last")
        if words and words[-1] != "\n":
            words.append(" ")
            at += 1
        words.append(columns[_WORD])
        edges.append((at, at + len(columns[_WORD]), columns[-1], number))
        at += len(columns[_WORD])
    try:
        clusters = _clusters(edges, own)
    except BadChunk as error:
        return DataProblem(first, own, str(error))
    return Chunk(first, own, own, "".join(words).rstrip("\n"), clusters)


def _clusters(edges: list[tuple[int, int, str, int]], own: str) -> tuple[tuple[Mention, ...], ...]:
    open_at: dict[str, list[int]] = {}
    found: dict[str, dict[tuple[int, int], Mention]] = {}
    taken: set[tuple[int, int]] = set()

    def close(entity: str, start: int, end: int) -> None:
        if (start, end) not in taken or (start, end) in found.get(entity, {}):  # the first of two entities keeps a shared span
            found.setdefault(entity, {})[start, end] = Mention(start, end, f"{own}#{entity}")
            taken.add((start, end))

    for start, end, column, number in edges:
        if column in _EMPTY:
            continue
        for match in _BRACKET.finditer(column):
            if match["open"] is not None:
                close(match["open"], start, end)
            elif match["start"] is not None:
                open_at.setdefault(match["start"], []).append(start)
            elif not open_at.get(match["end"]):
                raise BadChunk(f"line {number} closes {match['end']}, which is not open")
            else:
                close(match["end"], open_at[match["end"]].pop(), end)
    if left := [entity for entity, starts in open_at.items() if starts]:
        raise BadChunk(f"the bracket of {left[0]} does not close")
    return tuple(tuple(spans.values()) for spans in found.values())


def write_conll(path: Path, documents: Iterable[CorefDocument]) -> None:
    """Tokens end at blanks and at edges of mentions; blanks themselves are not in the format."""
    lines: list[str] = []
    for document in documents:
        _refuse_losses(path, document)
        found = _PART_ID.fullmatch(document.id)
        name, part = (found["name"], found["part"]) if found else (document.id, "")
        numbers = {entity: number for number, entity in enumerate(dict.fromkeys(m.entity for m in document.mentions))}
        lines.append(f"#begin document ({name});{part and f' part {part}'}")
        for sentence in sentences(document):
            for place, (start, end) in enumerate(sentence):
                column = _column(document, start, end, numbers)
                lines.append(f"{_first_column(name)}\t{int(part or 0)}\t{place}\t{document.text[start:end]}\t{column}")
            lines.append("")
        lines.append("#end document")
    write_text(path, "\n".join(lines) + "\n")


def _first_column(name: str) -> str:
    """The name of a document, without blanks."""
    return "_".join(name.split())


def _refuse_losses(path: Path, document: CorefDocument, *, shared_token: bool = False) -> None:
    """An error where the columns cannot hold an id or a mention.

    Brackets do not say which of an entity's open mentions they close: the one opened last is taken. Where brackets close before
    others open (`shared_token`), two mentions may cross in one token.
    """
    if not document.id or document.id != document.id.strip() or "\n" in document.id:
        raise _refused(path, document, "its id is empty, has a line break, or begins or ends with a blank")
    text, ends = document.text, {start: end for sentence in sentences(document) for start, end in sentence}
    for place, first in enumerate(document.mentions):
        form = text[first.start : first.end]
        if form != form.strip():
            raise _refused(path, document, f"it has the mention {form!r}, which begins or ends with a blank")
        for second in document.mentions[place + 1 :]:
            if second.start >= first.end:
                break
            crossing = first.start < second.start and first.end < second.end and first.entity == second.entity
            if crossing and not (shared_token and ends.get(second.start) == first.end):
                other = text[second.start : second.end]
                raise _refused(path, document, f"one entity has the mentions {form!r} and {other!r}, which cross")


def _refused(path: Path, document: CorefDocument, why: str) -> CoreferenceDataError:
    return CoreferenceDataError(f"The document {document.id!r} cannot be written as {path.suffix}: {why}; write .jsonl instead.")


def sentences(document: CorefDocument) -> Iterator[list[tuple[int, int]]]:
    """The tokens of each line of a text: cut at blanks and at edges of mentions."""
    edges = {edge for mention in document.mentions for edge in mention.span}
    at = 0
    for line in document.text.split("\n"):
        tokens: list[tuple[int, int]] = []
        for word in re.finditer(r"\S+", line):
            cuts = [word.start() + at, *sorted(e for e in edges if word.start() + at < e < word.end() + at), word.end() + at]
            tokens += list(pairwise(cuts))
        if tokens:
            yield tokens
        at += len(line) + 1


def _column(document: CorefDocument, start: int, end: int, numbers: dict[str, int]) -> str:
    marks = []
    for mention in document.mentions:  # outer mentions first, so that brackets nest
        number = numbers[mention.entity]
        if mention.start == start:
            marks.append(f"({number})" if mention.end == end else f"({number}")
    closing = [m for m in document.mentions if m.end == end and m.start < start]
    marks += [f"{numbers[m.entity]})" for m in sorted(closing, key=lambda m: -m.start)]
    return "|".join(marks) or "-"


_KINDS = {"PROPN": "name", "NOUN": "noun", "PRON": "pronoun"}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}
_ENTITY = re.compile(r"\((?P<start>[^()]+)(?P<whole>\))?|(?P<end>[^()]+)\)")
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
    contracted: int = 0


_INDEX = re.compile(r"[0-9]{1,9}([-.][0-9]{1,9})?")


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
    if not _INDEX.fullmatch(index):
        raise BadChunk(f"the id {index!r} is not a number")
    entries = dict(entry.partition("=")[::2] for entry in misc.split("|"))
    joined = "SpaceAfter" in entries
    start: int | None
    if "-" in index:  # a contracted word: its characters occur once, for all its syntactic words
        state.covered = int(index.split("-")[1])
        state.contracted = _append(state, form, joined)
        return
    if "." in index:
        start = end = None
    elif int(index) <= state.covered:
        end = len(state.text)
        start = state.contracted
    else:
        start = _append(state, form, joined)
        end = len(state.text)
    for opened in (one for stack in state.open.values() for one in stack):
        opened.tags.append(tag)
        opened.end = end if end is not None else opened.end
    for match in _ENTITY.finditer(entries.get("Entity", "")):
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
        _refuse_losses(path, document, shared_token=True)
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
