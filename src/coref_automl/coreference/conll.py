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
from collections.abc import Iterator
from dataclasses import dataclass

from coref_automl.coreference.documents import BadChunk, Chunk, Mention, Span
from coref_automl.corpus.batch import RowProblem

_BEGIN = re.compile(r"#begin document \(?(.*?)\)?;?(?:\s*part\s+(\d+))?\s*$")
_BRACKET = re.compile(r"\((?P<start>[^()|]+)(?P<whole>\))?|(?P<end>[^()|]+)\)")
_PART = re.compile(r"^(?P<entity>.*?)\[(?P<part>\d+)/(?P<of>\d+)\]$")
_INDEX = re.compile(r"[0-9]{1,9}([-.][0-9]{1,9})?")
_WORD = 3
_COLUMNS = 10
_KINDS = {"PROPN": "name", "NOUN": "noun", "PRON": "pronoun"}


@dataclass(slots=True)
class _OpenMention:
    """A mention whose bracket is open: its characters so far (none at an empty node), the number of its head, its words' tags."""

    start: int | None
    end: int | None
    head: int
    tags: list[str]


class _DocumentBuilder:
    """Collects the words and mentions of one document; `gap` separates the next word."""

    def __init__(self, name: str, row: int) -> None:
        self.name, self.row = name, row
        self.text = self.gap = ""
        self._open: dict[str, list[_OpenMention]] = {}
        self._parts: dict[tuple[str, int], list[tuple[Span, str]]] = {}
        self._kinds: dict[Span, str] = {}
        self._clusters: dict[str, list[Span]] = {}

    def append(self, form: str, gap: str = " ") -> int:
        """Add a word to the text; return where it begins."""
        self.text, self.gap = self.text + self.gap + form, gap
        return len(self.text) - len(form)

    def end_sentence(self) -> None:
        self.gap = "\n" if self.text else ""

    def annotate(self, start: int | None, end: int | None, brackets: str, *, tag: str = "", fields: bool = False) -> None:
        """Open and close the mentions of a token; with `fields` a bracket is `(entity-type-head-...`."""
        for mention in (mention for stack in self._open.values() for mention in stack):
            mention.tags.append(tag)
            mention.end = end if end is not None else mention.end
        for match in _BRACKET.finditer(brackets):
            if match["start"] is not None:
                name, *rest = match["start"].split("-") if fields else [match["start"]]
                head = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 1
                mention = _OpenMention(start, end, head, [tag])
                if match["whole"]:
                    self._close(name, mention)
                else:
                    self._open.setdefault(name, []).append(mention)
            elif stack := self._open.get(match["end"]):
                self._close(match["end"], stack.pop())
            else:
                raise BadChunk(f"a bracket closes {match['end']}, which is not open")

    def _close(self, name: str, mention: _OpenMention) -> None:
        if mention.start is None or mention.end is None:
            return
        span, kind = (mention.start, mention.end), _KINDS.get(mention.tags[min(mention.head, len(mention.tags)) - 1], "")
        if part := _PART.match(name):
            name, count = part["entity"], int(part["of"])
            parts = self._parts.setdefault((name, count), [])
            parts.append((span, kind))
            if int(part["part"]) < count:
                return
            span, kind = max(parts, key=lambda part: (part[0][1] - part[0][0], -part[0][0]))
            del self._parts[name, count]
        if span not in self._kinds:  # the first of two entities keeps a shared span
            self._kinds[span] = kind
            self._clusters.setdefault(name, []).append(span)

    def chunk(self, prefix: str = "") -> Chunk | RowProblem:
        if unclosed := [name for name, stack in self._open.items() if stack]:
            return RowProblem(self.row, self.name, f"the bracket of {unclosed[0]} does not close")
        clusters = tuple(
            tuple(Mention(*span, prefix + entity, self._kinds[span]) for span in spans)
            for entity, spans in self._clusters.items()
        )
        return Chunk(self.row, self.name, self.name, self.text, clusters)


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
                document.annotate(start, len(document.text), columns[-1])
            except BadChunk as error:
                yield RowProblem(number, document.name, str(error))
                document = None
    if document is not None:
        yield RowProblem(document.row, document.name, "no '#end document' follows; the file was cut off")


def corefud_chunks(text: str) -> Iterator[Chunk | RowProblem]:
    document: _DocumentBuilder | None = _DocumentBuilder("document", 1)
    contracted, covered = 0, -1
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
            covered = -1
        else:
            try:
                contracted, covered = _read_token(document, line.split("\t"), contracted, covered)
            except BadChunk as error:
                yield RowProblem(number, document.name, str(error))
                document = None
    if document is not None and document.text:
        yield document.chunk()


def _read_token(document: _DocumentBuilder, columns: list[str], contracted: int, covered: int) -> tuple[int, int]:
    """Read one line. All syntactic words of a contracted word share its characters: `contracted` is where these begin, `covered`
    the number of its last word; both are returned, updated."""
    if len(columns) != _COLUMNS:
        raise BadChunk(f"{len(columns)} columns instead of {_COLUMNS}")
    index, form, tag, misc = columns[0], columns[1], columns[3], columns[9]
    if not _INDEX.fullmatch(index):
        raise BadChunk(f"the id {index!r} is not a number")
    entries = dict(entry.partition("=")[::2] for entry in misc.split("|"))
    gap = "" if "SpaceAfter" in entries else " "
    if "-" in index:
        return document.append(form, gap), int(index.split("-")[1])
    start: int | None = None
    if "." not in index:
        start = contracted if int(index) <= covered else document.append(form, gap)
    end = None if start is None else len(document.text)
    document.annotate(start, end, entries.get("Entity", ""), tag=tag, fields=True)
    return contracted, covered
