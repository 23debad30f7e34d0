"""Coreference data. In: JSON lines, CoNLL-2012 or CorefUD's CoNLL-U. Out: documents, and every problem with its reason.

Rows of one document (the chunks of a novel) are joined in file order, and an entity's name means the same entity in all of them.
A bad mention makes its whole row a problem: the other offsets cannot be trusted, and text without its mentions would teach that
there are none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from coref_automl.base.errors import CoreferenceDataError
from coref_automl.base.guard import read_whole, refuse_special
from coref_automl.base.korean import composed
from coref_automl.base.records import grouped
from coref_automl.base.store import lone_surrogate
from coref_automl.corpus.batch import RowProblem, rows_of
from coref_automl.corpus.formats import BROKEN, kind_of, opened, stem_of
from coref_automl.extras.coreference.conll import conll_chunks, corefud_chunks
from coref_automl.extras.coreference.documents import GENERAL, BadChunk, Chunk, CorefDocument, Mention, in_order

ENDINGS = (".jsonl", ".conll", ".conllu")
JOINT = "\n"
"""The separator between two joined chunks."""
_NAMED = re.compile(r"(?P<scheme>[a-z][a-z0-9-]*)=(?P<file>.+)")
_LISTED = 3
_PROBLEMS = 100_000


@dataclass(frozen=True, slots=True)
class CorefData:
    """The documents of a file. `notes` counts what was corrected while reading, by reason."""

    name: str
    documents: tuple[CorefDocument, ...]
    problems: tuple[RowProblem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mentions(self) -> int:
        return sum(len(document.mentions) for document in self.documents)


def read_coref(name: str | Path, *, skip_bad: bool = False) -> CorefData:
    """Read the documents of a file. A bad row is an error that names it or, with `skip_bad`, is listed in the problems."""
    data = inspect_coref(name)
    if data.problems and not skip_bad:
        raise bad_rows(data)
    if not data.mentions:
        raise CoreferenceDataError(f"{name} has no mentions; pass a file with annotated clusters.")
    return data


def read_schemes(named: Sequence[str], *, skip_bad: bool = False, default: str = GENERAL) -> CorefData:
    """Read the documents of several files, each `SCHEME=FILE`, or a file alone, which is under the default scheme."""
    files = []
    for name in named:
        match = _NAMED.fullmatch(name)
        scheme, path = (match["scheme"], match["file"]) if match else (default, name)
        data = read_coref(path, skip_bad=skip_bad)
        files.append(replace(data, documents=tuple(replace(document, scheme=scheme) for document in data.documents)))
    count = Counter(document.id for data in files for document in data.documents)
    if repeated := [name for name, times in count.items() if times > 1]:
        raise CoreferenceDataError(f"{len(repeated)} documents are in two files ({repeated[0]!r}); give each an id of its own.")
    fields = ("documents", "problems", "notes")
    joined = {field: tuple(chain.from_iterable(getattr(data, field) for data in files)) for field in fields}
    return CorefData("+".join(data.name for data in files), **joined)


def bad_rows(data: CorefData) -> CoreferenceDataError:
    listed = "; ".join(str(problem) for problem in data.problems[:_LISTED])
    more = f"; and {len(data.problems) - _LISTED:,} more" if len(data.problems) > _LISTED else ""
    return CoreferenceDataError(f"{data.name}: {listed}{more}. Correct the file, or skip these rows: --skip-bad.")


def inspect_coref(name: str | Path) -> CorefData:
    path = Path(name)
    kind = kind_of(path).lower()
    if kind not in ENDINGS:
        raise CoreferenceDataError(f"{name} is not a .jsonl, .conll or .conllu file (also .xz, .gz, .bz2, .zst); convert it.")
    if kind == ".jsonl":
        parsed = _jsonl_chunks(path)
    else:
        parsed = conll_chunks(_text(path)) if kind == ".conll" else corefud_chunks(_text(path))
    notes: Counter[str] = Counter()
    chunks: list[Chunk] = []
    problems: list[RowProblem] = []
    for item in parsed:
        if len(problems) > _PROBLEMS:
            raise CoreferenceDataError(f"{path} has over {_PROBLEMS:,} bad rows, {problems[0]} first; pass the right file.")
        if isinstance(item, RowProblem):
            problems.append(item)
            continue
        try:
            chunks.append(_checked(item, notes))
        except BadChunk as error:
            problems.append(RowProblem(item.row, item.id, str(error)))
    chunks = _without_duplicates(chunks, problems)
    problems.sort(key=lambda problem: problem.row)
    listed = tuple(f"{count:,} {reason}" for reason, count in sorted(notes.items()))
    return CorefData(stem_of(path, ENDINGS), tuple(_joined(chunks)), tuple(problems), listed)


def _jsonl_chunks(path: Path) -> Iterator[Chunk | RowProblem]:
    for number, raw in rows_of(str(path), "text", CoreferenceDataError):
        if isinstance(raw, str):
            yield RowProblem(number, "", raw)
            continue
        try:
            yield _chunk(raw, number)
        except BadChunk as error:
            yield RowProblem(number, _text_of(raw, "doc_id", _text_of(raw, "id", "")), str(error))


def _chunk(raw: dict[str, Any], number: int) -> Chunk:
    if not isinstance(raw.get("text"), str) or not isinstance(raw.get("clusters"), list):
        raise BadChunk("a row needs doc_id, text and clusters: [[{start, end, entity}]]")
    if (half := lone_surrogate(raw["text"])) is not None:
        raise BadChunk(f"character {half} of the text is half of a surrogate pair")
    name = _text_of(raw, "doc_id", _text_of(raw, "id", str(number)))
    clusters: list[tuple[Mention, ...]] = []
    mismatches: list[str] = []
    for cluster_number, cluster in enumerate(raw["clusters"], 1):
        try:
            members = [(entry["start"], entry["end"], entry) for entry in cluster]
        except (TypeError, KeyError) as error:
            raise BadChunk(f"cluster {cluster_number} holds a mention without start and end") from error
        if any(type(edge) is not int for start, end, _ in members for edge in (start, end)):
            raise BadChunk(f"cluster {cluster_number} has an offset that is not a whole number")
        for start, end, entry in members:
            actual, form = raw["text"][max(0, start) : end], entry.get("text")
            if form is not None and form != actual:
                mismatches.append(f"at {start}:{end} the text is {actual!r}, not {form!r}")
        clusters.append(
            tuple(
                Mention(start, end, _text_of(entry, "entity", f"{name}#{cluster_number}"), _text_of(entry, "kind", ""))
                for start, end, entry in members
            )
        )
    if mismatches:
        raise BadChunk(f"{len(mismatches)} of {sum(map(len, clusters))} mentions do not match the text ({mismatches[0]})")
    document = _text_of(raw, "document", _text_of(raw, "novel", name))
    optional = {key: _text_of(raw, key, "") for key in ("genre", "origin")}
    return Chunk(number, name, document, raw["text"], tuple(clusters), **optional)


def _text_of(row: dict[str, Any], name: str, default: str) -> str:
    """A row's value as text; a missing or null one is the default."""
    value = row.get(name)
    return default if value is None else str(value)


def _composed(chunk: Chunk, notes: Counter[str]) -> Chunk:
    """Compose the text into whole syllables if all mentions begin and end with one."""
    text, offsets = composed(chunk.text)
    edges = {edge for cluster in chunk.clusters for m in cluster for edge in m.span}
    new = {old: index for index, old in enumerate(offsets) if old in edges}
    if text == chunk.text or edges - new.keys():
        return chunk
    notes["documents in decomposed letters (NFD), read as syllables"] += 1
    clusters = (tuple(replace(m, start=new[m.start], end=new[m.end]) for m in cluster) for cluster in chunk.clusters)
    return replace(chunk, text=text, clusters=tuple(clusters))


def _checked(chunk: Chunk, notes: Counter[str]) -> Chunk:
    """Check a chunk and drop repeated mentions; raise the reason why it cannot be used."""
    chunk = _composed(chunk, notes)
    owner, entities = dict[tuple[int, int], int](), dict[str, int]()
    for number, cluster in enumerate(chunk.clusters, 1):
        for mention in cluster:
            if not 0 <= mention.start < mention.end <= len(chunk.text):
                raise BadChunk(f"mention {mention.start}:{mention.end} lies outside the text of {len(chunk.text):,} characters")
            form = chunk.text[mention.start : mention.end]
            if owner.setdefault(mention.span, number) != number:
                raise BadChunk(f"the mention {form!r} at {mention.start} is in clusters {owner[mention.span]} and {number}")
            if entities.setdefault(mention.entity, number) != number:
                raise BadChunk(f"the entity {mention.entity!r} has clusters {entities[mention.entity]} and {number}; join them")
        if len(mixed := sorted({mention.entity for mention in cluster})) > 1:
            raise BadChunk(f"cluster {number} mixes the entities {', '.join(mixed)}")
    if repeated := _size(chunk) - len(owner):
        notes["mentions repeated in their cluster, counted once"] += repeated
    clusters = (tuple({mention.span: mention for mention in cluster}.values()) for cluster in chunk.clusters)
    return replace(chunk, clusters=tuple(clusters))


def _without_duplicates(chunks: Sequence[Chunk], problems: list[RowProblem]) -> list[Chunk]:
    """Keep one chunk per id of a document: of two with one text the one with more mentions, else the first."""
    best: dict[tuple[str, str], Chunk] = {}
    for chunk in chunks:
        key = chunk.document, chunk.id
        earlier = best.setdefault(key, chunk)
        if earlier is chunk:
            continue
        better = earlier.text == chunk.text and _size(chunk) > _size(earlier)
        best[key], dropped = (chunk, earlier) if better else (earlier, chunk)
        problems.append(RowProblem(dropped.row, dropped.id, f"duplicate id of row {best[key].row}"))
    return sorted(best.values(), key=lambda chunk: chunk.row)


def _size(chunk: Chunk) -> int:
    return sum(len(cluster) for cluster in chunk.clusters)


def _joined(chunks: Iterable[Chunk]) -> Iterator[CorefDocument]:
    for name, parts in grouped(chunks, attrgetter("document")).items():
        texts, mentions, shift = [], list[Mention](), 0
        for chunk in parts:
            for cluster in chunk.clusters:
                mentions += [Mention(m.start + shift, m.end + shift, m.entity, m.kind) for m in cluster]
            texts.append(chunk.text)
            shift += len(chunk.text) + len(JOINT)
        yield CorefDocument(name, JOINT.join(texts), in_order(mentions), parts[0].genre, parts[0].origin)


def _text(path: Path) -> str:
    refuse_special(path)
    try:
        with opened(path) as stream:
            return read_whole(path, stream).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CoreferenceDataError(f"{path} is not UTF-8 (at byte {error.start:,}); save it as UTF-8.") from error
    except BROKEN as error:  # cannot be opened, or its compressed bytes are damaged
        reason = getattr(error, "strerror", None) or error
        raise CoreferenceDataError(f"Cannot read {path} ({reason}); give the path of an annotated file.") from error
