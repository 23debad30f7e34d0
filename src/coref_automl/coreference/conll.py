"""CoNLL-2012. In: a file with a token a line and brackets in the last column. Out: chunks; and the same file from documents.

The word is the fourth column and the annotation the last one. The text is the words with blanks between them and a line break
after each sentence; parts of one document are chunks of it, with entities of their own, as the format defines them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from coref_automl.coreference.data import BadChunk, Chunk, CorefDocument, DataProblem, Mention
from coref_automl.store import write_text

_BEGIN = re.compile(r"#begin document \(?(.*?)\)?;?(?:\s*part\s+(\d+))?\s*$")
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
        if line.startswith("#"):
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
        numbers = {entity: number for number, entity in enumerate(dict.fromkeys(m.entity for m in document.mentions))}
        lines.append(f"#begin document ({document.id}); part 000")
        for sentence in sentences(document):
            for place, (start, end) in enumerate(sentence):
                column = _column(document, start, end, numbers)
                lines.append(f"{document.id.replace(' ', '_')}\t0\t{place}\t{document.text[start:end]}\t{column}")
            lines.append("")
        lines.append("#end document")
    write_text(path, "\n".join(lines) + "\n")


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
