"""The column formats of coreference: CoNLL-2012 and CorefUD's CoNLL-U. In: a file's text. Out: chunks.

CoNLL-2012: the word is the fourth column and the annotation the last one. Words are joined by blanks, sentences by line breaks;
parts of one document are chunks of it, with entities of their own, as the format defines them.

CorefUD: `Entity=(e1-person-1-...` in the MISC column; the text follows SpaceAfter=No. A mention in several parts (`e1[1/2]`) is
read as its longest part; one of an empty node (a zero, such as a dropped subject) covers no character and is dropped. Kinds come
from the tag of the mention's head: PROPN name, NOUN noun, PRON pronoun.

A closing bracket does not say which of an entity's open mentions it closes: the last one opened is assumed. At one token,
brackets close before others open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from coref_automl.base.records import grouped
from coref_automl.corpus.batch import RowProblem
from coref_automl.extras.coreference.documents import BadChunk, Chunk, Mention, Span

_BEGIN = re.compile(r"#begin document \(?(.*?)\)?;?(?:\s*part\s+(\d+))?\s*$")
_BRACKET = re.compile(r"(?P<opens>\()?(?P<name>[^()|]+)(?P<closes>\))?")
_PART = re.compile(r"^(?P<entity>.*?)\[(?P<part>\d+)/(?P<of>\d+)\]$")
_INDEX = re.compile(r"[0-9]{1,9}([-.][0-9]{1,9})?")
_WORD = 3
_COLUMNS = 10
_KINDS = {"PROPN": "name", "NOUN": "noun", "PRON": "pronoun"}


@dataclass(slots=True)
class _Bracketed:
    """A mention as far as it is read: the number of its head, the tags of its words, and where in the text they are, part by part
    (an empty node is nowhere)."""

    entity: str
    head: int
    tags: list[str] = field(default_factory=list)
    parts: list[list[Span]] = field(default_factory=list)

    def read(self, span: Span | None, tag: str) -> None:
        self.tags.append(tag)
        self.parts[-1] += [span] if span else []

    def mention(self, prefix: str) -> Mention | None:
        """The longest part of the mention; None if it has no character."""
        parts = [(words[0][0], words[-1][1]) for words in self.parts if words]
        kind = _KINDS.get(self.tags[min(self.head, len(self.tags)) - 1], "")
        return Mention(*max(parts, key=lambda part: part[1] - part[0]), prefix + self.entity, kind) if parts else None


class _DocumentBuilder:
    """Collects the words and mentions of one document; `gap` separates the next word. All syntactic words of a contracted word
    share its characters: `contracted` is where these begin, `covered` the number of its last word."""

    def __init__(self, name: str, row: int) -> None:
        self.name, self.row = name, row
        self.text = self.gap = ""
        self.contracted, self.covered = 0, -1
        self._open = defaultdict[str, list[_Bracketed]](list)
        self._between_parts = defaultdict[str, list[_Bracketed]](list)
        self._read: list[_Bracketed] = []

    def append(self, form: str, gap: str = " ") -> int:
        """Add a word to the text; return where it begins."""
        self.text, self.gap = self.text + self.gap + form, gap
        return len(self.text) - len(form)

    def end_sentence(self) -> None:
        self.gap, self.covered = "\n" if self.text else "", -1

    def annotate(self, span: Span | None, brackets: str, *, tag: str = "", fields: bool = False) -> None:
        """Open and close the mentions of a token; with `fields` a bracket is `(entity-type-head-...`."""
        for mention in (mention for stack in self._open.values() for mention in stack):
            mention.read(span, tag)
        for match in _BRACKET.finditer(brackets):
            name, *rest = match["name"].split("-") if fields else [match["name"]]
            numbered = _PART.match(name)
            entity, part, count = (numbered["entity"], int(numbered["part"]), int(numbered["of"])) if numbered else (name, 1, 1)
            if match["opens"]:
                head = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 1
                begun = self._between_parts[entity] if part > 1 else []
                mention = begun.pop() if begun else _Bracketed(entity, head)
                mention.parts.append([])
                mention.read(span, tag)
                self._open[name].append(mention)
            if match["closes"]:
                if not self._open[name]:
                    raise BadChunk(f"a bracket closes {name}, which is not open")
                mention = self._open[name].pop()
                if part < count:
                    self._between_parts[entity].append(mention)
                if len(mention.parts) == 1:
                    self._read.append(mention)

    def chunk(self, prefix: str = "") -> Chunk | RowProblem:
        if unclosed := [name for name, stack in self._open.items() if stack]:
            return RowProblem(self.row, self.name, f"the bracket of {unclosed[0]} does not close")
        mentions: dict[Span, Mention] = {}
        for mention in filter(None, (bracketed.mention(prefix) for bracketed in self._read)):
            mentions.setdefault(mention.span, mention)  # the first of two entities keeps a shared span
        clusters = grouped(mentions.values(), attrgetter("entity")).values()
        return Chunk(self.row, self.name, self.name, self.text, tuple(map(tuple, clusters)))


def conll_chunks(text: str) -> Iterator[Chunk | RowProblem]:
    """Read one chunk per part; a part whose brackets do not close is a problem."""
    document, first_column = None, ""
    for number, line in enumerate(text.split("\n"), 1):
        if match := _BEGIN.match(line):
            name, part = match.group(1).strip(), match.group(2)
            document = _DocumentBuilder(f"{name} part {part}" if part else name, number)
            first_column = "_".join(name.split())
        elif document is None:
            continue
        elif line.startswith("#end document"):
            yield document.chunk(f"{document.name}#")
            document = None
        elif not (columns := line.split()):
            document.end_sentence()
        elif not line.startswith("#") or columns[0] == first_column:  # else a comment, not a token of a document called #1
            try:
                if len(columns) <= _WORD:
                    raise BadChunk(f"{len(columns)} columns; the word should be the fourth and the brackets the last")
                start = document.append(columns[_WORD])
                document.annotate((start, len(document.text)), columns[-1])
            except BadChunk as error:
                yield RowProblem(number, document.name, str(error))
                document = None
    if document is not None:
        yield RowProblem(document.row, document.name, "no '#end document' follows; the file was cut off")


def corefud_chunks(text: str) -> Iterator[Chunk | RowProblem]:
    document: _DocumentBuilder | None = _DocumentBuilder("document", 1)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if line.startswith("# newdoc"):
            if document is not None and document.text:
                yield document.chunk()
            document = _DocumentBuilder(line.partition("=")[2].strip() or f"document {number}", number)
        elif document is None or line.startswith("#"):
            continue
        elif not line:
            document.end_sentence()
        else:
            try:
                _read_token(document, line.split("\t"))
            except BadChunk as error:
                yield RowProblem(number, document.name, str(error))
                document = None
    if document is not None and document.text:
        yield document.chunk()


def _read_token(document: _DocumentBuilder, columns: list[str]) -> None:
    if len(columns) != _COLUMNS:
        raise BadChunk(f"{len(columns)} columns instead of {_COLUMNS}")
    index, form, tag, misc = columns[0], columns[1], columns[3], columns[9]
    if not _INDEX.fullmatch(index):
        raise BadChunk(f"the id {index!r} is not a number")
    entries = dict(entry.partition("=")[::2] for entry in misc.split("|"))
    gap = "" if "SpaceAfter" in entries else " "
    if "-" in index:
        document.contracted, document.covered = document.append(form, gap), int(index.split("-")[1])
        return
    span: Span | None = None
    if "." not in index:
        start = document.contracted if int(index) <= document.covered else document.append(form, gap)
        span = start, len(document.text)
    document.annotate(span, entries.get("Entity", ""), tag=tag, fields=True)
