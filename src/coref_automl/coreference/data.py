"""Coreference data. In: JSON lines, CoNLL-2012 or CorefUD's CoNLL-U. Out: documents, and every problem with its reason.

Rows of one document (the chunks of a novel) are joined in file order, and an entity's name means the same entity in all of them.
A row with a bad mention is a problem as a whole: its other offsets cannot be trusted, and text without its mentions would teach
that there are none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coref_automl.coreference.conll import conll_chunks, corefud_chunks
from coref_automl.coreference.documents import GENERAL, BadChunk, Chunk, CorefDocument, Mention, in_order
from coref_automl.corpus.batch import RowProblem, rows_of
from coref_automl.corpus.formats import BROKEN, kind_of, opened, stem_of
from coref_automl.errors import CoreferenceDataError
from coref_automl.guard import read_whole, refuse_special
from coref_automl.korean import composed
from coref_automl.store import lone_surrogate

ENDINGS = (".jsonl", ".conll", ".conllu")
JOINT = "\n"
"""The separator between two joined chunks."""
_NAMED = re.compile(r"(?P<scheme>[a-z][a-z0-9-]*)=(?P<file>.+)")
_LISTED = 3
_PROBLEMS = 100_000


@dataclass(frozen=True, slots=True)
class CorefData:
    """What a file holds. `notes` counts what was read otherwise than written, by reason."""

    name: str
    documents: tuple[CorefDocument, ...]
    problems: tuple[RowProblem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mentions(self) -> int:
        return sum(len(document.mentions) for document in self.documents)


def read_coref(name: str | Path, *, skip_bad: bool = False) -> CorefData:
    """The documents of a file. A bad row is an error that names it, or is skipped and kept among the problems."""
    data = inspect_coref(name)
    if data.problems and not skip_bad:
        raise bad_rows(data)
    if not data.mentions:
        raise CoreferenceDataError(f"{name} has no mentions; pass a file with annotated clusters.")
    return data


def read_schemes(named: Sequence[str], *, skip_bad: bool = False, default: str = GENERAL) -> CorefData:
    """The documents of several files, each `SCHEME=FILE` or a file by itself, which is marked under the default scheme."""
    read = []
    for name in named:
        found = _NAMED.fullmatch(name)
        scheme, path = (found["scheme"], found["file"]) if found else (default, name)
        data = read_coref(path, skip_bad=skip_bad)
        read.append(replace(data, documents=tuple(replace(document, scheme=scheme) for document in data.documents)))
    count = Counter(document.id for data in read for document in data.documents)
    if twice := [name for name, times in count.items() if times > 1]:
        raise CoreferenceDataError(f"{len(twice)} documents are in two files ({twice[0]!r}); give each an id of its own.")
    return CorefData(
        "+".join(data.name for data in read),
        *(tuple(one for data in read for one in getattr(data, part)) for part in ("documents", "problems", "notes")),
    )


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
        chunked = _jsonl_chunks(path)
    else:
        chunked = conll_chunks(_text(path)) if kind == ".conll" else corefud_chunks(_text(path))
    notes: Counter[str] = Counter()
    chunks: list[Chunk] = []
    problems: list[RowProblem] = []
    for found in chunked:
        if len(problems) > _PROBLEMS:
            raise CoreferenceDataError(f"{path} has over {_PROBLEMS:,} bad rows, {problems[0]} first; pass the right file.")
        if isinstance(found, RowProblem):
            problems.append(found)
            continue
        try:
            chunks.append(_checked(found, notes))
        except BadChunk as error:
            problems.append(RowProblem(found.row, found.id, str(error)))
    chunks = _without_copies(chunks, problems)
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
            yield RowProblem(number, str(_given(raw, "doc_id", _given(raw, "id", ""))), str(error))


def _chunk(raw: dict[str, Any], number: int) -> Chunk:
    if not isinstance(raw.get("text"), str) or not isinstance(raw.get("clusters"), list):
        raise BadChunk("a row needs doc_id, text and clusters: [[{start, end, entity}]]")
    if (half := lone_surrogate(raw["text"])) is not None:
        raise BadChunk(f"character {half} of the text is half of a surrogate pair")
    name = str(_given(raw, "doc_id", _given(raw, "id", number)))
    clusters: list[tuple[Mention, ...]] = []
    strays: list[str] = []
    for place, cluster in enumerate(raw["clusters"], 1):
        try:
            members = [(entry["start"], entry["end"], entry) for entry in cluster]
        except (TypeError, KeyError) as error:
            raise BadChunk(f"cluster {place} holds a mention without start and end") from error
        if any(type(edge) is not int for start, end, _ in members for edge in (start, end)):
            raise BadChunk(f"cluster {place} has an offset that is not a whole number")
        for start, end, entry in members:
            found, form = raw["text"][max(0, start) : end], _given(entry, "text", None)
            if form is not None and form != found:
                strays.append(f"at {start}:{end} the text is {found!r}, not {form!r}")
        clusters.append(
            tuple(
                Mention(start, end, str(_given(entry, "entity", f"{name}#{place}")), str(_given(entry, "kind", "")))
                for start, end, entry in members
            )
        )
    if strays:
        raise BadChunk(f"{len(strays)} of {sum(map(len, clusters))} mentions do not match the text ({strays[0]})")
    document = str(_given(raw, "document", _given(raw, "novel", name)))
    said = {key: str(_given(raw, key, "")) for key in ("genre", "origin")}
    return Chunk(number, name, document, raw["text"], tuple(clusters), **said)


def _given(row: dict[str, Any], name: str, default: Any) -> Any:
    """What a row holds under a name; null is nothing."""
    value = row.get(name)
    return default if value is None else value


def _composed(chunk: Chunk, notes: Counter[str]) -> Chunk:
    """The chunk in whole syllables, where all its mentions begin and end with one."""
    text, places = composed(chunk.text)
    edges = {edge for cluster in chunk.clusters for m in cluster for edge in m.span}
    new = {old: place for place, old in enumerate(places) if old in edges}
    if text == chunk.text or edges - new.keys():
        return chunk
    notes["documents in decomposed letters (NFD), read as syllables"] += 1
    clusters = (tuple(replace(m, start=new[m.start], end=new[m.end]) for m in cluster) for cluster in chunk.clusters)
    return replace(chunk, text=text, clusters=tuple(clusters))


def _checked(chunk: Chunk, notes: Counter[str]) -> Chunk:
    """The chunk with each mention once, or the reason why it cannot be used."""
    chunk = _composed(chunk, notes)
    owner, entities = dict[tuple[int, int], int](), dict[str, int]()
    for place, cluster in enumerate(chunk.clusters, 1):
        for mention in cluster:
            if not 0 <= mention.start < mention.end <= len(chunk.text):
                raise BadChunk(f"mention {mention.start}:{mention.end} lies outside the text of {len(chunk.text):,} characters")
            form = chunk.text[mention.start : mention.end]
            if owner.setdefault(mention.span, place) != place:
                raise BadChunk(f"the mention {form!r} at {mention.start} is in clusters {owner[mention.span]} and {place}")
            if entities.setdefault(mention.entity, place) != place:
                raise BadChunk(f"the entity {mention.entity!r} has clusters {entities[mention.entity]} and {place}; join them")
        if len(mixed := sorted({mention.entity for mention in cluster})) > 1:
            raise BadChunk(f"cluster {place} mixes the entities {', '.join(mixed)}")
    if repeated := _size(chunk) - len(owner):
        notes["mentions repeated in their cluster, counted once"] += repeated
    clusters = (tuple({mention.span: mention for mention in cluster}.values()) for cluster in chunk.clusters)
    return replace(chunk, clusters=tuple(clusters))


def _without_copies(chunks: Sequence[Chunk], problems: list[RowProblem]) -> list[Chunk]:
    """One chunk for each id of a document; of two with one text the one with more mentions, the first of equals."""
    best: dict[tuple[str, str], Chunk] = {}
    for chunk in chunks:
        key = chunk.document, chunk.id
        earlier = best.setdefault(key, chunk)
        if earlier is chunk:
            continue
        better = earlier.text == chunk.text and _size(chunk) > _size(earlier)
        best[key], out = (chunk, earlier) if better else (earlier, chunk)
        problems.append(RowProblem(out.row, out.id, f"duplicate id of row {best[key].row}"))
    return sorted(best.values(), key=lambda chunk: chunk.row)


def _size(chunk: Chunk) -> int:
    return sum(len(cluster) for cluster in chunk.clusters)


def _joined(chunks: Iterable[Chunk]) -> Iterator[CorefDocument]:
    parts: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        parts.setdefault(chunk.document, []).append(chunk)
    for name, members in parts.items():
        texts, mentions, shift = [], list[Mention](), 0
        for chunk in members:
            for cluster in chunk.clusters:
                mentions += [Mention(m.start + shift, m.end + shift, m.entity, m.kind) for m in cluster]
            texts.append(chunk.text)
            shift += len(chunk.text) + len(JOINT)
        yield CorefDocument(name, JOINT.join(texts), in_order(mentions), members[0].genre, members[0].origin)


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
